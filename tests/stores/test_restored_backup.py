"""Tests of what the deployment guide says to do after an old backup was restored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codemode_mcp.stores.work import Query, Work
from tests.stores.shared_database import SharedDatabase
from tests.stores.test_durable_runs import ME, ONCE, claimed, ended, refusal, suspended

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"


async def test_the_statement_of_the_guide_ends_what_is_suspended_and_nothing_else(shared: SharedDatabase) -> None:
    (statement,) = re.findall(r"^(UPDATE .*);$", GUIDE.read_text("utf-8"), re.MULTILINE)
    before = await shared.process()
    for run in ("run_a", "run_b", "run_c"):
        await before.store.suspend(suspended(before, run, ONCE))
    await claimed(before, "run_b")
    await claimed(before, "run_c")
    await before.store.end(ended(before, "run_c"))
    await shared.kill(before)
    after = await shared.process()

    def restored() -> Work[None]:
        yield Query(statement)

    await after.database.execute(restored)
    for run in ("run_a", "run_b"):
        assert "was dropped" in await refusal(after, run)
    await after.store.sweep()
    for run in ("run_a", "run_b"):
        assert "was dropped" in await refusal(after, run)
    assert await shared.rows("SELECT COUNT(*) FROM calls") == [(0,)]
    found = await after.store.claim("run_c", ME)
    assert found.outcome[0].value == 42  # type: ignore[union-attr]
