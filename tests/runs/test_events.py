"""Audit events of runs and their calls."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from codemode_mcp.audit import Event
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.runs.manager import Cell
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import CALLER, Bench, bench
from upstream_clients.testing import ScriptedSource, SlowSource, text_result


def source() -> ScriptedSource:
    return ScriptedSource("s", {"work": lambda arguments: text_result(str(arguments.get("n")))})


def listen(it: Bench) -> list[Event]:
    heard: list[Event] = []
    it.auditor.add(heard.append)
    return heard


def kinds(heard: list[Event]) -> list[str]:
    return [event.kind for event in heard]


async def test_a_run_and_its_calls_are_reported_with_their_parents(engine: Engine) -> None:
    async with bench(engine, source()) as it:
        heard = listen(it)
        cell = Cell("await MCP.s.work({n: 1}); await MCP.s.work({n: 22}); return 1", "javascript", CALLER, "req_1")
        outcome = await it.manager.execute(cell)
        assert kinds(heard) == ["run_started", *["call_started", "call_ended"] * 2, "run_ended"]
        first, *calls, last = heard
        assert (first.id, first.parent) == (outcome.run_id, "req_1")
        assert {call.parent for call in calls} == {outcome.run_id}
        begun, ended = calls[:2]
        assert begun.id == ended.id
        assert begun.id.startswith(f"{outcome.run_id}/")
        assert calls[2].id != begun.id
        assert begun.fields["tool"] == "mcp:s:work"
        assert (ended.fields["status"], ended.fields["dispatched"]) == ("completed", True)
        assert ended.fields["bytes"] > 0
        assert (last.fields["status"], last.fields["calls"]) == ("completed", 2)
        assert [event.time for event in heard] == sorted(event.time for event in heard)


async def test_a_watcher_learns_of_the_same_events_when_no_listener_needs_their_fields(engine: Engine) -> None:
    async with bench(engine, source()) as it:
        seen: list[tuple[str, str, str | None]] = []
        it.auditor.watch(lambda *event: seen.append(event))
        program = "await MCP.s.work({n: 1}); return 1"
        outcome = await it.execute(program)
        heard = listen(it)
        assert [kind for kind, _, _ in seen] == ["run_started", "call_started", "call_ended", "run_ended"]
        assert {about for kind, about, _ in seen if kind.startswith("run_")} == {outcome.run_id}
        assert {parent for kind, _, parent in seen if kind.startswith("call_")} == {outcome.run_id}
        seen.clear()
        await it.execute(program)
        assert [kind for kind, _, _ in seen] == kinds(heard)


async def test_arguments_are_in_nothing_but_the_inputs(engine: Engine) -> None:
    async with bench(engine, source()) as it:
        heard = listen(it)
        await it.execute("const r = await MCP.s.work({n: 'confidential'}); throw new Error('confidential')")
        told = [event for event in heard if event.inputs is not None]
        assert [event.kind for event in told] == ["call_started"]
        assert json.loads(told[0].inputs or "") == {"n": "confidential"}
        assert "confidential" not in str([(event.id, event.parent, dict(event.fields)) for event in heard])


async def test_a_call_that_fails_is_told_by_its_code_and_not_by_its_message(engine: Engine) -> None:
    rules = PolicyRules(deny=("mcp:s:work",))
    async with bench(engine, source(), rules=rules) as it:
        heard = listen(it)
        await it.execute("try { await tools.call('no such tool, but text', {}) } catch { } return 1")
        ended = next(event for event in heard if event.kind == "call_ended")
        assert (ended.fields["status"], ended.fields["code"]) == ("failed", "nested_tool_failed")
        assert ended.fields["dispatched"] is False


async def test_names_that_programs_make_up_are_cut(engine: Engine) -> None:
    async with bench(engine, source()) as it:
        heard = listen(it)
        await it.execute("try { await tools.call('x'.repeat(100_000), {}) } catch { } return 1")
        assert max(len(str(dict(event.fields))) for event in heard) < 1000


async def test_suspending_and_restoring_is_reported_once_each(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": lambda arguments: text_result("done")})
    async with bench(engine, slow) as it:
        heard = listen(it)
        suspended = await it.execute("const p = MCP.slow.work({}); await yield_control('x'); return unwrap(await p)")
        assert (suspended.status, kinds(heard)[-1]) == ("waiting", "parked")
        assert (heard[-1].fields["reason"], heard[-1].fields["pending"]) == ("yield", 1)
        slow.release.set()
        await it.observe(suspended.run_id)
        of_the_run = [kind for kind in kinds(heard) if "call" not in kind]
        assert of_the_run == ["run_started", "parked", "restored", "run_ended"]
        assert kinds(heard)[-1] == "run_ended"
        assert kinds(heard).count("run_started") == kinds(heard).count("run_ended") == 1


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("return 1", "completed", None),
        ("throw new Error('x')", "failed", "internal_error"),
        ("await MCP.s.work({n: {}}); await new Promise(() => {})", "failed", "internal_error"),
        ("return !!;", "failed", "invalid_input"),
    ],
)
async def test_every_run_has_one_end_with_its_code(engine: Engine, code: str, status: str, error: str | None) -> None:
    async with bench(engine, source()) as it:
        heard = listen(it)
        with suppress(ProgramError):
            await it.execute(code)
        begun = [event.id for event in heard if event.kind == "run_started"]
        ended = [
            (event.id, event.fields["status"], event.fields.get("code")) for event in heard if event.kind == "run_ended"
        ]
        assert ended == [(begun[0], status, error)] if begun else ended == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return 1", "ok"),
        ("text('x')", "ok"),
        ("await MCP.s.work({ n: 1 })", "ok"),
        ("const r = await MCP.s.work({ n: 1 });", "empty"),
        ("return undefined", "empty"),
        ("throw new Error('x')", "failed"),
    ],
)
async def test_the_end_of_a_run_has_its_class(engine: Engine, code: str, expected: str) -> None:
    async with bench(engine, source()) as it:
        heard = listen(it)
        await it.execute(code)
    assert [event.fields["outcome"] for event in heard if event.kind == "run_ended"] == [expected]


async def test_a_run_that_is_cancelled_expires_or_is_shut_down_has_its_end_told(engine: Engine) -> None:
    async with bench(engine, source(), snapshot_ttl_seconds=60) as it:
        heard = listen(it)
        cancelled, expired, left = [(await it.execute("await yield_control(); return 1")).run_id for _ in range(3)]
        await it.observe(cancelled, cancel=True)
        it.clock.advance(30)
        await it.observe(left)
        again = (await it.execute("await yield_control(); return 1")).run_id
        it.clock.advance(40)
        await it.manager.sweep()
    ends: dict[str, Any] = {event.id: event.fields["status"] for event in heard if event.kind == "run_ended"}
    assert ends == {cancelled: "aborted", expired: "expired", left: "completed", again: "aborted"}
    classes = {event.id: event.fields["outcome"] for event in heard if event.kind == "run_ended"}
    assert classes == {cancelled: "aborted", expired: "aborted", left: "ok", again: "aborted"}
    assert kinds(heard).count("run_ended") == 4
