"""Runs a plugin's code so that whatever it does ends this one thing alone: it may raise, hang or end the process."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import traceback
import types
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import ToolError
from codemode_mcp.plugins.threads import ThreadsClosedError
from codemode_mcp.plugins.timing import TimeIsUpError, within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from codemode_mcp.plugins.threads import Threads

log = logging.getLogger("codemode_mcp.plugins")

LET_GO_SECONDS = 3.0
"""Seconds for cancelled code to end."""

MAX_TOLD = 4_000
"""Characters of what a `ToolError` says."""


_API = str(Path(__file__).with_name("registry.py"))


class Owner(Protocol):
    """The owner of code, such as a `registry.Plugin`."""

    @property
    def name(self) -> str: ...
    @property
    def threads(self) -> Threads:
        """Return the threads for code that is not async."""
        ...


async def run_code(plugin: Owner, what: str, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a plugin, async or in one of the plugin's threads, and await what it returns.

    Args:
        what: for messages, e.g. `its tool 'list'`.

    Raises:
        ToolError: with the text of the one that the function raised, cut.
        PluginError: it took longer than `seconds`, or raised anything else, which is logged.
    """
    return await run_async(plugin, what, seconds, _run, plugin, function, *args)


async def run_async(plugin: Owner, what: str, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """Return the same for what is known to be async."""
    try:
        awaitable = function(*args)
        coroutine: Any = awaitable if inspect.iscoroutine(awaitable) else _awaited(awaitable)
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            return ended.value  # it had nothing to wait for, and a limit of time costs more than most hooks do
        return await within(seconds, _let_go, coroutine, waits_for)
    except TimeIsUpError:
        log.error("plugin %r failed: %s took longer than %g s", plugin.name, what, seconds)
        message = f"plugin {plugin.name!r} failed: {what} took longer than {seconds:g} s"
        raise PluginError(message) from None
    except ToolError as error:
        text = text_of(error)
        if len(text) > MAX_TOLD:
            text = f"{text[:MAX_TOLD]}… ({len(text) - MAX_TOLD} more characters)"
        raise ToolError(text) from None
    except ThreadsClosedError:
        raise PluginError(removed(plugin.name)) from None
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        fault: BaseException = error  # of something that the plugin itself awaits
    except BaseException as error:  # also what would end the process
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


@types.coroutine
def _let_go(coroutine: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine that may continue after its cancellation: some seconds later it is closed where it stands.

    Otherwise a plugin could keep a call, or the whole process, from ending.

    Args:
        waits_for: what it has yielded to the event loop.
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
            cancelled = None  # it was a timeout of its own

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
                    timer = task.get_loop().call_later(LET_GO_SECONDS, end)
            if is_over:
                break
            try:
                waits_for = coroutine.send(answer) if error is None else coroutine.throw(error)
            except StopIteration as ended:
                return ended.value
    finally:
        if timer is not None:
            timer.cancel()
    task.uncancel()  # what `end` has added
    with suppress(BaseException):
        coroutine.close()
    assert cancelled is not None
    raise cancelled


def removed(name: str) -> str:
    """Return the message for a call that came too late for its plugin."""
    return (
        f"plugin {name!r} was removed or loaded again while this program ran; do without it, or run a new program, "
        "which sees the tools that are there now"
    )


def log_fault(name: str, what: str, error: BaseException) -> None:
    """Say in one line what was raised and where; at level debug with the whole stack."""
    log.error("plugin %r failed: %s raised %s", name, what, described(error))
    log.debug("plugin %r: the whole stack", name, exc_info=error)


def described(error: BaseException) -> str:
    """`ValueError: no such thing (plugin.py:12)`."""
    text = " ".join(text_of(error)[:1000].split())
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith("<frozen "):
        frames.clear()  # an import that failed; the place in Python's own code is no help
    while len(frames) > 1 and frames[-1].filename == _API:
        frames.pop()  # the place is where the plugin's code called the API
    where = f" ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{text and ': '}{text}{where}"


def text_of(error: BaseException) -> str:
    """Return what an error says. Its class may be the plugin's own, and so the code that makes its text."""
    try:
        return str.__str__(str(error))
    except BaseException:  # also what would end the process
        return "(it does not say what: making its text failed)"


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _is_cancelled() -> bool:
    """Return True if it is we who are cancelled, and not something that the plugin waits for."""
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
