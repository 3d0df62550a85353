"""Time limits of programs whose servers start while they wait: only the start itself does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import Bench, bench
from tests.waiting import answering, until
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import CallOptions, JsonObject, ToolOutcome


async def pass_time(it: Bench, seconds: float, outcomes: list[Outcome]) -> None:
    """Move the clock, and return once the request is answered."""
    await anyio.wait_all_tasks_blocked()
    it.clock.advance(seconds)
    (run,) = it.manager._live.runs.values()
    run.change()
    await until(lambda: outcomes)


class StartingSource(ScriptedSource):
    """A source whose calls wait for its start, until `ready` is set, and then for `release`."""

    def __init__(self, name: str, answers: Mapping[str, Any]) -> None:
        super().__init__(name, answers)
        self.waits, self.calling = anyio.Event(), anyio.Event()
        self.ready, self.release = anyio.Event(), anyio.Event()

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        on_start = options["asking"].on_start
        on_start(True)
        self.waits.set()
        try:
            await self.ready.wait()
        finally:
            on_start(False)
        self.calling.set()
        await self.release.wait()
        return await super().call_tool(tool, arguments, **options)


ONE = "await MCP.slow.one({})"
ALL = "await Promise.all([1, 2, 3].map((n) => MCP.slow.one({ n })))"


@pytest.mark.parametrize("code", [ONE, ALL, f"{ALL}; {ALL}"])
async def test_the_start_of_a_server_does_not_count_as_time_of_the_program(engine: Engine, code: str) -> None:
    slow = StartingSource("slow", {"one": text_result("1")})
    slow.release.set()
    settings = {"timeout_ms": 10_000, "max_pending_tool_calls": 2}
    async with bench(engine, slow, **settings) as it, answering(it.execute(code)) as outcomes:
        await slow.waits.wait()
        await anyio.wait_all_tasks_blocked()
        it.clock.advance(30)
        slow.ready.set()
    assert outcomes[0].status == "completed"


async def test_the_time_after_the_start_of_a_server_counts_and_requests_end_in_time(engine: Engine) -> None:
    slow = StartingSource("slow", {"one": text_result("1")})
    async with bench(engine, slow, timeout_ms=10_000) as it, answering(it.execute(ONE)) as outcomes:
        await slow.waits.wait()
        await anyio.wait_all_tasks_blocked()
        it.clock.advance(30)
        slow.ready.set()
        await slow.calling.wait()
        await pass_time(it, 11, outcomes)
        slow.release.set()
    assert outcomes.pop().status == "waiting"

    slow = StartingSource("slow", {"one": text_result("1")})
    async with bench(engine, slow, timeout_ms=10_000) as it, answering(it.execute(ONE)) as outcomes:
        await slow.waits.wait()
        await pass_time(it, 46, outcomes)  # maxRequestMs
    assert outcomes.pop().status == "waiting"


@pytest.mark.parametrize("also", ["MCP.fast.wait({})", "new Promise((done) => setTimeout(done, 60_000))"])
async def test_a_program_that_waits_for_something_else_than_a_start_uses_its_time(engine: Engine, also: str) -> None:
    slow = StartingSource("slow", {"one": text_result("1")})
    fast = SlowSource("fast", {"wait": text_result("1")})
    code = f"await Promise.all([MCP.slow.one({{}}), {also}])"
    async with bench(engine, slow, fast, timeout_ms=10_000) as it, answering(it.execute(code)) as outcomes:
        await slow.waits.wait()
        await pass_time(it, 11, outcomes)
        for event in (slow.ready, slow.release, fast.release):
            event.set()
    assert outcomes[0].status == "waiting"
