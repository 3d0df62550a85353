"""Runs whose clients poll them at several processes over one database."""

from __future__ import annotations

import pytest

from tests.runs.bench import CALLER, OWNER, FakeClient, texts
from tests.runs.test_polling import poll, poll_to_end, polling_client
from tests.stores.replicas import Replicas, slow

pytestmark = pytest.mark.anyio

PROGRAM = "text('first'); await MCP.files.read({n: 1}); text('second'); return 'done'"


async def test_a_run_that_another_process_drives_works_until_that_one_lets_go(replicas: Replicas) -> None:
    here, there = slow(), slow()
    async with replicas(here) as first, replicas(there, timeout_ms=60_000) as second:
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


async def test_a_run_that_another_process_drives_can_be_cancelled(replicas: Replicas) -> None:
    source = slow()
    async with (
        replicas(source) as first,
        replicas(slow(), timeout_ms=60_000) as second,
    ):
        waiting = await first.execute(PROGRAM, client=polling_client())
        assert (await poll(second, waiting.run_id, 0)).outcome is None
        await first.manager.polling.cancel(waiting.run_id, OWNER, CALLER, FakeClient())
        for each in (first, second):
            found = (await poll(each, waiting.run_id)).outcome
            assert found is not None
            assert found.code == "aborted"
