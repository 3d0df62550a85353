"""The plugins of this process, loaded in the order of the configuration and changed while the server runs.

No plugin is imported before `run`. Callers that need the plugins wait until it has loaded them. A plugin whose
configuration changes stays in use until its successor is loaded, so that its hooks are never missing.

The module is long because loading, replacing and unloading a plugin change the same state.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import anyio
from msgspec import Struct, structs

from codemode_mcp.base.errors import PluginError
from codemode_mcp.base.settings import PluginSettings
from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
from codemode_mcp.catalog.plugins.api import CallInfo, PluginApi, ToolContext, ToolError
from codemode_mcp.catalog.plugins.interception import Interceptors, Registered
from codemode_mcp.catalog.plugins.loading import Intercept, LoadError, Plugin, ToolGroup, find_register, load, unload
from codemode_mcp.catalog.plugins.running import Owner, describe_error, is_async, log_fault, run_code
from codemode_mcp.catalog.plugins.tools import BadTool, CheckedTool, NotJson, check_tools
from upstream_clients.errors import UpstreamCallError
from upstream_clients.tools import CallOptions, JsonObject, ProgressFn, RequestOptions, ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.catalog.plugins.scopes import Namespace
    from codemode_mcp.rules.policy.policy import Caller


log = logging.getLogger("codemode_mcp.plugins")

LOAD_SECONDS: Final = 10.0
"""Seconds to import and register one plugin."""

LOAD_ALL_SECONDS: Final = 25.0
"""Seconds to load all plugins. After that time, each remaining plugin has `MIN_LOAD_SECONDS`."""
MIN_LOAD_SECONDS: Final = 1.0

FACTORY_SECONDS: Final = 5.0
"""Seconds for one call of a factory."""

CHECK_SECONDS: Final = 20.0
"""Seconds to check the tools of a factory, of which there may be thousands."""

RETRY_SECONDS: Final = 30.0
"""Seconds until a factory that has failed for a caller is called again."""

MAX_CALLERS: Final = 1024
"""Maximum number of callers whose tools are cached. The least recently used caller is dropped first."""

CLOSE_SECONDS: Final = 1.0
"""Seconds for the `on_unload` callbacks of each plugin when the process ends."""

_Key = tuple[str, str]
"""Source and name of a plugin."""


@dataclass(eq=False)
class _CallerTools:
    """The tools that factories have returned for one caller.

    Attributes:
        failed_until: the time, in monotonic seconds, until which each failed factory is not called again.
        faults: the error of each failed factory.
    """

    tools: dict[ToolGroup, tuple[_OfferedTool, ...]] = field(default_factory=dict)
    failed_until: dict[ToolGroup, float] = field(default_factory=dict)
    faults: dict[ToolGroup, str] = field(default_factory=dict)
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class _OfferedTool(Struct, frozen=True, eq=False):
    tool: CheckedTool
    offered: OfferedTool


_numbers: set[int] = set()
"""The numbers of the running hosts of this process; see `loading.find_register`."""


class Plugins:
    """The plugins of this process.

    Args:
        workspace_dir: the folder of the configuration file, or else the working directory.
        bundled: the `register` functions of plugins that come with this product, by name.
        on_change: called when the offered tools or namespaces may have changed.
        sandboxed: whether calls come from programs in the sandbox; false in pass-through.
        clock: monotonic seconds.

    Attributes:
        interceptors: the hooks and the middleware of all plugins.
    """

    def __init__(
        self,
        settings: Sequence[PluginSettings],
        *,
        workspace_dir: Path,
        bundled: Mapping[str, Callable[[PluginApi], None]] | None = None,
        on_change: Callable[[], None] = lambda: None,
        sandboxed: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace_dir = workspace_dir
        self._bundled = dict(bundled or {})
        self._on_change = on_change
        self._sandboxed = sandboxed
        self._clock = clock
        self.interceptors = Interceptors()
        # The mutable state.
        self._number = 1
        self._settings = [each for each in settings if each.enabled]
        self._loaded: dict[_Key, Plugin] = {}
        self._loaded_with: dict[str, PluginSettings] = {}
        self._refused: dict[str, str] = {}
        self._removed: list[Plugin] = []
        self._applied = anyio.Event()
        self._applied.set()
        self._settled = anyio.Event()
        self._fixed: dict[ToolGroup, tuple[_OfferedTool, ...]] = {}
        self._callers: OrderedDict[Caller, _CallerTools] = OrderedDict()
        self._offers: dict[tuple[int, ...], tuple[OfferedTool, ...]] = {}
        self._namespaces: tuple[OfferedNamespace, ...] = ()

    def __repr__(self) -> str:
        return f"<Plugins: {', '.join(name for _, name in self._loaded)}>"

    @property
    def loaded(self) -> tuple[Plugin, ...]:
        """The loaded plugins: those that come with this product, then the others in the order of the configuration."""
        return tuple(self._loaded.values())

    @property
    def refused(self) -> Mapping[str, str]:
        """The reason why each refused plugin is not loaded, by name, for the operator."""
        return self._refused

    async def ready(self) -> None:
        """Wait until every configured plugin is loaded or refused."""
        while not self._settled.is_set():
            await self._settled.wait()

    # tools and namespaces

    async def offered(self, caller: Caller) -> tuple[OfferedTool, ...]:
        """Return the tools for a caller; the same object while nothing has changed."""
        await self.ready()
        found = [
            tool.offered
            for plugin in self.loaded
            for group in plugin.groups
            for tool in await self._tools(plugin, group, caller)
        ]
        # Callers with the same tools get the same object, so that one catalog is built for all of them.
        key = tuple(map(id, found))
        if key not in self._offers:
            if len(self._offers) >= MAX_CALLERS:
                self._offers.clear()
            self._offers[key] = tuple(found)
        return self._offers[key]

    def registered_tools(self) -> tuple[Hashable, ...]:
        """Return a value that changes whenever a configured plugin is loaded, changed or removed."""
        return tuple(plugin.groups for plugin in self.loaded if plugin.source == "plugin")

    def namespaces(self) -> tuple[OfferedNamespace, ...]:
        return self._namespaces

    def namespace(self, namespace_id: str) -> Namespace | None:
        found = (each for plugin in self.loaded for each in plugin.namespaces)
        return next((each for each in found if each.id == namespace_id), None)

    def find(self, name: str) -> Plugin | None:
        return self._loaded.get(("plugin", name))

    def source(self, source: str, source_name: str, caller: Caller, run_id: str, owner: str) -> PluginSource:
        """Return the source of a plugin's tools for the calls of a run.

        Raises:
            KeyError: the plugin was removed.
        """
        plugin = self._loaded[source, source_name]

        async def find(name: str) -> CheckedTool | None:
            for group in plugin.groups:
                if name in group.names:
                    found = (each.tool for each in await self._tools(plugin, group, caller))
                    return next((tool for tool in found if tool.tool.name == name), None)
            return None

        return PluginSource(plugin, run_id, owner, find)

    def failed_factories(self, plugin: Plugin, caller: Caller) -> list[tuple[tuple[str, ...], str]]:
        """Return the tool names and the error of each factory that has recently failed for a caller."""
        cached = self._callers.get(caller)
        if cached is None:
            return []
        return [(group.names, cached.faults[group]) for group in plugin.groups if group in cached.failed_until]

    async def _tools(self, plugin: Plugin, group: ToolGroup, caller: Caller) -> tuple[_OfferedTool, ...]:
        fixed = self._fixed.get(group)
        if fixed is not None:
            return fixed
        if group.fixed is not None:
            fixed = (_offer(plugin, group, group.fixed),)
            if self._is_loaded(plugin):
                self._fixed[group] = fixed
            return fixed
        cached = self._callers.get(caller)
        if cached is None:
            cached = self._callers[caller] = _CallerTools()
            if len(self._callers) > MAX_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(caller)
        if group in cached.tools:
            return cached.tools[group]
        # Concurrent requests of a caller wait here, and the factory is called once for all of them.
        async with cached.lock:
            if group not in cached.tools and cached.failed_until.get(group, 0.0) <= self._clock():
                try:
                    tools = await self._call_factory(plugin, group, caller)
                    if not self._is_loaded(plugin):
                        return tools
                    cached.tools[group] = tools
                    cached.failed_until.pop(group, None)
                except Exception as error:
                    cause = error.__cause__ if isinstance(error, PluginError) and error.__cause__ else error
                    is_clear = isinstance(cause, BadTool | ToolError | PluginError)
                    text = str(cause) if is_clear else describe_error(cause)
                    if not isinstance(error, PluginError):  # a PluginError is logged already
                        log.error("plugin %r: its factory of %s: %s", plugin.name, ", ".join(group.names), text)
                    if self._is_loaded(plugin):
                        cached.failed_until[group] = self._clock() + RETRY_SECONDS
                        cached.faults[group] = text
        return cached.tools.get(group, ())

    def _is_loaded(self, plugin: Plugin) -> bool:
        """Return True if a plugin was not removed. A call may outlive its plugin; nothing is cached then."""
        current = self._loaded.get((plugin.source, plugin.name))
        return current is not None and current.groups is plugin.groups

    async def _call_factory(self, plugin: Plugin, group: ToolGroup, caller: Caller) -> tuple[_OfferedTool, ...]:
        context = ToolContext(
            config=plugin.config,
            workspace_dir=self._workspace_dir,
            owner=caller.owner or "",
            principal=caller.principal,
            groups=caller.groups,
            sandboxed=self._sandboxed,
        )
        what = f"its factory of {', '.join(group.names)}"
        made = await run_code(plugin, what, FACTORY_SECONDS, group.factory, context)

        def check() -> list[CheckedTool] | BadTool:
            try:
                return check_tools(made, group.names, bundled=plugin.source == "core")
            except BadTool as error:
                return error

        # In a thread, since thousands of schemas take long to compile, and models are code of the plugin.
        checked = await run_code(plugin, what, CHECK_SECONDS, check)
        if isinstance(checked, BadTool):
            raise checked
        return tuple(_offer(plugin, group, each) for each in checked)

    # loading and removing

    def apply(self, settings: Sequence[PluginSettings]) -> None:
        """Replace the settings. Plugins and grants are removed immediately; `run` loads the others."""
        self._settings = [each for each in settings if each.enabled]
        by_name = {each.name: each for each in self._settings}
        for plugin in self.loaded:
            if plugin.source == "core":
                continue
            granted = by_name.get(plugin.name)
            if granted is None:
                self._remove(plugin)
            else:
                self._loaded["plugin", plugin.name] = structs.replace(
                    plugin, hook_grants=granted.hooks, middleware_grants=granted.middleware
                )
        self._refused = {name: why for name, why in self._refused.items() if name in by_name}
        if self._settled.is_set():
            self._settled = anyio.Event()
        if self.interceptors.is_ready:
            self._publish()
        self._applied.set()

    async def run(self) -> None:
        """Load the configured plugins, now and after each `apply`, until cancelled."""
        self._number = next(number for number in count(1) if number not in _numbers)
        _numbers.add(self._number)
        try:
            while True:
                await self._applied.wait()
                self._applied = anyio.Event()  # before the load, so that an `apply` during it starts another round
                await self._load_all()
                if not self._applied.is_set():
                    self._publish()
                    self._settled.set()
                # After the new hooks are published: until then, calls may run those of the removed plugins.
                removed, self._removed = self._removed, []
                for plugin in removed:
                    await unload(plugin, plugin.unload)
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    for plugin in (*self._removed, *self.loaded):
                        group.start_soon(unload, plugin, plugin.unload, CLOSE_SECONDS)
            self.interceptors.close()
            _numbers.discard(self._number)

    async def _load_all(self) -> None:
        for name, register in self._bundled.items():
            if ("core", name) not in self._loaded:
                all_granted = PluginSettings(name, hooks=("*",), middleware=("*",))
                await self._load(all_granted, lambda register=register: register, LOAD_SECONDS, "core")  # type: ignore[misc]
        until = self._clock() + LOAD_ALL_SECONDS
        for each in self._settings:
            if ("plugin", each.name) in self._loaded and _differ_in_grants_only(self._loaded_with[each.name], each):
                continue
            seconds = max(MIN_LOAD_SECONDS, min(LOAD_SECONDS, until - self._clock()))
            await self._load(each, partial(find_register, each, self._workspace_dir, self._number), seconds, "plugin")
        order = [("core", name) for name in self._bundled] + [("plugin", each.name) for each in self._settings]
        self._loaded = {key: self._loaded[key] for key in order if key in self._loaded}

    async def _load(
        self,
        settings: PluginSettings,
        find: Callable[[], Callable[[PluginApi], object]],
        seconds: float,
        source: Literal["plugin", "core"],
    ) -> None:
        name = settings.name
        taken = tuple(
            each for key, plugin in self._loaded.items() if key != (source, name) for each in plugin.namespaces
        )
        began = self._clock()
        try:
            plugin = await load(settings, find, taken, seconds, source=source)
        except LoadError as error:
            log.error("plugin %r is refused: %s", name, error)
            self._refused[name] = str(error)
            plugin = None
        else:
            self._refused.pop(name, None)
            log.info("plugin %r loaded in %d ms", name, round((self._clock() - began) * 1000))
        before = self._loaded.get((source, name))
        if source == "plugin" and not any(each is settings for each in self._settings):
            # The configuration of the plugin has changed while it was loaded.
            if plugin is not None:
                self._removed.append(plugin)
            return
        if before is not None:
            self._remove(before)
        if plugin is not None:
            self._loaded[source, name] = plugin
            self._loaded_with[name] = settings

    def _remove(self, plugin: Plugin) -> None:
        del self._loaded[plugin.source, plugin.name]
        self._removed.append(plugin)
        for group in plugin.groups:
            self._fixed.pop(group, None)
            for cached in self._callers.values():
                cached.tools.pop(group, None)
                cached.failed_until.pop(group, None)

    def _publish(self) -> None:
        self._offers.clear()
        self._namespaces = tuple(each.offered for plugin in self.loaded for each in plugin.namespaces)
        granted = {each.name: (*each.hooks, *each.middleware) for each in self._settings}
        self.interceptors.apply(
            [_registered(plugin, each, plugin.hook_grants) for plugin in self.loaded for each in plugin.hooks],
            [
                _registered(plugin, each, plugin.middleware_grants)
                for plugin in self.loaded
                for each in plugin.middleware
            ],
            {name: granted[name] for name in self._refused if name in granted},
        )
        self._on_change()


def _offer(plugin: Plugin, group: ToolGroup, tool: CheckedTool) -> _OfferedTool:
    return _OfferedTool(tool, OfferedTool(plugin.source, plugin.name, tool.tool, tool.label, group.optional))


def _registered(plugin: Plugin, intercept: Intercept, granted: tuple[str, ...]) -> Registered:
    return Registered(plugin.name, intercept.callback, intercept.tools, granted, core=plugin.source == "core")


def _differ_in_grants_only(before: PluginSettings, after: PluginSettings) -> bool:
    return (before.module, before.config, before.unusable) == (after.module, after.config, after.unusable)


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
