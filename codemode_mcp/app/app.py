"""Composition root: the one async context manager that opens and closes everything, in the order things depend on.

What the first `tools/list` does not need, the engine and the connections to upstreams, is started by `App.touch`, when
a client has shown itself, or by the first program.
"""

from __future__ import annotations

import getpass
import importlib
import logging
import os
import shlex
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.app.engine_loader import EngineLoader
from codemode_mcp.audit import Auditor, Redactor, set_level
from codemode_mcp.audit.recording import recording
from codemode_mcp.catalog.caller_topics import CallerTopics
from codemode_mcp.catalog.topics import MAX_SERVERS
from codemode_mcp.config import reload
from codemode_mcp.nesting import one_deeper
from codemode_mcp.paths import cache_dir, listings_dir, state_dir, vectors_dir
from codemode_mcp.policy.callers import Caller
from codemode_mcp.policy.policy import Policies
from codemode_mcp.server.connected import ConnectedClients
from codemode_mcp.server.profiles import KEYS, override_of, profile_json, profile_of
from declarations.names import identifiers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping, Sequence

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry, OfferedNamespace
    from codemode_mcp.catalog.per_caller import Catalogs
    from codemode_mcp.config import Config, Reading
    from codemode_mcp.plugins.host import Plugins
    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import OnOutput
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.search.semantic import Meaning
    from codemode_mcp.settings import Language, StoreKind, ToolSettings
    from codemode_mcp.stores.opening import OpenedStore
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, RootsFn, ToolSource, UpstreamView

log = logging.getLogger("codemode_mcp.app")

TOUCH_SECONDS = 0.02
"""After a client has shown itself: enough for the answer it waits for to be written first."""

TRANSFORM_SECONDS = 30.0

LIST_SECONDS = 2.0
"""Seconds that the first `tools/list` waits for kept listings, and for plugins to load. Later ones do not wait."""

OPEN_SECONDS = 8.0
"""Seconds that the first `tools/list` waits until plugins begin to load. Without plugins it does not wait."""

PROMPTS_SECONDS = 0.5
"""Seconds for plugins to list the tools of a client, before `tools/list` is answered without their prompts."""

COUNT_SECONDS = 1.0
"""Time that the answer to a request that was refused waits for the counts of its caller's catalog."""

STORE_SECONDS = 2.0
"""Time that a terminal waits for a store that is being opened."""

ROOTS_SECONDS = 5.0
"""Seconds for a client to name its folders to a server that is starting."""

SUSPEND_SECONDS = 3.0
"""Seconds to suspend programs at the end of the process, where a store keeps them."""

_OPENED_WITH: Final = (
    "codemode_mcp.catalog.per_caller",
    "codemode_mcp.calls.dispatch",
    "codemode_mcp.app.notify",
    "codemode_mcp.plugins.bundled",
    "codemode_mcp.plugins.host",
    "codemode_mcp.runs.manager",
    "codemode_mcp.search.semantic",
    "codemode_mcp.catalog.observed_types",
    "codemode_mcp.stores.opening",
    "codemode_mcp.search.warmup",
)


class App:
    """Everything, wired. Use `open_app`.

    Satisfies what `server` needs of runs and what `runs` need of upstreams.
    """

    def __init__(
        self, config: Config, operator: Caller, engine: EngineLoader, transport: Literal["stdio", "http"] | None = None
    ) -> None:
        self._config = config
        self._transport = transport
        self.operator = operator
        """The user who started this process: the caller over stdio, and from a terminal."""
        self._engine = engine
        self._touched = anyio.Event()
        self._wanted = anyio.Event()
        """A program is there: nothing is put off any more."""
        self._clients = ConnectedClients(time.monotonic)
        self._opened = anyio.Event()
        self._catalogs: Catalogs | None = None
        self._policies = Policies(config.tools)
        self.auditor = Auditor()
        self.redact = Redactor()
        self.redact.know(config.secretive)
        self._change = anyio.Event()
        self._meaning: Meaning | None = None
        self._esbuild: Path | None = None
        self._pool: UpstreamPool | None = None
        self._plugins: Plugins | None = None
        self._manager: RunManager | None = None
        self._roots: RootsFn | None = None
        self._dispatcher: Dispatcher | None = None
        self._values: Values | None = None
        self._store: OpenedStore | None = None
        self.code_mode = config.tools.code_mode.enabled
        """True for `exec` and `wait`, False for the tools themselves (pass-through); fixed."""
        self._identifiers: dict[Policy, dict[str, str]] = {}
        self._kept: tuple[UpstreamView, ...] = ()
        self._kept_read = anyio.Event()
        self._topics = CallerTopics(self._views)
        self._list_deadlines: tuple[float, float | None] | None = None
        """Deadlines of the first list: for plugins to begin to load, and to be loaded."""

    # for the server

    def touch(self) -> None:
        """A client is there: begin to compile and to connect."""
        self._touched.set()

    def record_client(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count a request of a client, for `codemode-mcp clients` and `doctor`."""
        self._clients.record(name, version, protocol)

    def clients(self) -> list[dict[str, Any]]:
        """Return the clients of this process as JSON, each with its profile and the override that changes it."""
        overrides = self._config.tools.clients
        listed = []
        for each in self._clients.listed():
            override = override_of(each.client.name, overrides)
            listed.append(
                {
                    **asdict(each.client),
                    "requests": each.requests,
                    "idleMs": round(each.idle_seconds * 1000),
                    "profile": profile_json(profile_of(each.client.name, overrides)),
                    "overrides": [] if override is None else [KEYS[field] for field, _ in override.values],
                }
            )
        return listed

    def offer_roots(self, roots: RootsFn | None) -> None:
        """Set the roots of the only client, for servers that ask outside any call; None: it has none."""
        self._roots = roots

    def servers(self, caller: Caller | None) -> dict[str, str]:
        """Return configured names by identifier, of the servers that the caller may come to see something of.

        Args:
            caller: None for the servers that every caller may see.
        """
        policies = self._policies.all if caller is None else (self._policies.of(caller),)
        first, *others = map(self._visible, policies)
        return {
            identifier: name
            for identifier, name in first.items()
            if all(each.get(identifier) == name for each in others)
        }

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """Return the configured names of `servers`."""
        return list(self.servers(caller).values())

    def topics(self, caller: Caller) -> Sequence[str]:
        """Return the topics of the caller's servers, as far as their listings are known."""
        return self._topics.of(self._policies.of(caller))

    def all_topics(self) -> Hashable:
        """Return the topics of all callers: never to be shown."""
        return tuple(map(self._topics.of, self._policies.all))

    async def ready_to_list(self) -> None:
        """Wait until kept listings are read and plugins are loaded, no longer than the first list may wait."""
        now = anyio.current_time()
        opened_by, _ = self._list_deadlines = self._list_deadlines or (now + OPEN_SECONDS, None)
        if not self._kept_read.is_set():
            with anyio.CancelScope(deadline=min(opened_by, now + LIST_SECONDS)):
                await self._kept_read.wait()
        if not any(each.enabled for each in self._config.plugins):
            return
        if not self._opened.is_set():
            with anyio.CancelScope(deadline=opened_by):
                await self._opened.wait()
        if self._plugins is not None:
            loaded_by = self._list_deadlines[1] or anyio.current_time() + LIST_SECONDS
            self._list_deadlines = opened_by, loaded_by
            with anyio.CancelScope(deadline=loaded_by):
                await self._plugins.ready()

    def configured(self) -> Sequence[str]:
        """Return all servers, for any caller."""
        return [spec.name for spec in self._config.upstreams]

    def settings(self) -> ToolSettings:
        """Return the newest: a changed configuration file makes others."""
        return self._config.tools

    def has_nothing(self) -> bool:
        """Tell whether neither a server nor a plugin is configured."""
        return not self._config.upstreams and not any(each.enabled for each in self._config.plugins)

    async def plugins_loaded(self) -> bool:
        """Wait up to `LIST_SECONDS` for plugins to load; False: some are still loading."""
        with anyio.move_on_after(LIST_SECONDS):
            await self.plugins()
            return True
        return False

    def plugin_tools(self) -> Hashable:
        """Return what plugins have registered; equal while none is loaded, changed or removed."""
        return () if self._plugins is None else self._plugins.registered_tools()

    def admits_nothing(self, caller: Caller) -> bool:
        policy = self._policies.of(caller)
        return not self._visible(policy) and not any(map(policy.may_admit, ("plugin:", "core:", "client:")))

    def namespaces(self) -> Sequence[OfferedNamespace]:
        """Return all that are registered."""
        return () if self._plugins is None else self._plugins.namespaces()

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]:
        """Return global name, description and prompt of each namespace that the caller sees.

        Empty while plugins are loading.
        """
        if self._catalogs is None or not self.namespaces():
            return ()
        until = anyio.current_time() + PROMPTS_SECONDS
        loaded_by = (self._list_deadlines or (0.0, None))[1]
        with anyio.CancelScope(deadline=max(until, loaded_by or until)):
            visible = await self._catalogs.namespaces_of(caller)
            return [(each.global_name, each.description, each.prompt) for each in visible]
        return ()

    async def execute(
        self,
        source: str,
        language: Language | None,
        caller: Caller,
        client: Client | None = None,
        request: str | None = None,
        on_output: OnOutput | None = None,
        args: tuple[str, ...] = (),
    ) -> Outcome:
        """Run a program as `RunManager.execute` does. `args`: the value of `args` in the program."""
        manager = await self.manager()
        from codemode_mcp.runs.manager import Cell

        return await manager.execute(Cell(source, language, caller, request, args), client, on_output)

    async def observe(
        self,
        run_id: str,
        owner: str | None,
        *,
        cancel: bool = False,
        from_start: bool = False,
        client: Client | None = None,
        answers: Mapping[str, JsonObject] | None = None,
        caller: Caller | None = None,
    ) -> Outcome:
        """Observe a run as `RunManager.observe` does."""
        manager = await self.manager()
        return await manager.observe(
            run_id, owner, cancel=cancel, from_start=from_start, client=client, answers=answers, caller=caller
        )

    async def offload(self, owner: str, text: str) -> str | None:
        """Keep a text for an owner, as `rendering.Offload` says."""
        from codemode_mcp.runs.store import is_bearer

        return None if self._values is None or is_bearer(owner) else await self._values.offload(owner, text)

    def late_notes(self, owner: str | None) -> Sequence[str]:
        """Return notes about calls that failed after their run; see `RunManager.late_notes`."""
        return () if self._manager is None else self._manager.late_notes(owner)

    async def catalog_counts(self, caller: Caller, client: Client) -> tuple[int, Mapping[str, int]]:
        """Return how many tools the caller's catalog has, and how many from each kind of source. Both are empty where
        that is not known within `COUNT_SECONDS`."""
        with anyio.move_on_after(COUNT_SECONDS):
            await self.manager()
            catalog = await self.catalog_for(caller, client)
            return len(catalog), catalog.sources
        return 0, {}

    async def state_keys(self) -> Sequence[bytes]:
        """Return the keys for `client.guard_state`."""
        await self.manager()
        return [] if self._store is None else await self._store.secrets("state of requests")

    async def stored(self, owner: str, key: str) -> str | None:
        """Return the JSON text of what a program of this owner has kept by `store`."""
        return None if self._values is None else await self._values.load(owner, key)

    async def retire(self) -> None:
        """Take no more requests, and have those that are open answered: everything is about to end."""
        if self._manager is not None:
            await self._manager.retire()

    def give_up_calls(self) -> None:
        """Give up what is in flight: everything ends now."""
        if self._manager is not None:
            self._manager.give_up_calls()

    # for the command line

    async def manager(self) -> RunManager:
        """Once everything is open."""
        self.touch()
        self._wanted.set()
        await self._opened.wait()
        assert self._manager is not None
        return self._manager

    async def dispatcher(self) -> Dispatcher:
        """Return the dispatcher, made when it is first needed."""
        await self.manager()
        assert self._dispatcher is not None
        return self._dispatcher

    async def pool(self) -> UpstreamPool:
        """Return the pool of upstreams, made when it is first needed."""
        await self.manager()
        assert self._pool is not None
        return self._pool

    async def plugins(self) -> Plugins:
        """Return the plugins, once all configured ones have been loaded or refused."""
        await self.manager()
        assert self._plugins is not None
        await self._plugins.ready()
        return self._plugins

    async def engine(self) -> Engine:
        """Return the compiled engine. Raises `RuntimeUnavailable`."""
        return await self._engine.get()

    # for the runs

    def catalog(self) -> Catalog:
        """Return the current catalog of the operator's MCP tools."""
        assert self._catalogs is not None
        return self._catalogs.servers_of(self.operator)

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        """Return what a program of this caller sees that begins now."""
        assert self._catalogs is not None
        return await self._catalogs.of(caller, client)

    def catalog_of(self, caller: Caller) -> Catalog:
        """Return the current catalog of the caller's MCP tools."""
        assert self._catalogs is not None
        return self._catalogs.servers_of(caller)

    def remembers(self) -> RememberFn | None:
        """Return how an approval is kept for ever; None: it cannot be, there is no configuration file."""
        return None if self._config.path is None else self._remember

    async def _remember(self, tools: Collection[str], caller: Caller) -> None:
        from codemode_mcp.config.edit import add_approved

        assert self._config.path is not None
        context = self._policies.context_of(caller)
        name = context.name if context is not None and "approved" in context.own else None
        if await anyio.to_thread.run_sync(add_approved, self._config.path, tuple(tools), name):
            log.info("%s: approved for ever: %s", self._config.path, ", ".join(tools))

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Implement `runs.services.Upstreams`."""
        visible = self._visible(self._policies.of(caller))
        if names is None:
            return None if len(visible) == len(self._config.upstreams) else set(visible.values())
        known = {name: name for name in visible.values()} | visible
        return {known[name] for name in names if name in known}

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        pool = await self.pool()
        await pool.wait_settled(names, seconds)

    async def connect(self, seconds: float) -> None:
        """Have every server connected, the idle ones too, for at most so long."""
        pool = await self.pool()
        await pool.connect(None, seconds)

    async def transform(self, source: str) -> Transformed:
        """TypeScript to JavaScript. Raises as `typescript.transform` and `typescript.find_esbuild`."""
        from codemode_mcp.program.typescript import find_esbuild, transform

        if self._esbuild is None:
            self._esbuild = await anyio.to_thread.run_sync(
                lambda: find_esbuild(self._config.tools.esbuild, environ=os.environ, cache_dir=cache_dir())
            )
        return await transform(self._esbuild, source, timeout=TRANSFORM_SECONDS)

    def _changed(self) -> None:
        if self._catalogs is not None:
            self._catalogs.changed()
        self._change.set()
        self._change = anyio.Event()

    def change(self) -> anyio.Event:
        """Return an event for the next change of the catalog or the configuration."""
        return self._change

    def apply(self, config: Config) -> None:
        """Take another configuration at any time. It decides from now on which tools a program may call.

        Runs keep their catalog, and servers whose entries are the same their connections.
        """
        before, self._config = self._config, config
        self.redact.know(config.secretive)
        set_level(config.log.level)
        for line in reload.differences(before, config):
            log.info("the configuration has changed: %s", line)
        for line in reload.needs_restart(before, config):
            log.warning("the configuration has changed: %s counts after a restart only", line)
        self._esbuild = None
        # Policy first: nothing may be called in between that is denied now.
        self._policies, self._identifiers = Policies(config.tools), {}
        if self._dispatcher is not None:
            self._dispatcher.apply(config.tools)
        if self._catalogs is not None:
            self._catalogs.apply(config.tools)
        if self._manager is not None:
            self._manager.apply(config.tools.code_mode)
        if self._plugins is not None:
            self._plugins.apply(config.plugins)
        if self._pool is not None:
            self._pool.apply([one_deeper(spec) for spec in config.upstreams])
        self._topics = CallerTopics(self._views)
        self._changed()

    def _visible(self, policy: Policy) -> dict[str, str]:
        """Return the servers that a caller with this policy may see a part of: configured names by identifier."""
        found = self._identifiers.get(policy)
        if found is None:
            names = [spec.name for spec in self._config.upstreams if policy.may_admit(f"mcp:{spec.name}:")]
            identifier_of = identifiers(names, kind="server")
            found = self._identifiers[policy] = {identifier_of[name]: name for name in names}
        return found

    def _views(self) -> Sequence[UpstreamView]:
        """Return what is known of the servers: before they are opened, what they listed earlier."""
        if self._pool is not None:
            return self._pool.views()
        names = set(self.configured())
        return [view for view in self._kept if view.name in names]

    async def _read_kept(self) -> None:
        """Read what servers listed earlier, so that the first tool list has their topics."""
        wanted = self._config.upstreams
        if self.code_mode and self._transport is not None and 0 < len(wanted) <= MAX_SERVERS:
            self._kept = await anyio.to_thread.run_sync(_kept_views, tuple(map(one_deeper, wanted)))
        self._kept_read.set()

    async def _list_roots(self) -> JsonObject:
        if self._roots is not None:
            with anyio.move_on_after(ROOTS_SECONDS):
                return await self._roots()
        return {"roots": []}

    def _source(self, entry: Entry, context: CallContext) -> ToolSource:
        """Return the source of a tool, for the calls of one run. Raises `KeyError` for a tool that is gone."""
        match entry.source:
            case "mcp":
                assert self._pool is not None
                return self._pool.source(entry.source_name)
            case "client":
                from codemode_mcp.catalog.client_tools import ClientTools

                return ClientTools()
        assert self._plugins is not None
        return self._plugins.source(entry.source, entry.source_name, context.caller, context.run_id, context.owner)

    def _measure(self, kind: StoreKind, seconds: float, failed: bool) -> None:
        self.auditor.measure("store_used", kind, seconds=seconds, failed=failed)

    def _adopts(self, owner: str) -> bool:
        """Return True if this process may resume the runs of an owner without a request.

        These are runs of the same user and configuration, or of callers over HTTP. Others were made for other servers
        and rules.
        """
        return owner == self.operator.owner if self._transport == "stdio" else not owner.startswith("stdio:")

    async def _report_idle_denials(self) -> None:
        """Warn once of each deny rule that denies nothing, as soon as that is known."""
        assert self._pool is not None
        told: set[str] = set()
        while True:
            change = self.change()
            config = self._config
            if not any(rules.deny for rules in (config.tools.policy, *(each.rules for each in config.tools.contexts))):
                await change.wait()
                continue
            from codemode_mcp.policy.unused_rules import idle_denials  # most servers have no such rules

            listed = {
                view.name: [tool.name for tool in view.tools]
                for view in self._pool.views()
                if view.state in ("ready", "idle")
            }
            servers = (*self.configured(), *config.disabled, *config.left_out)
            for sentence in idle_denials(config.tools, servers, listed):
                if sentence not in told:
                    log.warning("%s", sentence)
                told.add(sentence)
            await change.wait()

    async def _be_controlled(self, transport: Literal["stdio", "http"], manager: RunManager) -> None:
        """Answer `codemode-mcp runs` and `codemode-mcp clients` until cancelled."""
        from codemode_mcp.audit.redaction import Inputs
        from codemode_mcp.control.server import About, Control, controlled

        inputs = Inputs(include=self._config.audit.include_inputs)

        def arguments(text: str) -> dict[str, Any]:
            return inputs.of_arguments(text, self.redact)

        about = About(
            transport,
            "code" if self.code_mode else "pass-through",
            None if self._config.path is None else str(self._config.path),
            __version__,
        )
        # A terminal that asks right after the start is shown what the store has.
        assert self._store is not None
        await self._store.attempted(STORE_SECONDS)
        async with controlled(Control(manager.operator, about, arguments, adopts=self._adopts, clients=self.clients)):
            await anyio.sleep_forever()

    async def run(self) -> None:
        """Open what was put off, and keep it open until cancelled."""
        await self._read_kept()
        await self._touched.wait()
        if self._transport is not None:
            with anyio.move_on_after(TOUCH_SECONDS):
                await self._wanted.wait()
        from upstream_clients.listing_cache import ListingCache
        from upstream_clients.pool import UpstreamPool

        if self.code_mode:
            # Imported here, since two threads that import hold each other up. What the engine's thread does with it
            # mostly needs no lock of the interpreter, and runs beside the other imports.
            importlib.import_module("codemode_mcp.sandbox.engine")
            self._engine.start()
        pool = UpstreamPool(
            [one_deeper(spec) for spec in self._config.upstreams],
            client_version=__version__,
            on_change=self._changed,
            cache=ListingCache(listings_dir()),
            roots=self._list_roots,
        )
        async with pool:
            self._pool = pool
            if self._transport is None:
                # Servers start while the rest is imported.
                async with pool.importing():
                    _import_rest()
            await self._run_with(pool)

    async def _run_with(self, pool: UpstreamPool) -> None:
        """Open everything behind the upstream servers, and keep it open until cancelled."""
        from codemode_mcp.app.heap import keep_small
        from codemode_mcp.app.notify import open_notifier
        from codemode_mcp.calls.dispatch import Dispatcher
        from codemode_mcp.catalog.observed_types import ObservedTypes
        from codemode_mcp.catalog.per_caller import Catalogs
        from codemode_mcp.plugins.bundled import bundled
        from codemode_mcp.plugins.host import Plugins
        from codemode_mcp.runs.manager import Services, open_manager
        from codemode_mcp.search.semantic import Meaning, available
        from codemode_mcp.search.warmup import Warmup
        from codemode_mcp.stores.opening import open_store

        self._meaning = Meaning(vectors_dir()) if available() else None
        observed = ObservedTypes() if self.code_mode else None
        settings = self._config.tools.code_mode
        serves = self._transport is not None
        async with (
            # No run outlives a command that ends.
            open_store(
                self._config.store if serves and self.code_mode else None,
                settings,
                clock=time.monotonic,
                wall=time.time,
                folder=state_dir(),
                prefers_durable=serves and self.code_mode,
                on_use=self._measure if self.auditor.measuring else None,
            ) as store,
        ):
            self._values, self._store = store.values, store
            self._plugins = Plugins(
                self._config.plugins,
                workspace_dir=Path.cwd() if self._config.path is None else self._config.path.parent,
                bundled=bundled(self.settings, lambda: store.values),
                on_change=self._changed,
                sandboxed=self.code_mode,
            )
            self._catalogs = Catalogs(pool.views, self._config.tools, self._meaning, self._plugins)
            self._dispatcher = Dispatcher(self._source, self._config.tools, observed, self._plugins.interceptors)
            async with (
                open_notifier(lambda: self._config.tools.approval.notify) as notify,
                open_manager(
                    Services(
                        engine=self._engine.get,
                        dispatcher=self._dispatcher,
                        store=store.runs,
                        values=store.values,
                        upstreams=self,
                        transform=self.transform,
                        clock=time.monotonic,
                        auditor=self.auditor,
                        registered=self._plugins,
                        remember=self.remembers(),
                        meaning=self._meaning,
                        notify=notify,
                        program=terminal_command(),
                    ),
                    settings,
                ) as manager,
            ):
                self._manager = manager
                self._opened.set()
                with Warmup(None if self._meaning is None else self._meaning.fill) as warmup:
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._plugins.run)  # first, as programs wait for it
                        group.start_soon(keep_small, self._engine.forget_unused)
                        group.start_soon(self._report_idle_denials)
                        if self._transport is not None:
                            group.start_soon(self._be_controlled, self._transport, manager)
                        if self.code_mode:
                            group.start_soon(warmup.run, self.catalog, self.change)


@asynccontextmanager
async def open_app(
    config: Config,
    load: Callable[[Reading], Config] | None = None,
    transport: Literal["stdio", "http"] | None = None,
) -> AsyncIterator[App]:
    """Everything, for the time inside. Leaving aborts what runs and closes all connections and processes.

    Args:
        load: reads the configuration file again, as `reload.Reloader` wants it; None where changes do not matter.
        transport: what clients come by, in a process that serves: `codemode-mcp runs` reaches it.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    operator = Caller(f"stdio:{user}:{config.path or 'defaults'}", "stdio", _login_name())
    with EngineLoader(config.tools.code_mode.max_running_runs) as engine:
        app = App(config, operator, engine, transport)
        with recording(config.audit, app.auditor, app.redact):
            async with anyio.create_task_group() as group:
                group.start_soon(app.run)
                if load is not None and config.path is not None:
                    group.start_soon(reload.Reloader(config, load, app.apply).run)
                try:
                    yield app
                finally:
                    with anyio.move_on_after(SUSPEND_SECONDS, shield=True):
                        await app.retire()
                    app.give_up_calls()
                    group.cancel_scope.cancel()


def _import_rest() -> None:
    """Import what `App` needs when it is opened."""
    for name in _OPENED_WITH:
        importlib.import_module(name)


def _login_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # a container's user has no name


def terminal_command() -> str:
    """Return the command that runs this program at a terminal of its user, with its whole path, quoted for a shell."""
    started = os.path.abspath(sys.argv[0])
    if Path(started).stem == "codemode-mcp" and os.path.isfile(started):
        words = [started]
    else:
        words = [sys.executable, "-m", "codemode_mcp"]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _kept_views(specs: Sequence[UpstreamSpec]) -> tuple[UpstreamView, ...]:
    from upstream_clients.listing_cache import ListingCache

    cache = ListingCache(listings_dir())
    return tuple(kept.view for kept in map(cache.load, specs) if kept is not None)
