"""The composition root: `App`, as the server and the command line see it, and `open_app`."""

from __future__ import annotations

import getpass
import os
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Literal, Unpack

import anyio

from codemode_mcp.app.engine_loader import EngineLoader
from codemode_mcp.app.lifecycle import Lifecycle
from codemode_mcp.app.terminal_access import listen
from codemode_mcp.audit.recording import recording
from codemode_mcp.config import reload
from codemode_mcp.policy.policy import Caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.app.lifecycle import Listen, PageAddress
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.entries import OfferedNamespace
    from codemode_mcp.config import Config, Reading
    from codemode_mcp.runs.observation import ObserveOptions, Polling
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import OnOutput
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.runs.values import ListedResult
    from codemode_mcp.settings import Language, ToolSettings
    from upstream_clients.pool import SharedServers
    from upstream_clients.tools import ItemSource, RootsFn

LIST_SECONDS = 2.0
"""Seconds that the first `tools/list` waits for cached listings, and for plugins to load. Later ones do not wait."""

OPEN_SECONDS = 8.0
"""Seconds that the first `tools/list` waits until plugins begin to load. Without plugins it does not wait."""

PROMPTS_SECONDS = 0.5
"""Seconds for plugins to list the tools of a client, before `tools/list` is answered without their prompts."""

COUNT_SECONDS = 1.0
"""Seconds that the answer to a refused request waits for the counts of its caller's catalog."""

SUSPEND_SECONDS = 3.0
"""Seconds to suspend programs at the end of the process, if a durable store keeps them."""


class App(Lifecycle):
    """The application. Use `open_app`.

    It implements the protocols of the server (`code_mode.Runs`, `passthrough.Upstreams`).
    """

    _list_deadlines: tuple[float, float | None] | None = None
    """Deadlines of the first `tools/list`: for plugins to begin to load, and to be loaded."""

    # clients

    def record_client(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count a request of a client, for `codemode-mcp clients` and `doctor`."""
        self._clients.record(name, version, protocol)

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None:
        """Note a connected client, and a function that asks it for its roots; see `SharedServers.offer_roots`.

        Args:
            client: the `Caller.client` of the client's requests.
        """
        if self._pool is None:
            self._roots[client] = list_roots
        else:
            self._pool.offer_roots(client, list_roots)

    def roots_changed(self, client: str | None) -> None:
        """Note that a client has reported other roots. Its later calls use servers for these roots."""
        if self._pool is not None:
            self._pool.roots_changed(client)

    def forget_client(self, client: str | None) -> None:
        """Note that a client has left. Processes of servers for this client alone end when they have no calls."""
        self._roots.pop(client, None)
        if self._pool is not None:
            self._pool.forget_client(client)

    # the shared instance

    def has_calls_in_flight(self) -> bool:
        """Return True if a program computes, or a call of a program is in flight."""
        return self._manager is not None and self._manager.is_busy()

    def server_pids(self, name: str) -> tuple[int, ...]:
        """Return the processes of a server, which other applications of this process may share."""
        return () if self._pool is None else self._pool.pids(name)

    # the view of a caller

    def settings(self) -> ToolSettings:
        """Return the current settings. A changed configuration file replaces them."""
        return self._config.tools

    def configured(self) -> Sequence[str]:
        """Return the names of all servers, for any caller."""
        return [spec.name for spec in self._config.upstreams]

    def has_nothing(self) -> bool:
        return not self._config.upstreams and not self._has_plugins() and not self.library().programs

    def _has_plugins(self) -> bool:
        return any(each.enabled for each in self._config.plugins)

    def servers(self, caller: Caller | None) -> dict[str, str]:
        """Return the servers that a caller may see, configured names by identifier; see `VisibleServers.of`."""
        return self._visible.of(caller)

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """Return the configured names of `servers`."""
        return list(self.servers(caller).values())

    def admits_nothing(self, caller: Caller) -> bool:
        """Return True if the policy denies the caller every tool of every source."""
        return self._visible.admits_nothing(caller)

    def topics(self, caller: Caller) -> Sequence[str]:
        """Return the topics of the caller's servers, as far as their listings are known."""
        return self._topics.of(self._visible.policies.of(caller))

    def all_topics(self) -> Hashable:
        """Return the topics of all callers. They are only compared, never shown."""
        return tuple(map(self._topics.of, self._visible.policies.all))

    def plugin_tools(self) -> tuple[Hashable, ...]:
        """Return the registered tools of plugins. It changes only when a plugin is loaded, changed or removed."""
        return () if self._plugins is None else self._plugins.registered_tools()

    def namespaces(self) -> Sequence[OfferedNamespace]:
        """Return all registered namespaces."""
        return () if self._plugins is None else self._plugins.namespaces()

    def saved_programs(self, caller: Caller | None) -> tuple[str, ...]:
        """Return the names of the saved programs that a caller sees; for None, all names."""
        programs = self.library().programs
        if not programs or caller is None:
            return tuple(each.name for each in programs)
        from codemode_mcp.catalog.toolset import select_programs

        return tuple(each.name for each in select_programs(programs, self._visible.policies.of(caller)).programs)

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]:
        """Return global name, description and prompt of each namespace that the caller sees.

        The result is empty while plugins are loading.
        """
        if self._catalogs is None or not self.namespaces():
            return ()
        until = anyio.current_time() + PROMPTS_SECONDS
        loaded_by = (self._list_deadlines or (0.0, None))[1]
        with anyio.CancelScope(deadline=max(until, loaded_by or until)):
            visible = await self._catalogs.namespaces_of(caller)
            return [(each.global_name, each.description, each.prompt) for each in visible]
        return ()

    async def catalog_counts(self, caller: Caller, client: Client) -> tuple[int, Mapping[str, int]]:
        """Return the number of tools in the caller's catalog, in all and by kind of source.

        Both are empty if the catalog is not known within `COUNT_SECONDS`.
        """
        with anyio.move_on_after(COUNT_SECONDS):
            await self.manager()
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
        if not self._cache_read.is_set():
            with anyio.CancelScope(deadline=min(opened_by, now + LIST_SECONDS)):
                await self._cache_read.wait()
        if not self._has_plugins():
            return
        if not self._opened.is_set():
            with anyio.CancelScope(deadline=opened_by):
                await self._opened.wait()
        if self._plugins is not None:
            loaded_by = self._list_deadlines[1] or anyio.current_time() + LIST_SECONDS
            self._list_deadlines = opened_by, loaded_by
            with anyio.CancelScope(deadline=loaded_by):
                await self._plugins.ready()

    async def plugins_loaded(self) -> bool:
        """Wait up to `LIST_SECONDS` for plugins to load. Return False if some are still loading."""
        with anyio.move_on_after(LIST_SECONDS):
            await self.plugins()
            return True
        return False

    # runs

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

    async def observe(self, run_id: str, owner: str | None, **options: Unpack[ObserveOptions]) -> Outcome:
        """Observe a run as `RunManager.observe` does."""
        manager = await self.manager()
        return await manager.observe(run_id, owner, **options)

    async def polling(self) -> Polling:
        return (await self.manager()).polling

    async def stored_state(self, run_id: str, owner: str | None) -> RunState | None:
        """Return the state of a run in the store; see `RunStore.state_of`. Raises `StoreUnavailable`."""
        await self.manager()
        from codemode_mcp.runs.store import bearer_of

        return None if self._store is None else await self._store.runs.state_of(run_id, owner or bearer_of(run_id))

    def late_notes(self, caller: Caller) -> Sequence[str]:
        """Return notes about calls that failed after their run; see `RunManager.late_notes`."""
        return () if self._manager is None else self._manager.late_notes(caller)

    async def connect(self, seconds: float) -> None:
        """Connect to every server, including idle ones. Wait for at most `seconds`."""
        pool = await self.pool()
        await pool.connect(None, seconds)

    # stored values

    async def offload(self, owner: str, text: str) -> str | None:
        from codemode_mcp.runs.store import is_bearer

        return None if self._store is None or is_bearer(owner) else await self._store.values.offload(owner, text)

    async def result(self, owner: str, ref: str) -> str | None:
        """Return the JSON text of a result of this owner, once everything is open; None if there is none."""
        await self.manager()
        return await self.stored(owner, ref)

    async def results(self, owner: str, before: int | None, limit: int) -> Sequence[ListedResult]:
        """Return results of an owner, once everything is open; see `Values.results`."""
        await self.manager()
        return () if self._store is None else await self._store.values.results(owner, before, limit)

    async def stored(self, owner: str, key: str) -> str | None:
        """Return the JSON text of a value that a program of this owner has stored by `store`."""
        return None if self._store is None else await self._store.values.load(owner, key)

    async def forget_stored(self, owner: str, key: str) -> None:
        """Remove a value that programs of this owner have stored by `store`, if there is one."""
        if self._store is not None:
            await self._store.values.remove(owner, key)

    async def state_keys(self) -> Sequence[bytes]:
        """Return the keys for `sdk_server.guard_state`."""
        await self.manager()
        return [] if self._store is None else await self._store.secrets("state of requests")

    # closing

    async def retire(self) -> None:
        """Accept no more requests, and answer the open ones: the process is about to end."""
        if self._manager is not None:
            await self._manager.retire()

    def give_up_calls(self) -> None:
        """Give up all calls in flight: the process ends now."""
        if self._manager is not None:
            self._manager.give_up_calls()


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
        environ, servers, page, record_file: see `Lifecycle`.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    operator = Caller(f"stdio:{user}:{config.path or 'defaults'}", "stdio", _login_name())
    owned = EngineLoader(config.tools.code_mode.max_running_runs) if engine is None else nullcontext(engine)
    with owned as loader:
        app = App(
            config,
            operator,
            loader,
            transport,
            listen,
            environ=environ,
            servers=servers,
            page=page,
            record_file=record_file,
        )
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


def _login_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # in a container, the user may have no name
