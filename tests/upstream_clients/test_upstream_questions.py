"""Tests of what servers ask while they work on a call: real servers of both eras over each transport, and hand-written
ones."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup
from fake_link import admitted
from hypothesis import given
from hypothesis import strategies as st

from upstream_clients import (
    Asking,
    Question,
    QuestionRefused,
    ToolOutcome,
    ToolSource,
    UpstreamCallError,
    UpstreamSpec,
    UpstreamUnavailable,
    negotiate,
    question_routing,
    questions,
)
from upstream_clients.fair_limiter import FairLimiter
from upstream_clients.question_routing import ConnectionQuestions
from upstream_clients.questions import MAX_QUESTION_DEPTH, MAX_QUESTIONS, MAX_ROUNDS, CallQuestions, check_question
from upstream_clients.testing import AskingSource
from upstream_clients.tools import JsonObject

pytestmark = pytest.mark.anyio

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
APPS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
ELICIT = ["elicitation/create", FORM]
SAMPLE = ["sampling/createMessage", {"messages": [], "maxTokens": 9}]
ROOTS = ["roots/list", {}]
ASKS_ROOTS = {"inputRequests": {"a": {"method": "roots/list"}}}
LINK = {"mode": "url", "message": "Log in", "url": "https://example.com/login", "elicitationId": "e1"}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}


def text(outcome: ToolOutcome) -> str:
    block: dict[str, Any] = outcome.result["content"][0]
    return str(block["text"])


class User:
    """The person of one run. Records the questions, and answers when `free` is set."""

    def __init__(
        self,
        run: str = "run",
        answer: JsonObject | Exception | None = None,
        *,
        hold: bool = False,
        owner: str = "",
        able: bool = True,
    ) -> None:
        self.run = run
        self.owner = owner
        self.able = able
        self.seen: list[Question] = []
        self.taken_back = 0
        self.free = anyio.Event()
        self._answer = ACCEPT if answer is None else answer
        self._asked = anyio.Event()
        if not hold:
            self.free.set()

    @property
    def asking(self) -> Asking:
        return Asking(self.run, self._ask, self.owner, lambda _: self.able)

    async def until_asked(self, count: int = 1) -> None:
        with anyio.fail_after(20):
            while len(self.seen) < count:
                await self._asked.wait()

    async def _ask(self, question: Question) -> JsonObject:
        self.seen.append(question)
        self._asked.set()
        self._asked = anyio.Event()
        try:
            await self.free.wait()
        except BaseException:
            self.taken_back += 1
            raise
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Started:
    """A call in its own task."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.result = ""
        self.error: UpstreamCallError | None = None
        self.scope = anyio.CancelScope()

    async def run(self, call: Callable[[], Awaitable[ToolOutcome]]) -> None:
        with self.scope:
            try:
                self.result = text(await call())
            except UpstreamCallError as error:
                self.error = error
        self.ended.set()

    async def outcome(self) -> Any:
        with anyio.fail_after(20):
            await self.ended.wait()
        if self.error is not None:
            raise self.error
        return json.loads(self.result) if self.result.startswith(("[", "{")) else self.result


def rounds(*each: Any) -> dict[str, Any]:
    return {"rounds": list(each)}


@pytest.fixture
def asking_server() -> Callable[..., UpstreamSpec]:
    script = str(Path(__file__).parent / "servers" / "asking_server.py")
    return lambda *flags, **more: UpstreamSpec("srv", command=sys.executable, args=(script, *flags), **more)


@pytest.fixture
def scene(asking_server: Any, pool_of: Any) -> Callable[..., Any]:
    """`async with scene("modern") as (source, tasks)`: a server that asks, and a group for calls to it."""

    @asynccontextmanager
    async def opened(*flags: str, **more: Any) -> AsyncIterator[tuple[ToolSource, TaskGroup]]:
        async with pool_of(asking_server(*flags, **more)) as pool, anyio.create_task_group() as tasks:
            yield pool.source("srv"), tasks

    return opened


def ask(source: ToolSource, user: User | None, *wanted: Any, **arguments: Any) -> Callable[[], Awaitable[ToolOutcome]]:
    """Return a call of the legacy server's tool that asks these questions."""
    asking = None if user is None else user.asking
    return lambda: source.call_tool("ask", {"questions": wanted, **arguments}, asking=asking)


def begin(tasks: TaskGroup, call: Callable[[], Awaitable[ToolOutcome]]) -> Started:
    started = Started()
    tasks.start_soon(started.run, call)
    return started


async def asked(tasks: TaskGroup, source: ToolSource, user: User, *wanted: Any) -> Started:
    """Begin a call that asks these questions, and return when its person has been asked them."""
    already = len(user.seen)
    started = begin(tasks, ask(source, user, *wanted))
    await user.until_asked(already + len(wanted))
    return started


async def log_of(source: ToolSource) -> Any:
    return json.loads(text(await source.call_tool("log", {})))


# Legacy servers: questions as requests.


async def test_a_question_reaches_its_call_unread_and_so_does_the_answer(scene: Any) -> None:
    wanted = {**FORM, "_meta": {"x": 1}, "fromTheFuture": {"deep": [None, 1.5]}}
    answer = {**ACCEPT, "alsoNew": {"a": [None]}}
    user = User(answer=answer)
    async with scene() as (source, _):
        outcome = await ask(source, user, ["elicitation/create", wanted])()
        assert json.loads(text(outcome)) == [{"result": answer}]
        assert user.seen == [Question("srv", "elicitation/create", wanted)]
        assert (await log_of(source))["capabilities"] == {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {"listChanged": True},
            "extensions": APPS,
        }


async def test_questions_of_one_call_are_open_at_the_same_time(scene: Any) -> None:
    user = User(hold=True)
    async with scene() as (source, tasks):
        started = await asked(tasks, source, user, ELICIT, SAMPLE, ROOTS)
        assert {question.method for question in user.seen} == {ELICIT[0], SAMPLE[0], ROOTS[0]}
        user.free.set()
        assert await started.outcome() == [{"result": ACCEPT}] * 3


async def test_what_cannot_be_answered_is_an_error_that_says_why_and_nothing_of_ours(scene: Any) -> None:
    async with scene() as (source, _):
        for user, error in (
            (User(answer=QuestionRefused("no person is there")), "no person is there"),
            (User(answer=RuntimeError("secret of ours")), "the client could not ask, because of an internal error"),
            (None, "no person can be asked on behalf of this call"),
        ):
            assert json.loads(text(await ask(source, user, ELICIT)())) == [{"error": error}]


async def test_while_no_call_is_in_flight_there_are_no_roots_and_no_user_is_asked(scene: Any) -> None:
    async with scene("roots") as (source, _):
        seen = await log_of(source)
        assert seen["answers"] == {seen["early"]: {"result": {"roots": []}}}
    connection = ConnectionQuestions()
    with pytest.raises(QuestionRefused, match="answered only while a call is in flight"):
        await connection.answer(*ELICIT, None)  # type: ignore[arg-type]


async def test_a_question_that_names_no_call_goes_to_the_run_of_all_calls(scene: Any) -> None:
    older, newer = User(hold=True), User(hold=True)
    async with scene() as (source, tasks):
        first = await asked(tasks, source, older, ELICIT)
        second = begin(tasks, ask(source, newer, SAMPLE))
        await older.until_asked(2)
        assert newer.seen == []
        # The first call ends. The second question stays open, since it may belong to the second call.
        assert text(await source.call_tool("finish", {}, asking=older.asking)) == "ok"
        assert await first.outcome() == "finished"
        older.free.set()
        assert await second.outcome() == [{"result": ACCEPT}]
        assert older.taken_back == 1


async def test_a_question_that_may_be_another_runs_is_refused_and_then_runs_take_turns(scene: Any) -> None:
    async with scene() as (source, tasks):
        ada, bob = User("ada", hold=True), User("bob", {"action": "decline"})
        first = await asked(tasks, source, ada, ELICIT)
        second = begin(tasks, ask(source, bob, ELICIT))
        ((refused),) = await second.outcome()
        assert "no person was asked" in refused["error"]
        assert "repeat" in refused["error"]
        assert bob.seen == []
        # Ada's run was alone when the question came. Bob's call waits for the end of hers, and then asks him.
        again = begin(tasks, ask(source, bob, ELICIT))
        with pytest.raises(UpstreamUnavailable, match="was still busy with calls of other programs"):
            await source.call_tool("log", {}, asking=Asking("cleo", bob.asking.ask), timeout=0.2)
        assert bob.seen == []
        ada.free.set()
        assert await first.outcome() == [{"result": ACCEPT}]
        assert await again.outcome() == [{"result": {"action": "decline"}}]
        assert (len(ada.seen), len(bob.seen)) == (1, 1)


@pytest.mark.parametrize("limit", [None, 1], ids=["taking turns", "maxConcurrentCalls"])
async def test_a_person_who_thinks_delays_a_call_of_another_owner_by_a_second_at_most(
    limit: int | None, scene: Any
) -> None:
    async with scene(max_concurrent_calls=limit) as (source, tasks):
        ada, bob = User("ada", owner="ada", hold=True), User("bob", owner="bob")
        first = await asked(tasks, source, ada, ELICIT)
        # From here on runs take turns.
        ((refused),) = json.loads(text(await ask(source, bob, ELICIT)()))
        assert "no person was asked" in refused["error"]
        began = anyio.current_time()
        await source.call_tool("log", {}, asking=bob.asking)
        assert anyio.current_time() - began < 2 * question_routing.TURN_SECONDS
        ada.free.set()
        assert await first.outcome() == [{"result": ACCEPT}]
        assert (len(ada.seen), ada.taken_back, bob.seen) == (1, 0, [])


async def test_a_question_that_no_client_can_answer_is_refused_when_another_run_waits(scene: Any) -> None:
    async with scene() as (source, tasks):
        ada, bob = User("ada", hold=True, able=False), User("bob")
        first = await asked(tasks, source, ada, ELICIT)
        json.loads(text(await ask(source, bob, ELICIT)()))
        assert ada.taken_back == 0, "with no call waiting it stays open"
        with anyio.fail_after(question_routing.SAME_CALLER_SECONDS / 4):
            assert json.loads(text(await ask(source, bob, ELICIT)())) == [{"result": ACCEPT}]
        ((given_up),) = await first.outcome()
        assert "this client cannot answer" in given_up["error"]
        assert "connect a client that supports elicitation" in given_up["error"]


async def test_the_default_limit_counts_for_each_owner_and_a_limit_of_the_operator_for_all() -> None:
    for limit, is_free in ((None, True), (2, False)):
        gate = FairLimiter(limit)
        async with AsyncExitStack() as held:
            for _ in range(gate.limit):
                await held.enter_async_context(admitted(gate, "ada", "run"))
            with anyio.move_on_after(0.05) as late:
                async with admitted(gate, "bob", "run"):
                    pass
            assert late.cancelled_caught is not is_free
            with anyio.move_on_after(0.05) as late:
                async with admitted(gate, "ada", "run"):
                    pass
            assert late.cancelled_caught


async def test_a_call_that_steps_out_lets_the_next_one_in_and_counts_again_afterwards() -> None:
    gate = FairLimiter(1)
    async with admitted(gate, "ada", "a") as place:
        place.step_out()
        with anyio.fail_after(20):
            async with admitted(gate, "bob", "b"):
                place.step_in()
        with anyio.move_on_after(0.05) as late:
            async with admitted(gate, "bob", "b"):
                pass
        assert late.cancelled_caught
    with anyio.fail_after(20):
        async with admitted(gate, "bob", "b"):
            pass


@pytest.mark.parametrize("how", ["cancelled", "answered"])
async def test_a_call_that_ends_while_its_question_is_open_frees_one_place_and_no_more(how: str, scene: Any) -> None:
    async with scene(max_concurrent_calls=1) as (source, tasks):
        user = User(hold=True)
        first = await asked(tasks, source, user, ELICIT)
        if how == "cancelled":
            first.scope.cancel()
        else:
            await source.call_tool("finish", {}, asking=user.asking)
        with anyio.fail_after(20):
            await first.ended.wait()
        second = begin(tasks, lambda: source.call_tool("ask_late", {}, asking=user.asking))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(UpstreamUnavailable, match="had 1 other calls in flight"):
            await source.call_tool("answer_late", {}, asking=user.asking, timeout=0.3)
        second.scope.cancel()


async def test_a_call_for_which_no_user_can_be_asked_makes_a_question_ambiguous(scene: Any) -> None:
    async with scene() as (source, tasks):
        ada = User("ada", hold=True)
        first = await asked(tasks, source, ada, ELICIT)
        ((refused),) = json.loads(text(await ask(source, None, ELICIT)()))
        assert "no person was asked" in refused["error"]
        assert len(ada.seen) == 1
        ada.free.set()
        await first.outcome()


async def test_a_call_that_was_given_up_may_still_ask_but_never_another_run(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as (source, _):
        ada, bob = User("ada"), User("bob")

        async def proceed(user: User) -> str:
            return text(await source.call_tool("proceed", {}, asking=user.asking))

        with pytest.raises(UpstreamCallError, match="timed out"):
            await source.call_tool("ask_late", {}, timeout=0.1, asking=ada.asking)
        # The server ignores the cancellation, and asks while another run has a call in flight.
        assert "may belong to a call of another user or program that was given up" in await proceed(bob)
        assert bob.seen == []
        # The same run may be asked; another run only after the server has answered the cancelled call ...
        assert json.loads(await proceed(ada)) == [{"result": ACCEPT}]
        await source.call_tool("answer_late", {})
        assert json.loads(await proceed(bob)) == [{"result": ACCEPT}]
        # ... or when enough time has passed.
        with pytest.raises(UpstreamCallError, match="timed out"):
            await source.call_tool("ask_late", {}, timeout=0.1, asking=ada.asking)
        assert "no person was asked" in await proceed(bob)
        monkeypatch.setattr(question_routing, "ABANDONED_SECONDS", 0.0)
        assert json.loads(await proceed(bob)) == [{"result": ACCEPT}]


async def test_a_server_that_dies_takes_its_questions_along(scene: Any) -> None:
    user = User(hold=True)
    async with scene() as (source, tasks):
        started = await asked(tasks, source, user, ELICIT)
        with pytest.raises(UpstreamCallError):
            await source.call_tool("die", {}, asking=user.asking)
        with pytest.raises(UpstreamCallError, match="closed the connection") as caught:
            await started.outcome()
        assert caught.value.dispatched
        assert user.taken_back == 1


async def test_a_server_takes_its_question_back(scene: Any) -> None:
    user = User(hold=True)
    async with scene() as (source, tasks):
        started = await asked(tasks, source, user, ELICIT)
        await source.call_tool("take_back", {}, asking=user.asking)
        assert await started.outcome() == "taken back"
        assert user.taken_back == 1


async def test_a_call_that_is_cancelled_or_times_out_takes_its_questions_along(scene: Any) -> None:
    user = User(hold=True)
    async with scene() as (source, tasks):
        started = await asked(tasks, source, user, ELICIT, SAMPLE)
        started.scope.cancel()
        with anyio.fail_after(20):
            await started.ended.wait()
            while user.taken_back < 2:
                await anyio.lowlevel.checkpoint()
        assert len((await log_of(source))["cancelled"]) == 1


async def test_progress_continues_while_a_question_is_open(scene: Any) -> None:
    user, reported = User(hold=True), anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.set()

    async with scene() as (source, tasks):
        call = {"questions": [ELICIT]}
        started = begin(tasks, lambda: source.call_tool("ask", call, on_progress=on_progress, asking=user.asking))
        await user.until_asked()
        await source.call_tool("progress", {}, asking=user.asking)
        with anyio.fail_after(20):
            await reported.wait()
        user.free.set()
        await started.outcome()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_time_of_a_call_stands_still_while_its_question_is_open(era: str, scene: Any) -> None:
    async def think(question: Question) -> JsonObject:
        await anyio.sleep(1.2)
        return ACCEPT

    calls: dict[str, tuple[str, Any]] = {
        "legacy": ("ask", {"questions": [ELICIT, SAMPLE]}),
        "modern": ("rounds", rounds({**ASKS_ROOTS, "requestState": "1:"})),
    }
    async with scene(era) as (source, _):
        await source.call_tool(*calls[era], timeout=1, asking=Asking("run", think))


async def test_a_call_that_hangs_after_its_question_times_out(scene: Any) -> None:
    user = User()
    async with scene() as (source, _):
        with pytest.raises(UpstreamCallError, match=r"tool 'ask_and_hang' timed out after 0\.5 s"):
            await source.call_tool("ask_and_hang", {}, timeout=0.5, asking=user.asking)
    assert len(user.seen) == 1


async def test_a_call_has_its_limit_again_when_the_question_is_answered() -> None:
    scope = anyio.CancelScope(deadline=anyio.current_time() + 100)
    call = CallQuestions("srv", "tool 'x'", None, scope)
    with call.clock_stopped():
        with call.clock_stopped():
            assert scope.deadline == float("inf")
        assert scope.deadline == float("inf")
    assert 0 < scope.deadline - anyio.current_time() <= 100
    with pytest.raises(RuntimeError), call.clock_stopped():
        raise RuntimeError
    assert 0 < scope.deadline - anyio.current_time() <= 100


async def test_a_flood_of_questions_is_cut_off(scene: Any) -> None:
    user = User()
    async with scene() as (source, _):
        outcome = await ask(source, user, ELICIT, times=300)()
    answers = json.loads(text(outcome))
    assert len(user.seen) == MAX_QUESTIONS == answers.count({"result": ACCEPT})
    assert answers.count({"error": "more than 100 questions were asked within one call; ask for less"}) == 200


async def test_a_question_of_many_megabytes_is_refused(scene: Any) -> None:
    user = User()
    async with scene() as (source, _):
        outcome = await source.call_tool("ask_large", {"bytes": 5_000_000}, asking=user.asking)
    ((answer),) = json.loads(text(outcome))
    assert "4194304 are allowed" in answer["error"]
    assert user.seen == []


# URLs that the user has to open first.


@pytest.mark.parametrize("told", [True, False], ids=["told when done", "not told"])
async def test_a_call_is_repeated_when_its_user_has_been_to_a_url(
    told: bool, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        monkeypatch.setattr(questions, "URL_WAIT", 0.05)
    user = User(answer={"action": "accept"})
    async with scene() as (source, tasks):
        call = {"elicitations": [LINK, {**LINK, "elicitationId": "e2", "url": "https://example.com/2"}]}
        started = begin(tasks, lambda: source.call_tool("url", call, asking=user.asking))
        await user.until_asked(2)
        assert user.seen[0] == Question("srv", "elicitation/create", LINK)
        if told:
            await source.call_tool("done", {"ids": ["e1"]})
            assert not started.ended.is_set()
            await source.call_tool("done", {"ids": ["e2"]})
            assert await started.outcome() == "welcome"
        else:
            with pytest.raises(UpstreamCallError, match="still needs the user to finish in a browser"):
                await started.outcome()


async def test_a_url_that_is_not_gone_to_fails_the_call(scene: Any) -> None:
    first = "needs the user to open https://example.com/login first, and the user"
    async with scene() as (source, _):
        for elicitation, action, complaint in (
            (LINK, "decline", f"{first} declined"),
            (LINK, "cancel", f"{first} did not answer"),
            ({**LINK, "mode": "form"}, "accept", "not in a way that is valid MCP"),
            ({"url": "https://example.com"}, "accept", "not in a way that is valid MCP"),
        ):
            user = User(answer={"action": action})
            with pytest.raises(UpstreamCallError, match=complaint):
                await source.call_tool("url", {"elicitations": [elicitation]}, asking=user.asking)
        # Where no user can be asked, it is the server's own error.
        with pytest.raises(UpstreamCallError, match="log in first") as caught:
            await source.call_tool("url", {"elicitations": [LINK]})
        assert caught.value.code == -32042


# Modern servers: questions in answers.


async def test_a_call_is_repeated_with_all_answers_and_the_state_as_it_was(scene: Any) -> None:
    state = '1:{"a": 1.0}\u2028 \u00e9\U0001f600'
    first = {"b": {"method": ELICIT[0], "params": {**FORM, "new": 1}}, "a": {"method": "roots/list"}}
    arguments = rounds(
        {"inputRequests": first, "requestState": state},
        {"inputRequests": {"c": {"method": SAMPLE[0], "params": SAMPLE[1]}}, "requestState": "2:"},
    )
    user = User(hold=True)
    async with scene("modern") as (source, tasks):
        started = begin(tasks, lambda: source.call_tool("rounds", arguments, asking=user.asking))
        await user.until_asked(2)
        assert user.seen == [
            Question("srv", "elicitation/create", {**FORM, "new": 1}),
            Question("srv", "roots/list", {}),
        ]
        user.free.set()
        assert await started.outcome() == "through"
        calls = (await log_of(source))["calls"]
    capabilities = [call["_meta"]["io.modelcontextprotocol/clientCapabilities"] for call in calls]
    tasks_too = {"extensions": {**APPS, "io.modelcontextprotocol/tasks": {}}}
    able = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}, **tasks_too}
    assert capabilities == [able, able, able, tasks_too]
    assert [call["arguments"] for call in calls[:3]] == [arguments] * 3
    assert "inputResponses" not in calls[0]
    assert (calls[1]["inputResponses"], calls[1]["requestState"]) == ({"b": ACCEPT, "a": ACCEPT}, state)
    assert (calls[2]["inputResponses"], calls[2]["requestState"]) == ({"c": ACCEPT}, "2:")


async def test_a_server_that_asks_for_nothing_but_time_is_called_again(scene: Any) -> None:
    async with scene("modern") as (source, _):
        user = User()
        waits = [{"requestState": "1:"}, {"requestState": "2:", "inputRequests": {}}, {"requestState": "3:"}]
        assert text(await source.call_tool("rounds", rounds(*waits), asking=user.asking)) == "through"
        assert [call.get("inputResponses") for call in (await log_of(source))["calls"]] == [None] * 5
    assert user.seen == []


async def test_a_server_that_never_has_enough_is_given_up(scene: Any) -> None:
    user = User()
    async with scene("modern") as (source, _):
        with pytest.raises(UpstreamCallError, match="asks for further input again after 25 rounds") as caught:
            await source.call_tool("rounds", rounds(ASKS_ROOTS), asking=user.asking)
    assert caught.value.dispatched
    assert len(user.seen) == MAX_ROUNDS + 1


async def test_one_refused_answer_takes_the_other_questions_of_its_round_back(scene: Any) -> None:
    user, both = User(hold=True), anyio.Event()

    async def one_refuses(question: Question) -> JsonObject:
        if question.method == "roots/list":
            await both.wait()
            raise QuestionRefused("no roots here")
        both.set()
        return await user.asking.ask(question)

    two = {"a": {"method": ELICIT[0], "params": FORM}, "b": {"method": "roots/list"}}
    async with scene("modern") as (source, _):
        with pytest.raises(UpstreamCallError) as caught:
            await source.call_tool("rounds", rounds({"inputRequests": two}), asking=Asking("run", one_refuses))
    assert caught.value.message == "server 'srv': tool 'rounds' needs input that it cannot get: no roots here"
    assert user.taken_back == 1


async def test_an_answer_that_asks_wrongly_fails_its_call_and_no_user_is_asked(scene: Any) -> None:
    user = User()
    many = {str(number): {"method": "roots/list"} for number in range(101)}
    large = {"a": {"method": "elicitation/create", "params": {"message": "x" * 5_000_000}}}
    async with scene("modern") as (source, _):
        for wrong, complaint in (
            ({}, "has neither inputRequests nor requestState"),
            ({"inputRequests": []}, "inputRequests is not an object"),
            ({"inputRequests": {"a": 7}}, "inputRequests.a names no method"),
            (
                {"inputRequests": {"a": {"method": "roots/list", "params": 7}}},
                "params of inputRequests.a is not an obj",
            ),
            ({"inputRequests": {"a": {"method": "tools/call"}}}, "'tools/call' is not one of elicitation/create, roo"),
            ({"inputRequests": many}, "more than 100 questions"),
            ({"inputRequests": large}, "4194304 are allowed"),
        ):
            with pytest.raises(UpstreamCallError, match=complaint):
                await source.call_tool("rounds", rounds(wrong), asking=user.asking)
    assert user.seen == []


async def test_an_answer_outlives_the_process_that_asked(scene: Any) -> None:
    user = User(hold=True)
    async with scene("modern") as (source, tasks):
        started = begin(
            tasks, lambda: source.call_tool("rounds", rounds({**ASKS_ROOTS, "requestState": "1:"}), asking=user.asking)
        )
        await user.until_asked()
        with pytest.raises(UpstreamCallError):
            await source.call_tool("die", {})
        user.free.set()
        assert await started.outcome() == "through"
        # A new process has answered, which got the second round only.
        assert [call["name"] for call in (await log_of(source))["calls"]] == ["rounds", "log"]


async def test_cancelling_a_modern_call_takes_its_question_back(scene: Any) -> None:
    user = User(hold=True)
    async with scene("modern") as (source, tasks):
        started = begin(tasks, lambda: source.call_tool("rounds", rounds(ASKS_ROOTS), asking=user.asking))
        await user.until_asked()
        started.scope.cancel()
        with anyio.fail_after(20):
            await started.ended.wait()
    assert user.taken_back == 1


async def test_prompts_may_ask_too_and_completions_are_asked_for(scene: Any) -> None:
    user = User(answer={"roots": []})
    async with scene("modern") as (source, _):
        prompt = await source.request("prompts/get", {"name": "p"}, asking=user.asking)
        seen = json.loads(prompt["description"])
        assert (seen["name"], seen["inputResponses"], seen["requestState"]) == ("p", {"r": {"roots": []}}, "s")
        with pytest.raises(UpstreamCallError, match="prompt 'p' asks for further input from the user"):
            await source.request("prompts/get", {"name": "p"})
        wanted = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "x"}}
        assert await source.request("completion/complete", wanted) == {"completion": {"values": ["x!"]}}


# Servers made with the SDK, over each transport.


TRANSPORTS = [
    pytest.param(("stdio",), id="modern-stdio"),
    pytest.param((), id="modern-http"),
    pytest.param(("--json",), id="modern-json"),
    pytest.param(("--sse",), id="modern-sse"),
    pytest.param(("--legacy",), id="legacy-http"),
]


@pytest.mark.parametrize("flags", TRANSPORTS)
async def test_questions_of_calls_of_many_runs_never_mix_up(
    flags: tuple[str, ...], server_of: Any, sdk_server: Any, pool_of: Any
) -> None:
    seen: list[tuple[str, str]] = []
    barrier, count = anyio.Event(), 24

    def asking(run: str) -> Asking:
        async def reply(question: Question) -> JsonObject:
            seen.append((run, question.params["message"]))
            if len(seen) == count:
                barrier.set()
            # All questions are open before the first is answered.
            await barrier.wait()
            return {"action": "accept", "content": {"name": run}}

        return Asking(run, reply)

    async def one(source: ToolSource, number: int) -> None:
        run = f"run {number % 6}"
        outcome = await source.call_tool("elicit", {"message": f"{run}?"}, timeout=20, asking=asking(run))
        assert text(outcome) == f"accept {run}"

    async def all_of(spec: UpstreamSpec) -> None:
        async with pool_of(spec) as pool:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    for number in range(count):
                        tasks.start_soon(one, pool.source("srv"), number)

    if flags == ("stdio",):
        await all_of(sdk_server())
    else:
        await all_of((await server_of(*flags)).spec())
    assert len(seen) == count
    assert all(message == f"{run}?" for run, message in seen)


@pytest.mark.parametrize(
    ("flags", "tool"),
    [
        pytest.param(("--sse",), "elicit", id="sse"),
        pytest.param(("--legacy",), "elicit_unrelated", id="legacy-http, on a stream of the server's own"),
    ],
)
async def test_where_the_transport_does_not_tell_whose_a_question_is_runs_take_turns_after_the_first_doubt(
    flags: tuple[str, ...], tool: str, server_of: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = User("ada", hold=True), User("bob")

    async def not_modern(*_: object) -> None:
        return None

    monkeypatch.setattr(negotiate, "_discover", not_modern)
    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool, anyio.create_task_group() as tasks:
        source = pool.source("srv")

        def elicit(user: User) -> Callable[[], Awaitable[ToolOutcome]]:
            return lambda: source.call_tool(tool, {"message": "?"}, timeout=20, asking=user.asking)

        first, second, third = Started(), Started(), Started()
        tasks.start_soon(first.run, elicit(ada))
        await ada.until_asked()
        tasks.start_soon(second.run, elicit(bob))
        assert "no person was asked" in str(await second.outcome())
        tasks.start_soon(third.run, elicit(bob))
        assert bob.seen == []
        ada.free.set()
        assert await first.outcome() == "accept Ada"
        assert await third.outcome() == "accept Ada"
        assert len(bob.seen) == 1


# Turns of runs, and the queue.


async def no_user(question: Question) -> JsonObject:
    raise AssertionError("asked")


def call_of(run: str) -> CallQuestions:
    return CallQuestions("srv", "tool 'x'", Asking(run, no_user), anyio.CancelScope())


async def doubtful(connection: ConnectionQuestions) -> CallQuestions:
    """Return a call in flight of run `a`, on a connection where runs take turns."""
    first, second = call_of("a"), call_of("b")
    await connection.enter(first)
    await connection.enter(second)
    with pytest.raises(QuestionRefused):
        await connection.answer("roots/list", {}, None)
    connection.leave(second)
    return first


async def test_a_turn_comes_soon_behind_another_owner_and_after_patience_behind_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_routing, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(question_routing, "SAME_CALLER_SECONDS", 0.3)
    for owner, share, least, most in (("someone else", "", 0.05, 0.25), ("", "client 2", 0.05, 0.25), ("", "", 0.3, 5)):
        connection = ConnectionQuestions()
        await doubtful(connection)
        began, why = anyio.current_time(), list[str]()
        asking = Asking("b", no_user, owner, queued=why.append, share=share)
        await connection.enter(CallQuestions("srv", "tool 'x'", asking, anyio.CancelScope()))
        assert least <= anyio.current_time() - began < most
        assert why[0] == "waits for its turn: server 'srv' works on a call of another program"


async def test_a_call_that_hangs_delays_all_calls_of_another_owner_once() -> None:
    connection = ConnectionQuestions()
    await doubtful(connection)
    began = anyio.current_time()
    for _ in range(10):
        call = CallQuestions("srv", "tool 'x'", Asking("b", no_user, "someone else"), anyio.CancelScope())
        await connection.enter(call)
        connection.leave(call)
    assert question_routing.TURN_SECONDS <= anyio.current_time() - began < 2 * question_routing.TURN_SECONDS


async def test_no_call_overtakes_in_the_queue_and_one_that_leaves_it_delays_no_other() -> None:
    connection = ConnectionQuestions()
    first = await doubtful(connection)
    entered: list[str] = []

    async def enter(call: CallQuestions, scope: anyio.CancelScope) -> None:
        with scope:
            await connection.enter(call)
            entered.append(call.run or "")

    other = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter, call_of("b"), other)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(enter, call_of("a"), anyio.CancelScope())
        tasks.start_soon(enter, call_of("c"), anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        assert entered == []
        other.cancel()
        await anyio.wait_all_tasks_blocked()
        assert entered == ["a"]
        tasks.cancel_scope.cancel()
    connection.leave(first)


async def test_a_turn_that_comes_at_the_moment_it_is_given_up_goes_to_the_next() -> None:
    connection = ConnectionQuestions()
    first = await doubtful(connection)
    waiter = asyncio.ensure_future(connection.enter(call_of("b")))
    await anyio.wait_all_tasks_blocked()
    connection.leave(first)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    with anyio.fail_after(20):
        await connection.enter(call_of("c"))


@given(st.lists(st.tuples(st.sampled_from(["call", "end", "ask", "give up"]), st.integers(0, 9)), max_size=40))
def test_a_question_without_a_call_is_given_to_a_run_only_when_no_other_has_a_call_in_flight(
    steps: list[tuple[str, int]],
) -> None:
    anyio.run(_play, steps)


async def _play(steps: list[tuple[str, int]]) -> None:
    connection = ConnectionQuestions()
    entered: list[CallQuestions] = []
    queued: list[tuple[CallQuestions, anyio.CancelScope]] = []
    order: list[CallQuestions] = []
    doubted = False
    wrong: list[str] = []

    def asking(run: str) -> Asking:
        async def reply(question: Question) -> JsonObject:
            if any(call.run != run for call in entered):
                wrong.append(f"{run} was asked among {[call.run for call in entered]}")
            return {}

        return Asking(run, reply)

    async def enter(call: CallQuestions, scope: anyio.CancelScope) -> None:
        with scope:
            await connection.enter(call)
            order.append(call)
            if doubted and any(each.run != call.run for each in entered if each not in before_doubt):
                wrong.append(f"{call.run} overlaps {[each.run for each in entered]}")
            entered.append(call)
        queued.remove((call, scope))

    before_doubt: list[CallQuestions] = []
    async with anyio.create_task_group() as tasks:
        for what, number in steps:
            match what:
                case "call":
                    run = "abc"[number % 3]
                    limit = anyio.CancelScope()
                    call = CallQuestions("srv", "tool", asking(run), limit)
                    entry = (call, anyio.CancelScope())
                    queued.append(entry)
                    tasks.start_soon(enter, *entry)
                case "end" if entered:
                    connection.leave(entered.pop(number % len(entered)))
                case "give up" if queued:
                    queued[number % len(queued)][1].cancel()
                case "ask":
                    runs = {call.run for call in entered}
                    try:
                        await connection.answer("elicitation/create", {}, None)
                        assert len(runs) == 1
                    except QuestionRefused:
                        assert len(runs) != 1
                        if len(runs) > 1 and not doubted:
                            doubted, before_doubt = True, list(entered)
                case _:
                    pass
            await anyio.wait_all_tasks_blocked()
        # Every call had its turn.
        while entered:
            connection.leave(entered.pop())
            await anyio.wait_all_tasks_blocked()
        assert queued == []
    assert wrong == []


async def test_a_fake_source_asks() -> None:
    source = AskingSource("srv", {"book": [("elicitation/create", FORM), ("roots/list", {})]})
    user = User()
    outcome = await source.call_tool("book", {}, asking=user.asking)
    assert outcome.result["structuredContent"] == {"answers": [ACCEPT, ACCEPT]}
    assert [question.method for question in user.seen] == ["elicitation/create", "roots/list"]
    with pytest.raises(UpstreamCallError, match="cannot be given here"):
        await source.call_tool("book", {})
    with pytest.raises(UpstreamCallError, match="cannot get: no"):
        await source.call_tool("book", {}, asking=User(answer=QuestionRefused("no")).asking)


def test_a_question_may_be_nested_so_deep_and_no_deeper() -> None:
    deepest: dict[str, Any] = {}
    for _ in range(MAX_QUESTION_DEPTH - 1):
        deepest = {"a": deepest}
    check_question("elicitation/create", deepest)
    for deeper in ({"a": deepest}, {"a": [deepest]}):
        with pytest.raises(QuestionRefused, match="nested more than"):
            check_question("elicitation/create", deeper)
