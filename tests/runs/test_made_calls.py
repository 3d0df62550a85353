"""Answers of programs that failed or were lost: they name the calls that the next program must not repeat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings, PolicyRules, ToolSettings
from codemode_mcp.runs.calls.outcome import CallRecord, MadeCall, Outcome, outcome_of
from codemode_mcp.runs.rendering import render
from codemode_mcp.runs.views import MAX_TOOLS, made_text, repeat_note
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Completion, GuestError
from tests.runs.bench import bench, ran
from tests.waiting import refusal, until
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

ANSWERS: dict[str, Any] = {
    "create": text_result('{"id": 17}', structuredContent={"id": 17}),
    "fail": text_result("status 400", isError=True),
    "refuse": UpstreamCallError("u", "server 'u' answered: no such item", dispatched=True, code=-32602),
    "break": UpstreamCallError("u", "server 'u' did not answer", dispatched=True),
    "read": text_result("1"),
    "put": text_result("1"),
}
TOOLS = [
    Tool("create"),
    Tool("fail"),
    Tool("refuse"),
    Tool("break"),
    Tool("read", annotations=Annotations(read_only=True)),
    Tool("put", annotations=Annotations(read_only=False, idempotent=True)),
]
MADE = "Already made, do not repeat: mcp:u:create (completed)"


def source() -> ScriptedSource:
    return ScriptedSource("u", ANSWERS, tools=TOOLS)


async def no_store(owner: str, text: str) -> None:
    return None


async def forms(outcome: Outcome, **settings: Any) -> tuple[str, str]:
    """Return what clients that show the text, and clients that show the structured content, give their models."""
    chosen = ToolSettings(code_mode=CodeModeSettings(**settings))
    rendered = await render(outcome, chosen, no_store, 0.0)
    text = "\n".join(block["text"] for block in rendered.content if block["type"] == "text")
    return text, json.dumps(rendered.structured)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("unwrap(await MCP.u.fail({}))", "nested_tool_failed"),
        ("await MCP.u.break({})", "nested_tool_failed"),
        ("await MCP.u.read({ n: 1 }, 'no options')", "nested_tool_failed"),
        ("throw new Error('enough')", "internal_error"),
        ("return r.items.length", "internal_error"),
        ("await new Promise(() => {})", "internal_error"),
        ("while (true) {}", "timeout"),
        ("const all = []; while (true) all.push(new Array(10000).fill(all.length))", "memory_limit_exceeded"),
        ("text('x'.repeat(5000)); await yield_control()", "output_limit_exceeded"),
        ("return 'x'.repeat(25 * 1024 * 1024)", "output_limit_exceeded"),
        (
            "const big = Array.from({ length: 3e5 }, Math.random); await yield_control(); return big",
            "snapshot_limit_exceeded",
        ),
    ],
)
async def test_a_failed_program_names_its_calls_that_must_not_be_repeated(engine: Engine, end: str, code: str) -> None:
    settings: dict[str, Any] = {
        "timeout_ms": 1_000 if code == "timeout" else 20_000,
        "memory_limit_bytes": 32 * 1024 * 1024,
        "max_output_bytes": 2048,
        "max_snapshot_bytes": 64 * 1024,
        "on_output_limit": "fail",
    }
    outcome = await ran(engine, f"const r = unwrap(await MCP.u.create({{}}));\n{end}", source(), **settings)
    assert (outcome.status, outcome.code) == ("failed", code)
    for form in await forms(outcome, **settings):
        assert MADE in form


async def test_a_program_whose_result_is_too_large_names_them_too(engine: Engine) -> None:
    settings: dict[str, Any] = {"max_output_bytes": 2048, "on_output_limit": "fail"}
    async with bench(engine, source(), **settings) as it:
        waiting = await it.execute("await MCP.u.create({}); await yield_control(); return 'x'.repeat(5000)")
        for _ in range(2):
            text, structured = await forms(await it.observe(waiting.run_id), **settings)
            assert "output_limit_exceeded" in text
            assert MADE in text
            assert MADE in structured


async def test_a_cancelled_program_names_its_calls_made_and_of_unknown_outcome(engine: Engine) -> None:
    slow = SlowSource("slow", {"pay": text_result("paid")})
    async with bench(engine, source(), slow, timeout_ms=100) as it:
        waiting = await it.execute("await MCP.u.create({}); await MCP.slow.pay({})")
        while not slow.pending:
            waiting = await it.observe(waiting.run_id)
        outcome = await it.observe(waiting.run_id, cancel=True)
        repeated = await it.observe(waiting.run_id)
    assert outcome.code == "aborted"
    expected = "do not repeat: mcp:u:create (completed), mcp:slow:pay (outcome unknown)"
    for answer in (outcome, repeated):
        assert all(expected in form for form in await forms(answer))


async def test_calls_in_flight_at_the_end_of_a_failed_program_are_named_as_such(engine: Engine) -> None:
    slow = SlowSource("slow", {"pay": text_result("paid")})
    code = "MCP.slow.pay({}); MCP.slow.pay({ n: 2 }); await MCP.u.read({}); throw new Error('enough')"
    async with bench(engine, source(), slow) as it:
        outcome = await it.execute(code)
        assert "do not repeat: mcp:slow:pay (2 times, in flight)." in outcome.notes[0]
        slow.release.set()


async def test_calls_that_may_be_repeated_were_not_sent_or_have_failed_are_not_named(engine: Engine) -> None:
    code = """
        await MCP.u.read({});
        await MCP.u.put({});
        await MCP.u.fail({});
        for (const call of [() => MCP.u.refuse({}), () => MCP.u.create(1, 2, 3), () => MCP.u.denied({})])
            await call().catch(() => {});
        await tools.call("plugin:none:none").catch(() => {});
        throw new Error("enough");
    """
    denied = ScriptedSource("u", {**ANSWERS, "denied": text_result("1")}, tools=[*TOOLS, Tool("denied")])
    async with bench(engine, denied, rules=PolicyRules(ask=("mcp:u:denied",)), via="client") as it:
        outcome = await it.execute(code.replace("MCP.u.denied({})", "MCP.u.create(null)"))
    assert outcome.status == "failed"
    assert not [note for note in outcome.notes if "do not repeat" in note]


async def test_a_completed_program_names_no_calls(engine: Engine) -> None:
    assert (await ran(engine, "await MCP.u.create({}); return 1", source())).notes == ()


async def test_every_call_of_a_loop_is_counted_also_those_before_a_suspension(engine: Engine) -> None:
    code = """
        for (let n = 0; n < 30; n++) await MCP.u.create({ n });
        await yield_control();
        for (let n = 0; n < 12; n++) await MCP.u.create({ n });
        await MCP.u.break({}).catch(() => {});
        throw new Error("enough");
    """
    async with bench(engine, source()) as it:
        waiting = await it.execute(code)
        assert waiting.notes == ()
        outcome = await it.observe(waiting.run_id)
    assert "do not repeat: mcp:u:create (42 times, completed), mcp:u:break (outcome unknown)." in outcome.notes[0]


async def test_the_note_is_first_and_bounded_however_many_tools_were_called(engine: Engine) -> None:
    names = [f"tool_{number}" for number in range(60)]
    many = ScriptedSource("many", {name: text_result("1") for name in names})
    code = "for (const tool of Object.values(MCP.many)) await tool({}); throw new Error('enough')"
    async with bench(engine, many, max_output_bytes=2048) as it:
        outcome = await it.execute(code)
        text, structured = await forms(outcome, max_output_bytes=2048)
    assert f" and {60 - MAX_TOOLS} more calls. Continue" in outcome.notes[0]
    assert "Already made, do not repeat: mcp:many:tool" in text
    assert len(structured) < 4096


async def test_names_of_tools_cannot_write_lines_of_their_own(engine: Engine) -> None:
    name = "create\nIgnore this\u202e" + "x" * 500
    async with bench(engine, ScriptedSource("u", {name: text_result("1")})) as it:
        outcome = await it.execute("for (const tool of Object.values(MCP.u)) await tool({}); throw new Error('x')")
    assert len(outcome.notes) == 2
    for note in outcome.notes:
        assert "\n" not in note
        assert "\u202e" not in note
        assert len(note) < 500


async def test_an_expired_run_names_its_calls_and_is_never_said_to_be_started_again(engine: Engine) -> None:
    slow = SlowSource("slow", {"pay": text_result("paid")})
    async with bench(engine, source(), slow, timeout_ms=100, snapshot_ttl_seconds=60) as it:
        waiting = await it.execute("await MCP.u.create({}); await MCP.slow.pay({})")
        while not slow.pending:
            waiting = await it.observe(waiting.run_id)
        reading = await it.execute("await MCP.u.read({}); await yield_control()")
        it.clock.advance(61)
        for swept, pay in ((False, "in flight"), (True, "outcome unknown")):
            if swept:
                await it.manager.sweep()
                await until(lambda: not slow.pending)
            raised = await refusal(it.observe(waiting.run_id))
            assert raised.code == "snapshot_expired"
            assert f"these calls were made: mcp:u:create (completed), mcp:slow:pay ({pay});" in raised.message
            assert "start the program again" not in raised.message
            with pytest.raises(ProgramError, match="60 s and was dropped; start the program again"):
                await it.observe(reading.run_id)


async def test_a_call_that_was_approved_and_made_before_the_run_expired_is_named(engine: Engine) -> None:
    async with bench(engine, source(), rules=PolicyRules(ask=("destructive",)), snapshot_ttl_seconds=60) as it:
        waiting = await it.execute("await MCP.u.create({}); return 'done'")
        assert it.manager.operator.decide(waiting.run_id, None, approved=True, by="a test") == [1]
        (run,) = it.manager._live.runs.values()
        await until(lambda: not run.calls)
        it.clock.advance(2_592_001)
        with pytest.raises(ProgramError, match=r"these calls were made: mcp:u:create \(completed\)"):
            await it.observe(waiting.run_id)


@pytest.mark.parametrize(
    ("completion", "error", "expected"),
    [
        (Completion(1, '{"content": []}'), None, "completed"),
        (Completion(1, '{"content": [{"text": "\\"isError\\": true"}], "isError": false}'), None, "completed"),
        (Completion(1, '{"structuredContent": {"isError": true}}'), None, "completed"),
        (Completion(1, '{"content": [], "isError" : true}'), None, None),
        (Completion(1, '"isError": true, no JSON'), None, "completed"),
        (Completion(1, error=GuestError("too large")), None, "completed"),
        (Completion(1, error=GuestError("no answer")), (-32603, "no answer", None), "outcome unknown"),
        (Completion(1, error=GuestError("wrong")), (-32602, "wrong", None), None),
        (None, None, "outcome unknown"),
    ],
)
def test_the_outcome_of_a_call_follows_from_its_end(
    completion: Completion | None, error: tuple[int, str, Any] | None, expected: str | None
) -> None:
    record = CallRecord(1, "mcp:u:create", 0.0, dispatched=True, server_error=error)
    assert outcome_of(record, completion) == expected
    record.repeatable = True
    assert outcome_of(record, completion) is None


def test_a_text_of_no_calls_says_nothing() -> None:
    assert repeat_note(()) == ()
    assert made_text([MadeCall("a", "completed", 1), MadeCall("b", "in flight", 3)]) == (
        "a (completed), b (3 times, in flight)"
    )
