"""A clock that is set forward ends no suspended run: in one process, beside another one, and over a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.runs.store import Claim, SuspendedRun
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.suspending import GRACE_SECONDS, STEP_SECONDS

ME = "stdio:me"
LIVES = 900.0


@dataclass
class Clocks:
    """The two clocks of a machine: one that can be set, and one that only passes."""

    wall: float = 1_800_000_000.0
    monotonic: float = 5_000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@asynccontextmanager
async def process(path: Path, clocks: Clocks) -> AsyncIterator[DurableStore]:
    async with open_sqlite(
        path / "runs.sqlite3", wall=lambda: clocks.wall, monotonic=lambda: clocks.monotonic, synchronous=False
    ) as database:
        yield DurableStore(database, Seal(), CodeModeSettings(), clock=lambda: clocks.monotonic)


async def suspend(store: DurableStore, clocks: Clocks, run_id: str = "run_a") -> None:
    now = clocks.monotonic
    await store.suspend(SuspendedRun(run_id, ME, b"guest", "{}", "yield", now, now + LIVES, "{}"))


async def refusal(store: DurableStore) -> str:
    with pytest.raises(ProgramError) as refused:
        await store.claim("run_a", ME)
    return refused.value.code


async def test_a_step_while_the_process_lives_drops_nothing_and_time_that_passes_does(tmp_path: Path) -> None:
    clocks = Clocks()
    async with process(tmp_path, clocks) as store:
        await suspend(store, clocks)
        clocks.wall += 3600
        assert await store.sweep() == []
        assert isinstance(await store.claim("run_a", ME), Claim)
        await store.release("run_a", ME)
        clocks.pass_by(LIVES + 1)
        assert await refusal(store) == "snapshot_expired"
        assert await store.sweep() == ["run_a"]


async def test_a_process_that_begins_after_a_step_drops_nothing_of_one_that_lives(tmp_path: Path) -> None:
    clocks = Clocks()
    async with process(tmp_path, clocks) as first:
        await suspend(first, clocks)
        clocks.wall += 3600
        async with process(tmp_path, clocks) as second:
            clocks.pass_by(GRACE_SECONDS + 1)
            await second.sweep()
            assert isinstance(await first.claim("run_a", ME), Claim)


async def test_a_run_from_before_a_restart_is_spared_for_a_while(tmp_path: Path) -> None:
    clocks = Clocks()
    async with process(tmp_path, clocks) as store:
        await suspend(store, clocks)
    clocks.wall += 3600
    async with process(tmp_path, clocks) as store:
        await store.sweep()
        claim = await store.claim("run_a", ME)
        assert isinstance(claim, Claim)
        assert claim.run.expires == pytest.approx(clocks.monotonic + GRACE_SECONDS)
        await store.release("run_a", ME)
        await suspend(store, clocks, "run_b")
        clocks.pass_by(GRACE_SECONDS + 1)
        assert await refusal(store) == "snapshot_expired"
        await store.sweep()
        assert isinstance(await store.claim("run_b", ME), Claim)


async def test_a_run_that_is_past_its_time_by_more_than_the_bound_is_not_spared(tmp_path: Path) -> None:
    clocks = Clocks()
    async with process(tmp_path, clocks) as store:
        await suspend(store, clocks)
    clocks.wall += LIVES + STEP_SECONDS + 1
    async with process(tmp_path, clocks) as store:
        assert await refusal(store) == "snapshot_expired"
