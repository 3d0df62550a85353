"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

THREAD_FREES_30_MB = """
import threading, anyio
from codemode_mcp.process.app import heap

heap.TRIM_SECONDS = 0.01
heap.WORTH_CPU_SECONDS = 0.0


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def work():
    begun.set()
    end.wait()  # as a thread that was there before
    big = [bytes(100_000) for _ in range(300)]
    del big
    bytes(30_000_000)  # from now on glibc keeps as much at the end of an arena
    small = [bytes(1000) for _ in range(30_000)]
    del small
    freed.set()
    over.wait()


async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(heap.keep_small)
        await anyio.sleep(0.3)
        group.cancel_scope.cancel()


heap.use_one_arena()
anyio.run(main)  # what that imports stays
begun, end, freed, over = (threading.Event() for _ in range(4))
thread = threading.Thread(target=work)
thread.start()
begun.wait()
before = resident()
end.set()
freed.wait()
anyio.run(main)
print((resident() - before) / 1e6)
over.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone is known to keep so much")
def test_what_a_thread_has_freed_goes_back_to_the_system() -> None:
    grown = subprocess.run(
        (sys.executable, "-c", THREAD_FREES_30_MB), check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert float(grown) < 10
