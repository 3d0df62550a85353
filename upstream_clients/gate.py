"""How many requests one server is sent at once, and who is next. Needs no MCP SDK."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection


class Gate:
    """Admits `limit` at once. Those beyond wait: first in first out within one run, and the runs take turns."""

    def __init__(self, limit: int, on_change: Callable[[], None] | None = None) -> None:
        """`on_change` is called when `waiting` may be another."""
        # The mutable state. While anybody waits, nothing is free.
        self._free = limit
        self._on_change = on_change
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        """By run; the run whose turn it is comes first. No queue is empty."""

    @property
    def waiting(self) -> Collection[str]:
        """The runs that have calls before it."""
        return tuple(self._waiting)

    @asynccontextmanager
    async def admitted(self, run: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it inside."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(run)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, run: str) -> None:
        turn = anyio.Event()
        self._waiting.setdefault(run, deque()).append(turn)
        self._changed()
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                # Given a place at the very moment at which it stopped waiting.
                self._give_back()
            else:
                queue = self._waiting[run]
                queue.remove(turn)
                if not queue:
                    del self._waiting[run]
                self._changed()
            raise

    def _give_back(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        run, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._waiting[run] = queue
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
