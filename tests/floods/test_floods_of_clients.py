"""Some floods by one client of the shared instance; `python -m tests.floods.clients` makes all of them, for longer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.floods.clients import flooding, measure, probed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="clients attach to a Unix socket, and a relay is stopped"),
]

BOUND = 60.0
"""Seconds for a few small requests. Other tests run on the same processors."""


async def test_a_client_that_floods_does_not_read_or_is_stopped_does_not_stop_another(tmp_path: Path) -> None:
    async with probed(tmp_path) as (config, client):
        for kind in ("programs", "lines", "unread", "stopped relay"):
            async with flooding(kind, config):
                with anyio.fail_after(BOUND):
                    assert (await measure(client, 0.5)).count >= 3, kind
        with anyio.fail_after(BOUND):
            assert (await measure(client, 0.5)).count >= 3
