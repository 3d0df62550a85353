"""Threads that a plugin's functions run in: few, and none of them keeps the process from ending."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

_Job = tuple["Callable[[], Any]", asyncio.AbstractEventLoop, "asyncio.Future[tuple[Any, BaseException | None]]"]


class ThreadsClosedError(RuntimeError):
    """The plugin was removed, so that nothing of it is begun any more. No fault of the plugin's."""


class Threads:
    """Runs functions in at most `most` threads; a call that finds all of them busy waits.

    A function that never returns keeps its thread, and its place among the `most`, also without a waiting caller.
    """

    def __init__(self, most: int, name: str = "plugin") -> None:
        self._name = name
        self._most = most
        self._places = anyio.Semaphore(most, fast_acquire=True)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Threads {self._name}: {self._busy} of {self._most} busy>"

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `function` returns, or raises. Cancelling this leaves it to itself.

        Raises:
            ThreadsClosedError: they are closed.
        """
        await self._places.acquire()
        if self._closed:
            self._places.release()
            raise ThreadsClosedError(f"the threads of {self._name} are closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        if self._busy == self._started:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._busy += 1
        context = contextvars.copy_context()
        self._jobs.put((lambda: context.run(function, *arguments), loop, future))
        value, error = await future
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let the threads end, each when its function has returned. What waits for one is not begun."""
        self._closed = True
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, loop, future = job
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._end, future, value, error)
            except RuntimeError:
                return  # the loop is closed: the process ends
            del job, function, value, error, future

    def _end(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        self._places.release()
        if not future.done():
            future.set_result((value, error))
