"""Keep the process small in the long run, where the C library does not by itself.

glibc gives nearly every thread an arena of its own. `malloc_trim` frees the end of the first arena only. What a large
message or the start leaves at the end of another one stays resident for good: 11 MB after the start, 25 MB after some
results of a MB. With a single arena all of that goes back to the system. Python's lock lets one thread allocate at a
time anyway, so threads hardly wait for the arena. Lower thresholds (`M_TRIM_THRESHOLD`, `M_MMAP_THRESHOLD`) save as
much, but cost processor time: memory of large results is then given back and taken again for each of them.

On other systems than Linux, and with other C libraries than glibc, nothing is trimmed.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

TRIM_SECONDS = 5.0
WORTH_CPU_SECONDS = 0.1
"""Processor time since the last trim from which on a trim is worth it: an idle process has nothing to give back."""

_M_ARENA_MAX = -8


def use_one_arena() -> None:
    """Have all threads allocate from one arena. Threads that were started before keep theirs."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, 1)


async def keep_small(forget_unused: Callable[[], bool] = lambda: False) -> None:
    """Give freed memory back from time to time, until cancelled.

    Args:
        forget_unused: frees what can be had again and was not used for a while; tells whether that was anything.
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
