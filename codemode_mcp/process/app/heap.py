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

import atexit
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    import asyncio


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


# Settings of Python's garbage collector.
#
# Each collection visits every live object. Imports create 60,000 objects, hardly any of them garbage: more than a
# hundred collections during imports took a tenth of the processor time until the first result, and later, with 500
# clients, a quarter of all processor time. Nearly all garbage is freed without the collector, when its last reference
# goes away.


START_OBJECTS: Final = 100_000
"""New objects after which garbage is collected while a server starts: more than imports create."""

START_SECONDS: Final = 5.0
"""Time for imports and the first program, counted from the start of the event loop."""

SERVING: Final = (5_000, 10, 10)
"""Thresholds of a server that has started, as `gc.set_threshold` takes them. Python's own first one is 700."""


def collect_rarely() -> None:
    """Collect garbage rarely while a command starts, and not at its end.

    When Python ends, it searches all modules for garbage, several times. This took a sixth of the processor time of a
    server with one program. The system takes back the memory anyway.
    """
    gc.set_threshold(START_OBJECTS)
    atexit.register(gc.freeze)


def collect_seldom_soon(loop: asyncio.AbstractEventLoop) -> None:
    """After `START_SECONDS`, use the thresholds in `SERVING`, and never visit the objects that exist by then again."""
    loop.call_later(START_SECONDS, _collect_seldom)


def _collect_seldom() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SERVING)
