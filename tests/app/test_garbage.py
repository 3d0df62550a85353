"""Tests of the garbage collector's settings while a server starts, and later."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.process.app import heap


async def test_garbage_is_collected_rarely_and_later_among_new_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "START_SECONDS", 0.0)
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        heap.collect_rarely()
        assert gc.get_threshold() == (heap.START_OBJECTS, *usual[1:])
        heap.collect_seldom_soon(asyncio.get_running_loop())
        with anyio.fail_after(10):
            while gc.get_threshold() != heap.SERVING:
                await anyio.lowlevel.checkpoint()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.set_threshold(*usual)


def test_a_command_does_not_search_for_garbage_when_it_ends() -> None:
    script = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # runs last
import codemode_mcp.__main__
codemode_mcp.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
