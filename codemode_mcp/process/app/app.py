"""The parts of the application: opened in the order of their dependencies, reconfigured, and closed.

The first `tools/list` needs neither the JavaScript engine nor connections to upstream servers. `App.touch` starts
these after the first request of a client; a program starts them, too.

The module is long because the parts are opened in one order, and closed in the opposite one.
"""

from __future__ import annotations

import getpass
import importlib
import logging
import os
import threading
import time
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.audit.listeners import recording
from codemode_mcp.base.config_path import command_option
from codemode_mcp.base.errors import CodeModeError, RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir, config_dir, listings_dir, state_dir, vectors_dir
from codemode_mcp.catalog.saved_programs.folder import (
    LibraryWatcher,
    folder_of,
    folder_state,
    read_folder,
    report_problems,
)
from codemode_mcp.catalog.topics import MAX_SERVERS
from codemode_mcp.config import Config, Reading, reload
from codemode_mcp.extension_points import first
from codemode_mcp.process.app.terminal_access import listen, terminal_command, terminal_control
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server.services import App, Parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.audit.recordings.recordings import Recordings
    from codemode_mcp.base.settings import StoreKind
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.saved_programs.folder import FolderState, Library
    from codemode_mcp.catalog.saved_programs.proposing import Proposer
    from codemode_mcp.catalog.saved_programs.version_keeper import VersionKeeper
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import BrowserPage
    from codemode_mcp.runs.calls.outcome import CallContext
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.server.control.answers import Control
    from upstream_clients.pool import SharedServers, UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import ToolSource, UpstreamView

    class PageAddress(Protocol):
        """The page of the process, as `extension_points.BrowserPage`."""

        def address_of(self, run_id: str) -> str | None: ...

    Listen = Callable[[Control], AbstractAsyncContextManager[object]]
    """Answers the requests of terminals for the duration of a context."""


log = logging.getLogger("codemode_mcp.process.app")

TOUCH_SECONDS = 0.02
"""Delay after the first request of a client, so that its answer is written before other work begins."""

TRANSFORM_SECONDS = 30.0
"""Timeout for the compilation of one TypeScript program."""

_IMPORTED_WHEN_OPENED = (
    "codemode_mcp.catalog.per_caller",
    "codemode_mcp.runs.calls.dispatch",
    "codemode_mcp.process.app.terminal_access",
    "codemode_mcp.catalog.plugins.bundled",
    "codemode_mcp.catalog.plugins.host",
    "codemode_mcp.runs.manager",
    "codemode_mcp.catalog.observed_types",
    "codemode_mcp.stores.opening",
    "codemode_mcp.catalog.search.warmup",
)


class Opening:
    """The parts of an application, opened in the order of their dependencies, and closed in the opposite one.

    Args:
        servers: the servers that this application shares with others; None if it has servers of its own.
        page: the page that the process opens for all its applications; None if this application opens one itself.
        record_file: the file for the recording of the first program.
    """

    def __init__(
        self,
        app: App,
        engine: EngineLoader,
        listen: Listen = listen,
        *,
        servers: SharedServers | None = None,
        page: PageAddress | None = None,
        record_file: Path | None = None,
    ) -> None:
        self._app = app
        self._engine = engine
        self._listen = listen
        self._servers = servers
        self._page = page
        self._own_page: BrowserPage | None = None
        """The page that this application has opened."""
        self._record_file = record_file
        self._library_state: FolderState = None
        """The state of the folder of saved programs, taken before they were read."""

    async def run(self) -> None:
        """Open the parts that the first `tools/list` does not need, and keep them open until cancelled."""
        app = self._app
        if app.code_mode and app.transport is not None and 0 < len(app.config.upstreams) <= MAX_SERVERS:
            app.cached_views = await anyio.to_thread.run_sync(_cached_views, app.specs())
            await anyio.to_thread.run_sync(app.trust.load)
        folder = folder_of(app.config.path)
        if app.code_mode and folder is not None:
            self._library_state = folder_state(folder)
            if self._library_state is not None:
                app.saved = await anyio.to_thread.run_sync(read_folder, folder)
                report_problems(app.saved)
        app.cache_read.set()
        await app.touched.wait()
        if app.transport is not None:
            with anyio.move_on_after(TOUCH_SECONDS):
                await app.program_waits.wait()
        from upstream_clients.listing import ListingCache
        from upstream_clients.pool import UpstreamPool

        if app.code_mode:
            # Imported in this thread, because two threads that import at the same time wait for each other. After that,
            # the engine's thread mostly works without the lock of the interpreter, so that it can run during the other
            # imports.
            importlib.import_module("codemode_mcp.sandbox.engine")
            self._engine.start()
        pool = UpstreamPool(
            app.specs(),
            client_version=__version__,
            on_change=app.on_change,
            cache=ListingCache(listings_dir()),
            shared=self._servers,
        )
        for client, list_roots in app.roots.items():
            pool.offer_roots(client, list_roots)
        async with pool:
            app.started = pool
            if app.transport is None:
                # Servers start while the rest is imported.
                async with pool.importing():
                    for name in _IMPORTED_WHEN_OPENED:
                        importlib.import_module(name)

            from codemode_mcp.audit.recordings.recordings import open_recordings

            keeps = app.transport is not None
            with open_recordings(app.config.audit, app.redact, keeps=keeps, file=self._record_file) as recordings:
                await self._run_with(pool, recordings)

    async def _run_with(self, pool: UpstreamPool, recordings: Recordings | None) -> None:
        from codemode_mcp.catalog.observed_types import ObservedTypes
        from codemode_mcp.catalog.per_caller import Catalogs
        from codemode_mcp.catalog.plugins.bundled import bundled
        from codemode_mcp.catalog.plugins.host import Plugins
        from codemode_mcp.catalog.search.warmup import Warmup
        from codemode_mcp.process.app.heap import keep_small
        from codemode_mcp.process.app.terminal_access import open_notifier
        from codemode_mcp.runs.calls.dispatch import Dispatcher
        from codemode_mcp.runs.manager import Services, open_manager
        from codemode_mcp.stores.opening import open_store

        open_model = first(lambda each: each.open_model)
        meaning = None if open_model is None else open_model(vectors_dir())
        app, config = self._app, self._app.config
        settings = config.tools.code_mode
        # Runs of a command end with it, and need no durable store.
        outlives = app.transport is not None and app.code_mode
        async with open_store(
            app.config.store if outlives else None,
            settings,
            clock=time.monotonic,
            wall=time.time,
            folder=state_dir(),
            prefers_durable=outlives,
            on_use=self._measure_store if app.auditor.measuring else None,
        ) as store:
            plugins = Plugins(
                app.config.plugins,
                workspace_dir=Path.cwd() if app.config.path is None else app.config.path.parent,
                bundled=bundled(lambda: app.config.tools, lambda: store.values),
                on_change=app.on_change,
                sandboxed=app.code_mode,
            )
            catalogs = Catalogs(app.trusted_views, app.config.tools, meaning, plugins, app.shown_library, app.trust)

            def source(entry: Entry, context: CallContext) -> ToolSource:
                match entry.source:
                    case "mcp":
                        return pool.source(entry.source_name, context.caller.client)
                    case "client":
                        from codemode_mcp.catalog.client_tools import ClientTools

                        return ClientTools()
                return plugins.source(entry.source, entry.source_name, context.caller, context.run_id, context.owner)

            observed = ObservedTypes() if app.code_mode else None
            dispatcher = Dispatcher(source, app.config.tools, observed, plugins.interceptors, app.trust, app.transform)
            type_check = first(lambda each: each.type_check)
            checker = None if type_check is None else type_check.open(cache_dir())
            async with (
                open_notifier(lambda: app.config.tools.approval.notify, app.environ) as notify,
                open_manager(
                    Services(
                        engine=app.engine,
                        dispatcher=dispatcher,
                        store=store.runs,
                        values=store.values,
                        upstreams=app,
                        transform=app.transform,
                        clock=time.monotonic,
                        auditor=app.auditor,
                        registered=plugins,
                        remember=app.remembers(),
                        meaning=meaning,
                        notify=notify,
                        terminal_command=terminal_command(),
                        page_address=self._page_address,
                        library=app.library,
                        checker=checker,
                        recordings=recordings,
                        proposer=self._proposer(),
                        keeps_finished_calls=app.transport is not None,
                    ),
                    settings,
                ) as manager,
            ):
                app.parts = parts = Parts(
                    pool=pool,
                    store=store,
                    plugins=plugins,
                    catalogs=catalogs,
                    dispatcher=dispatcher,
                    manager=manager,
                    checker=checker,
                    versions=self._version_keeper() if app.code_mode else None,
                )
                if app.config is not config:  # it has changed meanwhile
                    parts.apply(app.config)
                app.is_open.set()
                with Warmup(None if meaning is None else meaning.fill) as warmup:
                    async with anyio.create_task_group() as group:
                        group.start_soon(plugins.run)  # first, because programs wait for it
                        if checker is not None:
                            group.start_soon(checker.end_when_idle)
                        group.start_soon(app.trust.run, app.change)
                        group.start_soon(keep_small, self._engine.forget_unused)
                        group.start_soon(warn_of_idle_denials, lambda: app.config, pool.views, app.change)
                        if app.transport is not None:
                            group.start_soon(self._answer_terminals, parts, recordings)
                        folder = folder_of(app.config.path)
                        if app.code_mode and app.transport is not None and folder is not None:
                            watcher = LibraryWatcher(folder, app.saved, self._library_state, self._use_library)
                            app.library_watcher = watcher
                            group.start_soon(watcher.run)
                        if parts.versions is not None and app.transport is not None:
                            group.start_soon(parts.versions.run, app.change)
                        if app.code_mode:
                            group.start_soon(warmup.run, lambda: app.catalog_of(app.operator), app.change)

    async def _answer_terminals(self, parts: Parts, recordings: Recordings | None) -> None:
        app = self._app
        async with anyio.create_task_group() as group:
            app.control = control = await terminal_control(
                app,
                parts,
                serves=self._serves,
                open_page=partial(self._open_page, group) if self._page is None else None,
                export=None if recordings is None else recordings.export,
            )
            async with self._listen(control):
                await anyio.sleep_forever()

    def _page_address(self, run_id: str) -> str | None:
        page = self._page or self._own_page
        return None if page is None else page.address_of(run_id)

    async def _open_page(self, group: TaskGroup) -> dict[str, Any]:
        from codemode_mcp.server.control.protocol import BadMessage

        if self._own_page is None:
            open_page = first(lambda each: each.open_page)
            if open_page is None:
                raise BadMessage("this installation has no page")
            self._own_page = open_page(lambda: [self._app], lambda: None)
        return await self._own_page.admit(self._app.config.ui, group)

    def _serves(self, owner: str) -> bool:
        """Return True if this process may resume the runs of an owner without a request of the owner.

        It may for runs of the same user and configuration, or of callers over HTTP. Other runs were started with other
        servers and rules.
        """
        if owner == self._app.operator.owner:
            return self._app.transport == "stdio"
        return self._app.serves_http and not owner.startswith("stdio:")

    def _proposer(self) -> Proposer:
        from codemode_mcp.catalog.saved_programs.program_state import state_of
        from codemode_mcp.catalog.saved_programs.proposing import Proposer

        path = self._app.config.path
        return Proposer(
            None if path is None else state_of(path),
            folder_of(path),
            enabled=lambda: self._app.config.tools.code_mode.save_programs,
            option=command_option(path, config_dir()),
            auditor=self._app.auditor,
        )

    def _version_keeper(self) -> VersionKeeper | None:
        from codemode_mcp.catalog.saved_programs.program_state import state_of
        from codemode_mcp.catalog.saved_programs.version_keeper import VersionKeeper
        from codemode_mcp.process.app.server_control import LiveDefinitions

        app = self._app
        if app.config.path is None:
            return None
        definitions = LiveDefinitions(
            lambda: app.catalog_of(app.operator), lambda: app.servers(app.operator), app.trusted_views
        )
        option = command_option(app.config.path, config_dir())
        return VersionKeeper(state_of(app.config.path), app.library, definitions, app.on_change, option=option)

    def _use_library(self, library: Library) -> None:
        self._app.saved = library
        log.info("the folder of saved programs has changed; programs that start now see it as it is")
        self._app.on_change()

    def _measure_store(self, kind: StoreKind, seconds: float, failed: bool) -> None:
        self._app.auditor.measure("store_used", kind, seconds=seconds, failed=failed)


def _cached_views(specs: Sequence[UpstreamSpec]) -> tuple[UpstreamView, ...]:
    from upstream_clients.listing import ListingCache

    cache = ListingCache(listings_dir())
    return tuple(cached.view for cached in map(cache.load, specs) if cached is not None)


async def warn_of_idle_denials(
    config: Callable[[], Config], views: Callable[[], Sequence[UpstreamView]], change: Callable[[], anyio.Event]
) -> None:
    """Warn once about each deny rule that denies nothing, as soon as the tools of its server are listed.

    Args:
        change: returns an event for the next change of the configuration or of the tools.
    """
    warned: set[str] = set()
    while True:
        changed, current = change(), config()
        tools = current.tools
        if any(rules.deny for rules in (tools.policy, *(each.rules for each in tools.contexts))):
            from codemode_mcp.rules.policy.unused_rules import idle_denials  # most configurations have no such rules

            listed = {
                view.name: [tool.name for tool in view.tools] for view in views() if view.state in ("ready", "idle")
            }
            servers = (*(spec.name for spec in current.upstreams), *current.disabled, *current.left_out)
            for sentence in idle_denials(tools, servers, listed):
                if sentence not in warned:
                    log.warning("%s", sentence)
                warned.add(sentence)
        await changed.wait()


CLOSE_SECONDS = 3.0
"""Seconds that the end of the process waits for an engine that is still being compiled."""


class EngineLoader:
    """The loader of the engine, in a thread. A context manager: leaving it closes the engine."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._started = False
        self._engine: Engine | None = None
        self._error: CodeModeError | None = None

    def __enter__(self) -> EngineLoader:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            started, self._started = self._started, True  # so that it is not started after this
        if started:
            self._ready.wait(CLOSE_SECONDS)
        self._stack.close()

    def start(self) -> None:
        """Start to load the engine, unless it was started before."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._open, name="engine", daemon=True).start()

    def forget_unused(self) -> bool:
        """Free what the engine can make again and has not used for a while. Return True if anything was freed."""
        return self._engine is not None and self._engine.forget_unused()

    async def get(self) -> Engine:
        """Return the engine, after it was loaded.

        Raises:
            RuntimeUnavailable: the engine cannot be loaded.
        """
        if self._engine is None:
            self.start()
            await anyio.to_thread.run_sync(self._ready.wait, abandon_on_cancel=True)
        if self._engine is None:
            assert self._error is not None
            raise RuntimeUnavailable(self._error.message)
        return self._engine

    def _open(self) -> None:
        try:
            from codemode_mcp.sandbox.engine import open_engine

            began = time.monotonic()
            opening = open_engine(cache_dir(), max_threads=self._max_threads, intl=_read_intl)
            self._engine = self._stack.enter_context(opening)
            log.info("engine ready in %d ms", round((time.monotonic() - began) * 1000))
        except CodeModeError as error:
            log.error("%s", error.message)  # a traceback would add nothing
            self._error = error
        except Exception:
            log.exception("the engine did not start")
            self._error = RuntimeUnavailable("the JavaScript engine did not start; see the log of codemode-mcp")
        finally:
            self._ready.set()


SUSPEND_SECONDS = 3.0
"""Seconds to suspend programs at the end of the process, if a durable store keeps them."""


@asynccontextmanager
async def open_app(
    config: Config,
    load: Callable[[Reading], Config] | None = None,
    transport: Literal["stdio", "http"] | None = None,
    *,
    engine: EngineLoader | None = None,
    listen: Listen = listen,
    environ: Mapping[str, str] | None = None,
    servers: SharedServers | None = None,
    page: PageAddress | None = None,
    record_file: Path | None = None,
) -> AsyncIterator[App]:
    """Open the application for the duration of the context. Leaving aborts what runs and closes all connections.

    Args:
        load: reads the configuration file again, as `reload.Reloader` calls it; None to ignore changes of the file.
        transport: the transport of the clients of a process that serves, which `codemode-mcp runs` can reach then;
            None for a command.
        engine: the engine of several applications, which their owner closes; None for an own one.
        listen: answers the requests of terminals.
        environ: the environment from which servers and other programs inherit; None for that of this process.
        servers, page, record_file: see `Opening`.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    operator = Caller(f"stdio:{user}:{config.path or 'defaults'}", "stdio", _login_name())
    owned = EngineLoader(config.tools.code_mode.max_running_runs) if engine is None else nullcontext(engine)
    with owned as loader:
        app = App(config, operator, loader.get, transport, environ)
        opening = Opening(app, loader, listen, servers=servers, page=page, record_file=record_file)
        with recording(config.audit, app.auditor, app.redact):
            async with anyio.create_task_group() as group:
                group.start_soon(opening.run)
                if load is not None and config.path is not None:
                    group.start_soon(reload.Reloader(config, load, app.apply).run)
                try:
                    yield app
                finally:
                    with anyio.move_on_after(SUSPEND_SECONDS, shield=True):
                        await app.retire()
                    if app.parts is not None:
                        app.parts.manager.give_up_calls()
                    group.cancel_scope.cancel()


def _login_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # in a container, the user may have no name


def _read_intl() -> bytes:
    from codemode_mcp.program.intl import intl_reader  # imported late: few programs need it

    return intl_reader(cache_dir())()
