"""Tests of calls that servers answer with tasks: real servers of both eras and transports, hostile ones, and the state
machine by itself."""

import json
import math
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ports import reserved_port
from upstream_clients import (
    Asking,
    Question,
    QuestionRefused,
    ToolSource,
    UpstreamCallError,
    UpstreamPool,
    UpstreamSpec,
    UpstreamUnavailable,
    tasks,
)
from upstream_clients.errors import TaskLost
from upstream_clients.jsonrpc import TASKS_EXTENSION
from upstream_clients.questions import CallQuestions
from upstream_clients.tools import JsonObject, TaskOptions, ToolOutcome

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "servers" / "task_server.py"


class TaskServer:
    """A task server in a pool, with the requests that it has got."""

    def __init__(self, folder: Path, spec: UpstreamSpec, pool: UpstreamPool) -> None:
        self.folder = folder
        self.spec = spec
        self.pool = pool

    @property
    def source(self) -> ToolSource:
        return self.pool.source("srv")

    def requests(self, method: str = "tasks/") -> list[dict[str, Any]]:
        path = self.folder / "requests.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [each for each in map(json.loads, lines) if str(each["method"]).startswith(method)]

    async def until_requested(self, method: str, count: int = 1) -> None:
        with anyio.fail_after(20):
            while len(self.requests(method)) < count:  # noqa: ASYNC110 - the server is another process
                await anyio.sleep(0.01)

    def cancel_task(self) -> None:
        """Have the only task cancelled by the operator of the server."""
        (path,) = self.folder.glob("*.task")
        path.write_text(json.dumps({**json.loads(path.read_text()), "cancelled": True}))

    async def work(self, script: dict[str, Any], tool: str = "work", **options: Any) -> ToolOutcome:
        with anyio.fail_after(30):
            return await self.source.call_tool(tool, {"script": script, "label": "one"}, **options)


def spec_of(folder: Path, era: str = "modern", port: int | None = None, **more: Any) -> UpstreamSpec:
    if port is not None:
        return UpstreamSpec("srv", transport="http", url=f"http://127.0.0.1:{port}/mcp", **more)
    return UpstreamSpec("srv", command=sys.executable, args=(str(SERVER), str(folder), era), **more)


@asynccontextmanager
async def http_process(folder: Path, era: str, port: int) -> AsyncIterator[None]:
    command = [sys.executable, str(SERVER), str(folder), era, str(port)]
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(30):
                await process.stdout.receive()
            yield
        finally:
            process.kill()


@asynccontextmanager
async def served(folder: Path, era: str = "modern", transport: str = "stdio", **more: Any) -> AsyncIterator[TaskServer]:
    if transport == "http":
        port = reserved_port()
        async with http_process(folder, era, port), served_by(folder, spec_of(folder, era, port, **more)) as server:
            yield server
    else:
        async with served_by(folder, spec_of(folder, era, **more)) as server:
            yield server


@asynccontextmanager
async def served_by(folder: Path, spec: UpstreamSpec) -> AsyncIterator[TaskServer]:
    async with UpstreamPool([spec]) as pool:
        await pool.wait_settled(None, timeout=30)
        yield TaskServer(folder, spec, pool)


def text(outcome: ToolOutcome) -> Any:
    return json.loads(outcome.result["content"][0]["text"])


BOTH = pytest.mark.parametrize(
    ("era", "transport"), [("modern", "stdio"), ("modern", "http"), ("legacy", "stdio"), ("legacy", "http")]
)


@BOTH
async def test_a_call_that_is_answered_with_a_task_returns_the_result_of_the_task(
    tmp_path: Path, era: str, transport: str
) -> None:
    said: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    async with served(tmp_path, era, transport) as server:
        outcome = await server.work({"polls": 2}, on_progress=on_progress)
    assert text(outcome) == {"label": "one", "answers": {}}
    assert not outcome.notes
    assert said == ["begun", "step 1", "step 2"]
    assert "_meta" not in outcome.result
    assert not server.requests("tasks/cancel")
    identity = server.requests("tasks/get")[0]["params"]["taskId"]
    for each in server.requests("tasks/") if transport == "http" and era == "modern" else ():
        assert each["headers"]["mcp-method"] == each["method"]
        assert each["headers"]["mcp-name"] == identity


async def test_only_calls_and_requests_about_tasks_declare_the_extension(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        await server.work({"end": "plain"})
        await server.work({})
    with_extension = {each["method"] for each in server.requests("") if TASKS_EXTENSION in json.dumps(each["params"])}
    assert with_extension == {"tools/call", "tasks/get"}


@BOTH
async def test_tools_that_need_no_task_are_called_as_ever(tmp_path: Path, era: str, transport: str) -> None:
    async with served(tmp_path, era, transport) as server:
        outcome = await server.work({"end": "plain"}, "read")
    assert text(outcome)["label"] == "one"
    assert server.requests("tasks/") == []


async def test_a_result_of_a_task_is_checked_like_any_result(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        fits = await server.work({}, "strict")
        assert fits.result["structuredContent"] == {"n": 1}
        assert fits.notes == ()
        (note,) = (await server.work({"n": "many"}, "strict")).notes
    assert "does not match" in note


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_tool_error_is_a_result_and_a_failed_task_an_error(tmp_path: Path, era: str) -> None:
    async with served(tmp_path, era) as server:
        assert (await server.work({"end": "tool_error"})).result["isError"] is True
        with pytest.raises(UpstreamCallError, match="-32603: API rate limit exceeded") as failed:
            await server.work({"end": "failed"})
        with pytest.raises(UpstreamCallError, match="cancelled by the server") as cancelled:
            await server.work({"end": "cancelled"})
    assert failed.value.dispatched
    assert not isinstance(failed.value, TaskLost)
    assert "the operator stopped it" in cancelled.value.message
    assert not server.requests("tasks/cancel")


@BOTH
async def test_a_call_that_times_out_or_is_given_up_cancels_its_task(tmp_path: Path, era: str, transport: str) -> None:
    async with served(tmp_path, era, transport) as server:
        with pytest.raises(UpstreamCallError, match="timed out"):
            await server.work({"until": "never"}, timeout=0.5)
        await server.until_requested("tasks/cancel")
        async with anyio.create_task_group() as group:
            group.start_soon(server.work, {"until": "never"})
            await server.until_requested("tools/call", 2)
            polls = len(server.requests("tasks/get"))
            await server.until_requested("tasks/get", polls + 1)
            group.cancel_scope.cancel()
        await server.until_requested("tasks/cancel", 2)


class Person:
    """A person who answers questions with `answer` once `free` is set."""

    def __init__(self, answer: Exception | None = None, *, free: bool = True) -> None:
        self.seen: list[Question] = []
        self.withdrawn = 0
        self.asked = anyio.Event()
        self.free = anyio.Event()
        self._answer = answer
        if free:
            self.free.set()

    @property
    def asking(self) -> Asking:
        return Asking("run", self._ask)

    async def _ask(self, question: Question) -> JsonObject:
        self.seen.append(question)
        self.asked.set()
        try:
            await self.free.wait()
        except BaseException:
            self.withdrawn += 1
            raise
        if self._answer is not None:
            raise self._answer
        return {"action": "accept", "content": {"name": f"Ada {len(self.seen)}"}}


@pytest.mark.parametrize(("era", "transport"), [("modern", "stdio"), ("modern", "http"), ("legacy", "stdio")])
async def test_questions_of_a_task_reach_the_person_once(tmp_path: Path, era: str, transport: str) -> None:
    person = Person()
    async with served(tmp_path, era, transport) as server:
        outcome = await server.work({"twice": True, "polls": 4}, asking=person.asking)
    answers = text(outcome)["answers"]
    assert [answers[key]["content"]["name"] for key in ("first", "second")] == ["Ada 1", "Ada 2"]
    assert [each.params["message"] for each in person.seen] == ["Your first name?", "Your second name?"]


async def test_the_clock_of_a_call_stands_still_while_its_task_waits_for_a_person(tmp_path: Path) -> None:
    person = Person(free=False)
    async with served(tmp_path) as server, anyio.create_task_group() as group:
        group.start_soon(lambda: server.work({"ask": True}, asking=person.asking, timeout=1.0))
        await person.asked.wait()
        await anyio.sleep(1.2)
        person.free.set()


async def test_a_question_that_its_task_no_longer_asks_is_withdrawn(tmp_path: Path) -> None:
    person = Person(free=False)
    async with served(tmp_path) as server, anyio.create_task_group() as group:

        async def call() -> None:
            with pytest.raises(UpstreamCallError, match="cancelled by the server"):
                await server.work({"ask": True}, asking=person.asking)

        group.start_soon(call)
        await person.asked.wait()
        server.cancel_task()
    assert person.withdrawn == 1


async def test_a_task_whose_question_gets_no_answer_is_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        with pytest.raises(UpstreamCallError, match="needs input that it cannot get: no, thanks"):
            await server.work({"ask": True}, asking=Person(QuestionRefused("no, thanks")).asking)
        with pytest.raises(UpstreamCallError, match="asks for further input"):
            await server.work({"ask": True})
        await server.until_requested("tasks/cancel", 2)


async def test_a_server_that_forgets_a_task_or_loses_it_with_its_process_leaves_the_outcome_unknown(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as server:
        with pytest.raises(TaskLost, match=r"does not know its task.*unknown whether the tool has acted"):
            await server.work({"forget": True})
        with pytest.raises(TaskLost, match="does not know its task"):
            await server.work({"ask": True, "refuse": True}, asking=Person().asking)


async def test_a_task_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        outcome = await server.work({"lose": True, "polls": 2})
    assert text(outcome)["label"] == "one"
    assert len(server.requests("server/discover")) == 2
    assert len(server.requests("tools/call")) == 1


class Noted:
    """A caller that keeps the handles of its tasks."""

    def __init__(self) -> None:
        self.handles: list[str] = []

    async def created(self, handle: str) -> None:
        self.handles.append(handle)

    @property
    def options(self) -> TaskOptions:
        return TaskOptions(created=self.created, is_left=lambda: True)


@pytest.mark.parametrize(("era", "transport"), [("modern", "stdio"), ("modern", "http"), ("legacy", "stdio")])
async def test_a_later_process_follows_a_task_by_its_handle(tmp_path: Path, era: str, transport: str) -> None:
    noted = Noted()
    port = reserved_port()
    async with anyio.create_task_group() as around:
        if transport == "http":
            await around.start(_serve_http, tmp_path, era, port)
        spec = spec_of(tmp_path, era, port if transport == "http" else None)
        async with served_by(tmp_path, spec) as first, anyio.create_task_group() as group:
            group.start_soon(lambda: first.work({"until": "go"}, task=noted.options))
            await first.until_requested("tasks/get")
            group.cancel_scope.cancel()
        assert not first.requests("tasks/cancel")
        (tmp_path / "go").touch()
        async with served_by(tmp_path, spec) as second:
            outcome = await second.work({}, task=TaskOptions(known=noted.handles[0]))
        around.cancel_scope.cancel()
    assert text(outcome) == {"label": "one", "answers": {}}
    assert len(second.requests("tools/call")) == 1


async def _serve_http(folder: Path, era: str, port: int, *, task_status: Any) -> None:
    async with http_process(folder, era, port):
        task_status.started()
        await anyio.sleep_forever()


async def test_a_handle_is_not_followed_at_another_server_nor_if_it_is_damaged(tmp_path: Path) -> None:
    noted = Noted()
    async with served(tmp_path) as server:
        await server.work({}, task=noted.options)
        other = tasks.handle_of(noted.handles[0])
        count = len(server.requests("tasks/"))
        for known in (json.dumps({**json.loads(other.text()), "server": "0" * 32}), "{}", "nonsense"):
            with pytest.raises(TaskLost, match="unknown whether the tool has acted"):
                await server.work({}, task=TaskOptions(known=known))
    assert len(server.requests("tasks/")) == count


async def test_the_limit_of_a_call_counts_on_in_a_later_process(tmp_path: Path) -> None:
    noted = Noted()
    async with served(tmp_path) as server:
        with pytest.raises(UpstreamCallError, match="timed out"):
            await server.work({"until": "never"}, task=noted.options, timeout=0.3)
        handle = tasks.handle_of(noted.handles[0])
        assert handle.until is not None
        assert handle.until < time.time() + 0.3
        # The call has timed out, so its task is cancelled, although a later process could follow it.
        await server.until_requested("tasks/cancel")


# hostile servers


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"create": {"taskId": 7}}, "taskId is not a string"),
    ({"create": {"taskId": "x" * 2000}}, "taskId has 2000 characters"),
    ({"create": {"status": "dreaming"}}, "status is not one of working"),
    ({"state": {"taskId": "another"}}, "taskId is that of another task"),
    ({"state": {"status": "done"}}, "status is not one of"),
    ({"state": {"status": ["completed"]}}, "status is not one of"),
    ({"state": {"status": "completed", "result": None}}, "a completed task has no result"),
    ({"state": {"result": {"resultType": "task", "taskId": "x"}}}, "a completed task has no result"),
    ({"state": {"result": [1]}}, "a completed task has no result"),
    ({"state": {"status": "input_required", "inputRequests": [1]}}, "inputRequests is not an object"),
    ({"state": {"status": "input_required", "inputRequests": {"a": {"method": "tools/call"}}}}, "is not one of"),
    ({"state": {"status": "failed", "error": "no"}}, "answered tools/call with error -32000: no"),
    ({"state": {"status": "failed"}}, "an error without a message"),
    ({"state": {"status": "failed", "error": {"code": True}, "statusMessage": "x" * 9999}}, "an error: xxx"),
]


async def test_a_malformed_task_is_an_error_of_its_call(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for script, message in MALFORMED:
            with pytest.raises(UpstreamCallError) as raised:
                await server.work(script, asking=Person().asking)
            assert message in raised.value.message
            assert len(raised.value.message) < 2000
            # The connection still works.
            assert text(await server.work({}))["label"] == "one"


async def test_errors_and_secrets_in_a_failed_task_are_the_error_of_the_tool_alone(tmp_path: Path) -> None:
    error = {"code": -32000, "message": "Connection closed"}
    async with served(tmp_path) as server:
        with pytest.raises(UpstreamCallError, match="answered tools/call with error -32000") as raised:
            await server.work({"state": {"status": "failed", "error": error}})
        assert raised.value.dispatched
        error = {"code": -32600, "message": "Session not found", "data": {"upstream_clients/http": [404, False]}}
        with pytest.raises(UpstreamCallError, match="error -32600") as raised:
            await server.work({"state": {"status": "failed", "error": error}})
        assert raised.value.dispatched
        await server.work({})
    assert len(server.requests("server/discover")) == 1


async def test_no_interval_makes_us_ask_too_often(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for number, interval in enumerate((0, -1, None, "soon", True), 1):
            limits = {"pollIntervalMs": interval}
            began = time.monotonic()
            await server.work({"polls": 3, "create": limits, "state": limits})
            assert len(server.requests("tasks/get")) == 4 * number
            assert time.monotonic() - began > 4 * tasks.MIN_INTERVAL


async def test_a_huge_interval_is_bounded_and_a_call_still_times_out(tmp_path: Path) -> None:
    for interval in (1e12, 10**400, 1e308):
        state = {"taskId": "x", "status": "working", "pollIntervalMs": interval}
        assert tasks.read_task(state).interval <= tasks.MAX_INTERVAL
    async with served(tmp_path) as server:
        for number, interval in enumerate((1e12, 1e308), 1):
            with pytest.raises(UpstreamCallError, match="timed out"):
                await server.work({"create": {"pollIntervalMs": interval}}, timeout=0.3)
            await server.until_requested("tasks/cancel", number)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_does_not_have_counts_as_none(number: float) -> None:
    # Over HTTP, `NaN` and `1e999` in an answer become these numbers.
    task = tasks.read_task({"taskId": "x", "status": "working", "pollIntervalMs": number, "ttlMs": number})
    assert (task.interval, task.ttl) == (tasks.DEFAULT_INTERVAL, None)


async def test_a_time_to_live_that_grows_with_each_answer_does_not_make_us_ask_more_often() -> None:
    class Renewing(Script):
        async def request(self, method: str, params: Any) -> JsonObject:
            self.states[:1] = [{**state, "ttlMs": (self.now - 1000) * 1000 + 1} for state in self.states[:1]]
            return await super().request(method, params)

    server = Renewing([{"status": "working"} for _ in range(20)])
    seed = tasks.read_task({"taskId": "t", "status": "working"})
    following = server.following(seed)
    with suppress(TaskLost):
        await following.result(seed)
    for before, after in pairwise(server.gets):
        assert after - before >= tasks.MIN_INTERVAL - 1e-9


async def test_a_secret_at_the_end_of_a_long_status_message_is_not_passed_on_in_part() -> None:
    said: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    secret = "correct horse battery staple"
    message = "x" * 10 + " " + "y " * 487 + secret + " and more"
    server = Script([{"status": "working", "statusMessage": message}])
    seed = tasks.read_task({"taskId": "t", "status": "working", "statusMessage": message})
    options = {"on_progress": on_progress, "redact": lambda text: text.replace(secret, "***")}
    await server.following(seed, **options).result(seed)
    assert len(said) == 1
    assert len(said[0]) <= tasks.MAX_MESSAGE
    assert "correct" not in said[0]


@pytest.mark.parametrize("ttl", [0, 250])
async def test_a_task_that_outlives_its_time_to_live_is_given_up(tmp_path: Path, ttl: int) -> None:
    limits = {"ttlMs": ttl}
    async with served(tmp_path) as server:
        with pytest.raises(TaskLost, match="time to live") as raised:
            await server.work({"until": "never", "create": limits, "state": limits})
        await server.until_requested("tasks/cancel")
        assert text(await server.work({"create": {"ttlMs": 0}}))["label"] == "one"
    assert f"{ttl / 1000:g} s" in raised.value.message


async def test_a_huge_status_message_is_cut(tmp_path: Path) -> None:
    said: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    async with served(tmp_path) as server:
        await server.work({"polls": 1, "create": {"statusMessage": "x" * 5_000_000}}, on_progress=on_progress)
    assert [len(each or "") for each in said] == [tasks.MAX_MESSAGE, 6]


async def test_a_server_that_never_stops_asking_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_QUESTION_ROUNDS", 1)
    async with served(tmp_path) as server:
        with pytest.raises(UpstreamCallError, match="asks for further input again after 1 rounds"):
            await server.work({"twice": True}, asking=Person().asking)


async def test_a_task_as_the_answer_to_another_request_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        with pytest.raises(UpstreamCallError, match="answered resources/read with a task"):
            await server.source.request("resources/read", {"uri": "test://task"})


# the state machine by itself


class Script:
    """A server whose answers to `tasks/get` are given, and a clock that moves only while the task is not asked about.

    After the last answer, the task is completed.
    """

    def __init__(self, states: list[Any]) -> None:
        self.states = list(states)
        self.now = 1000.0
        self.gets: list[float] = []
        self.updates: list[JsonObject] = []
        self.cancelled = 0

    def following(self, seed: tasks.Task, asking: Asking | None = None, **more: Any) -> tasks.Following:
        call = CallQuestions("srv", "tool 'work'", asking, Unlimited())
        handle = tasks.new_handle(seed, UpstreamSpec("srv", command="x"), modern=True, left=None, wall=self.now)
        assert tasks.handle_of(handle.text()) == handle
        clock = {"sleep": self.sleep, "clock": lambda: self.now, "wall": lambda: self.now}
        return tasks.Following(handle, self, call, **clock, **more)

    async def request(self, method: str, params: Any) -> JsonObject:
        assert params["taskId"] == "t"
        await anyio.lowlevel.checkpoint()
        if method == "tasks/update":
            self.updates.append(params["inputResponses"])
            return {}
        self.gets.append(self.now)
        state = self.states.pop(0) if self.states else {"status": "completed", "result": {"content": []}}
        if isinstance(state, Exception):
            raise state
        return {"taskId": "t", **state} if isinstance(state, dict) else state

    async def cancel_task(self, params: Any) -> None:
        assert params == {"taskId": "t"}
        self.cancelled += 1

    async def sleep(self, seconds: float) -> None:
        assert 0 <= seconds <= tasks.MAX_INTERVAL
        self.now += seconds
        await anyio.lowlevel.checkpoint()


class Unlimited:
    deadline = math.inf


NUMBERS = st.one_of(st.none(), st.integers(-(10**12), 10**12), st.floats(), st.just("soon"), st.booleans())
LIMITS = st.fixed_dictionaries({}, optional={"ttlMs": NUMBERS, "pollIntervalMs": NUMBERS})
QUESTIONS = st.dictionaries(
    st.sampled_from("abcd"), st.just({"method": "elicitation/create", "params": {"message": "Name?"}}), max_size=3
)
STATES = st.one_of(
    st.builds(lambda more, said: {"status": "working", "statusMessage": said, **more}, LIMITS, st.text(max_size=3)),
    st.builds(lambda more, asked: {"status": "input_required", "inputRequests": asked, **more}, LIMITS, QUESTIONS),
    st.builds(lambda status: {"status": status}, st.sampled_from(["cancelled", "failed", "completed", "odd"])),
    st.just({"status": "completed", "result": {"content": [], "isError": True}}),
    st.just({"status": "failed", "error": {"code": -32603, "message": "no"}}),
    st.just({"status": "working", "taskId": "another"}),
    st.sampled_from(
        [
            UpstreamUnavailable("srv", "down"),
            UpstreamCallError("srv", "the connection was lost", dispatched=True),
            UpstreamCallError("srv", "internal", dispatched=True, code=-32603),
            UpstreamCallError("srv", "unknown task", dispatched=True, code=-32602),
        ]
    ),
)


@settings(deadline=None)
@given(st.lists(STATES, max_size=12), LIMITS, st.sampled_from(["working", "input_required", "completed"]))
async def test_any_server_gives_one_end_of_a_call_and_is_never_asked_too_often(
    states: list[Any], limits: dict[str, Any], status: str
) -> None:
    server, person = Script(states), Person()
    seed = tasks.read_task({"taskId": "t", "status": status, **limits})
    following = server.following(seed, person.asking)
    ends: list[Any] = []
    try:
        ends.append((await following.result(seed))["content"])
    except UpstreamCallError as error:
        ends.append(error.dispatched)
    assert ends in ([[]], [True])
    # No question is asked again once it was answered.
    answered = [key for update in server.updates for key in update]
    assert len(answered) == len(set(answered))
    # The server is told that the task is not needed, unless it has ended or lost the task itself.
    assert server.cancelled <= (ends == [True])
    for before, after in pairwise(server.gets):
        assert after - before >= tasks.MIN_INTERVAL - 1e-9
    assert len(server.gets) <= 2 * len(states) + 2
