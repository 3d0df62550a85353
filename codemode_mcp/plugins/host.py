"""The plugins of this process: loaded in the order of the configuration, changed while everything runs.

Nothing is imported before `run`; callers that need the plugins wait for that. A plugin that is configured again stays
as it was until the new one is loaded, so that there is no moment without its hooks.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio

from codemode_mcp.catalog.entries import Offered, OfferedNamespace
from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import ToolContext, ToolError
from codemode_mcp.plugins.interception import Interceptors, Registered
from codemode_mcp.plugins.loading import LoadError, find_register, load, unload
from codemode_mcp.plugins.running import described, run_code
from codemode_mcp.plugins.tools import BadTool, MadeTool, PluginSource, make_all
from codemode_mcp.settings import PluginSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.plugins.api import PluginApi
    from codemode_mcp.plugins.namespaces import Namespace
    from codemode_mcp.plugins.registry import Intercept, Plugin, ToolGroup
    from codemode_mcp.policy.callers import Caller

log = logging.getLogger("codemode_mcp.plugins")

LOAD_SECONDS: Final = 10.0
"""Seconds to import and register one plugin."""

LOAD_ALL_SECONDS: Final = 25.0
"""Seconds to load all plugins; those that are left then have `LEAST_SECONDS` each."""
LEAST_SECONDS: Final = 1.0

FACTORY_SECONDS: Final = 5.0

CHECK_SECONDS: Final = 20.0
"""Seconds to check the tools of a factory: there may be thousands."""

RETRY_SECONDS: Final = 30.0
"""After a factory has failed for a caller, until it is asked again."""

MAX_CALLERS: Final = 1024
"""Callers whose tools are kept; those of the caller not seen for longest are made again."""

CLOSE_SECONDS: Final = 1.0
"""Seconds at the end for the functions that plugins have registered for it."""

_Key = tuple[str, str]
"""Source and name."""


@dataclass(eq=False)
class _ForCaller:
    """Tools that factories have made for one caller.

    Attributes:
        failed_until: monotonic seconds, of groups whose factory has failed.
        faults: why each of these factories has failed.
    """

    made: dict[ToolGroup, tuple[_Made, ...]] = field(default_factory=dict)
    failed_until: dict[ToolGroup, float] = field(default_factory=dict)
    faults: dict[ToolGroup, str] = field(default_factory=dict)
    lock: anyio.Lock = field(default_factory=anyio.Lock)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    tool: MadeTool
    offered: Offered


class Plugins:
    """The plugins of this process. Satisfies `per_caller.Offers` and `runs.namespaces.Scopes`.

    Args:
        workspace_dir: the folder of the configuration file, else the working directory.
        bundled: what comes with this product, by name.
        on_change: called when what is offered may be another.
        sandboxed: whether programs in the sandbox call; false in pass-through.
        clock: monotonic seconds.

    Attributes:
        interceptors: the hooks and the middleware of all of them.
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
        self._wanted = [each for each in settings if each.enabled]
        self._loaded: dict[_Key, Plugin] = {}
        self._loaded_with: dict[str, PluginSettings] = {}
        self._refused: dict[str, str] = {}
        self._gone: list[Plugin] = []
        self._asked = anyio.Event()
        self._asked.set()
        self._settled = anyio.Event()
        self._fixed: dict[ToolGroup, tuple[_Made, ...]] = {}
        self._callers: OrderedDict[Caller, _ForCaller] = OrderedDict()
        self._offers: dict[tuple[int, ...], tuple[Offered, ...]] = {}
        self._namespaces: tuple[OfferedNamespace, ...] = ()

    def __repr__(self) -> str:
        return f"<Plugins: {', '.join(name for _, name in self._loaded)}>"

    @property
    def loaded(self) -> tuple[Plugin, ...]:
        """Those that come with this product, then in the order of the configuration."""
        return tuple(self._loaded.values())

    @property
    def refused(self) -> Mapping[str, str]:
        """Return why plugins are not there that are configured, by name, for the operator."""
        return self._refused

    async def ready(self) -> None:
        """Return once everything that is configured now has been loaded or refused."""
        while not self._settled.is_set():
            await self._settled.wait()

    # what they offer

    async def offered(self, caller: Caller) -> tuple[Offered, ...]:
        """Return the tools for a caller; the same object while nothing has changed."""
        await self.ready()
        found = [
            made.offered
            for plugin in self.loaded
            for group in plugin.groups
            for made in await self._tools(plugin, group, caller)
        ]
        # Callers who are offered the same get the same object: of that a catalog is made once.
        key = tuple(map(id, found))
        if key not in self._offers:
            if len(self._offers) >= MAX_CALLERS:
                self._offers.clear()
            self._offers[key] = tuple(found)
        return self._offers[key]

    def registered_tools(self) -> Hashable:
        """Return a value that is equal while no plugin of the operator's is loaded, changed or removed."""
        return tuple(plugin.groups for plugin in self.loaded if plugin.source == "plugin")

    def namespaces(self) -> tuple[OfferedNamespace, ...]:
        """Return all that are registered."""
        return self._namespaces

    def namespace(self, namespace_id: str) -> Namespace | None:
        """Return a namespace as it is registered now."""
        found = (each for plugin in self.loaded for each in plugin.namespaces)
        return next((each for each in found if each.id == namespace_id), None)

    def find(self, name: str) -> Plugin | None:
        """Return one of those that the operator has configured."""
        return self._loaded.get(("plugin", name))

    def source(self, source: str, source_name: str, caller: Caller, run_id: str, owner: str) -> PluginSource:
        """Return what offers a plugin's tools to the calls of a run.

        Raises:
            KeyError: there is no such plugin any more.
        """
        plugin = self._loaded[source, source_name]

        async def find(tool: str) -> MadeTool | None:
            for group in plugin.groups:
                if tool in group.names:
                    found = (made.tool for made in await self._tools(plugin, group, caller))
                    return next((made for made in found if made.tool.name == tool), None)
            return None

        return PluginSource(plugin, run_id, owner, find)

    def failed_factories(self, plugin: Plugin, caller: Caller) -> list[tuple[tuple[str, ...], str]]:
        """Return the tools of each factory that has failed for a caller lately, and why it failed."""
        kept = self._callers.get(caller)
        if kept is None:
            return []
        return [(group.names, kept.faults[group]) for group in plugin.groups if group in kept.failed_until]

    async def _tools(self, plugin: Plugin, group: ToolGroup, caller: Caller) -> tuple[_Made, ...]:
        """Return what a group has for a caller: made once, and again some time after a failure."""
        fixed = self._fixed.get(group)
        if fixed is not None:
            return fixed
        if group.fixed is not None:
            fixed = (_offer(plugin, group, group.fixed),)
            if self._has(plugin):
                self._fixed[group] = fixed
            return fixed
        kept = self._callers.get(caller)
        if kept is None:
            kept = self._callers[caller] = _ForCaller()
            if len(self._callers) > MAX_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(caller)
        if group in kept.made:
            return kept.made[group]
        async with kept.lock:
            if group not in kept.made and kept.failed_until.get(group, 0.0) <= self._clock():
                try:
                    made = await self._make(plugin, group, caller)
                    if not self._has(plugin):
                        return made
                    kept.made[group] = made
                    kept.failed_until.pop(group, None)
                except Exception as error:
                    cause = error.__cause__ if isinstance(error, PluginError) and error.__cause__ else error
                    told = isinstance(cause, BadTool | ToolError | PluginError)
                    text = str(cause) if told else described(cause)
                    if not isinstance(error, PluginError):  # that is in the log
                        log.error("plugin %r: its factory of %s: %s", plugin.name, ", ".join(group.names), text)
                    if self._has(plugin):
                        kept.failed_until[group] = self._clock() + RETRY_SECONDS
                        kept.faults[group] = text
        return kept.made.get(group, ())

    def _has(self, plugin: Plugin) -> bool:
        """Return True if it is still there: a call that has begun before outlives it, and nothing is kept of that."""
        there = self._loaded.get((plugin.source, plugin.name))
        return there is not None and there.groups is plugin.groups

    async def _make(self, plugin: Plugin, group: ToolGroup, caller: Caller) -> tuple[_Made, ...]:
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

        def check() -> list[MadeTool] | BadTool:
            try:
                return make_all(made, group.names, ours=plugin.source == "core")
            except BadTool as error:
                return error

        # In a thread: thousands of schemas take long to compile, and models are code of the plugin's.
        checked = await run_code(plugin, what, CHECK_SECONDS, check)
        if isinstance(checked, BadTool):
            raise checked
        return tuple(_offer(plugin, group, each) for each in checked)

    # loading and removing

    def apply(self, settings: Sequence[PluginSettings]) -> None:
        """Replace the settings: removed plugins and grants are gone, and `run` loads new, changed and refused ones."""
        self._wanted = [each for each in settings if each.enabled]
        wanted = {each.name: each for each in self._wanted}
        for plugin in self.loaded:
            if plugin.source == "core":
                continue
            granted = wanted.get(plugin.name)
            if granted is None:
                self._remove(plugin)
            else:
                self._loaded["plugin", plugin.name] = replace(
                    plugin, hook_grants=granted.hooks, middleware_grants=granted.middleware
                )
        self._refused = {name: why for name, why in self._refused.items() if name in wanted}
        if self._settled.is_set():
            self._settled = anyio.Event()
        if self.interceptors.is_ready:
            self._publish()
        self._asked.set()

    async def run(self) -> None:
        """Load what is configured, now and later, until cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._asked = anyio.Event()
                await self._load_all()
                if not self._asked.is_set():
                    self._publish()
                    self._settled.set()
                gone, self._gone = self._gone, []
                for plugin in gone:
                    await unload(plugin, plugin.unload)
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    for plugin in (*self._gone, *self.loaded):
                        group.start_soon(unload, plugin, plugin.unload, CLOSE_SECONDS)
            self.interceptors.close()

    async def _load_all(self) -> None:
        for name, register in self._bundled.items():
            if ("core", name) not in self._loaded:
                everything = PluginSettings(name, hooks=("*",), middleware=("*",))
                await self._load(everything, lambda register=register: register, LOAD_SECONDS, "core")  # type: ignore[misc]
        until = self._clock() + LOAD_ALL_SECONDS
        for each in self._wanted:
            if ("plugin", each.name) in self._loaded and _same(self._loaded_with[each.name], each):
                continue
            seconds = max(LEAST_SECONDS, min(LOAD_SECONDS, until - self._clock()))
            await self._load(each, partial(find_register, each, self._workspace_dir), seconds, "plugin")
        order = [("core", name) for name in self._bundled] + [("plugin", each.name) for each in self._wanted]
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
        if source == "plugin" and not any(each is settings for each in self._wanted):
            # Configured in another way meanwhile, or not at all.
            if plugin is not None:
                self._gone.append(plugin)
            return
        if before is not None:
            self._remove(before)
        if plugin is not None:
            self._loaded[source, name] = plugin
            self._loaded_with[name] = settings

    def _remove(self, plugin: Plugin) -> None:
        del self._loaded[plugin.source, plugin.name]
        self._gone.append(plugin)
        for group in plugin.groups:
            self._fixed.pop(group, None)
            for kept in self._callers.values():
                kept.made.pop(group, None)
                kept.failed_until.pop(group, None)

    def _publish(self) -> None:
        """Tell everybody what there is now."""
        self._offers.clear()
        self._namespaces = tuple(each.offered for plugin in self.loaded for each in plugin.namespaces)
        granted = {each.name: (*each.hooks, *each.middleware) for each in self._wanted}
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


def _offer(plugin: Plugin, group: ToolGroup, made: MadeTool) -> _Made:
    return _Made(made, Offered(plugin.source, plugin.name, made.tool, made.label, group.optional))


def _registered(plugin: Plugin, intercept: Intercept, granted: tuple[str, ...]) -> Registered:
    return Registered(plugin.name, intercept.callback, intercept.tools, granted, core=plugin.source == "core")


def _same(before: PluginSettings, after: PluginSettings) -> bool:
    """Return True if nothing has changed but what is granted."""
    return (before.module, before.config) == (after.module, after.config)
