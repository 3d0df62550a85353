"""The runs that only a store has, as they were a short time ago.

Reading thousands of runs takes a fraction of a second of a processor, and an open page asks for them again and again.
So they are read again in the background, for a small share of the time at most. Pages are told if they have changed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.control.answers import Control, Where
    from codemode_mcp.runs.views import RunView

    Stored = tuple[list[tuple[RunView, Where]], dict[str, Any]]

log = logging.getLogger("codemode_mcp.page")

FRESH_SECONDS: Final = 1.0
"""Age up to which stored runs are not read again."""

SHARE: Final = 40.0
"""Stored runs are not read again before this multiple of the time that it took has passed."""

OLD_SECONDS: Final = 60.0
"""Age from which a page waits until they are read again."""


class StoredRuns:
    """The stored runs of each application.

    Args:
        clock: returns monotonic seconds.
        on_change: called after they were read again, if they have changed.
    """

    def __init__(self, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._read: WeakKeyDictionary[Control, tuple[Stored, float, float]] = WeakKeyDictionary()
        """The stored runs, the time at which they were read, and how long that took."""
        self._reading: WeakKeyDictionary[Control, asyncio.Task[None]] = WeakKeyDictionary()

    async def of(self, control: Control) -> tuple[Stored, int]:
        """Return the stored runs of an application, and the milliseconds since they were read."""
        known = self._read.get(control)
        now = self._clock()
        if known is None or now - known[1] > OLD_SECONDS:
            await self._read_again(control)
            return self._read[control][0], 0
        stored, at, took = known
        if now - at > max(FRESH_SECONDS, SHARE * took) and control not in self._reading:
            task = asyncio.get_running_loop().create_task(self._read_in_background(control))
            self._reading[control] = task
        return stored, round((now - at) * 1000)

    async def _read_in_background(self, control: Control) -> None:
        before = self._read[control][0]
        try:
            await self._read_again(control)
        except Exception:
            log.exception("stored runs could not be read")
        finally:
            self._reading.pop(control, None)
        if _signature(before) != _signature(self._read[control][0]):
            self._on_change()

    async def _read_again(self, control: Control) -> None:
        began = self._clock()
        stored = await control.stored()
        now = self._clock()
        self._read[control] = stored, now, now - began


def _signature(stored: Stored) -> Any:
    views, store = stored
    return {(view.id, view.state, view.approvals, where) for view, where in views}, store.get("problem")
