"""Some floods for a second; `python -m tests.faults floods` makes all of them, for longer."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from tests.faults.floods import flooding, measure, pair, probed

pytestmark = pytest.mark.anyio

ADDED = 5.0
"""Seconds; `python -m tests.faults floods` has a bound of one. Here other tests run on the same processors."""

BOUND = 60.0
"""Seconds for a few small requests, for the same reason."""


async def test_floods_of_one_principal_do_not_delay_another(tmp_path: Path) -> None:
    async with pair(tmp_path) as servers:
        for kind in ("bodies", "programs"):
            flooded, other = await servers.cost(kind, 1.0)
            assert flooded.added(other) < ADDED, f"{kind}: {flooded}; {other}"


@pytest.mark.skipif(sys.platform == "win32", reason="clients attach to a Unix socket, and a relay is stopped")
async def test_a_client_that_floods_does_not_read_or_is_stopped_does_not_stop_another(tmp_path: Path) -> None:
    async with probed(tmp_path) as (config, ask):
        for kind in ("programs", "lines", "unread", "stopped relay"):
            async with flooding(kind, config):
                with anyio.fail_after(BOUND):
                    assert (await measure(ask, 0.5)).count >= 3, kind
        with anyio.fail_after(BOUND):
            assert (await measure(ask, 0.5)).count >= 3
