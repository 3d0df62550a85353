"""Time limits for plugins.

A call passes several of them, so a limit must cost next to nothing: all of an event loop share one timer, which is set
again only for an earlier deadline.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class TimeIsUpError(Exception):
    """It took too long, and was cancelled."""


@dataclass(slots=True, eq=False)
class _Timed:
    task: asyncio.Task[Any]
    deadline: float
    overdue: bool = False


class _Watch:
    """Cancels what takes too long, within one event loop. It does not keep the loop: it is kept for it."""

    def __init__(self) -> None:
        self._timed: dict[_Timed, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def begin(self, task: asyncio.Task[Any], seconds: float) -> _Timed:
        loop = task.get_loop()
        timed = _Timed(task, loop.time() + seconds)
        self._timed[timed] = None
        self._set(loop, timed.deadline)
        return timed

    def end(self, timed: _Timed) -> None:
        del self._timed[timed]

    def _set(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if due < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due, self._timer = due, loop.call_at(due, self._ring)

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        now, self._due, self._timer = loop.time(), math.inf, None
        for timed in self._timed:
            if timed.overdue:
                continue
            if timed.deadline <= now:
                timed.overdue = True
                timed.task.cancel()
            else:
                self._set(loop, timed.deadline)


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()


async def within(seconds: float, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Return what awaiting `function(*arguments)` gives.

    Raises:
        TimeIsUpError: it took longer.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = task.get_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = _Watch()
    before = task.cancelling()
    timed = watch.begin(task, seconds)
    try:
        value = await function(*arguments)
    except BaseException as error:
        if not timed.overdue:
            raise
        if task.uncancel() > before and isinstance(error, asyncio.CancelledError):
            raise  # another scope cancels this too
        raise TimeIsUpError from error
    finally:
        watch.end(timed)
    if timed.overdue:
        task.uncancel()
        raise TimeIsUpError
    return value
