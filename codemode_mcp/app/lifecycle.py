"""The parts of the application: opened in the order of their dependencies, reconfigured, and closed.

The first `tools/list` needs neither the JavaScript engine nor connections to upstream servers. `Lifecycle.touch` starts
these after the first request of a client; a program starts them, too.

The module is long because the parts are opened in one order, and closed in the opposite one.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.app.terminal_access import clients_json, listen, terminal_command, terminal_control
from codemode_mcp.app.visible_servers import VisibleServers, warn_of_idle_denials
from codemode_mcp.audit import Auditor, Redactor, set_level
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.topics import MAX_SERVERS, CallerTopics
from codemode_mcp.config import reload
from codemode_mcp.config_path import command_option
from codemode_mcp.extension_points import first
from codemode_mcp.nesting import with_depth
from codemode_mcp.paths import cache_dir, config_dir, listings_dir, state_dir, vectors_dir
from codemode_mcp.saved_programs.folder import (
    EMPTY,
    LibraryWatcher,
    folder_of,
    folder_state,
    read_folder,
    report_problems,
)
from codemode_mcp.server.profiles import ConnectedClients
from codemode_mcp.trust.pins_file import PinsFolder
from codemode_mcp.trust.service import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup

    from codemode_mcp.app.app import App
    from codemode_mcp.app.engine_loader import EngineLoader
    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.calls.outcome import CallContext
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.per_caller import Catalogs
    from codemode_mcp.config import Config
    from codemode_mcp.control.answers import Control
    from codemode_mcp.extension_points import BrowserPage, Checker
    from codemode_mcp.plugins.host import Plugins
    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.budgets import AccountView
    from codemode_mcp.policy.policy import Caller, Policies
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.recordings.recordings import Recordings
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.saved_programs.folder import FolderState, Library
    from codemode_mcp.saved_programs.proposing import Proposer
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from codemode_mcp.saved_programs.version_keeper import VersionKeeper
    from codemode_mcp.saved_programs.versions import DefinitionChange, UsedTool
    from codemode_mcp.settings import StoreKind
    from codemode_mcp.stores.opening import OpenedStore
    from upstream_clients.pool import SharedServers, UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import RootsFn, ToolSource, UpstreamView

    class PageAddress(Protocol):
        """The page of the process, as `extension_points.BrowserPage`."""

        def address_of(self, run_id: str) -> str | None: ...

    Listen = Callable[[Control], AbstractAsyncContextManager[object]]
    """Answers the requests of terminals for the duration of a context."""

log = logging.getLogger("codemode_mcp.app")

TOUCH_SECONDS = 0.02
"""Delay after the first request of a client, so that its answer is written before other work begins."""

TRANSFORM_SECONDS = 30.0
"""Timeout for the compilation of one TypeScript program."""

_IMPORTED_WHEN_OPENED = (
    "codemode_mcp.catalog.per_caller",
    "codemode_mcp.calls.dispatch",
    "codemode_mcp.app.terminal_access",
    "codemode_mcp.plugins.bundled",
    "codemode_mcp.plugins.host",
    "codemode_mcp.runs.manager",
    "codemode_mcp.catalog.observed_types",
    "codemode_mcp.stores.opening",
    "codemode_mcp.search.warmup",
)


class Lifecycle:
    """The parts of the application, and how they are opened, changed and closed. Implements `runs.manager.Upstreams`.

    Attributes:
        operator: the user who started this process. This is the caller over stdio and from a terminal.
        code_mode: True for `exec` and `wait`, False for the tools themselves (pass-through). It never changes.

    Args:
        environ: the environment from which servers and other programs inherit; None for that of this process.
        servers: the servers that this application shares with others; None if it has servers of its own.
        page: the page that the process opens for all its applications; None if this application opens one itself.
        record_file: the file for the recording of the first program.
    """

    def __init__(
        self,
        config: Config,
        operator: Caller,
        engine: EngineLoader,
        transport: Literal["stdio", "http"] | None = None,
        listen: Listen = listen,
        *,
        environ: Mapping[str, str] | None = None,
        servers: SharedServers | None = None,
        page: PageAddress | None = None,
        record_file: Path | None = None,
    ) -> None:
        self.operator = operator
        self.code_mode = config.tools.code_mode.enabled
        self.auditor = Auditor()
        self.redact = Redactor()
        self.redact.know(config.secretive)
        self._config = config
        self._transport = transport
        self._listen = listen
        self._environ = environ
        self._servers = servers
        self._page = page
        self._own_page: BrowserPage | None = None
        """The page that this application has opened."""
        self._record_file = record_file
        self.control: Control | None = None
        """The answers to requests of terminals and of the page; None until everything is open."""
        self._serves_http = transport == "http"
        self._engine = engine
        self.engine = engine.get
        """Returns the compiled engine. Raises `RuntimeUnavailable`."""
        self._clients = ConnectedClients(time.monotonic)
        self._visible = VisibleServers(config, lambda: self.trust.server_names)
        self._topics = CallerTopics(self.trusted_views, Overrides(self._config.tools.overrides))
        pins = None if config.path is None else PinsFolder(state_dir() / "pins", config.path)
        option = command_option(config.path, config_dir())
        self.trust = Trust(pins, self.server_views, self.auditor, self._on_change, option=option)
        """The pins of the servers."""
        self._use_pins(config)
        self._roots: dict[str | None, RootsFn | None] = {}
        """The roots of clients that were noted before the pool was opened."""
        self._cached_views: tuple[UpstreamView, ...] = ()
        self._library = EMPTY
        """The saved programs."""
        self._library_state: FolderState = None
        """The state of their folder, taken before they were read."""
        self._library_watcher: LibraryWatcher | None = None
        self._esbuild: Path | None = None
        self._touched = anyio.Event()
        self._program_waits = anyio.Event()  # ends the delay of `TOUCH_SECONDS`
        self._cache_read = anyio.Event()
        self._opened = anyio.Event()
        self._change = anyio.Event()
        # Parts, from here on: None until they are opened.
        self._pool: UpstreamPool | None = None
        self._store: OpenedStore | None = None
        self._plugins: Plugins | None = None
        self._catalogs: Catalogs | None = None
        self._dispatcher: Dispatcher | None = None
        self._manager: RunManager | None = None
        self.checker: Checker | None = None
        """The check of programs' types; None until everything is open, and without the extension."""
        self._versions: VersionKeeper | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment from which servers and other programs inherit."""
        return os.environ if self._environ is None else self._environ

    def touch(self) -> None:
        """Start the engine and the connections to servers, because a client is connected."""
        self._touched.set()

    # parts, once everything is open

    async def manager(self) -> RunManager:
        """Return the manager of the runs, after everything is open."""
        self.touch()
        self._program_waits.set()
        await self._opened.wait()
        assert self._manager is not None
        return self._manager

    async def dispatcher(self) -> Dispatcher:
        """Return the dispatcher, after everything is open."""
        await self.manager()
        assert self._dispatcher is not None
        return self._dispatcher

    async def pool(self) -> UpstreamPool:
        """Return the pool of upstream servers, after everything is open."""
        await self.manager()
        assert self._pool is not None
        return self._pool

    async def plugins(self) -> Plugins:
        """Return the plugins, after all configured ones were loaded or refused."""
        await self.manager()
        assert self._plugins is not None
        await self._plugins.ready()
        return self._plugins

    # for the page

    @property
    def config(self) -> Config:
        """The configuration in use. A changed file replaces it."""
        return self._config

    @property
    def policies(self) -> Policies:
        """The policies of all callers."""
        return self._visible.policies

    # for the runs

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        """Return the catalog of a program of this caller that begins now."""
        assert self._catalogs is not None
        if self._transport is None and self._versions is not None:
            await self._versions.read(self._library.programs)  # nothing else reads them in a command
        return await self._catalogs.of(caller, client)

    def catalog_of(self, caller: Caller) -> Catalog:
        """Return the current catalog of the caller's MCP tools."""
        assert self._catalogs is not None
        return self._catalogs.servers_of(caller)

    def app_tools_of(self, caller: Caller) -> Catalog:
        """Return the current catalog of the tools that only apps may call."""
        assert self._catalogs is not None
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

    def _proposer(self) -> Proposer:
        from codemode_mcp.saved_programs.folder import folder_of
        from codemode_mcp.saved_programs.program_state import state_of
        from codemode_mcp.saved_programs.proposing import Proposer

        path = self._config.path
        return Proposer(
            None if path is None else state_of(path),
            folder_of(path),
            enabled=lambda: self._config.tools.code_mode.save_programs,
            option=command_option(path, config_dir()),
            auditor=self.auditor,
        )

    def remembers(self) -> RememberFn | None:
        """Return the function that stores approvals in the configuration file; None without such a file."""
        return None if self._config.path is None else self._remember

    async def _remember(self, tools: Collection[str], caller: Caller) -> None:
        from codemode_mcp.config.edit import add_approved

        assert self._config.path is not None
        context = self._visible.policies.context_of(caller)
        name = context.name if context is not None and "approved" in context.own else None
        if await anyio.to_thread.run_sync(add_approved, self._config.path, tuple(tools), name):
            log.info("%s: approved for later programs: %s", self._config.path, ", ".join(tools))

    async def transform(self, source: str) -> Transformed:
        """Compile TypeScript to JavaScript. Raises as `typescript.transform` and `esbuild.find_esbuild`."""
        from codemode_mcp.program.esbuild import find_esbuild
        from codemode_mcp.program.typescript import transform

        if self._esbuild is None:
            self._esbuild = await anyio.to_thread.run_sync(
                lambda: find_esbuild(self._config.tools.esbuild, environ=self.environ, cache_dir=cache_dir())
            )
        return await transform(self._esbuild, source, timeout=TRANSFORM_SECONDS)

    def _source(self, entry: Entry, context: CallContext) -> ToolSource:
        """Return the source of a tool, for the calls of one run. Raises `KeyError` if the source was removed."""
        match entry.source:
            case "mcp":
                assert self._pool is not None
                return self._pool.source(entry.source_name, context.caller.client)
            case "client":
                from codemode_mcp.catalog.client_tools import ClientTools

                return ClientTools()
        assert self._plugins is not None
        return self._plugins.source(entry.source, entry.source_name, context.caller, context.run_id, context.owner)

    # changes

    def change(self) -> anyio.Event:
        """Return an event for the next change of the catalog or the configuration."""
        return self._change

    def apply(self, config: Config) -> None:
        """Use another configuration. From now on it decides which tools a program may call.

        Runs keep their catalogs. Servers whose entries are unchanged keep their connections.
        """
        before, config = self._config, reload.with_known_values(self._config, config)
        self._config = config
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
        if self._dispatcher is not None:
            self._dispatcher.apply(config.tools)
        if self._catalogs is not None:
            self._catalogs.apply(config.tools)
        if self._manager is not None:
            self._manager.apply(config.tools.code_mode)
        if self._plugins is not None:
            self._plugins.apply(config.plugins)
        if self._pool is not None:
            self._pool.apply(self._specs())
        self._topics = CallerTopics(self.trusted_views, Overrides(self._config.tools.overrides))
        self._on_change()

    def _use_pins(self, config: Config) -> None:
        self.trust.apply(config.trust, config.upstreams, config.lock, config.written, config.enabled, config.disabled)

    def library(self) -> Library:
        """Return the saved programs as they are now. Runs keep those with which they began."""
        return self._library

    async def read_programs(self) -> None:
        """Read changed files of saved programs now, before the next poll of their folder."""
        if self._library_watcher is not None:
            await self._library_watcher.refresh()

    def shown_library(self) -> Library:
        """Return the saved programs as catalogs have them: with warnings about changed definitions of tools."""
        return self._library if self._versions is None else self._versions.shown(self._library)

    def program_changes(self, name: str) -> Sequence[DefinitionChange]:
        """Return the definitions of tools that have changed since a saved program was pinned, as far as is known."""
        return () if self._versions is None else self._versions.changes(name)

    async def proposed_programs(self) -> Sequence[str]:
        """Return the names of programs that wait for a person's decision. Empty if they cannot be read."""
        from codemode_mcp.saved_programs.program_state import StateUnavailable, state_of

        if self._config.path is None:
            return ()
        try:
            found = await anyio.to_thread.run_sync(state_of(self._config.path).proposals)
        except StateUnavailable:
            return ()
        return [each.name for each in found.waiting]

    async def look_at_program(self, program: SavedProgram) -> Sequence[DefinitionChange]:
        """Return the definitions that have changed, by the present lists of servers; see `VersionKeeper.look`."""
        await self.manager()
        return () if self._versions is None else await self._versions.look(program)

    def permit_other_tools(self) -> None:
        """Have saved programs called although their texts mean other tools than when they were accepted."""
        if self._versions is not None:
            self._versions.permits_other_tools = True

    async def tools_of_program(self, program: SavedProgram) -> tuple[UsedTool, ...]:
        await self.manager()
        return () if self._versions is None else await self._versions.tools_now(program)

    async def pin_program(self, program: SavedProgram, tools: tuple[UsedTool, ...], by: str) -> None:
        """Pin a saved program to definitions of its tools that a person has seen. Raises `StateUnavailable`."""
        await self.manager()
        if self._versions is not None:
            await self._versions.pin_again(program, tools, by)

    def _version_keeper(self) -> VersionKeeper | None:
        from codemode_mcp.app.server_control import LiveDefinitions
        from codemode_mcp.saved_programs.program_state import state_of
        from codemode_mcp.saved_programs.version_keeper import VersionKeeper

        if self._config.path is None:
            return None
        definitions = LiveDefinitions(
            lambda: self.catalog_of(self.operator), lambda: self._visible.of(self.operator), self.trusted_views
        )
        option = command_option(self._config.path, config_dir())
        return VersionKeeper(state_of(self._config.path), self.library, definitions, self._on_change, option=option)

    def _use_library(self, library: Library) -> None:
        self._library = library
        log.info("the folder of saved programs has changed; programs that start now see it as it is")
        self._on_change()

    def _on_change(self) -> None:
        if self._catalogs is not None:
            self._catalogs.invalidate()
        self._change.set()
        self._change = anyio.Event()

    def _specs(self) -> tuple[UpstreamSpec, ...]:
        return tuple(replace(with_depth(spec), environ=self._environ) for spec in self._config.upstreams)

    def trusted_views(self) -> Sequence[UpstreamView]:
        """Return the views that programs see: without held items."""
        return [*map(self.trust.trusted, self.server_views())]

    def accepted_since(self, server: str) -> tuple[float, Mapping[str, float]] | None:
        """Return since when the first item and each template of a server are accepted; None if it has no pins."""
        return self.trust.accepted_since(server)

    def budget_views(self) -> Sequence[AccountView]:
        """Return the use of budgets, by caller and server."""
        return () if self._dispatcher is None else self._dispatcher.budgets.views()

    def server_views(self) -> Sequence[UpstreamView]:
        """Return views of all configured servers, as they list themselves and as far as they are known.

        Before the servers are started, the views come from cached listings.
        """
        if self._pool is not None:
            return self._pool.views()
        names = {spec.name for spec in self._config.upstreams}
        return [view for view in self._cached_views if view.name in names]

    # opening

    async def run(self) -> None:
        """Open the parts that the first `tools/list` does not need, and keep them open until cancelled."""
        if self.code_mode and self._transport is not None and 0 < len(self._config.upstreams) <= MAX_SERVERS:
            self._cached_views = await anyio.to_thread.run_sync(_cached_views, self._specs())
            await anyio.to_thread.run_sync(self.trust.load)
        folder = folder_of(self._config.path)
        if self.code_mode and folder is not None:
            self._library_state = folder_state(folder)
            if self._library_state is not None:
                self._library = await anyio.to_thread.run_sync(read_folder, folder)
                report_problems(self._library)
        self._cache_read.set()
        await self._touched.wait()
        if self._transport is not None:
            with anyio.move_on_after(TOUCH_SECONDS):
                await self._program_waits.wait()
        from upstream_clients.listing import ListingCache
        from upstream_clients.pool import UpstreamPool

        if self.code_mode:
            # Imported in this thread, because two threads that import at the same time wait for each other. After that,
            # the engine's thread mostly works without the lock of the interpreter, so that it can run during the other
            # imports.
            importlib.import_module("codemode_mcp.sandbox.engine")
            self._engine.start()
        pool = UpstreamPool(
            self._specs(),
            client_version=__version__,
            on_change=self._on_change,
            cache=ListingCache(listings_dir()),
            shared=self._servers,
        )
        for client, list_roots in self._roots.items():
            pool.offer_roots(client, list_roots)
        async with pool:
            self._pool = pool
            if self._transport is None:
                # Servers start while the rest is imported.
                async with pool.importing():
                    for name in _IMPORTED_WHEN_OPENED:
                        importlib.import_module(name)
            from codemode_mcp.app.run_recordings import open_recordings

            keeps = self._transport is not None
            with open_recordings(self._config.audit, self.redact, keeps=keeps, file=self._record_file) as recordings:
                await self._run_with(pool, recordings)

    async def _run_with(self, pool: UpstreamPool, recordings: Recordings | None) -> None:
        """Open everything that depends on the upstream servers, and keep it open until cancelled."""
        from codemode_mcp.app.heap import keep_small
        from codemode_mcp.app.terminal_access import open_notifier
        from codemode_mcp.calls.dispatch import Dispatcher
        from codemode_mcp.catalog.observed_types import ObservedTypes
        from codemode_mcp.catalog.per_caller import Catalogs
        from codemode_mcp.plugins.bundled import bundled
        from codemode_mcp.plugins.host import Plugins
        from codemode_mcp.runs.manager import Services, open_manager
        from codemode_mcp.search.warmup import Warmup
        from codemode_mcp.stores.opening import open_store

        open_model = first(lambda each: each.open_model)
        meaning = None if open_model is None else open_model(vectors_dir())
        settings = self._config.tools.code_mode
        # Runs of a command end with it, and need no durable store.
        outlives = self._transport is not None and self.code_mode
        async with open_store(
            self._config.store if outlives else None,
            settings,
            clock=time.monotonic,
            wall=time.time,
            folder=state_dir(),
            prefers_durable=outlives,
            on_use=self._measure_store if self.auditor.measuring else None,
        ) as store:
            self._store = store
            self._plugins = plugins = Plugins(
                self._config.plugins,
                workspace_dir=Path.cwd() if self._config.path is None else self._config.path.parent,
                bundled=bundled(lambda: self._config.tools, lambda: store.values),
                on_change=self._on_change,
                sandboxed=self.code_mode,
            )
            self._catalogs = Catalogs(
                self.trusted_views, self._config.tools, meaning, plugins, self.shown_library, self.trust
            )
            observed = ObservedTypes() if self.code_mode else None
            self._dispatcher = Dispatcher(
                self._source, self._config.tools, observed, plugins.interceptors, self.trust, self.transform
            )
            type_check = first(lambda each: each.type_check)
            self.checker = None if type_check is None else type_check.open(cache_dir())
            async with (
                open_notifier(lambda: self._config.tools.approval.notify, self.environ) as notify,
                open_manager(
                    Services(
                        engine=self.engine,
                        dispatcher=self._dispatcher,
                        store=store.runs,
                        values=store.values,
                        upstreams=self,
                        transform=self.transform,
                        clock=time.monotonic,
                        auditor=self.auditor,
                        registered=plugins,
                        remember=self.remembers(),
                        meaning=meaning,
                        notify=notify,
                        terminal_command=terminal_command(),
                        page_address=self._page_address,
                        library=self.library,
                        checker=self.checker,
                        recordings=recordings,
                        proposer=self._proposer(),
                        keeps_finished_calls=self._transport is not None,
                    ),
                    settings,
                ) as manager,
            ):
                self._manager = manager
                self._versions = self._version_keeper() if self.code_mode else None
                self._opened.set()
                with Warmup(None if meaning is None else meaning.fill) as warmup:
                    async with anyio.create_task_group() as group:
                        group.start_soon(plugins.run)  # first, because programs wait for it
                        if self.checker is not None:
                            group.start_soon(self.checker.end_when_idle)
                        group.start_soon(self.trust.run, self.change)
                        group.start_soon(keep_small, self._engine.forget_unused)
                        group.start_soon(warn_of_idle_denials, lambda: self._config, pool.views, self.change)
                        if self._transport is not None:
                            group.start_soon(self._answer_terminals, pool, manager, store, recordings)
                        folder = folder_of(self._config.path)
                        if self.code_mode and self._transport is not None and folder is not None:
                            watcher = LibraryWatcher(folder, self._library, self._library_state, self._use_library)
                            self._library_watcher = watcher
                            group.start_soon(watcher.run)
                        if self._versions is not None and self._transport is not None:
                            group.start_soon(self._versions.run, self.change)
                        if self.code_mode:
                            group.start_soon(warmup.run, lambda: self.catalog_of(self.operator), self.change)

    async def _answer_terminals(
        self, pool: UpstreamPool, manager: RunManager, store: OpenedStore, recordings: Recordings | None
    ) -> None:
        from codemode_mcp.app.server_control import ServerControl

        assert self._transport is not None

        async with anyio.create_task_group() as group:
            self.control = control = await terminal_control(
                self._config,
                self._transport,
                "code" if self.code_mode else "pass-through",
                manager.operator,
                store,
                self.redact,
                serves=self._serves,
                clients=lambda: clients_json(self._clients, self._config.tools.clients),
                servers=ServerControl(pool, lambda: self._config, self.trusted_views, self.auditor, self.redact.own),
                open_page=partial(self._open_page, group) if self._page is None else None,
                export=None if recordings is None else recordings.export,
            )
            async with self._listen(control):
                await anyio.sleep_forever()

    def _page_address(self, run_id: str) -> str | None:
        """Return the address of the page about the approvals of a run; None if no page is open."""
        page = self._page or self._own_page
        return None if page is None else page.address_of(run_id)

    async def _open_page(self, group: TaskGroup) -> dict[str, Any]:
        """Open the page of this application. Its tasks run in the group. Raise `BadMessage`."""
        from codemode_mcp.control.protocol import BadMessage

        if self._own_page is None:
            open_page = first(lambda each: each.open_page)
            if open_page is None:
                raise BadMessage("this installation has no page")
            application = cast("App", self)
            self._own_page = open_page(lambda: [application], lambda: None)
        return await self._own_page.admit(self._config.ui, group)

    def _serves(self, owner: str) -> bool:
        """Return True if this process may resume the runs of an owner without a request of the owner.

        It may for runs of the same user and configuration, or of callers over HTTP. Other runs were started with other
        servers and rules.
        """
        if owner == self.operator.owner:
            return self._transport == "stdio"
        return self._serves_http and not owner.startswith("stdio:")

    def serve_http_callers(self) -> None:
        """Note that callers over HTTP are served, too."""
        self._serves_http = True

    def _measure_store(self, kind: StoreKind, seconds: float, failed: bool) -> None:
        self.auditor.measure("store_used", kind, seconds=seconds, failed=failed)


def _cached_views(specs: Sequence[UpstreamSpec]) -> tuple[UpstreamView, ...]:
    from upstream_clients.listing import ListingCache

    cache = ListingCache(listings_dir())
    return tuple(cached.view for cached in map(cache.load, specs) if cached is not None)
