"""Execution of plugin code, on threads, that may raise, hang or try to end the process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import math
import queue
import threading
import traceback
import types
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from codemode_mcp.base.errors import PluginError
from codemode_mcp.catalog.plugins.api import ToolError

# Daemon threads for the functions of a plugin, which never keep the process from ending.


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


log = logging.getLogger("codemode_mcp.plugins")

CLEANUP_SECONDS = 3.0
"""Seconds for cancelled code to end."""

MAX_ERROR_TEXT = 4_000
"""Maximum number of characters of a `ToolError`."""

_API = str(Path(__file__).with_name("loading.py"))


class TimedOutError(Exception):
    """The time limit has passed, and the code was cancelled."""


class Owner(Struct, frozen=True, eq=False):
    """The plugin whose code runs, also in hooks and before it is loaded.

    Attributes:
        threads: threads for its code that is not async.
    """

    name: str
    threads: Threads


async def run_code(plugin: Owner, what: str, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a plugin and return its result. A function that is not async runs in a thread.

    Args:
        what: a description for messages, such as `its tool 'list'`.

    Raises:
        ToolError: the function raised one; its text is cut to `MAX_ERROR_TEXT`.
        PluginError: the function took longer than `seconds`, or raised another error, which is logged.
    """
    return await run_async(plugin, what, seconds, _run, plugin, function, *args)


async def run_async(plugin: Owner, what: str, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call an async function of a plugin as `run_code` does."""
    try:
        awaitable = function(*args)
        coroutine: Any = awaitable if inspect.iscoroutine(awaitable) else _awaited(awaitable)
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            return ended.value  # most hooks wait for nothing, and a time limit costs more than they do
        return await within(seconds, _run_bounded, coroutine, waits_for)
    except TimedOutError:
        log.error("plugin %r failed: %s took longer than %g s", plugin.name, what, seconds)
        message = f"plugin {plugin.name!r} failed: {what} took longer than {seconds:g} s"
        raise PluginError(message) from None
    except ToolError as error:
        text = text_of(error)
        if len(text) > MAX_ERROR_TEXT:
            text = f"{text[:MAX_ERROR_TEXT]}… ({len(text) - MAX_ERROR_TEXT} more characters)"
        raise ToolError(text) from None
    except ThreadsClosedError:
        raise PluginError(removal_message(plugin.name)) from None
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        fault: BaseException = error  # the plugin awaited something that was cancelled
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        fault = error
    log_fault(plugin.name, what, fault)
    message = f"plugin {plugin.name!r} failed: {what} raised an error; it is in the log of codemode-mcp"
    raise PluginError(message) from fault


async def _run(plugin: Owner, function: Callable[..., Any], *args: Any) -> Any:
    if is_async(function):
        return await function(*args)
    result = await plugin.threads.run(function, *args)
    return await result if inspect.isawaitable(result) else result


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def within(seconds: float, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Return the result of an async function.

    Raises:
        TimedOutError: it took longer than `seconds`, even if it ended by itself after its cancellation.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            value = await function(*arguments)
    except asyncio.CancelledError:
        raise  # cancelled from outside
    except BaseException as error:
        if limit.expired():
            raise TimedOutError from error
        raise
    if limit.expired():
        raise TimedOutError
    return value


@types.coroutine
def _run_bounded(coroutine: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """Run a coroutine, and close it if it is still running `CLEANUP_SECONDS` after its cancellation.

    Otherwise a plugin could keep a call, or the whole process, from ending.

    Args:
        waits_for: the first value that the coroutine has yielded to the event loop.
    """
    task: Any = None
    timer: asyncio.TimerHandle | None = None
    cancelled: asyncio.CancelledError | None = None
    pending = 0
    is_over = False

    def end() -> None:
        nonlocal cancelled, is_over
        if task.cancelling() >= pending:
            is_over = True
            task.cancel()
        else:
            # An `asyncio.timeout` of the plugin requested this cancellation, and has withdrawn it: the code continues.
            cancelled = None

    try:
        while True:
            answer, error = None, None
            try:
                answer = yield waits_for
            except BaseException as thrown:
                error = thrown
                if cancelled is None and isinstance(thrown, asyncio.CancelledError):
                    cancelled, task = thrown, asyncio.current_task()
                    pending = task.cancelling()
                    timer = task.get_loop().call_later(CLEANUP_SECONDS, end)
            if is_over:
                break
            try:
                waits_for = coroutine.send(answer) if error is None else coroutine.throw(error)
            except StopIteration as ended:
                return ended.value
    finally:
        if timer is not None:
            timer.cancel()
    task.uncancel()  # the cancellation that `end` has added
    with suppress(BaseException):
        coroutine.close()
    assert cancelled is not None
    raise cancelled


def removal_message(name: str) -> str:
    return (
        f"plugin {name!r} was removed or loaded again while this program ran; run a new program, which sees the "
        "current tools"
    )


def log_fault(name: str, what: str, error: BaseException) -> None:
    """Log an error of a plugin and its location in one line, and the whole stack at level debug."""
    log.error("plugin %r failed: %s raised %s", name, what, describe_error(error))
    log.debug("plugin %r: full stack trace", name, exc_info=error)


def describe_error(error: BaseException) -> str:
    """Describe an error with its location, as in `ValueError: not found (plugin.py:12)`."""
    text = " ".join(text_of(error)[:1000].split())
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith("<frozen "):
        frames.clear()  # a failed import; a location in Python's own code does not help
    while len(frames) > 1 and frames[-1].filename == _API:
        frames.pop()  # the location is the plugin's call of the API
    where = f" ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{text and ': '}{text}{where}"


def text_of(error: BaseException) -> str:
    """Return the text of an error, which code of the plugin may make."""
    try:
        return str.__str__(str(error))
    except BaseException:  # SystemExit and KeyboardInterrupt too
        return "(no message: making its text failed)"


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _is_cancelled() -> bool:
    """Return True if the current task is cancelled, and not only something that the plugin waits for."""
    # In a cancelled scope, anyio's deadline is -inf. A plain asyncio cancellation is counted by the task.
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
