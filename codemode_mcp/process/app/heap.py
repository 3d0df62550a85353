"""Give freed memory back to the system, which glibc does not do completely.

glibc gives nearly every thread its own arena, and `malloc_trim` frees the end of the first arena only. Memory that a
large message or the start leaves at the end of another arena stays resident: 11 MB after the start, 25 MB after some
results of 1 MB. With a single arena, all of it goes back to the system. Threads hardly wait for the arena, because
Python's lock lets only one of them allocate at a time.

Lower thresholds (`M_TRIM_THRESHOLD`, `M_MMAP_THRESHOLD`) were tried. They save as much memory, but cost processor time:
the memory of each large result is then given back and taken again.

Nothing is trimmed on systems other than Linux, or with other C libraries.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread

TRIM_SECONDS = 5.0
"""Interval between two trims."""

WORTH_CPU_SECONDS = 0.1
"""Minimum seconds of processor time between two trims. An idle process has nothing to give back."""

_M_ARENA_MAX = -8


def use_one_arena() -> None:
    """Make all threads allocate from one arena. Threads that were started before keep theirs."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, 1)


async def keep_small(forget_unused: Callable[[], bool] = lambda: False) -> None:
    """Give freed memory back every `TRIM_SECONDS`, until cancelled.

    Args:
        forget_unused: frees caches that were not used for a while. Returns True if anything was freed.
    """
    libc = _glibc()
    use_one_arena()
    used = time.process_time()
    while True:
        await anyio.sleep(TRIM_SECONDS)
        freed = forget_unused()
        if libc is not None and (freed or time.process_time() - used > WORTH_CPU_SECONDS):
            await anyio.to_thread.run_sync(libc.malloc_trim, 0)
            used = time.process_time()


def _glibc() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
