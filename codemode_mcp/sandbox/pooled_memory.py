"""Memory that wasmtime's pool keeps for later instances, given back to the system while it is not used."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBC: Final[Any] = ctypes.CDLL(None) if sys.platform == "linux" else None

_BATCH: Final = 16
"""Maximum number of memories that are given back in one call. Each takes 0.2 ms."""


class PooledMemory:
    """The memories that wasmtime's pool keeps for later instances, some of which can be given back to the system.

    After an instance, the pool resets its memory and keeps it resident: 2.4 MB for each guest of the largest number of
    concurrent guests so far. The pages are a private mapping of the module's image and of zeros, so the kernel can drop
    them and restore them when they are next used. Memory is given back only while no instance is made, since the pool
    may choose any free memory for that. Thread-safe.

    Args:
        kept: bytes of each memory that the pool keeps resident; 0 without a pool.
    """

    def __init__(self, kept: int) -> None:
        self._kept = 0 if _LIBC is None else kept
        self._lock = threading.Lock()
        self._users: dict[int, object] = {}
        """An object for each live instance, by the address of its memory."""
        self._free: dict[int, float] = {}
        """Monotonic seconds at which each free memory was last used, by address."""

    @contextmanager
    def making(self) -> Iterator[None]:
        """Give back no memory for the duration of the context."""
        with self._lock:
            yield

    def take(self, address: int, user: object) -> None:
        """Record that an instance has the memory at an address. Must be called within `making`."""
        self._users[address] = user
        self._free.pop(address, None)

    def leave(self, address: int, user: object) -> None:
        """Record that an instance is freed. Another one may have its memory already."""
        with self._lock:
            if self._users.get(address) is user:
                del self._users[address]
                self._free[address] = time.monotonic()

    def give_back(self, seconds: float) -> bool:
        """Give back memories that were not used for so long. Return True if there were any."""
        if not self._kept or not self._free:
            return False
        with self._lock:
            latest = time.monotonic() - seconds
            unused = [address for address, since in self._free.items() if since <= latest][:_BATCH]
            for address in unused:
                del self._free[address]
                _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(self._kept), mmap.MADV_DONTNEED)
        return bool(unused)
