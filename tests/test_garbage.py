"""Garbage is collected rarely only while a server starts."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest

from codemode_mcp.cli import garbage

pytestmark = pytest.mark.anyio


async def test_a_server_collects_garbage_as_usual_when_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "START_SECONDS", 0.05)
    usual = gc.get_threshold()
    try:
        garbage.collect_rarely()
        rarely = gc.get_threshold()
        garbage.collect_as_usual_soon(asyncio.get_running_loop())
        assert rarely == (garbage.START_OBJECTS, *usual[1:])
        assert gc.isenabled()
        await anyio.sleep(0.2)
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*usual)
