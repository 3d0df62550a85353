"""Questions that upstream servers put in the course of a call: the client that is asked, and effects on the program."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Unpack

import anyio
import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.manager import Cell
from codemode_mcp.runs.questions import Way
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import FakeClient, bench, ran, texts
from tests.waiting import answering, until
from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.results import read_outcome
from upstream_clients.testing import ScriptedSource, text_result
from upstream_clients.tools import Annotations, CallOptions, JsonObject, Question, Tool, ToolOutcome

YES = {"action": "accept", "content": {"name": "Ada"}}
NO = {"action": "decline"}


class AskingSource(ScriptedSource):
    """`ask` puts one question and answers with what it was told; `quick` answers immediately; `slow` when released."""

    def __init__(self, annotations: Annotations | None = None) -> None:
        """`annotations`: of `ask`."""
        ask = Tool("ask") if annotations is None else Tool("ask", annotations=annotations)
        super().__init__("asker", {}, tools=[ask, Tool("quick"), Tool("slow")])
        self.release = anyio.Event()
        self.taken_back = 0

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        await self._begin(tool, options)
        self._record(tool, arguments, options.get("on_sent"))
        if tool == "ask":
            asking = options.get("asking")
            assert asking is not None
            params = {"message": arguments.get("message", "name?"), "requestedSchema": {"type": "object"}}
            try:
                answer = await asking.ask(Question(self.name, "elicitation/create", params))
            except QuestionRefused as refusal:
                raise UpstreamCallError(self.name, f"refused: {refusal}", dispatched=True) from None
            except anyio.get_cancelled_exc_class():
                self.taken_back += 1
                raise
            return read_outcome(text_result(json.dumps(answer)))
        if tool == "slow":
            await self.release.wait()
        return read_outcome(text_result("done"))


CAUGHT = "return await MCP.asker.ask({}).catch((error) => error.message)"
ASK = "return unwrap(await MCP.asker.ask({}))"


async def test_a_client_that_can_be_asked_is_asked_while_its_request_is_open(engine: Engine) -> None:
    client = FakeClient("ask", replies=[YES])
    async with bench(engine, AskingSource()) as it:
        outcome = await it.execute(ASK, client=client)
        assert (outcome.status, outcome.value) == ("completed", YES)
    assert [(asked.server, asked.params["message"]) for asked in client.asked] == [("asker", "name?")]


async def test_a_client_that_takes_questions_as_answers_gets_them_and_comes_back(engine: Engine) -> None:
    async with bench(engine, AskingSource()) as it:
        waiting = await it.execute(ASK, client=FakeClient("return"))
        ((key, question),) = waiting.questions
        assert (waiting.status, question.params["message"]) == ("waiting", "name?")
        assert [(call.tool, call.status) for call in waiting.pending] == [("mcp:asker:ask", "needs_input")]
        outcome = await it.observe(waiting.run_id, client=FakeClient("return"), answers={key: YES})
        assert (outcome.status, outcome.value) == ("completed", YES)


async def test_all_questions_of_one_turn_come_in_one_answer(engine: Engine) -> None:
    code = "return (await Promise.all(['a', 'b', 'c'].map((message) => MCP.asker.ask({ message })))).map(unwrap)"
    async with bench(engine, AskingSource()) as it:
        waiting = await it.execute(code, client=FakeClient("return"))
        assert [question.params["message"] for _, question in waiting.questions] == ["a", "b", "c"]
        answers = {key: {"action": "accept", "content": {"for": q.params["message"]}} for key, q in waiting.questions}
        outcome = await it.observe(waiting.run_id, client=FakeClient("return"), answers=answers)
        assert [each["content"]["for"] for each in outcome.value] == ["a", "b", "c"]


async def test_a_question_that_got_no_answer_is_put_again(engine: Engine) -> None:
    code = "return (await Promise.all(['a', 'b'].map((message) => MCP.asker.ask({ message })))).length"
    async with bench(engine, AskingSource()) as it:
        waiting = await it.execute(code, client=FakeClient("return"))
        first, second = (key for key, _ in waiting.questions)
        again = await it.observe(waiting.run_id, client=FakeClient("return"), answers={first: NO, "question-99": YES})
        assert [key for key, _ in again.questions] == [second]
        outcome = await it.observe(waiting.run_id, client=FakeClient("return"), answers={second: NO})
        assert outcome.value == 2


async def test_without_a_client_to_ask_the_run_suspends_and_a_later_client_answers(engine: Engine) -> None:
    async with bench(engine, AskingSource(), timeout_ms=60_000) as it:
        with anyio.fail_after(20):
            waiting = await it.execute(ASK, client=FakeClient("none"))
        assert [call.status for call in waiting.pending] == ["needs_input"]
        assert (waiting.status, waiting.questions) == ("waiting", ())
        assert waiting.asked[0].startswith("Server 'asker' asks the user \"name?\".")
        assert waiting.unanswerable
        with anyio.fail_after(20):
            assert (await it.observe(waiting.run_id, client=FakeClient("none"))).unanswerable
        outcome = await it.observe(waiting.run_id, client=FakeClient("ask", replies=[YES]))
        assert outcome.value == YES


async def test_other_calls_continue_before_a_run_suspends_for_a_question(engine: Engine) -> None:
    code = "const asked = MCP.asker.ask({}); text(unwrap(await MCP.asker.slow({}))); return unwrap(await asked)"
    source = AskingSource()
    async with (
        bench(engine, source, timeout_ms=60_000) as it,
        answering(it.execute(code, client=FakeClient("none"))) as outcomes,
    ):
        await until(lambda: len(source.calls) == 2)
        source.release.set()
    (outcome,) = outcomes
    assert (texts(outcome), [call.tool for call in outcome.pending]) == (["done"], ["mcp:asker:ask"])


async def test_time_that_a_person_takes_is_not_the_programs(engine: Engine) -> None:
    client = FakeClient("ask")
    async with bench(engine, AskingSource(), timeout_ms=1_000, max_request_ms=600_000) as it:
        async with answering(it.execute(ASK, client=client)) as results:
            await client.is_asked.wait()
            it.clock.advance(100)
            (run,) = it.manager._live.runs.values()
            run.change()
            await anyio.wait_all_tasks_blocked()
            assert not results
            (opened,) = run.questions.open
            run.questions.answer([(opened.key, YES)])
        assert (results[0].status, results[0].value) == ("completed", YES)


async def test_a_request_is_answered_even_while_a_person_thinks(engine: Engine) -> None:
    client = FakeClient("ask")
    async with bench(engine, AskingSource(), timeout_ms=1_000, max_request_ms=2_000) as it:
        waiting = await it.execute(ASK, client=client)
        assert [call.status for call in waiting.pending] == ["needs_input"]
        # The client is not left with a question whose request is over ...
        await anyio.wait_all_tasks_blocked()
        assert client.taken_back == 1
        # ... and the next request puts it again.
        outcome = await it.observe(waiting.run_id, client=FakeClient("ask", replies=[NO]))
        assert outcome.value == NO


async def test_a_question_may_outlive_its_request_where_the_client_does(engine: Engine) -> None:
    client = FakeClient("ask", lasting=True)
    async with bench(engine, AskingSource(), timeout_ms=1_000, max_request_ms=1_500) as it:
        waiting = await it.execute(ASK, client=client)
        assert "The client is being asked." in waiting.asked[0]
        again = await it.observe(waiting.run_id, client=client)
        assert again.status == "waiting"
        assert (len(client.asked), client.taken_back) == (1, 0)
        await it.observe(waiting.run_id, cancel=True)
        await anyio.wait_all_tasks_blocked()
        assert client.taken_back == 1


async def test_cancelling_the_program_takes_its_question_back(engine: Engine) -> None:
    client, source = FakeClient("ask"), AskingSource()
    async with bench(engine, source) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(it.execute, ASK)  # no client to ask: it only shows that runs are apart
            group.start_soon(partial(it.execute, ASK, client=client))
            await client.is_asked.wait()
            group.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert client.taken_back == 1


async def test_a_refusal_rejects_the_call_and_can_be_caught(engine: Engine) -> None:
    class Refusing(FakeClient):
        async def ask(self, question: Question) -> JsonObject:
            raise QuestionRefused("the client answered with error -1: no")

    outcome = await ran(engine, CAUGHT, AskingSource(), client=Refusing("ask"))
    assert "refused: the client answered with error -1: no" in outcome.value


async def test_an_answer_for_another_run_reaches_no_run(engine: Engine) -> None:
    async with bench(engine, AskingSource()) as it:
        one = await it.execute(ASK, client=FakeClient("return"))
        two = await it.execute(ASK, client=FakeClient("return"))
        ((key, _),) = one.questions
        with pytest.raises(ProgramError, match="there is no run"):
            await it.observe(one.run_id, owner="another owner", answers={key: YES})
        outcome = await it.observe(one.run_id, client=FakeClient("return"), answers={key: YES})
        assert outcome.value == YES
        still = await it.observe(two.run_id, client=FakeClient("return"))
        assert len(still.questions) == 1


async def test_a_run_of_an_unknown_caller_belongs_to_the_holder_of_its_id(engine: Engine) -> None:
    async with bench(engine, AskingSource()) as it:
        waiting = await it.manager.execute(Cell(ASK, "javascript", Caller(None)), FakeClient("return"))
        with pytest.raises(ProgramError, match="there is no run"):
            await it.observe(waiting.run_id)
        with pytest.raises(ProgramError, match="there is no run"):
            await it.manager.observe(waiting.run_id + "x", None)
        ((key, _),) = waiting.questions
        outcome = await it.manager.observe(waiting.run_id, None, answers={key: YES})
        assert outcome.value == YES


async def test_nothing_is_stored_for_an_unknown_caller(engine: Engine) -> None:
    code = "store('a', 1); return await load('a').catch((error) => error.message)"
    async with bench(engine, AskingSource()) as it:
        outcome = await it.manager.execute(Cell(code, "javascript", Caller(None)))
        assert "need a client with a login or a session" in outcome.value


async def test_a_client_that_cannot_be_asked_for_any_reason_costs_that_call_alone(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(FakeClient):
        async def ask(self, question: Question) -> JsonObject:
            raise ValueError("Maximum serialization depth exceeded")

    async with bench(engine, AskingSource()) as it:
        outcome = await it.execute(CAUGHT, client=Broken("ask"))
        assert "the question could not be put to the client" in outcome.value
        assert (await it.execute("return 1")).value == 1
    assert "could not be put" in caplog.text


async def test_progress_of_any_size_is_told(engine: Engine) -> None:
    class Counting(AskingSource):
        async def call_tool(self, tool: str, arguments: JsonObject, **options: Any) -> ToolOutcome:
            await options["on_progress"](10**400, 10**401, None)
            return read_outcome(text_result("done"))

    client = FakeClient()
    assert (await ran(engine, "return unwrap(await MCP.asker.quick({}))", Counting(), client=client)).value == "done"
    assert client.heard == ["mcp:asker:quick: ?/?"]


async def test_nothing_begins_while_the_server_is_shutting_down(engine: Engine) -> None:
    async with bench(engine, AskingSource()) as it:
        waiting = await it.execute(ASK, client=FakeClient("none"))
        it.manager._live.closing = True
        for begin in (it.execute("return 1"), it.observe(waiting.run_id)):
            with pytest.raises(ProgramError, match="shutting down"):
                await begin


async def test_a_question_is_examined_once_for_each_request(engine: Engine) -> None:
    class Counting(FakeClient):
        looked = 0

        def way(self, question: Question) -> Way:
            self.looked += 1
            return super().way(question)

    code = "await Promise.all([MCP.asker.ask({}), MCP.asker.ask({}), MCP.asker.quick({}), MCP.asker.quick({})])"
    async with bench(engine, AskingSource()) as it:
        first, second = Counting("return"), Counting("return")
        waiting = await it.execute(code, client=first)
        assert (len(waiting.questions), first.looked) == (2, 2)
        await it.observe(waiting.run_id, client=second)
        assert second.looked == 2
