"""Calls that a person has to approve: the questions, their answers, and the effects on the program and its calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import ConfigError, InternalError, ProgramError
from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.rules.policy.approval import ApprovalQuestion
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs import questions
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import ToolCall
from tests.runs.bench import OWNER, Bench, FakeClient, bench, ran, texts
from tests.values import replace
from tests.waiting import refusal, until
from upstream_clients.errors import QuestionRefused
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, JsonObject, Tool

RULES = PolicyRules(ask=("destructive",))

READ_ONLY = Annotations(read_only=True)

REMOVE = "return unwrap(await MCP.files.remove({ path: 'a' }))"
REMOVE_THREE = (
    "return (await Promise.allSettled(['a', 'b', 'c'].map((path) => MCP.files.remove({ path }))))"
    ".map((each) => each.status)"
)


def accept(content: JsonObject) -> JsonObject:
    return {"action": "accept", "content": content}


def remembering(answer: str) -> JsonObject:
    return accept({"decision": "approve", "remember": answer})


YES, NO = accept({"decision": "approve"}), accept({"decision": "deny"})


def files(**answers: Any) -> ScriptedSource:
    answers = {"remove": text_result("removed"), "wipe": text_result("wiped"), "look": text_result("seen"), **answers}
    tools = [Tool(name, annotations=READ_ONLY) if name == "look" else Tool(name) for name in answers]
    return ScriptedSource("files", answers, tools=tools)


def message_of(question: Any) -> str:
    assert isinstance(question, ApprovalQuestion)
    return question.message


def only_question(outcome: Outcome) -> tuple[str, ApprovalQuestion]:
    ((key, question),) = outcome.questions
    assert isinstance(question, ApprovalQuestion)
    return key, question


def needing(outcome: Outcome) -> list[str]:
    return [call.tool for call in outcome.pending if call.status == "needs_approval"]


@asynccontextmanager
async def while_asked(
    engine: Engine, code: str, client: FakeClient, *sources: Any, **options: Any
) -> AsyncIterator[Any]:
    """Yield a bench while the client is asked about a program, the id of its run, and the list for its answer."""
    outcomes: list[Outcome] = []
    async with bench(engine, *sources or (files(),), rules=RULES, **options) as it, anyio.create_task_group() as group:

        async def execute() -> None:
            outcomes.append(await it.execute(code, client=client))

        group.start_soon(execute)
        await client.is_asked.wait()
        ((run_id, _),) = it.manager._live.runs.items()
        yield it, run_id, outcomes


async def answered(it: Bench, waiting: Outcome, answer: Any) -> Outcome:
    """Answer the only question of a run."""
    key, _ = only_question(waiting)
    return await it.observe(waiting.run_id, client=FakeClient("return"), answers={key: answer})


async def question_of(engine: Engine, code: str, source: Any = None) -> str:
    _, question = only_question(await ran(engine, code, source or files(), client=FakeClient("return"), rules=RULES))
    return question.message


def pass_over(it: Bench, run_id: str) -> None:
    """Let the time of a request pass."""
    it.clock.advance(61)
    it.manager._live.runs[run_id].change()


# asking


async def test_a_call_that_a_rule_asks_for_is_made_once_the_user_approved(engine: Engine) -> None:
    source, client = files(), FakeClient("ask", replies=[YES])
    outcome = await ran(engine, REMOVE, source, client=client, rules=RULES)
    assert (outcome.status, outcome.value) == ("completed", "removed")
    assert source.calls == [("remove", {"path": "a"})]
    message = message_of(client.asked[0])
    assert message.startswith("codemode-mcp asks for your approval: may a program make this tool call?")
    assert '"mcp:files:remove"' in message
    assert '"path": "a"' in message
    assert "may destroy or overwrite" in message
    assert "asked for by the rule 'destructive'" in message


async def test_what_the_user_denies_is_not_sent_and_the_program_is_told(engine: Engine) -> None:
    source = files()
    outcome = await ran(engine, REMOVE, source, client=FakeClient("ask", replies=[NO]), rules=RULES)
    assert (outcome.status, outcome.code) == ("failed", "nested_tool_failed")
    assert "MCP.files.remove was not approved: the user denied it" in outcome.error
    assert source.calls == []


async def test_calls_without_an_ask_rule_are_made_without_a_question(engine: Engine) -> None:
    client = FakeClient("ask")
    outcome = await ran(engine, "return unwrap(await MCP.files.look({}))", files(), client=client, rules=RULES)
    assert (outcome.value, client.asked) == ("seen", [])


ANSWERS: list[Any] = [
    *({}, {"content": {"decision": "approve"}}, {"decision": "approve"}, "approve", ["approve"], None, True),
    {"action": "accept"},
    *({"action": action, "content": {"decision": "approve"}} for action in ("decline", "cancel", ["accept"])),
    *({"action": "accept", "content": content} for content in (None, [], {})),
    *(accept({"decision": decision}) for decision in (True, "Approve", "approve ", ["approve"])),
    *(accept({"decision": "approve", "remember": remember}) for remember in ("forever", "always", True)),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=json.dumps)
async def test_whatever_is_not_exactly_an_approval_denies(engine: Engine, answer: Any) -> None:
    source = files()
    async with bench(engine, source, rules=RULES, via="client") as it:
        outcome = await answered(it, await it.execute(REMOVE, client=FakeClient("return")), answer)
    assert "was not approved" in outcome.error
    assert source.calls == []


def all_of(number: int) -> str:
    """Return a program that makes so many calls together and returns their ends."""
    return (
        f"const made = Array.from({{ length: {number} }}, (_, n) => MCP.files.remove({{ n }}));"
        "const all = await Promise.allSettled(made);"
        "return all.map((each) => each.status === 'fulfilled' ? 'made' : each.reason.code)"
    )


DENIED = "nested_tool_failed"
MANY: dict[str, tuple[str, list[JsonObject], dict[str, int], list[str], list[str]]] = {
    "a turn": (all_of(3), [YES], {}, ["made"] * 3, ["these 3 tool calls"]),
    "calls that wait for their turn": (
        all_of(8),
        [YES],
        {"max_pending_tool_calls": 1},
        ["made"] * 8,
        ["these 8 tool calls"],
    ),
    "more than one question has room for": (
        *(all_of(50), [YES, NO, YES], {}, ["made"] * 20 + [DENIED] * 20 + ["made"] * 10),
        ["30 more calls wait", "10 more calls wait", ""],
    ),
    "for the run": (all_of(50), [remembering("run")], {}, ["made"] * 50, ["30 more calls wait"]),
    "more than a program may have": (
        *(all_of(20), [YES] * 3, {"max_pending_tool_calls": 4, "max_queued_tool_calls": 6}),
        *(["made"] * 10 + ["too_many_pending_tool_calls"] * 10, ["these 10 tool calls"]),
    ),
}


@pytest.mark.parametrize("case", MANY)
async def test_all_calls_of_a_turn_are_one_question(engine: Engine, case: str) -> None:
    code, replies, settings, ends, said = MANY[case]
    source, client = files(), FakeClient("ask", replies=replies)
    assert (await ran(engine, code, source, client=client, rules=RULES, **settings)).value == ends
    assert len(client.asked) == len(said)
    assert all(text in message_of(question) for text, question in zip(said, client.asked, strict=True))
    assert sorted(arguments["n"] for _, arguments in source.calls) == [n for n, end in enumerate(ends) if end == "made"]


async def test_a_program_that_does_not_accept_a_denial_cannot_ask_forever(engine: Engine) -> None:
    source, client = files(), FakeClient("ask", replies=[NO] * 100)
    code = (
        "let last; for (let n = 0; n < 50; n++) { try { await MCP.files.remove({ n }); } catch (e) { last = e } }"
        "return last.message"
    )
    outcome = await ran(engine, code, source, client=client, rules=RULES)
    assert len(client.asked) == 3
    assert "no person is asked after 3 denials in this program" in outcome.value
    assert source.calls == []


async def test_other_calls_continue_while_a_person_thinks(engine: Engine) -> None:
    source, client = files(), FakeClient("ask")
    code = (
        "const asked = [1, 2, 3].map((n) => MCP.files.remove({ n }));"
        "const seen = []; for (let n = 0; n < 5; n++) seen.push(unwrap(await MCP.files.look({ n })));"
        "await new Promise((resolve) => setTimeout(resolve, 20)); text(seen.join()); return Promise.all(asked)"
    )
    async with bench(engine, source, rules=RULES, max_pending_tool_calls=1) as it, anyio.create_task_group() as group:

        async def execute() -> None:
            outcome = await it.execute(code, client=client)
            assert (outcome.code, texts(outcome)) == ("aborted", ["seen,seen,seen,seen,seen"])

        group.start_soon(execute)
        await until(lambda: len(source.calls) == 5 and bool(client.asked))
        ((run_id, run),) = it.manager._live.runs.items()
        await until(lambda: bool(run.outputs))
        assert run.executing == 0
        assert await it.manager.operator.cancel(run_id)
    assert {tool for tool, _ in source.calls} == {"look"}


async def test_approved_calls_keep_to_the_limit_of_calls_in_flight(engine: Engine) -> None:
    source = SlowSource("files", {"remove": text_result("removed")})
    code = "return (await Promise.all([1, 2, 3, 4, 5].map((n) => MCP.files.remove({ n })))).length"
    async with bench(engine, source, rules=RULES, max_pending_tool_calls=2) as it, anyio.create_task_group() as group:
        outcomes: list[Outcome] = []

        async def execute() -> None:
            outcomes.append(await it.execute(code, client=FakeClient("ask", replies=[YES])))

        group.start_soon(execute)
        await source.wait_pending(2)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert source.pending == 2
        source.release.set()
    assert outcomes[0].value == 5


async def test_time_that_a_person_takes_is_not_the_programs(engine: Engine) -> None:
    options = {"timeout_ms": 1_000, "max_request_ms": 600_000}
    async with while_asked(engine, REMOVE, FakeClient("ask"), **options) as (it, run_id, outcomes):
        it.clock.advance(300)
        assert it.manager.operator.decide(run_id, None, approved=True, by="a test") == [1]
    assert outcomes[0].value == "removed"


async def test_a_request_is_answered_in_time_though_a_person_thinks(engine: Engine) -> None:
    client = FakeClient("ask")
    async with while_asked(engine, REMOVE, client, timeout_ms=1_000, max_request_ms=60_000) as (it, run_id, outcomes):
        pass_over(it, run_id)
        await until(lambda: bool(outcomes))
        assert needing(outcomes[0]) == ["mcp:files:remove"]
        # Asked only while its request is open.
        await until(lambda: client.taken_back == 1)
        assert (await it.observe(run_id, client=FakeClient("ask", replies=[YES]))).value == "removed"


async def test_a_lasting_client_may_answer_after_its_request(engine: Engine) -> None:
    client, source = LateClient(), files()
    options = {"timeout_ms": 1_000, "max_request_ms": 60_000}
    async with while_asked(engine, REMOVE, client, source, **options) as (it, run_id, outcomes):
        pass_over(it, run_id)
        await until(lambda: bool(outcomes))
        assert outcomes[0].asked == ("A person has to approve mcp:files:remove. The user is being asked.",)
        client.answer.set()
        await until(lambda: bool(source.calls))
        assert (await it.observe(run_id, client=FakeClient("none"))).value == "removed"


class LateClient(FakeClient):
    def __init__(self) -> None:
        super().__init__("ask", lasting=True)
        self.answer = anyio.Event()

    async def ask(self, question: Any) -> JsonObject:
        self.is_asked.set()
        await self.answer.wait()
        return YES


async def test_a_client_that_answers_with_an_error_has_not_approved(engine: Engine) -> None:
    class Broken(FakeClient):
        async def ask(self, question: Any) -> JsonObject:
            raise QuestionRefused("the client answered with error -32603: no")

    class Crashing(FakeClient):
        async def ask(self, question: Any) -> JsonObject:
            raise RuntimeError("boom")

    source = files()
    async with bench(engine, source, rules=RULES) as it:
        for client in (Broken("ask"), Crashing("ask")):
            outcome = await it.execute(REMOVE, client=client)
            assert "was not approved" in outcome.error
            assert "boom" not in outcome.error
    assert source.calls == []


# asked by an answer


async def test_a_client_that_takes_questions_as_answers_comes_back_with_the_decision(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(REMOVE_THREE, client=FakeClient("return"))
        assert "these 3 tool calls" in only_question(waiting)[1].message
        assert needing(waiting) == ["mcp:files:remove"] * 3
        outcome = await answered(it, waiting, YES)
    assert (outcome.value, len(source.calls)) == (["fulfilled"] * 3, 3)


async def test_an_answer_to_a_question_that_was_taken_back_counts_for_nothing(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(REMOVE_THREE, client=FakeClient("return"))
        key, _ = only_question(waiting)
        assert it.manager.operator.decide(waiting.run_id, [2], approved=False, by="a test") == [2]
        again = await it.observe(waiting.run_id, client=FakeClient("return"), answers={key: YES})
        fresh, shrunk = only_question(again)
        assert fresh != key
        assert "these 2 tool calls" in shrunk.message
        assert source.calls == []
        outcome = await it.observe(waiting.run_id, client=FakeClient("return"), answers={key: NO, fresh: YES})
        assert outcome.value == ["fulfilled", "rejected", "fulfilled"]
    assert sorted(arguments["path"] for _, arguments in source.calls) == ["a", "c"]


async def test_an_answer_for_one_run_does_not_count_for_another(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        one = await it.execute(REMOVE, client=FakeClient("return"))
        other = await it.execute(REMOVE, client=FakeClient("return"))
        key, _ = only_question(one)
        guesses = {f"question-{n}": YES for n in range(10)} | {f"approval-{n}": YES for n in range(10)} | {key: YES}
        again = await it.observe(other.run_id, client=FakeClient("return"), answers=guesses)
        assert (needing(again), source.calls) == (["mcp:files:remove"], [])


async def test_a_run_of_another_owner_cannot_be_answered(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(REMOVE, client=FakeClient("return"))
        key, _ = only_question(waiting)
        with pytest.raises(ProgramError):
            await it.observe(waiting.run_id, owner="another owner", client=FakeClient("return"), answers={key: YES})
        assert len(it.manager.operator.approvals(waiting.run_id)) == 1
    assert source.calls == []


# without a client that can be asked


async def test_without_a_person_to_ask_the_run_suspends_immediately_and_says_how_to_approve(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES, timeout_ms=60_000) as it:
        with anyio.fail_after(20):
            waiting = await it.execute(REMOVE, client=FakeClient("none"))
        assert (waiting.status, waiting.unanswerable, waiting.questions) == ("waiting", True, ())
        assert needing(waiting) == ["mcp:files:remove"]
        assert f"codemode-mcp runs approve {waiting.run_id}" in waiting.asked[0]
        (request,) = it.manager.operator.approvals(waiting.run_id)
        assert (request.call, request.tool, request.arguments) == (1, "mcp:files:remove", {"path": "a"})
        assert it.manager.operator.decide(waiting.run_id, [1, 2, 99], approved=True, by="a test") == [1]
        outcome = await it.observe(waiting.run_id, client=FakeClient("none"))
        assert outcome.value == "removed"
        assert it.manager.operator.approvals(waiting.run_id) == ()


async def test_a_wait_from_a_client_that_can_be_asked_puts_the_question(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES) as it:
        waiting = await it.execute(REMOVE, client=FakeClient("none"))
        client = FakeClient("ask", replies=[YES])
        outcome = await it.observe(waiting.run_id, client=client)
        assert outcome.value == "removed"


async def test_what_the_operator_denies_rejects_the_call(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(REMOVE, client=FakeClient("none"))
        it.manager.operator.decide(waiting.run_id, None, approved=False, by="the operator at a terminal")
        outcome = await it.observe(waiting.run_id, client=FakeClient("none"))
    assert "was not approved: denied by the operator at a terminal" in outcome.error
    assert source.calls == []


async def test_a_decision_elsewhere_takes_the_question_back_from_the_client(engine: Engine) -> None:
    client = FakeClient("ask")
    async with while_asked(engine, REMOVE_THREE, client) as (it, run_id, outcomes):
        it.manager.operator.decide(run_id, [1], approved=True, by="a test")
        await until(lambda: len(client.asked) == 2)
        assert client.taken_back == 1
        assert "these 2 tool calls" in message_of(client.asked[1])
        it.manager.operator.decide(run_id, [2, 3], approved=False, by="a test")
    assert (client.taken_back, outcomes[0].value) == (2, ["fulfilled", "rejected", "rejected"])


async def test_deciding_about_a_run_that_is_not_there_says_so(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES) as it:
        with pytest.raises(ProgramError, match="there is no run"):
            it.manager.operator.decide("run_nowhere", None, approved=True, by="a test")


# remembering


async def test_an_approval_for_the_run_counts_for_later_calls_of_the_same_tool_alone(engine: Engine) -> None:
    source, client = files(), FakeClient("ask", replies=[remembering("run"), NO])
    code = (
        "for (let n = 0; n < 5; n++) await MCP.files.remove({ n });"
        "return MCP.files.wipe({}).then(() => 'wiped', (error) => error.message)"
    )
    async with bench(engine, source, rules=RULES) as it:
        outcome = await it.execute(code, client=client)
        assert "MCP.files.wipe was not approved" in outcome.value
        assert len(client.asked) == 2
        # Another run is asked for.
        waiting = await it.execute(REMOVE, client=FakeClient("return"))
        assert needing(waiting) == ["mcp:files:remove"]
    assert [tool for tool, _ in source.calls] == ["remove"] * 5


class Memory:
    def __init__(self, error: Exception | None = None) -> None:
        self.kept: list[tuple[tuple[str, ...], Caller]] = []
        self._error = error

    async def __call__(self, tools: Collection[str], caller: Caller) -> None:
        if self._error is not None:
            raise self._error
        self.kept.append((tuple(tools), caller))


async def test_an_approval_for_ever_is_kept_and_counts_immediately(engine: Engine) -> None:
    memory, client = Memory(), FakeClient("ask", replies=[remembering("always")])
    caller = Caller(OWNER, "stdio", "ada")
    async with bench(engine, files(), rules=RULES, remember=memory) as it:
        code = "await MCP.files.remove({ n: 1 }); return unwrap(await MCP.files.remove({ n: 2 }))"
        assert (await it.execute(code, caller=caller, client=client)).value == "removed"
    assert (memory.kept, len(client.asked)) == ([(("mcp:files:remove",), caller)], 1)


async def test_nothing_over_http_is_remembered_for_ever(engine: Engine) -> None:
    memory, client = Memory(), FakeClient("ask", replies=[remembering("always")])
    source = files()
    async with bench(engine, source, rules=RULES, remember=memory) as it:
        outcome = await it.execute(REMOVE, caller=Caller(OWNER, "http", "ada"), client=client)
    assert "was not approved" in outcome.error
    assert (memory.kept, source.calls) == ([], [])
    (question,) = client.asked
    assert isinstance(question, ApprovalQuestion)
    assert question.params["requestedSchema"]["properties"]["remember"]["enum"] == ["no", "run"]


@pytest.mark.parametrize("name", ["*", "remove_*", "remov?", "a" * 300, "re\nmove", "re\u202emove"])
async def test_a_tool_whose_name_would_be_another_rule_is_not_remembered_for_ever(engine: Engine, name: str) -> None:
    memory = Memory()
    source = ScriptedSource("files", {name: text_result("done")})
    code = f"return unwrap(await MCP.files[{json.dumps(name)}]({{}}))"
    async with bench(engine, source, rules=RULES, remember=memory) as it:
        waiting = await it.execute(code, caller=Caller(OWNER, "stdio", "ada"), client=FakeClient("return"))
        key, question = only_question(waiting)
        assert question.remember == ("run",)
        with pytest.raises(ProgramError, match="cannot be remembered"):
            it.manager.operator.decide(waiting.run_id, None, approved=True, remember="always", by="a test")
        outcome = await it.observe(waiting.run_id, client=FakeClient("return"), answers={key: remembering("always")})
    assert "was not approved" in outcome.error
    assert memory.kept == []


@pytest.mark.parametrize("error", [ConfigError(("it is read-only",)), RuntimeError("boom")], ids=["known", "unknown"])
async def test_an_approval_that_cannot_be_kept_counts_for_the_program_alone(engine: Engine, error: Exception) -> None:
    client = FakeClient("ask", replies=[remembering("always")])
    code = "const done = unwrap(await MCP.files.remove({})); await MCP.files.look({}); return done"
    outcome = await ran(engine, code, files(), client=client, rules=RULES, remember=Memory(error))
    assert outcome.value == "removed"
    assert any("valid for this program only" in note for note in outcome.notes)
    assert not any("boom" in note for note in outcome.notes)


# policy and arguments


@pytest.mark.parametrize(
    ("code", "ask"),
    [(REMOVE, "destructive"), ("return await MCP.files.resources.list()", "mcp:files:resources/list")],
    ids=["tool", "resources"],
)
async def test_a_denial_of_the_rules_that_comes_meanwhile_counts(engine: Engine, code: str, ask: str) -> None:
    source = ScriptedSource(
        "files", {"remove": text_result("removed"), "resources/list": {"resources": []}}, resources=True
    )
    rules = PolicyRules(ask=(ask,))
    async with bench(engine, source, rules=rules) as it:
        waiting = await it.execute(code, client=FakeClient("return"))
        it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=replace(rules, deny=("mcp:files:*",))))
        outcome = await answered(it, waiting, YES)
    assert "may not be called: denied by the rule 'mcp:files:*'" in outcome.error
    assert source.calls == []


@pytest.mark.parametrize("ask", [(), ("mcp:files:resources/list",)], ids=["allowed", "approved"])
async def test_a_denial_while_a_server_connects_counts_for_resources_too(engine: Engine, ask: tuple[str, ...]) -> None:
    rules = PolicyRules(ask=ask)

    class Connecting(ScriptedSource):
        async def request(self, method: str, params: JsonObject, **options: Any) -> JsonObject:
            it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=replace(rules, deny=("mcp:files:*",))))
            return await super().request(method, params, **options)

    source = Connecting("files", {"resources/list": {"resources": []}}, resources=True)
    async with bench(engine, source, rules=rules) as it:
        outcome = await it.execute(
            "try { await MCP.files.resources.list() } catch (error) { return [error.message, error.data.dispatched] }",
            client=FakeClient("ask", replies=[YES]),
        )
    assert outcome.value == ["MCP.files.resources.list may not be called: denied by the rule 'mcp:files:*'", False]
    assert source.calls == []


async def test_what_a_server_says_that_is_not_believed_any_more_is_not_shown(engine: Engine) -> None:
    rules, client = PolicyRules(ask=("mcp:*",)), FakeClient("ask", replies=[NO])
    async with bench(engine, files(), rules=rules) as it:
        distrusting = replace(rules, distrusted_servers=frozenset({"files"}))
        it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=distrusting))
        await it.execute("await MCP.files.look({}).catch(() => 0)", client=client)
    assert "may destroy or overwrite" in message_of(client.asked[0])


async def test_a_tool_that_turned_out_to_do_more_than_was_shown_is_not_called(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=PolicyRules(ask=("mcp:*",), allow=("readOnly", "destructive"))) as it:
        waiting = await it.execute("return unwrap(await MCP.files.look({}))", client=FakeClient("return"))
        assert "reads only" in only_question(waiting)[1].message
        source.relist(Tool("look"))
        outcome = await answered(it, waiting, YES)
    assert "has changed what the tool says it does since a person was asked" in outcome.error
    assert source.calls == []


async def test_a_program_cannot_change_what_it_has_asked_for(engine: Engine) -> None:
    source = files()
    code = (
        "const input = { path: 'harmless' }; const asked = MCP.files.remove(input); input.path = '/';"
        "input.toJSON = () => ({ path: '/' }); await yield_control(); input.path = '/etc'; return unwrap(await asked)"
    )
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(code, client=FakeClient("none"))
        client = FakeClient("ask", replies=[YES])
        assert (await it.observe(waiting.run_id, client=client)).value == "removed"
    assert '"path": "harmless"' in message_of(client.asked[0])
    assert source.calls == [("remove", {"path": "harmless"})]


# ends


async def test_a_cancelled_run_takes_its_question_back(engine: Engine) -> None:
    client, source = FakeClient("ask"), files()
    async with while_asked(engine, REMOVE_THREE, client, source) as (it, run_id, outcomes):
        assert await it.manager.operator.cancel(run_id)
        with pytest.raises(ProgramError):
            it.manager.operator.decide(run_id, None, approved=True, by="a test")
    assert (client.taken_back, source.calls, outcomes[0].code) == (1, [], "aborted")


async def test_a_request_that_is_given_up_while_a_person_is_asked_sends_nothing(engine: Engine) -> None:
    client = FakeClient("ask")
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: it.execute(REMOVE, client=client))
            await client.is_asked.wait()
            group.cancel_scope.cancel()
        await until(lambda: not it.manager._live.runs)
    assert (client.taken_back, source.calls) == (1, [])


async def test_a_run_that_expires_waits_for_no_approval_any_more(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES, approval_ttl_seconds=60) as it:
        waiting = await it.execute(REMOVE, client=FakeClient("return"))
        it.clock.advance(61)
        await it.manager.sweep()
        assert (await refusal(answered(it, waiting, YES))).code == "snapshot_expired"
        with pytest.raises(ProgramError):
            it.manager.operator.decide(waiting.run_id, None, approved=True, by="a test")
    assert source.calls == []


async def test_an_approved_call_that_waits_for_its_turn_is_made_though_the_program_has_ended(engine: Engine) -> None:
    source, slow = files(), SlowSource("slow", {"hold": text_result("held")})
    code = "MCP.files.remove({ path: 'a' }); MCP.slow.hold({}); await yield_control('begun'); return 1"
    rules = PolicyRules(ask=("mcp:files:*",))
    async with bench(engine, source, slow, rules=rules, max_pending_tool_calls=1) as it:
        outcome = await it.execute(code)
        await until(lambda: slow.pending == 1 and len(it.manager.operator.approvals(outcome.run_id)) == 1)
        assert it.manager.operator.decide(outcome.run_id, None, approved=True, by="a test") == [1]
        outcome = await it.observe(outcome.run_id)
        assert outcome.status == "completed"
        assert outcome.notes == ("Not waited for, still in flight: mcp:files:remove, mcp:slow:hold",)
        slow.release.set()
        await until(lambda: bool(source.calls))


async def test_a_call_that_is_given_up_in_the_moment_of_its_approval_is_not_sent(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        outcome = await it.execute(REMOVE)
        ((_, run),) = it.manager._live.runs.items()
        assert it.manager.operator.decide(outcome.run_id, None, approved=True, by="a test") == [1]
        run.cancel_calls()
        await until(lambda: not run.calls)
        assert source.calls == []


async def test_a_decision_about_a_run_past_its_time_sends_nothing(engine: Engine) -> None:
    source, client = files(), LateClient()
    options = {"approval_ttl_seconds": 10, "max_request_ms": 60_000}
    async with while_asked(engine, REMOVE, client, source, **options) as (it, run_id, outcomes):
        run = it.manager._live.runs[run_id]
        pass_over(it, run_id)
        await until(lambda: bool(outcomes))
        it.clock.advance(11)  # and no sweep has dropped it yet
        with pytest.raises(ProgramError, match="there is no run"):
            it.manager.operator.decide(run_id, None, approved=True, by="a test")
        client.answer.set()
        await until(lambda: not run.calls)
        assert source.calls == []


async def test_calls_that_a_program_does_not_await_are_given_up_before_anyone_approves(engine: Engine) -> None:
    source, client = files(), FakeClient("ask", replies=[YES])
    async with bench(engine, source, rules=RULES) as it:
        outcome = await it.execute("MCP.files.remove({}); return 1", client=client)
        assert outcome.value == 1
        assert "cancelled before a person approved: mcp:files:remove; await such calls" in outcome.notes[0]
        raced = "return Promise.race([MCP.files.remove({}), MCP.files.look({}).then(() => 2)])"
        outcome = await it.execute(raced, client=FakeClient("ask"))
        assert outcome.value == 2
        assert "cancelled before a person approved: mcp:files:remove" in outcome.notes[0]
        with anyio.fail_after(20):
            await anyio.wait_all_tasks_blocked()
    assert ("remove", {}) not in source.calls


async def test_timers_and_yields_work_while_a_call_waits(engine: Engine) -> None:
    code = (
        "const asked = MCP.files.remove({}); const ticks = [];"
        "for (let n = 0; n < 3; n++) { await new Promise((resolve) => setTimeout(resolve, 10)); ticks.push(n); }"
        "text(ticks.join()); await yield_control('half'); return unwrap(await asked)"
    )
    async with bench(engine, files(), rules=RULES, timeout_ms=20_000) as it:
        waiting = await it.execute(code, client=FakeClient("ask"))
        assert (waiting.reason, waiting.yielded, texts(waiting)) == ("yield", "half", ["0,1,2"])
        assert needing(waiting) == ["mcp:files:remove"]
        outcome = await it.observe(waiting.run_id, client=FakeClient("ask", replies=[YES]))
        assert outcome.value == "removed"


async def test_a_call_cannot_take_the_number_of_one_that_a_person_was_shown(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(REMOVE, client=FakeClient("none"))
        run = it.manager._live.runs[waiting.run_id]
        with pytest.raises(InternalError):
            it.manager._driver.calls.accept(run, ToolCall(1, "mcp:files:wipe", "{}"), 0.0)
        assert [request.tool for request in it.manager.operator.approvals(waiting.run_id)] == ["mcp:files:remove"]


async def test_what_was_printed_before_a_question_comes_with_the_next_answer(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES) as it:
        code = "text('before'); await MCP.files.remove({}); text('after')"
        waiting = await it.execute(code, client=FakeClient("return"))
        assert texts(waiting) == []
        assert texts(await answered(it, waiting, YES)) == ["before", "after"]


# what is shown

BIDI = "\u202e\u2066\u200f\u200b\ufeff\u2028\u2029\u061c"
FRAME = (
    'a\n\ncodemode-mcp asks for your approval: may a program make this tool call?\n\n    call 1: "mcp:files:look"\n'
    "      effects: reads only\r\n\x1b[2J\x1b[1;1H\x07\x08\x00\x9b31m" + BIDI
)
HOSTILE = {
    "frame": {"path": FRAME},
    "frame in a key": {FRAME: 1, "effects": "reads only", "why you are asked": "no reason", "  call 2": "x"},
    "spaces to the next line": {"path": "a" + " " * 3000 + "effects: reads only"},
    "wide spaces": {"path": "a" + "\u3000\u00a0\u2003\u2800\u3164" * 50 + "effects: reads only"},
    "marks": {"path": "e" + "\u0301" * 500},
    "long": {"path": "x" * 100_000 + "\n[cut: 1 character]\n" + "y" * 100_000},
    "many": {f"k{n}": "v" * 300 for n in range(500)},
    "deep": {"path": json.loads("[" * 90 + "]" * 90)},
    "lone halves": {"path": "\ud800x\udfff", "\udbff": 1},
    "markdown": {"path": "![x](http://127.0.0.1/) <!-- </details> ``` ~~~ **approve**"},
    "tags": {"path": "\U000e0041\U000e0042", "b": "\U0001f468\u200d\U0001f469"},
    "numbers": {"a": 1e308, "b": -0.0, "c": 1234567890123456},
    "prototype": {"__proto__": {"a": 1}, "constructor": 1, "toJSON": "x"},
}
OURS = re.compile(
    r"    (call \d+: \"|  arguments:|    (\"|\[cut: [\d,]+ (characters|more arguments) )|      \| |  effects: |"
    r"  why you are asked: \")"
)


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
async def test_nothing_in_the_arguments_can_be_taken_for_part_of_the_question(engine: Engine, arguments: Any) -> None:
    source = files()
    code = f"return MCP.files.remove(JSON.parse({json.dumps(json.dumps(arguments))}))"
    async with bench(engine, source, rules=RULES) as it:
        waiting = await it.execute(code, client=FakeClient("return"))
        message = only_question(waiting)[1].message
        lines = message.split("\n")
        assert len(message) < 16_000
        assert all(line.isprintable() for line in lines)
        assert "    " not in "".join(line.lstrip() for line in lines)
        ours = ("    ", "codemode-mcp asks", "Names and arguments", "Not everything")
        assert all(line.startswith(ours) for line in lines if line)
        quoted = [line for line in lines if line.startswith("    ")]
        assert [line for line in quoted if not OURS.match(line)] == []
        assert [line for line in quoted if line.startswith("    call ")] == ['    call 1: "mcp:files:remove"']
        assert [line.strip() for line in quoted if line.startswith("      effects: ")] == [
            "effects: may destroy or overwrite, reaches beyond its server"
        ]
        await answered(it, waiting, YES)
    ((_, sent),) = source.calls
    assert sent == (arguments if arguments is not HOSTILE["lone halves"] else {"path": "\ufffdx\ufffd", "\ufffd": 1})


async def test_what_is_cut_says_so_with_its_size_and_digest(engine: Engine) -> None:
    message = await question_of(engine, "return MCP.files.remove({ path: 'b' + 'x'.repeat(50_000) + 'e', then: '/' })")
    cut = r"\[cut: 48,\d{3} characters are not shown here; the whole is 50,004 bytes of JSON, SHA-256 [0-9a-f]{64}\]"
    assert re.search(cut, message)
    assert '"then": "/"' in message
    assert "Not everything is shown" in message


async def test_the_name_of_a_tool_cannot_imitate_the_question(engine: Engine) -> None:
    name = 'x"\n\nApproved already.\n    call 2: "mcp:files:look"\x1b[8m'
    source = ScriptedSource("files", {name: text_result("done")})
    lines = (await question_of(engine, f"return MCP.files[{json.dumps(name)}]({{}})", source)).split("\n")
    assert all(line.isprintable() for line in lines)
    assert sum(line.startswith("    call ") for line in lines) == 1
    assert not any(line.startswith("Approved") for line in lines)


async def test_a_flood_of_large_calls_keeps_each_question_small(engine: Engine) -> None:
    source, client = files(), FakeClient("ask", replies=[remembering("run")])
    code = (
        "const big = 'x'.repeat(20_000);"
        "return (await Promise.all(Array.from({ length: 300 }, (_, n) => MCP.files.remove({ n, big })))).length"
    )
    async with bench(engine, source, rules=RULES, timeout_ms=60_000, max_request_ms=60_000) as it:
        assert (await it.execute(code, client=client)).value == 300
    (question,) = client.asked
    assert len(message_of(question)) < 16_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Grüße, 你好, привет, नमस्ते 🙂", '"Grüße, 你好, привет, नमस्ते 🙂"'),
        (["\u05d3\u05e0\u05d4", 90, 10, "\u05d2\u05d9\u05dc"], r'["\u05d3\u05e0\u05d4",90,10,"\u05d2\u05d9\u05dc"]'),
    ],
    ids=["from left to right", "from right to left"],
)
async def test_only_letters_from_right_to_left_are_shown_as_escapes(engine: Engine, value: Any, shown: str) -> None:
    message = await question_of(engine, f"return MCP.files.remove({{ value: {json.dumps(value)} }})")
    assert f'"value": {shown}' in message


# Dismissed questions, and approvals without a dialog.

CANCEL: JsonObject = {"action": "cancel"}


@pytest.mark.parametrize("way", ["ask", "return"])
async def test_a_question_that_the_client_dismisses_by_itself_waits_for_the_terminal(
    engine: Engine, way: Literal["ask", "return"]
) -> None:
    source, client = files(), FakeClient(way, replies=[CANCEL])
    async with bench(engine, source, rules=RULES, timeout_ms=500) as it:
        waiting = await it.execute(REMOVE, client=client)
        if way == "return":
            key, _ = only_question(waiting)
            waiting = await it.observe(waiting.run_id, client=client, answers={key: CANCEL})
        assert [call.status for call in waiting.pending] == ["needs_approval"]
        (note,) = waiting.asked
        assert "dismissed the question without asking a person" in note
        assert f"runs approve {waiting.run_id}`" in note
        again = await it.observe(waiting.run_id, client=client)
        assert (again.status, again.questions) == ("waiting", ())
        it.manager.operator.decide(waiting.run_id, None, approved=True, by="the test")
        outcome = await it.observe(waiting.run_id, client=client)
    assert (outcome.value, len(client.asked)) == ("removed", 1 if way == "ask" else 0)


@pytest.mark.parametrize("way", ["ask", "return"])
async def test_a_question_that_is_dismissed_after_a_second_was_dismissed_by_a_person(
    engine: Engine, way: Literal["ask", "return"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MIN_DISMISS_SECONDS", 0.0)
    source, client = files(), FakeClient(way, replies=[CANCEL])
    async with bench(engine, source, rules=RULES) as it:
        outcome = await it.execute(REMOVE, client=client)
        if way == "return":
            key, _ = only_question(outcome)
            outcome = await it.observe(outcome.run_id, client=client, answers={key: CANCEL})
    assert "the user dismissed the question" in outcome.error
    assert source.calls == []


async def test_a_decline_is_final_however_fast_it_comes(engine: Engine) -> None:
    outcome = await ran(engine, REMOVE, files(), client=FakeClient("ask", replies=[{"action": "decline"}]), rules=RULES)
    assert "the user declined" in outcome.error


async def test_with_via_terminal_no_client_is_asked(engine: Engine) -> None:
    client = FakeClient("ask", replies=[YES])
    waiting = await ran(engine, REMOVE, files(), client=client, rules=RULES, via="terminal")
    assert (waiting.status, client.asked) == ("waiting", [])
    assert "Approvals are given in a terminal here" in waiting.asked[0]
