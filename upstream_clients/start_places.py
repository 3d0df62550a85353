"""The places of servers that start at the same time: more of them would only take processor time from each other.

A server has a place from the start of its process until it is ready or has failed, at most for `HOLD_SECONDS`, so that
a server that hangs delays others only for a while. The timeout of a start begins with its place. A server that a call
waits for needs no free place.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable


HOLD_SECONDS: Final = 20.0
"""Maximum number of seconds for which a server that starts keeps others from starting."""

_FEWEST: Final = 8


class StartPlaces:
    """The places, in the order in which they are requested.

    Args:
        count: the number of places; None for twice the number of processors, and at least 8.
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = max(_FEWEST, 2 * (os.cpu_count() or 1)) if count is None else count
        """Negative while servers that calls wait for start beside others."""
        self._waiting: list[anyio.Event] = []

    def try_take(self) -> StartPlace | None:
        return self._taken() if self._free > 0 else None

    async def take(self, urgent: anyio.Event) -> StartPlace:
        """Return a place as soon as one is free, or as soon as `urgent` is set."""
        if self._free <= 0 and not urgent.is_set():
            turn = anyio.Event()
            self._waiting.append(turn)
            try:
                await _first_of(turn, urgent)
            except BaseException:
                if turn.is_set():
                    self._call_next()
                raise
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
        return self._taken()

    def _taken(self) -> StartPlace:
        self._free -= 1
        return StartPlace(self._give_back)

    def _give_back(self) -> None:
        self._free += 1
        self._call_next()

    def _call_next(self) -> None:
        if self._free > 0 and self._waiting:
            self._waiting.pop(0).set()


class StartPlace:
    """One place, which ends by itself after `HOLD_SECONDS`."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back = give_back
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self.end)

    def end(self) -> None:
        """Give the place to the next server. Later calls do nothing."""
        if not self._ended:
            self._ended = True
            self._timer.cancel()
            self._give_back()


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait_for(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in events:
            group.start_soon(wait_for, event)
