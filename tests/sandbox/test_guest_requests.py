"""Tests of what a guest asks for and tells beside its value: randomness, rejections, floods of calls, modules,
interruptions."""

from __future__ import annotations

import pytest
from guest_harness import MIB, READ, Told, ok

from codemode_mcp.sandbox.messages import ToolCall
from tests.sandbox.conftest import OpenCell, RunCode

# randomness

RANDOM = (
    "return [Math.random(), Math.random(), crypto.randomUUID(), Array.from(crypto.getRandomValues(new Uint8Array(8)))]"
)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(run: RunCode) -> None:
    first = run(RANDOM, seed=bytes(32)).value
    assert run(RANDOM, seed=bytes(32)).value == first
    for seed in (b"\1" + bytes(31), bytes(31) + b"\1", bytes(range(32))):
        other = run(RANDOM, seed=seed).value
        assert all(a != b for a, b in zip(first, other, strict=True))


def test_random_numbers_are_between_zero_and_one_and_uuids_have_their_form(run: RunCode) -> None:
    code = (
        "let low = 1, high = 0; for (let i = 0; i < 5000; i++) { const r = Math.random();"
        "low = Math.min(low, r); high = Math.max(high, r) }"
        "const form = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;"
        "return [low, high, form.test(crypto.randomUUID())]"
    )
    low, high, form = run(code).value
    assert 0 <= low < 0.01
    assert 0.99 < high < 1
    assert form is True


# rejections


def rejections(told: Told) -> list[tuple[str, str]]:
    assert told.report is not None
    return [(each.name, each.message) for each in told.report.rejections]


def test_an_unhandled_rejection_is_told_when_the_program_is_over(run: RunCode) -> None:
    told = run("Promise.reject(new TypeError('lost')); (async () => { throw 'text' })(); return 1")
    assert told.value == 1
    assert rejections(told) == [("TypeError", "lost"), ("Uncaught", "text")]


def test_a_rejection_is_not_told_while_the_program_continues(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start("Promise.reject(new Error('lost')); await MCP.files.readFile({}); return 1")
    assert rejections(told) == []
    assert rejections(guest.deliver(ok(1))) == [("Error", "lost")]


def test_a_rejection_that_is_handled_later_is_not_told(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const p = Promise.reject(new Error('caught late')); await MCP.files.readFile({});"
        "try { await p } catch (error) { return error.message }"
    )
    told = guest.deliver(ok(1))
    assert told.value == "caught late"
    assert rejections(told) == []


def test_what_ends_the_program_is_no_unhandled_rejection(run: RunCode) -> None:
    told = run("throw new Error('the end')")
    assert told.report is not None
    assert told.report.state == "failed"
    assert rejections(told) == []


def test_a_thousand_rejections_are_told_as_a_few(run: RunCode) -> None:
    told = run("for (let i = 0; i < 1000; i++) Promise.reject(i); return 1")
    assert told.value == 1
    assert 0 < len(rejections(told)) <= 32


# floods

FLOOD = (
    "const all = []; for (let i = 0; i < 10; i++) all.push(MCP.files.readFile({ i }));"
    "const seen = (await Promise.allSettled(all)).map((r) => r.status === 'fulfilled' ? r.value : r.reason.code);"
)


def test_calls_beyond_the_limit_are_rejected_with_a_code(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(FLOOD + "return seen", call_limit=3)
    assert told.requests == [ToolCall(number, READ, f'{{"i":{number - 1}}}') for number in (1, 2, 3)]
    told = guest.deliver(ok(1, "a"), ok(2, "b"), ok(3, "c"))
    assert told.value == ["a", "b", "c"] + ["too_many_pending_tool_calls"] * 7


def test_calls_can_be_made_again_when_others_have_ended(cell: OpenCell) -> None:
    guest = cell()
    guest.start(FLOOD + "return [seen.length, await MCP.files.readFile({ again: 1 })]", call_limit=3)
    told = guest.deliver(ok(1), ok(2), ok(3))
    assert told.requests == [ToolCall(4, READ, '{"again":1}')]
    assert guest.deliver(ok(4, "more")).value == [10, "more"]


def test_calls_whose_arguments_cannot_be_sent_do_not_count(run: RunCode) -> None:
    told = run(
        "for (let i = 0; i < 10; i++) await MCP.files.readFile(() => 1).catch(() => {});"
        "MCP.files.readFile({}); return 1",
        call_limit=2,
    )
    assert told.value == 1
    assert told.requests == [ToolCall(1, READ, "{}")]


def test_twenty_thousand_calls_together_cost_little_memory(run: RunCode) -> None:
    told = run(
        "let n = 0; for (let i = 0; i < 20000; i++) MCP.files.readFile({}).catch(() => { n++ });"
        "await null; await null; return n",
        call_limit=50,
        memory_limit=32 * MIB,
        seconds=10,
    )
    assert told.value == 19_950
    assert len(told.requests) == 50


# modules


@pytest.mark.parametrize("form", ["import('fs')", "import('./other.js')", "eval('import(\"fs\")')"])
def test_modules_are_denied_with_a_code(run: RunCode, form: str) -> None:
    told = run(f"try {{ await {form} }} catch (error) {{ return [error.name, error.code] }}")
    assert told.value == ["TypeError", "module_access_denied"]


# interruptions

COMPUTE = "let n = 0; for (let i = 0; i < 1e6; i++) n += 1; return n"


def test_an_interrupt_at_rest_does_not_get_into_a_snapshot(cell: OpenCell) -> None:
    guest = cell()
    guest.start("await MCP.files.readFile({});" + COMPUTE)
    guest.guest.interrupt()
    restored = cell(suspended=guest.snapshot()).deliver(ok(1))
    assert restored.stopped is None
    assert restored.value == 1_000_000
