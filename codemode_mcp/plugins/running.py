"""Runs a plugin's code so that whatever it does ends this one thing alone: it may raise, hang or end the process."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import traceback
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import ToolError
from codemode_mcp.plugins.timing import TimeIsUpError, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.plugins.threads import Threads

log = logging.getLogger("codemode_mcp.plugins")

MAX_TOLD = 4_000
"""Characters of what a `ToolError` says."""


class Owner(Protocol):
    """Whose code it is; a `registry.Plugin` for one."""

    @property
    def name(self) -> str: ...
    @property
    def threads(self) -> Threads:
        """For what is not async."""
        ...


async def run_code(plugin: Owner, what: str, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a plugin, async or in one of the plugin's threads, and await what it returns.

    Args:
        what: for messages, e.g. `its tool 'list'`.

    Raises:
        ToolError: as the function raised it, its text cut.
        PluginError: it took longer than `seconds`, or raised anything else, which is logged.
    """
    try:
        return await within(seconds, _run, plugin, function, *args)
    except TimeIsUpError:
        log.error("plugin %r failed: %s took longer than %g s", plugin.name, what, seconds)
        message = f"plugin {plugin.name!r} failed: {what} took longer than {seconds:g} s"
        raise PluginError(message) from None
    except ToolError as error:
        text = str(error)
        if len(text) > MAX_TOLD:
            raise ToolError(f"{text[:MAX_TOLD]}… ({len(text) - MAX_TOLD} more characters)") from None
        raise
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        fault: BaseException = error  # of something that the plugin itself awaits
    except BaseException as error:  # also what would end the process
        fault = error
    log_fault(plugin.name, what, fault)
    raise PluginError(f"plugin {plugin.name!r} failed: {what} raised an error; it is in the log of codemode-mcp")


async def _run(plugin: Owner, function: Callable[..., Any], *args: Any) -> Any:
    if is_async(function):
        return await function(*args)
    result = await plugin.threads.run(function, *args)
    return await result if inspect.isawaitable(result) else result


def log_fault(name: str, what: str, error: BaseException) -> None:
    """Say in one line what was raised and where; at level debug with the whole stack."""
    log.error("plugin %r failed: %s raised %s", name, what, described(error))
    log.debug("plugin %r: the whole stack", name, exc_info=error)


def described(error: BaseException) -> str:
    """`ValueError: no such thing (plugin.py:12)`."""
    text = " ".join(str(error)[:1000].split())
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{text and ': '}{text}{where}"


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _is_cancelled() -> bool:
    """Whether it is we who are cancelled, and not something that the plugin waits for."""
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
