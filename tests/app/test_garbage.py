"""Tests of the garbage collector's settings while a server starts, and later."""

from __future__ import annotations

import asyncio
import gc

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.app import garbage

pytestmark = pytest.mark.anyio


async def test_garbage_is_collected_rarely_at_the_start_and_later_among_new_objects_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "START_SECONDS", 0.0)
    usual = gc.get_threshold()
    try:
        garbage.collect_rarely()
        assert gc.get_threshold() == (garbage.START_OBJECTS, *usual[1:])
        garbage.collect_seldom_soon(asyncio.get_running_loop())
        with anyio.fail_after(10):
            while gc.get_threshold() != garbage.SERVING:
                await anyio.lowlevel.checkpoint()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
