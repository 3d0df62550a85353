"""Suspended runs that wait for a person: the time for which they are kept, and the answers that name it."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings, PolicyRules
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.rendering import next_step
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from tests.runs.bench import Bench, FakeClient, bench
from tests.runs.test_approvals import LateClient
from tests.waiting import until
from upstream_clients.testing import AskingSource, ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

RULES = PolicyRules(ask=("mcp:files:remove",))
REMOVE = "return unwrap(await MCP.files.remove({ path: 'a' }))"
DAY = 24 * 3600
SOON = {"timeout_ms": 100, "snapshot_ttl_seconds": 900}


def files() -> ScriptedSource:
    tools = [Tool("remove"), Tool("look", annotations=Annotations(read_only=True))]
    return ScriptedSource("files", {"remove": text_result("removed"), "look": text_result("seen")}, tools=tools)


def left(it: Bench, run_id: str) -> float:
    """Return the seconds for which a run is kept."""
    view = it.manager.operator.view(run_id)
    assert view is not None
    assert view.expires_ms is not None
    return view.expires_ms / 1000


def deadline_in(outcome: Outcome) -> float:
    """Return the time in `next`, in Unix seconds."""
    found = re.search(
        r" The program is kept until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC; a decision prolongs", next_step(outcome)
    )
    assert found is not None, next_step(outcome)
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()


async def approve(it: Bench, run_id: str) -> None:
    assert it.manager.operator.decide(run_id, None, approved=True, by="a test")
    await until(lambda: not it.manager._live.runs[run_id].calls)


async def test_a_run_that_waits_for_a_person_is_kept_for_days_and_its_answer_says_until_when(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES, **SOON) as it:
        waiting = await it.execute(REMOVE)
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)
        assert deadline_in(waiting) == pytest.approx(time.time() + 3 * DAY, abs=120)
        it.clock.advance(3 * DAY - 100)
        await it.manager.sweep()
        assert it.manager.operator.decide(waiting.run_id, None, approved=True, by="a test") == [1]
        assert (await it.observe(waiting.run_id)).value == "removed"


async def test_after_its_time_the_run_is_dropped_and_nothing_is_sent(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=RULES, approval_ttl_seconds=DAY, **SOON) as it:
        waiting = await it.execute(REMOVE)
        assert left(it, waiting.run_id) == pytest.approx(DAY, abs=60)
        it.clock.advance(DAY + 1)
        with pytest.raises(ProgramError):
            it.manager.operator.decide(waiting.run_id, None, approved=True, by="a test")
        with pytest.raises(ProgramError, match="was dropped; start the program again"):
            await it.observe(waiting.run_id)
    assert source.calls == []


async def test_a_run_that_waits_for_no_person_is_kept_for_the_ordinary_time(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, **SOON) as it:
        for code in (
            "await yield_control()",
            "await MCP.slow.work({})",
            "await new Promise((r) => setTimeout(r, 1e6))",
        ):
            waiting = await it.execute(code)
            assert left(it, waiting.run_id) == pytest.approx(900, abs=60)
            assert waiting.deadline is None
            assert "kept until" not in next_step(waiting)


@pytest.mark.parametrize("approved", [True, False])
async def test_a_decision_keeps_the_run_as_long_again(engine: Engine, approved: bool) -> None:
    async with bench(engine, files(), rules=RULES, **SOON) as it:
        waiting = await it.execute(REMOVE)
        it.clock.advance(2 * DAY)
        assert left(it, waiting.run_id) == pytest.approx(DAY, abs=60)
        it.manager.operator.decide(waiting.run_id, None, approved=approved, by="a test")
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60), "the operator sees it immediately"
        await anyio.wait_all_tasks_blocked()  # the store is told
        it.clock.advance(2 * DAY)
        await it.manager.sweep()
        outcome = await it.observe(waiting.run_id)
        assert outcome.status == ("completed" if approved else "failed")


async def test_the_answer_of_a_client_that_comes_after_its_request_keeps_the_run_as_long_again(engine: Engine) -> None:
    client = LateClient()
    async with bench(engine, files(), rules=RULES, max_request_ms=1000, **SOON) as it:
        waiting = await it.execute(REMOVE, client=client)
        assert waiting.status == "waiting"
        it.clock.advance(2 * DAY)
        client.answer.set()
        await until(lambda: not it.manager._live.runs[waiting.run_id].calls)
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)


async def test_a_call_that_begins_to_wait_for_a_person_in_a_suspended_run_prolongs_it(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    code = "await Promise.all([MCP.slow.work({}), MCP.files.remove({})])"
    async with bench(engine, files(), slow, rules=RULES, max_pending_tool_calls=1, **SOON) as it:
        waiting = await it.execute(code)
        assert left(it, waiting.run_id) == pytest.approx(900, abs=60)
        slow.release.set()
        await until(lambda: bool(it.manager.operator.approvals(waiting.run_id)))
        await until(lambda: left(it, waiting.run_id) > 900)
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)


async def test_a_question_of_a_server_is_kept_for_days_too(engine: Engine) -> None:
    asks: Any = [("elicitation/create", {"message": "Which room?", "requestedSchema": {"type": "object"}})]
    async with bench(engine, AskingSource("booking", {"book": asks}), **SOON) as it:
        waiting = await it.execute("return unwrap(await MCP.booking.book({}))", client=FakeClient("none"))
        assert [call.status for call in waiting.pending] == ["needs_input"]
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)
        assert deadline_in(waiting) == pytest.approx(time.time() + 3 * DAY, abs=120)


async def test_a_resumed_run_that_waits_for_no_person_is_kept_for_the_ordinary_time(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES, **SOON) as it:
        waiting = await it.execute(f"await MCP.files.remove({{}}); await yield_control(); {REMOVE}")
        await approve(it, waiting.run_id)
        yielded = await it.observe(waiting.run_id)
        assert yielded.reason == "yield"
        assert left(it, waiting.run_id) == pytest.approx(900, abs=60)
        again = await it.observe(waiting.run_id)
        assert again.deadline is not None
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)


async def test_a_wait_without_a_decision_keeps_the_run_from_then_on(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES, **SOON) as it:
        waiting = await it.execute(REMOVE)
        it.clock.advance(2 * DAY)
        waiting = await it.observe(waiting.run_id)
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)


async def test_a_shorter_time_of_a_new_configuration_ends_no_run_earlier(engine: Engine) -> None:
    async with bench(engine, files(), rules=RULES, **SOON) as it:
        waiting = await it.execute(REMOVE)
        it.manager.apply(CodeModeSettings(approval_ttl_seconds=60))
        assert left(it, waiting.run_id) == pytest.approx(3 * DAY, abs=60)
        it.clock.advance(DAY)
        await approve(it, waiting.run_id)
        assert left(it, waiting.run_id) == pytest.approx(2 * DAY, abs=60)


# durable stores


class Clocks:
    """The clocks of one machine, which tests move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def wall(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


async def test_a_decision_after_days_is_stored_for_the_next_process(engine: Engine, tmp_path: Path) -> None:
    settings = CodeModeSettings(**SOON)
    clocks = Clocks()

    @asynccontextmanager
    async def replica(source: ScriptedSource) -> AsyncIterator[Bench]:
        async with open_sqlite(tmp_path / "runs.sqlite3", wall=clocks.wall, synchronous=False) as database:
            store = DurableStore(database, Seal(), settings, clock=clocks.monotonic)
            async with bench(engine, source, store=store, rules=RULES, **SOON) as it:
                it.clock.advance(clocks.ahead)
                yield it

    async with replica(files()) as first:
        waiting = await first.execute(REMOVE)
    clocks.ahead += 2 * DAY
    source = files()
    async with replica(source) as second:
        (view,) = await second.manager.operator.stored_views()
        assert view.expires_ms == pytest.approx(DAY * 1000, abs=60_000)
        assert await second.manager.operator.take_over(waiting.run_id)
        await until(lambda: bool(second.manager.operator.approvals(waiting.run_id)))
        await approve(second, waiting.run_id)
        assert left(second, waiting.run_id) == pytest.approx(3 * DAY, abs=60)
    clocks.ahead += 2 * DAY
    async with replica(files()) as third:
        await third.manager.sweep()
        (view,) = await third.manager.operator.stored_views()
        assert view.state == "waiting"
        assert view.expires_ms == pytest.approx(DAY * 1000, abs=60_000)
        assert (await third.observe(waiting.run_id)).value == "removed"
    assert source.calls == [("remove", {"path": "a"})]
