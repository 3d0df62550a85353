"""The signal that a run has changed. Its driver waits for it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable


class ChangeSignal:
    """A signal that stays set until it is cleared.

    A program waits thousands of times, mostly until the same time. So the timer of an earlier wait is kept if it fires
    soon enough, and a wait costs only one future. An `anyio.Event` with a timeout would take a new timer for each wait.

    Attributes:
        is_set: True if the signal was set since it was last cleared. The waiter clears it.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        """The time at which the alarm fires, on the clock of the driver."""
        self._listener: anyio.Event | None = None

    def set(self) -> None:
        """Set the signal, and wake its waiters."""
        self.is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._listener is not None:
            self._listener.set()

    async def wait(self, until: float, clock: Callable[[], float]) -> None:
        """Wait until the signal is set, or until a time. May return earlier. Only the driver of the run calls this."""
        if self.is_set:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if until < self._alarm_at:
            self._set_alarm(until, loop.call_later(max(0.0, until - clock()), self._ring))
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def listen(self) -> None:
        """Wait until the signal is set, for a run without a driver."""
        if self.is_set:
            return
        if self._listener is None or self._listener.is_set():
            self._listener = anyio.Event()
        await self._listener.wait()

    def cancel_alarm(self) -> None:
        """Cancel the timer of earlier waits."""
        self._set_alarm(math.inf, None)

    def _set_alarm(self, at: float, alarm: asyncio.TimerHandle | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = alarm, at

    def _ring(self) -> None:
        self.cancel_alarm()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
