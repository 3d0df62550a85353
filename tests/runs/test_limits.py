"""Limits under attack, as the manager keeps them: floods of calls, timers and values, quotas, and fair shares."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.manager import Cell
from codemode_mcp.runs.store import MemoryStore
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import Bench, bench, ran, texts
from upstream_clients.testing import ScriptedSource, SlowSource, text_result

MIB = 1024 * 1024


def echo() -> ScriptedSource:
    return ScriptedSource("echo", {"say": lambda arguments: text_result(str(arguments.get("text")))})


async def works_again(it: Bench) -> None:
    """The next program of the same owner is right."""
    outcome = await it.execute("return 1 + 1")
    assert (outcome.status, outcome.value) == ("completed", 2)


# time and memory, by their codes


# A program whose time is over before its timer or call is suspended, so it needs enough for a busy machine.
WAITS_FIRST_MS = 600
NEVER_WAITS_MS = 250


@pytest.mark.parametrize(
    ("code", "timeout_ms"),
    [
        pytest.param("for (;;);", NEVER_WAITS_MS, id="loop"),
        pytest.param("setTimeout(() => { for (;;); }, 1); await new Promise(() => {})", WAITS_FIRST_MS, id="timer"),
        pytest.param("setInterval(() => { for (;;); }, 1); await new Promise(() => {})", WAITS_FIRST_MS, id="interval"),
        pytest.param("await MCP.echo.say({}); for (;;);", WAITS_FIRST_MS, id="after a call"),
        pytest.param("await API.list(); for (;;);", WAITS_FIRST_MS, id="after a look-up"),
        pytest.param("store('k', { toJSON() { for (;;); } })", NEVER_WAITS_MS, id="store"),
        pytest.param("for (;;) new Promise(() => { for (;;); })", NEVER_WAITS_MS, id="swallowed"),
        pytest.param("Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)", NEVER_WAITS_MS, id="native"),
        pytest.param("return { toJSON() { for (;;); } }", NEVER_WAITS_MS, id="value"),
        pytest.param("throw { get message() { for (;;); } }", NEVER_WAITS_MS, id="thrown"),
    ],
)
async def test_whatever_never_ends_is_a_timeout(engine: Engine, code: str, timeout_ms: int) -> None:
    async with bench(engine, echo(), timeout_ms=timeout_ms) as it:
        outcome = await it.execute(f"text('before'); {code}")
        assert (outcome.status, outcome.code) == ("failed", "timeout")
        assert texts(outcome) == ["before"]
        await works_again(it)


@pytest.mark.parametrize(
    "code",
    [
        "const kept = []; for (;;) kept.push(new Array(1e5).fill(0))",
        "const kept = []; for (let i = 0; ; i++) kept.push(new RegExp('a'.repeat(1000) + i))",
        "let a = null; const f = async (x) => { await x }; for (;;) a = f(a)",
        "const kept = []; for (;;) { kept.push({}); await 1 }",
        "return new Array(1000).fill('x'.repeat(1e6))",
        "/(a|b)*c/.test('ab'.repeat(3e6))",
    ],
    ids=["arrays", "expressions", "async functions", "awaits", "value", "matching"],
)
async def test_taking_memory_without_end_has_its_code(engine: Engine, code: str) -> None:
    timeout_ms = 5_000 if "async" in code else 30_000
    async with bench(engine, timeout_ms=timeout_ms, memory_limit_bytes=16 * MIB) as it:
        outcome = await it.execute(f"text('before'); {code}")
        if "async" in code:
            # Short of memory the engine frees parts of async functions twice. It may then be unable to say anything, or
            # be lost in its own allocator until the time is over.
            assert (outcome.status, outcome.code) in {("failed", "memory_limit_exceeded"), ("failed", "timeout")}
        else:
            assert (outcome.status, outcome.code) == ("failed", "memory_limit_exceeded")
            assert texts(outcome) == ["before"]
        await works_again(it)


@pytest.mark.parametrize(
    ("code", "size"),
    [
        ("return 'x'.repeat(25 * MiB)", "25 MiB"),
        ("return new Array(25).fill('x'.repeat(MiB))", "25.1 MiB"),
        ("return '\\u20ac'.repeat(9 * MiB)", "27.1 MiB"),
    ],
    ids=["a text", "a list", "wide characters"],
)
async def test_a_value_that_is_too_large_is_named_as_that(engine: Engine, code: str, size: str) -> None:
    async with bench(engine, timeout_ms=20_000, memory_limit_bytes=256 * MIB) as it:
        outcome = await it.execute(f"const MiB = 1024 * 1024; {code}")
        assert (outcome.status, outcome.code) == ("failed", "output_limit_exceeded")
        assert outcome.error is not None
        assert outcome.error.startswith(f"the program returned a value of {size} as JSON; the limit is 24 MiB")
        assert "return a part or a summary of it; store(key, part) keeps" in outcome.error
        await works_again(it)


async def test_what_was_printed_before_a_value_that_is_too_large_is_shown(engine: Engine) -> None:
    outcome = await ran(engine, "text('before'); return 'x'.repeat(25 * 1024 * 1024)", timeout_ms=20_000)
    assert (outcome.code, texts(outcome)) == ("output_limit_exceeded", ["before"])


@pytest.mark.parametrize("call", ["store('k', large)", "await MCP.echo.say({ text: large })"])
async def test_what_is_too_large_to_be_sent_is_named_as_that(engine: Engine, call: str) -> None:
    async with bench(engine, echo(), timeout_ms=20_000, memory_limit_bytes=256 * MIB) as it:
        outcome = await it.execute(f"const large = 'x'.repeat(25 * 1024 * 1024); {call}; await yield_control()")
        assert (outcome.status, outcome.code) == ("failed", "output_limit_exceeded")
        assert outcome.error is not None
        assert outcome.error.startswith(
            "the program sent 25.1 MiB in one turn, in arguments of calls and values for store()"
        )
        assert outcome.error.endswith("send less, or send it in parts with an await between them")
        await works_again(it)


async def test_memory_that_ends_while_the_value_is_written_is_said_so(engine: Engine) -> None:
    async with bench(engine, timeout_ms=20_000) as it:
        outcome = await it.execute("return new Array(22).fill('x'.repeat(1024 * 1024)).concat(['y'.repeat(2e7)])")
        assert (outcome.status, outcome.code) == ("failed", "memory_limit_exceeded")
        assert outcome.error is not None
        assert "its memory of 64 MiB while its value was written as JSON; return a part or a summary" in outcome.error


@pytest.mark.parametrize(
    "code",
    [
        "const f = () => 1 + f(); f()",
        "const f = async () => { await f() }; await f()",
        "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.a",
        "let it = [1].values(); for (let i = 0; i < 2e4; i++) it = it.map((x) => x); it.next()",
        "JSON.parse('['.repeat(1e5))",
    ],
    ids=["functions", "async functions", "proxies", "iterators", "JSON"],
)
async def test_recursing_without_end_is_the_programs_own_error(engine: Engine, code: str) -> None:
    async with bench(engine) as it:
        outcome = await it.execute(code)
        assert (outcome.status, outcome.code) == ("failed", "internal_error")
        assert outcome.error is not None
        assert outcome.error.startswith("RangeError: Maximum call stack size exceeded")
        assert "the sandbox stopped" not in outcome.error
        await works_again(it)


# floods


FLOOD = """
const all = await Promise.allSettled(Array.from({ length: 20_000 }, (_, i) => MCP.echo.say({ text: i })));
const codes = {};
for (const one of all) codes[one.reason?.code ?? one.status] = (codes[one.reason?.code ?? one.status] ?? 0) + 1;
return codes
"""


@pytest.mark.parametrize("queued", [0, 1024])
async def test_of_a_flood_of_calls_exactly_the_accepted_ones_are_sent(engine: Engine, queued: int) -> None:
    source = echo()
    async with bench(engine, source, timeout_ms=20_000, max_queued_tool_calls=queued) as it:
        outcome = await it.execute(FLOOD)
        accepted = 16 + queued
        assert outcome.value == {"fulfilled": accepted, "too_many_pending_tool_calls": 20_000 - accepted}
        assert len(source.calls) == accepted
        assert sorted(arguments["text"] for _, arguments in source.calls) == list(range(accepted))
        await works_again(it)


async def test_a_flood_over_turns_is_held_to_the_same_limit(engine: Engine) -> None:
    slow = SlowSource("echo", {"say": text_result("late")})
    async with bench(engine, slow, max_queued_tool_calls=10) as it:
        code = """
            const all = [];
            for (let i = 0; i < 50; i++) { all.push(MCP.echo.say({})); await load("k") }
            const codes = (await Promise.allSettled(all.slice(26))).map((one) => one.reason.code);
            text([...new Set(codes)].join() + " " + codes.length);
            await yield_control();
            return (await Promise.allSettled(all)).filter((one) => one.status === "fulfilled").length
        """
        suspended = await it.execute(code)
        assert (suspended.status, texts(suspended)) == ("waiting", ["too_many_pending_tool_calls 24"])
        assert slow.pending == 16
        slow.release.set()
        assert (await it.observe(suspended.run_id)).value == 26
    assert len(slow.calls) == 26


async def test_more_timers_than_there_may_be_are_refused_and_the_others_fire(engine: Engine) -> None:
    async with bench(engine, timeout_ms=20_000) as it:
        code = """
            let fired = 0, refused = 0, over;
            const done = new Promise((resolve) => { over = resolve });
            const fire = () => { if (++fired === 500) over() };
            for (let i = 0; i < 20_000; i++) try { setTimeout(fire, 0) } catch { refused++ }
            await done;
            return [fired, refused]
        """
        outcome = await it.execute(code)
        assert outcome.value == [500, 10_000]
        await works_again(it)


async def test_timers_fire_while_a_program_looks_things_up(engine: Engine) -> None:
    async with bench(engine, timeout_ms=1000) as it:
        code = (
            "let fired = false; setTimeout(() => { fired = true }, 0); while (!fired) await load('k'); return 'fired'"
        )
        assert (await it.execute(code)).value == "fired"


async def test_a_flood_of_look_ups_is_answered_or_refused_as_a_whole(engine: Engine) -> None:
    async with bench(engine, echo(), timeout_ms=30_000) as it:
        code = """
            const all = await Promise.allSettled(Array.from({ length: 20_000 }, () => API.list("mcp/none")));
            return [all.length, [...new Set(all.map((one) => one.reason?.message.slice(0, 20) ?? one.status))]]
        """
        outcome = await it.execute(code)
        assert outcome.status == "completed", outcome
        count, ends = outcome.value
        assert count == 20_000
        assert set(ends) <= {"fulfilled", "this program has use"}
        await works_again(it)


async def test_a_flood_of_values_stays_within_what_an_owner_may_store(engine: Engine) -> None:
    async with bench(engine, timeout_ms=20_000, store_max_bytes=MIB) as it:
        outcome = await it.execute("for (let i = 0; i < 3000; i++) store('k' + i, 'x'.repeat(1000)); return 1")
        assert outcome.value == 1
        kept = await it.execute(
            "return (await Promise.all(Array.from({ length: 2000 }, (_, i) => load('k' + i)))).filter(Boolean).length"
        )
        # Of the first ones as many as fit: 1,000 characters with their quotes, the key, and a fixed share for each.
        assert kept.value == MIB // (1000 + 2 + 4 + 256)
        replaced = await it.execute("store('k1', 'y'); return await load('k1')")
        assert replaced.value == "y"


async def test_one_owner_cannot_fill_what_another_may_store(engine: Engine) -> None:
    async with bench(engine, store_max_bytes=100_000) as it:
        await it.execute("for (let i = 0; i < 1000; i++) store('k' + i, 'x'.repeat(1000)); return 1")
        other = Cell("store('k', 'x'.repeat(90_000)); return (await load('k')).length", "javascript", Caller("another"))
        assert (await it.manager.execute(other)).value == 90_000


# quotas


async def test_one_owner_cannot_take_all_suspended_runs(engine: Engine) -> None:
    async with bench(engine, max_suspended_runs=10, max_suspended_runs_per_owner=3) as it:
        suspended = [await it.execute("await yield_control(); return 'resumed'") for _ in range(8)]
        assert [one.status for one in suspended] == ["waiting"] * 3 + ["failed"] * 5
        assert {one.code for one in suspended[3:]} == {"too_many_pending_tool_calls"}
        other = await it.manager.execute(Cell("await yield_control(); return 'other'", "javascript", Caller("another")))
        assert other.status == "waiting"
        assert (await it.observe(other.run_id, owner="another")).value == "other"
        assert [(await it.observe(one.run_id)).value for one in suspended[:3]] == ["resumed"] * 3
        assert (await it.execute("await yield_control()")).status == "waiting"


async def test_what_a_suspended_flood_of_runs_leaves_behind_expires(engine: Engine) -> None:
    async with bench(engine, max_suspended_runs_per_owner=20, max_suspended_runs=20, snapshot_ttl_seconds=10) as it:
        for _ in range(20):
            assert (await it.execute("await yield_control()")).status == "waiting"
        assert (await it.execute("await yield_control()")).status == "failed"
        it.clock.advance(11)
        await it.manager.sweep()
        assert isinstance(it.store, MemoryStore)
        assert (it.store._suspended, it.manager._live.runs) == ({}, {})
        assert (await it.execute("await yield_control()")).status == "waiting"


# fair shares


async def test_an_owner_of_endless_loops_does_not_starve_another(engine: Engine) -> None:
    ended: list[str] = []

    async with bench(engine, timeout_ms=100, max_running_runs=4) as it, anyio.create_task_group() as group:

        async def loop() -> None:
            outcome = await it.manager.execute(Cell("for (;;);", "javascript", Caller("greedy")))
            assert outcome.code == "timeout"
            ended.append("greedy")

        for _ in range(30):
            group.start_soon(loop)
        await anyio.wait_all_tasks_blocked()
        before = len(ended)
        for _ in range(3):
            other = await it.manager.execute(Cell("return 1", "javascript", Caller("modest")))
            assert other.value == 1
        meanwhile = len(ended) - before
    assert len(ended) == 30
    # Four loops run together. Without a fair share, three programs would wait for all that had begun before them.
    assert meanwhile <= 15


async def test_a_flood_of_turns_of_one_owner_does_not_hold_up_another(engine: Engine) -> None:
    async with bench(engine, echo(), timeout_ms=2000, max_running_runs=2) as it, anyio.create_task_group() as group:
        ends: list[Any] = []

        async def flood() -> None:
            outcome = await it.manager.execute(Cell("for (;;) await load('k')", "javascript", Caller("greedy")))
            ends.append(outcome.status)

        for _ in range(10):
            group.start_soon(flood)
        while len(it.manager.operator.views()) < 10:
            await anyio.lowlevel.checkpoint()  # they are never blocked
        for n in range(5):
            assert (await it.manager.execute(Cell(f"return {n}", "javascript", Caller("modest")))).value == n
        assert ends == []
        group.cancel_scope.cancel()
