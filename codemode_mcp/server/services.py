"""The application, as the server, the page and the command line see it."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.audit import Auditor, Redactor, set_level
from codemode_mcp.base.config_path import command_option
from codemode_mcp.base.nesting import with_depth
from codemode_mcp.base.paths import cache_dir, config_dir, state_dir
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.saved_programs.folder import EMPTY, Library, LibraryWatcher
from codemode_mcp.catalog.topics import CallerTopics
from codemode_mcp.config import Config, reload
from codemode_mcp.rules.policy.policy import Caller, Policies, Policy
from codemode_mcp.rules.trust.pins_file import PinsFolder
from codemode_mcp.rules.trust.service import Trust
from codemode_mcp.server.profiles import ConnectedClients

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.base.settings import ToolSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import OfferedNamespace
    from codemode_mcp.catalog.per_caller import Catalogs
    from codemode_mcp.catalog.plugins.host import Plugins
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.catalog.saved_programs.version_keeper import VersionKeeper
    from codemode_mcp.catalog.saved_programs.versions import DefinitionChange, UsedTool
    from codemode_mcp.extension_points import Checker
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.rules.policy.approval import RememberFn
    from codemode_mcp.rules.policy.budgets import AccountView
    from codemode_mcp.runs.calls.dispatch import Dispatcher
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.server.control.answers import Control
    from codemode_mcp.stores.opening import OpenedStore
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import ItemSource, RootsFn, UpstreamView

log = logging.getLogger("codemode_mcp.process.app")

LIST_SECONDS = 2.0
"""Seconds that the first `tools/list` waits for cached listings, and for plugins to load. Later ones do not wait."""

OPEN_SECONDS = 8.0
"""Seconds that the first `tools/list` waits until plugins begin to load. Without plugins it does not wait."""

PROMPTS_SECONDS = 0.5
"""Seconds for plugins to list the tools of a client, before `tools/list` is answered without their prompts."""

COUNT_SECONDS = 1.0
"""Seconds that the answer to a refused request waits for the counts of its caller's catalog."""

TRANSFORM_SECONDS = 30.0
"""Timeout for the compilation of one TypeScript program."""


class Parts(Struct, frozen=True, kw_only=True):
    """The parts of an application that programs and calls need.

    Attributes:
        checker: the check of programs' types; None without the extension.
        versions: the definitions of tools that saved programs use; None without a folder of programs.
    """

    pool: UpstreamPool
    store: OpenedStore
    plugins: Plugins
    catalogs: Catalogs
    dispatcher: Dispatcher
    manager: RunManager
    checker: Checker | None
    versions: VersionKeeper | None

    def apply(self, config: Config) -> None:
        """Use another configuration. The dispatcher comes first: it refuses calls."""
        self.dispatcher.apply(config.tools)
        self.catalogs.apply(config.tools)
        self.manager.apply(config.tools.code_mode)
        self.plugins.apply(config.plugins)


class App:
    """The application. `codemode_mcp.process.app.app.open_app` opens one.

    Attributes:
        config: the configuration in use. A changed file replaces it.
        operator: the user who started this process. This is the caller over stdio and from a terminal.
        engine: returns the compiled engine. Raises `RuntimeUnavailable`.
        transport: the transport of the clients of a process that serves; None for a command.
        serves_http: callers over HTTP are served, too.
        own_environ: the environment from which servers inherit; None for that of this process.
        code_mode: True for `exec` and `wait`, False for the tools themselves (pass-through). It never changes.
        trust: the pins of the servers.
        clients: the clients that have sent requests.
        control: the answers to requests of terminals and of the page; None until everything is open.
        started: the upstream servers; None until they are started.
        parts: None until everything is open.
        roots: the roots of clients that were noted before the servers were started.
        saved: the saved programs.
        touched: set by the first request of a client.
        program_waits: set by the first request that needs the parts.
        cache_read: set when cached listings and saved programs are read.
        is_open: set when `parts` is there.
    """

    def __init__(
        self,
        config: Config,
        operator: Caller,
        engine: Callable[[], Awaitable[Engine]],
        transport: Literal["stdio", "http"] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.operator = operator
        self.engine = engine
        self.transport = transport
        self.serves_http = transport == "http"
        self.own_environ = environ
        self.environ = os.environ if environ is None else environ
        self.code_mode = config.tools.code_mode.enabled
        self.auditor = Auditor()
        self.redact = Redactor()
        self.redact.know(config.secretive)
        self.clients = ConnectedClients(time.monotonic)
        self._visible = VisibleServers(config, lambda: self.trust.server_names)
        self._topics = CallerTopics(self.trusted_views, Overrides(config.tools.overrides))
        pins = None if config.path is None else PinsFolder(state_dir() / "pins", config.path)
        option = command_option(config.path, config_dir())
        self.trust = Trust(pins, self.server_views, self.auditor, self.on_change, option=option)
        self._use_pins(config)
        self.roots: dict[str | None, RootsFn | None] = {}
        self.cached_views: tuple[UpstreamView, ...] = ()
        self.saved = EMPTY
        self.library_watcher: LibraryWatcher | None = None
        self._esbuild: Path | None = None
        self._list_deadlines: tuple[float, float | None] | None = None
        """Deadlines of the first `tools/list`: for plugins to begin to load, and to be loaded."""
        self.touched = anyio.Event()
        self.program_waits = anyio.Event()
        self.cache_read = anyio.Event()
        self.is_open = anyio.Event()
        self._change = anyio.Event()
        self.control: Control | None = None
        self.started: UpstreamPool | None = None
        self.parts: Parts | None = None

    def touch(self) -> None:
        """Start the engine and the connections to servers, because a client is connected."""
        self.touched.set()

    # parts, once everything is open

    async def opened(self) -> Parts:
        self.touch()
        self.program_waits.set()
        await self.is_open.wait()
        assert self.parts is not None
        return self.parts

    async def manager(self) -> RunManager:
        return (await self.opened()).manager

    async def dispatcher(self) -> Dispatcher:
        return (await self.opened()).dispatcher

    async def pool(self) -> UpstreamPool:
        return (await self.opened()).pool

    async def values(self) -> Values:
        return (await self.opened()).store.values

    async def plugins(self) -> Plugins:
        """Return the plugins, after all configured ones were loaded or refused."""
        plugins = (await self.opened()).plugins
        await plugins.ready()
        return plugins

    # clients

    def record_client(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count a request of a client, for `codemode-mcp clients` and `doctor`."""
        self.clients.record(name, version, protocol)

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None:
        """Note a connected client, and a function that asks it for its roots; see `SharedServers.offer_roots`.

        Args:
            client: the `Caller.client` of the client's requests.
        """
        if self.started is None:
            self.roots[client] = list_roots
        else:
            self.started.offer_roots(client, list_roots)

    def roots_changed(self, client: str | None) -> None:
        """Note that a client has reported other roots. Its later calls use servers for these roots."""
        if self.started is not None:
            self.started.roots_changed(client)

    def forget_client(self, client: str | None) -> None:
        """Note that a client has left. Processes of servers for this client alone end when they have no calls."""
        self.roots.pop(client, None)
        if self.started is not None:
            self.started.forget_client(client)

    # the shared instance

    def has_calls_in_flight(self) -> bool:
        """Return True if a program computes, or a call of a program is in flight."""
        return self.parts is not None and self.parts.manager.is_busy()

    def server_pids(self, name: str) -> tuple[int, ...]:
        """Return the processes of a server, which other applications of this process may share."""
        return () if self.started is None else self.started.pids(name)

    # the view of a caller

    @property
    def policies(self) -> Policies:
        return self._visible.policies

    def settings(self) -> ToolSettings:
        """Return the current settings. A changed configuration file replaces them."""
        return self.config.tools

    def configured(self) -> Sequence[str]:
        return [spec.name for spec in self.config.upstreams]

    def has_nothing(self) -> bool:
        return not self.config.upstreams and not self._has_plugins() and not self.library().programs

    def _has_plugins(self) -> bool:
        return any(each.enabled for each in self.config.plugins)

    def servers(self, caller: Caller | None) -> dict[str, str]:
        """Return the servers that a caller may see, configured names by identifier; see `VisibleServers.of`."""
        return self._visible.of(caller)

    def admits_nothing(self, caller: Caller) -> bool:
        return self._visible.admits_nothing(caller)

    def topics(self, caller: Caller) -> Sequence[str]:
        """Return the topics of the caller's servers, as far as their listings are known."""
        return self._topics.of(self.policies.of(caller))

    def all_topics(self) -> Hashable:
        """Return the topics of all callers. They are only compared, never shown."""
        return tuple(map(self._topics.of, self.policies.all))

    def plugin_tools(self) -> tuple[Hashable, ...]:
        """Return the registered tools of plugins. It changes only when a plugin is loaded, changed or removed."""
        return () if self.parts is None else self.parts.plugins.registered_tools()

    def namespaces(self) -> Sequence[OfferedNamespace]:
        return () if self.parts is None else self.parts.plugins.namespaces()

    def saved_programs(self, caller: Caller | None) -> tuple[str, ...]:
        """Return the names of the saved programs that a caller sees; for None, all names."""
        programs = self.library().programs
        if not programs or caller is None:
            return tuple(each.name for each in programs)
        from codemode_mcp.catalog.toolset import select_programs

        return tuple(each.name for each in select_programs(programs, self.policies.of(caller)).programs)

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]:
        """Return global name, description and prompt of each namespace that the caller sees.

        The result is empty while plugins are loading.
        """
        if self.parts is None or not self.namespaces():
            return ()
        until = anyio.current_time() + PROMPTS_SECONDS
        loaded_by = (self._list_deadlines or (0.0, None))[1]
        with anyio.CancelScope(deadline=max(until, loaded_by or until)):
            visible = await self.parts.catalogs.namespaces_of(caller)
            return [(each.global_name, each.description, each.prompt) for each in visible]
        return ()

    async def catalog_counts(self, caller: Caller, client: Client) -> tuple[int, Mapping[str, int]]:
        """Return the number of tools in the caller's catalog, in all and by kind of source.

        Both are empty if the catalog is not known within `COUNT_SECONDS`.
        """
        with anyio.move_on_after(COUNT_SECONDS):
            await self.opened()
            catalog = await self.catalog_for(caller, client)
            return len(catalog), catalog.sources
        return 0, {}

    async def item_source(self, server: str, caller: Caller) -> ItemSource | None:
        pool = await self.pool()
        try:
            return pool.source(server, caller.client)
        except KeyError:
            return None

    # the first list

    async def ready_to_list(self) -> None:
        """Wait until cached listings are read and plugins are loaded, at most as long as the first list may wait."""
        now = anyio.current_time()
        opened_by, _ = self._list_deadlines = self._list_deadlines or (now + OPEN_SECONDS, None)
        if not self.cache_read.is_set():
            with anyio.CancelScope(deadline=min(opened_by, now + LIST_SECONDS)):
                await self.cache_read.wait()
        if not self._has_plugins():
            return
        if not self.is_open.is_set():
            with anyio.CancelScope(deadline=opened_by):
                await self.is_open.wait()
        if self.parts is not None:
            loaded_by = self._list_deadlines[1] or anyio.current_time() + LIST_SECONDS
            self._list_deadlines = opened_by, loaded_by
            with anyio.CancelScope(deadline=loaded_by):
                await self.parts.plugins.ready()

    async def plugins_loaded(self) -> bool:
        """Wait up to `LIST_SECONDS` for plugins to load. Return False if some are still loading."""
        with anyio.move_on_after(LIST_SECONDS):
            await self.plugins()
            return True
        return False

    # runs

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        parts = await self.opened()
        if self.transport is None and parts.versions is not None:
            await parts.versions.read(self.saved.programs)  # nothing else reads them in a command
        return await parts.catalogs.of(caller, client)

    @property
    def _catalogs(self) -> Catalogs:
        assert self.parts is not None  # their callers have waited for them
        return self.parts.catalogs

    def catalog_of(self, caller: Caller) -> Catalog:
        return self._catalogs.servers_of(caller)

    def app_tools_of(self, caller: Caller) -> Catalog:
        """Return the current catalog of the tools that only apps may call."""
        return self._catalogs.app_tools_of(caller)

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        return self._visible.named(caller, names)

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        pool = await self.pool()
        pool.note_look(names)
        for view in self.trusted_views():
            # The list of an earlier process holds something, which its server may have corrected.
            is_looked_at = not view.tools if names is None else view.name in names
            if view.state == "idle" and view.withheld and is_looked_at:
                pool.connect_soon(view.name)
        await pool.wait_settled(names, seconds)

    async def connect(self, seconds: float) -> None:
        """Connect to every server, including idle ones. Wait for at most `seconds`."""
        pool = await self.pool()
        await pool.connect(None, seconds)

    async def stored_state(self, run_id: str, owner: str | None) -> RunState | None:
        """Return the state of a run in the store; see `RunStore.state_of`. Raises `StoreUnavailable`."""
        from codemode_mcp.runs.store import bearer_of

        runs = (await self.opened()).store.runs
        return await runs.state_of(run_id, owner or bearer_of(run_id))

    def late_notes(self, caller: Caller) -> Sequence[str]:
        """Return notes about calls that failed after their run; see `RunManager.late_notes`."""
        return () if self.parts is None else self.parts.manager.late_notes(caller)

    async def retire(self) -> None:
        """Accept no more requests, and answer the open ones: the process is about to end."""
        if self.parts is not None:
            await self.parts.manager.retire()

    async def offload(self, owner: str, text: str) -> str | None:
        from codemode_mcp.runs.store import is_bearer

        return None if is_bearer(owner) else await (await self.values()).offload(owner, text)

    async def state_keys(self) -> Sequence[bytes]:
        return await (await self.opened()).store.secrets("state of requests")

    async def transform(self, source: str) -> Transformed:
        """Compile TypeScript to JavaScript. Raises as `typescript.transform` and `esbuild.find_esbuild`."""
        from codemode_mcp.program.esbuild import find_esbuild
        from codemode_mcp.program.typescript import transform

        if self._esbuild is None:
            self._esbuild = await anyio.to_thread.run_sync(
                lambda: find_esbuild(self.config.tools.esbuild, environ=self.environ, cache_dir=cache_dir())
            )
        return await transform(self._esbuild, source, timeout=TRANSFORM_SECONDS)

    # approvals

    def remembers(self) -> RememberFn | None:
        """Return the function that stores approvals in the configuration file; None without such a file."""
        return None if self.config.path is None else self._remember

    async def _remember(self, tools: Collection[str], caller: Caller) -> None:
        from codemode_mcp.config.edit import add_approved

        assert self.config.path is not None
        context = self.policies.context_of(caller)
        name = context.name if context is not None and "approved" in context.own else None
        if await anyio.to_thread.run_sync(add_approved, self.config.path, tuple(tools), name):
            log.info("%s: approved for later programs: %s", self.config.path, ", ".join(tools))

    # saved programs

    def library(self) -> Library:
        """Return the saved programs as they are now. Runs keep those with which they began."""
        return self.saved

    async def read_programs(self) -> None:
        """Read changed files of saved programs now, before the next poll of their folder."""
        if self.library_watcher is not None:
            await self.library_watcher.refresh()

    @property
    def _versions(self) -> VersionKeeper | None:
        return None if self.parts is None else self.parts.versions

    def shown_library(self) -> Library:
        """Return the saved programs as catalogs have them: with warnings about changed definitions of tools."""
        if self._versions is None or not self.saved.programs:
            return self.saved
        return self._versions.shown(self.saved)

    def program_changes(self, name: str) -> Sequence[DefinitionChange]:
        """Return the definitions of tools that have changed since a saved program was pinned, as far as is known."""
        return () if self._versions is None else self._versions.changes(name)

    async def proposed_programs(self) -> Sequence[str]:
        """Return the names of programs that wait for a person's decision. Empty if they cannot be read."""
        from codemode_mcp.catalog.saved_programs.program_state import StateUnavailable, state_of

        if self.config.path is None:
            return ()
        try:
            found = await anyio.to_thread.run_sync(state_of(self.config.path).proposals)
        except StateUnavailable:
            return ()
        return [each.name for each in found.waiting]

    async def look_at_program(self, program: SavedProgram) -> Sequence[DefinitionChange]:
        """Return the definitions that have changed, by the present lists of servers; see `VersionKeeper.look`."""
        await self.opened()
        return () if self._versions is None else await self._versions.look(program)

    def permit_other_tools(self) -> None:
        """Have saved programs called although their texts mean other tools than when they were accepted."""
        if self._versions is not None:
            self._versions.permits_other_tools = True

    async def tools_of_program(self, program: SavedProgram) -> tuple[UsedTool, ...]:
        await self.opened()
        return () if self._versions is None else await self._versions.tools_now(program)

    async def pin_program(self, program: SavedProgram, tools: tuple[UsedTool, ...], by: str) -> None:
        """Pin a saved program to definitions of its tools that a person has seen. Raises `StateUnavailable`."""
        await self.opened()
        if self._versions is not None:
            await self._versions.pin_again(program, tools, by)

    # servers

    def specs(self) -> tuple[UpstreamSpec, ...]:
        return tuple(replace(with_depth(spec), environ=self.own_environ) for spec in self.config.upstreams)

    def trusted_views(self) -> Sequence[UpstreamView]:
        """Return the views that programs see: without held items."""
        return [*map(self.trust.trusted, self.server_views())]

    def accepted_since(self, server: str) -> tuple[float, Mapping[str, float]] | None:
        """Return since when the first item and each template of a server are accepted; None if it has no pins."""
        return self.trust.accepted_since(server)

    def budget_views(self) -> Sequence[AccountView]:
        return () if self.parts is None else self.parts.dispatcher.budgets.views()

    def server_views(self) -> Sequence[UpstreamView]:
        """Return views of all configured servers, as they list themselves and as far as they are known.

        Before the servers are started, the views come from cached listings.
        """
        if self.started is not None:
            return self.started.views()
        names = {spec.name for spec in self.config.upstreams}
        return [view for view in self.cached_views if view.name in names]

    # changes

    def change(self) -> anyio.Event:
        return self._change

    def apply(self, config: Config) -> None:
        """Use another configuration. From now on it decides which tools a program may call.

        Runs keep their catalogs. Servers whose entries are unchanged keep their connections.
        """
        before, config = self.config, reload.with_known_values(self.config, config)
        self.config = config
        self.redact.know(config.secretive)
        set_level(config.log.level)
        for line in reload.differences(before, config):
            log.info("the configuration has changed: %s", line)
        for line in reload.needs_restart(before, config):
            log.warning("the configuration has changed: %s takes effect only after a restart", line)
        self._esbuild = None
        # Policy and pins come first, so that no call that is now refused is made in between.
        self._use_pins(config)
        self._visible = VisibleServers(config, lambda: self.trust.server_names)
        if self.parts is not None:
            self.parts.apply(config)
        if self.started is not None:
            self.started.apply(self.specs())
        self._topics = CallerTopics(self.trusted_views, Overrides(self.config.tools.overrides))
        self.on_change()

    def _use_pins(self, config: Config) -> None:
        self.trust.apply(config.trust, config.upstreams, config.lock, config.written, config.enabled, config.disabled)

    def on_change(self) -> None:
        if self.parts is not None:
            self.parts.catalogs.invalidate()
        self._change.set()
        self._change = anyio.Event()


class VisibleServers:
    """The servers of one configuration that its policies show: configured names by identifier.

    Args:
        identifiers: returns the identifiers of all servers.
    """

    def __init__(self, config: Config, identifiers: Callable[[], Mapping[str, str]]) -> None:
        self.policies = Policies(config.tools)
        self._identifiers = identifiers
        self._names = [spec.name for spec in config.upstreams]
        self._by_policy: dict[Policy, dict[str, str]] = {}

    def under(self, policy: Policy) -> dict[str, str]:
        """Return the servers with a tool, resource or prompt that the policy may admit."""
        found = self._by_policy.get(policy)
        if found is None:
            identifier_of = self._identifiers()
            found = self._by_policy[policy] = {
                identifier_of[name]: name for name in self._names if policy.may_admit(f"mcp:{name}:")
            }
        return found

    def of(self, caller: Caller | None) -> dict[str, str]:
        """Return the servers that a caller may see.

        Args:
            caller: None for the servers that every caller may see.
        """
        policies = self.policies.all if caller is None else (self.policies.of(caller),)
        first, *others = map(self.under, policies)
        return {
            identifier: name
            for identifier, name in first.items()
            if all(each.get(identifier) == name for each in others)
        }

    def named(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Return the configured names of servers that a program names; see `runs.manager.Upstreams.servers_for`."""
        visible = self.of(caller)
        if names is None:
            return None if len(visible) == len(self._names) else set(visible.values())
        known = {name: name for name in visible.values()} | visible
        return {known[name] for name in names if name in known}

    def admits_nothing(self, caller: Caller) -> bool:
        """Return True if the policy denies the caller every tool of every source."""
        policy = self.policies.of(caller)
        return not self.under(policy) and not any(map(policy.may_admit, ("plugin:", "core:", "client:")))
