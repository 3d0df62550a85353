"""Runs whose clients poll them at several processes over one database."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import CALLER, OWNER, FakeClient, texts
from tests.runs.test_polling import poll, poll_to_end, polling_client
from tests.stores.test_runs_that_outlive import replica, slow

pytestmark = pytest.mark.anyio

PROGRAM = "text('first'); await MCP.files.read({n: 1}); text('second'); return 'done'"


async def test_a_run_that_another_process_drives_works_until_that_process_has_suspended_or_ended_it(
    engine: Engine, tmp_path: Path
) -> None:
    here, there = slow(), slow()
    async with replica(engine, tmp_path, here) as first, replica(engine, tmp_path, there, timeout_ms=60_000) as second:
        waiting = await first.execute(PROGRAM, client=polling_client())
        await here.wait_pending(1)
        assert (await poll(second, waiting.run_id, 0)).outcome is None
        # The second process drives the run now, and the first one has its call.
        elsewhere = await poll(first, waiting.run_id, 0)
        assert (elsewhere.outcome, elsewhere.left) == (None, first.settings.snapshot_ttl_seconds)
        here.release.set()
        ended = [(await poll_to_end(each, waiting.run_id)).outcome for each in (second, first)]
        assert ended[0] is not None
        assert ended[1] is not None
        assert texts(ended[0]) == ["first", "second"]
        assert [each.value for each in ended if each] == ["done", "done"]
        assert ended[0].usage.ms == ended[1].usage.ms
        assert (ended[0].outputs, ended[0].notes) == (ended[1].outputs, ended[1].notes)
    assert there.calls == []


async def test_a_run_that_another_process_drives_can_be_cancelled(engine: Engine, tmp_path: Path) -> None:
    source = slow()
    async with (
        replica(engine, tmp_path, source) as first,
        replica(engine, tmp_path, slow(), timeout_ms=60_000) as second,
    ):
        waiting = await first.execute(PROGRAM, client=polling_client())
        assert (await poll(second, waiting.run_id, 0)).outcome is None
        await first.manager.polling.cancel(waiting.run_id, OWNER, CALLER, FakeClient())
        for each in (first, second):
            found = (await poll(each, waiting.run_id)).outcome
            assert found is not None
            assert found.code == "aborted"
