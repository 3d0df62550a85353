"""Daemon threads for the functions of a plugin, which never keep the process from ending."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

_Job = tuple["Callable[[], Any]", asyncio.AbstractEventLoop, "asyncio.Future[tuple[Any, BaseException | None]]"]


class ThreadsClosedError(RuntimeError):
    """The plugin was removed, so its functions are no longer called. The plugin is not at fault."""


class Threads:
    """Up to `max_threads` threads. A call waits while all of them are busy.

    A function that never returns keeps its thread busy, even when its caller no longer waits.
    """

    def __init__(self, max_threads: int, name: str = "plugin") -> None:
        self._name = name
        self._max = max_threads
        self._free = anyio.Semaphore(max_threads, fast_acquire=True)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Threads {self._name}: {self._busy} of {self._max} busy>"

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread, and return its result or raise its error.

        When the caller is cancelled, the function continues in its thread. A coroutine that it then returns is closed.

        Raises:
            ThreadsClosedError: the threads are closed.
        """
        await self._free.acquire()
        if self._closed:
            self._free.release()
            raise ThreadsClosedError(f"the threads of {self._name} are closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        if self._busy == self._started:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._busy += 1
        context = contextvars.copy_context()
        self._jobs.put((lambda: context.run(function, *arguments), loop, future))
        try:
            value, error = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                _discard(future.result()[0])
            raise
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let each thread end when its function returns. Waiting calls fail."""
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
                return  # the loop is closed, since the process ends
            # An idle thread must not keep the values of its last call alive.
            del job, function, value, error, future

    def _end(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        self._free.release()
        if future.done():
            _discard(value)
        else:
            future.set_result((value, error))


def _discard(value: Any) -> None:
    """Close the coroutine that a result is or has, because Python warns of coroutines that are never awaited."""
    for part in value if isinstance(value, tuple) else (value,):
        if inspect.iscoroutine(part):
            part.close()
