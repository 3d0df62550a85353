"""Calls of the tools of plugins, as those of any other tool source."""

from __future__ import annotations

import inspect
import logging
import math
from typing import TYPE_CHECKING, Any, Unpack

from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import CallInfo, ToolError
from codemode_mcp.plugins.running import is_async, log_fault, run_code
from codemode_mcp.plugins.tools import NotJson
from upstream_clients.errors import UpstreamCallError
from upstream_clients.tools import ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.plugins.running import Owner
    from codemode_mcp.plugins.tools import CheckedTool
    from upstream_clients.tools import CallOptions, JsonObject, ProgressFn, RequestOptions

log = logging.getLogger("codemode_mcp.plugins")


class PluginSource:
    """The tools of one plugin, for the calls of one run. Satisfies `ToolSource`.

    Args:
        find: returns the current tool of a name for the caller of the run, or None.
    """

    def __init__(
        self, plugin: Owner, run_id: str, owner: str, find: Callable[[str], Awaitable[CheckedTool | None]]
    ) -> None:
        self._plugin = plugin
        self._run_id = run_id
        self._owner = owner
        self._find = find

    @property
    def name(self) -> str:
        return self._plugin.name

    def view(self) -> UpstreamView:
        return UpstreamView(self._plugin.name, "ready")

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        admit, begin, timeout = options.get("admit"), options.get("begin"), options.get("timeout")
        found = await self._find(tool)
        if admit is not None:
            admit(None if found is None else found.tool)
        if found is None:
            raise self._error(f"plugin {self.name!r} no longer has the tool {tool!r}", dispatched=False)
        seconds = found.timeout if timeout is None else min(timeout, found.timeout)
        what = f"its tool {tool!r}"
        progress = _Progress(options.get("on_progress"))
        call = (CallInfo(self._run_id, self._owner, progress),) if found.takes_call else ()
        dispatched = False
        try:
            if found.has_input_model:
                given = await run_code(self._plugin, f"the input model of {what}", seconds, found.read, arguments)
            else:
                given = found.read(arguments)
            if begin is not None:
                await begin()
            if admit is not None and (found.has_input_model or begin is not None):  # time has passed since the check
                admit(found.tool)
            dispatched = True
            if (on_sent := options.get("on_sent")) is not None:
                on_sent()
            result = await run_code(self._plugin, what, seconds, self._run, found, what, given, *call)
        except ToolError as error:
            raise self._error(str(error) or f"{what} failed", dispatched=dispatched) from None
        except PluginError as error:
            raise self._error(error.message, dispatched=dispatched) from None
        finally:
            progress.close()
        if not isinstance(result, NotJson):
            return ToolOutcome(result)
        why = f"plugin {self.name!r} failed: the result of {what} {result}"
        log.error("%s", why)
        raise self._error(why, dispatched=True)

    async def _run(self, tool: CheckedTool, what: str, *given: Any) -> Any:
        """Return the result of a tool as JSON, or `NotJson`. A sync tool's result is converted in its thread."""

        def write(result: Any) -> Any:
            try:
                return tool.write(result)
            except NotJson as error:
                return error
            except BaseException as error:  # the result may hold objects whose code raises anything
                log_fault(self.name, f"the result of {what}", error)
                return NotJson("cannot be converted to JSON")

        def run() -> tuple[bool, Any]:
            result = tool.run(*given)
            return (False, result) if inspect.isawaitable(result) else (True, write(result))

        if is_async(tool.run):
            result = await tool.run(*given)
        else:
            converted, result = await self._plugin.threads.run(run)
            if converted:
                return result
            result = await result
        return await self._plugin.threads.run(write, result) if tool.has_output_model else write(result)

    async def request(self, method: str, params: JsonObject, **options: Unpack[RequestOptions]) -> JsonObject:
        raise self._error(f"plugin {self.name!r} answers calls of tools only", dispatched=False)

    def _error(self, message: str, *, dispatched: bool) -> UpstreamCallError:
        return UpstreamCallError(self.name, message, dispatched=dispatched)


class _Progress:
    """The function by which a tool reports progress until its call ends."""

    def __init__(self, on_progress: ProgressFn | None) -> None:
        self._on_progress = on_progress

    def close(self) -> None:
        self._on_progress = None

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        for number in (progress, total):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"progress() takes finite numbers, not {number!r:.100}")
        if self._on_progress is not None:
            await self._on_progress(progress, total, None if message is None else str(message))
