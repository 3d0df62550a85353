"""Keep the process small in the long run, where the C library does not by itself.

glibc keeps an arena of freed memory for nearly every thread, and of what guests have had little goes back to the
system. Elsewhere nothing here does anything.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import anyio
import anyio.to_thread

TRIM_SECONDS = 5.0
WORTH_CPU_SECONDS = 0.1
"""Of the process: one that has done nothing since has nothing to give back."""

_M_ARENA_MAX = -8
_ARENAS = 2


async def keep_small() -> None:
    """Give freed memory back from time to time, until cancelled."""
    libc = _glibc()
    if libc is None:
        await anyio.sleep_forever()
    libc.mallopt(_M_ARENA_MAX, _ARENAS)
    used = time.process_time()
    while True:
        await anyio.sleep(TRIM_SECONDS)
        if time.process_time() - used > WORTH_CPU_SECONDS:
            await anyio.to_thread.run_sync(libc.malloc_trim, 0)
            used = time.process_time()


def _glibc() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
