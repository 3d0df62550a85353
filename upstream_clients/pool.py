"""All upstreams of one application, and running servers that several pools share."""

from __future__ import annotations

import importlib
import logging
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio
import anyio.abc
import anyio.to_thread
from msgspec import Struct

from upstream_clients.client_processes import ClientRoots, Observation, RunningServer, ServerUse, SharedServer
from upstream_clients.environment import find_executable, relevant
from upstream_clients.errors import UpstreamUnavailable
from upstream_clients.fair_limiter import CallUser
from upstream_clients.process import StartedProcess, inherited, start_ahead
from upstream_clients.start_places import StartPlace, StartPlaces
from upstream_clients.upstream import Misdirected, Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
    from types import TracebackType

    from upstream_clients import tools
    from upstream_clients.listing import ListingCache
    from upstream_clients.server_log import ServerLog
    from upstream_clients.spec import UpstreamSpec


class ServerStatus(Struct, frozen=True):
    """The state of one server.

    Attributes:
        number: identifies the server among all servers of this process. Pools that share a server get the same number.
        pids: the processes of a stdio server.
        calls: number of calls that wait or are in flight, of all pools.
        ready_seconds: seconds since the current connection became ready; None without one.
        log: the latest lines of the server.
    """

    number: int
    view: tools.UpstreamView
    pids: tuple[int, ...]
    calls: int
    ready_seconds: float | None
    log: ServerLog


class UpstreamPool:
    """All upstreams. Entering this context manager waits for no server. Leaving it closes all of them, in parallel.

    One task enters and leaves the pool. Any task of the same event loop can use it.
    """

    def __init__(
        self,
        specs: Sequence[UpstreamSpec],
        *,
        client_name: str = "codemode-mcp",
        client_version: str = "0",
        on_change: Callable[[], None] | None = None,
        cache: ListingCache | None = None,
        shared: SharedServers | None = None,
    ) -> None:
        """Prepare the servers.

        Args:
            on_change: called in the event loop after any view has changed.
            cache: listings of earlier processes; without it every server is connected at the start.
            shared: the servers that this pool shares with others. A server that others use stays open when this pool
                is left. `client_name`, `client_version` and `cache` are those of `shared` then.

        Raises:
            ValueError: two specs have the same name.
        """
        _check_names(specs)
        self._specs = tuple(specs)
        self._on_change = on_change
        self._owns_servers = shared is None
        self._servers = shared or SharedServers(client_name=client_name, client_version=client_version, cache=cache)
        # The mutable state.
        self._sources: dict[str, _PoolSource] = {}
        self._client_sources: dict[tuple[str, str], _PoolSource] = {}
        """The sources of `_sources` for single clients, as far as they were needed."""
        self._opened = False
        self._closing = False

    async def __aenter__(self) -> Self:
        if self._opened:
            raise RuntimeError("an UpstreamPool can be entered once")
        if self._owns_servers:
            await self._servers.__aenter__()
        self._opened = True
        self._sources = {spec.name: self._acquire(spec) for spec in self._specs}
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._closing = True
        ending = [process for use in self._uses() for process in self._servers.release(use)]
        if self._owns_servers:
            return await self._servers.__aexit__(exc_type, exc, traceback)
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for process in ending:
                await process.ended.wait()
        return None

    def views(self) -> tuple[tools.UpstreamView, ...]:
        """Return a view of every server, in the order of the specs."""
        return tuple(source.view() for source in self._sources.values())

    def source(self, name: str, client: str | None = None) -> tools.ItemSource:
        """Return one server, for calls of a client; see `offer_roots`. Raises `KeyError` for an unknown name."""
        if client is None:
            return self._sources[name]
        source = self._client_sources.get((name, client))
        if source is None:
            source = self._client_sources[name, client] = _PoolSource(self._sources[name].use, client)
        return source

    def pids(self, name: str) -> tuple[int, ...]:
        """Return the processes of a server, which other pools may share. Raises `KeyError` for an unknown name."""
        running = self._sources[name].use.server.running
        return tuple(each.upstream.pid for each in running if each.upstream.pid is not None)

    def status(self, name: str) -> ServerStatus:
        """Return the state of a server and of its processes. Raises `KeyError` for an unknown name."""
        use = self._sources[name].use
        upstreams = [each.upstream for each in use.server.running]
        ready_at = use.server.main.upstream.ready_at
        return ServerStatus(
            number=use.server.number,
            view=use.view(),
            pids=tuple(each.pid for each in upstreams if each.pid is not None),
            calls=sum(len(each.calls) for each in upstreams),
            ready_seconds=None if ready_at is None else time.monotonic() - ready_at,
            log=use.server.log,
        )

    def restart(self, name: str, why: str) -> None:
        """End the processes or connections of a server, and start them again, also for other pools that share them.

        Calls in flight end with `why`. A server that is down or idle is connected now. Raises `KeyError` for an unknown
        name.
        """
        self._sources[name].use.server.restart(why)

    def spec(self, name: str) -> UpstreamSpec:
        """Return the definition of one server. Raises `KeyError` for an unknown name."""
        return self._sources[name].use.spec

    # Clients.

    def offer_roots(self, client: str | None, list_roots: tools.RootsFn | None) -> None:
        """Note a connected client, before its first call; see `SharedServers.offer_roots`."""
        self._servers.offer_roots(client, list_roots)

    def roots_changed(self, client: str | None) -> None:
        """Note that a client has reported other roots (`notifications/roots/list_changed`)."""
        self._servers.roots_changed(client)

    def forget_client(self, client: str | None) -> None:
        """Note that a client has left; see `SharedServers.forget_client`."""
        self._client_sources.clear()
        self._servers.forget_client(client)

    # The states of servers.

    def note_look(self, names: Collection[str] | None) -> None:
        """Note that the tools of the named servers (all for None) were requested, which counts as use.

        An idle server stays idle.

        Raises:
            KeyError: a name is unknown.
        """
        for name in self._sources if names is None else names:
            for process in self._sources[name].use.server.running:
                process.upstream.note_look()

    def connect_soon(self, name: str) -> None:
        """Have a server connected if it is idle. Raises `KeyError` for an unknown name."""
        self._sources[name].use.server.main.upstream.wanted.set()

    async def wait_settled(self, names: Collection[str] | None, timeout: float) -> None:
        """Wait at most `timeout` seconds until each named server (all for None) has tools, or has failed once.

        No server is started for this, but named servers that are to start no longer wait for others.

        Raises:
            KeyError: a name is unknown.
        """
        waited_for = self._named(names)
        for upstream in () if names is None else waited_for:
            upstream.urgent.set()
        with anyio.move_on_after(timeout):
            for upstream in waited_for:
                await upstream.settled.wait()

    async def connect(self, names: Collection[str] | None, timeout: float) -> None:
        """Connect the named servers (all for None), idle ones too.

        Return when each is connected or has failed. For each, `timeout` seconds begin when it starts.

        Raises:
            KeyError: a name is unknown.
        """
        await self._wait_for_each(names, timeout, Upstream.wait_attempted)

    async def wait_listed(self, names: Collection[str] | None, timeout: float) -> None:
        """Connect the named servers (all for None), and wait until their prompts and templates are listed, too.

        A list that fails counts as listed. For each, `timeout` seconds begin when it starts.

        Raises:
            KeyError: a name is unknown.
        """
        await self._wait_for_each(names, timeout, Upstream.wait_listed)

    async def _wait_for_each(
        self, names: Collection[str] | None, timeout: float, wait: Callable[[Upstream], Coroutine[Any, Any, None]]
    ) -> None:
        async def wait_for(upstream: Upstream) -> None:
            await upstream.wait_begun()
            with anyio.move_on_after(timeout):
                await wait(upstream)

        async with anyio.create_task_group() as tasks:
            for upstream in self._named(names):
                tasks.start_soon(wait_for, upstream)

    async def wait_begun(self, name: str) -> None:
        """Have a server connected if it is idle, and wait until it starts. Raises `KeyError` for an unknown name."""
        await self._sources[name].use.server.main.upstream.wait_begun()

    @asynccontextmanager
    async def importing(self) -> AsyncIterator[None]:
        """Wait until the processes of eager servers are started. Inside, the pool imports no modules.

        The owner of the pool imports its own modules inside: if two threads import modules that import each other, an
        import can fail.
        """
        async with self._servers.importing(self._uses()):
            yield

    def apply(self, specs: Sequence[UpstreamSpec]) -> None:
        """Replace the servers, and return immediately. Call `on_change` if there was any difference.

        A server with an equal spec is not touched, but reads a changed file with its OpenAPI document. All others are
        released, and closed if no other pool uses them. This pool's calls to them end immediately, with an error that
        says whether the call was sent. Its subscriptions and listeners continue with a new definition of their server,
        and end if there is none. A server with a changed spec starts after its old process has ended, since two
        processes may interfere on the same files. If another pool uses the old process, it starts immediately.

        Raises:
            ValueError: two specs have the same name. Nothing has changed then.
            RuntimeError: the pool is not open.
        """
        if not self._opened or self._closing:
            raise RuntimeError("an UpstreamPool can be changed only while it is open")
        _check_names(specs)
        before, names = self._sources, {spec.name for spec in specs}
        equal = {
            spec.name: old for spec in specs if (old := before.get(spec.name)) is not None and old.use.spec == spec
        }
        observations: dict[str, tuple[Observation, ...]] = {}
        for name, old in before.items():
            if name not in equal:
                observations[name] = tuple(old.use.observations)
                gone = name not in names
                fate = "was removed from the configuration" if gone else "is restarted with a new configuration"
                self._servers.release(old.use, f"server {name!r} {fate}")
        self._client_sources.clear()
        self._sources = {spec.name: equal.get(spec.name) or self._acquire(spec) for spec in specs}
        for name, source in self._sources.items():
            for observation in observations.get(name, ()):
                observation.continue_with(source.use)
        for spec in specs:
            if spec.name in equal:
                note_document(equal[spec.name].use.server, spec)
        if list(before.items()) != list(self._sources.items()) and self._on_change is not None:
            self._on_change()

    def __repr__(self) -> str:
        states: list[str] = [view.state for view in self.views()]
        shown = ("ready", "idle", "connecting", "down", "stopped")
        return f"<UpstreamPool: {', '.join(f'{states.count(state)} {state}' for state in shown)}>"

    def _acquire(self, spec: UpstreamSpec) -> _PoolSource:
        return _PoolSource(self._servers.acquire(spec, self._on_change))

    def _uses(self) -> Iterable[ServerUse]:
        return [source.use for source in self._sources.values()]

    def _named(self, names: Collection[str] | None) -> list[Upstream]:
        return [self._sources[name].use.server.main.upstream for name in (self._sources if names is None else names)]


class _PoolSource:
    """A server as one client of a pool sees it, as a `tools.ItemSource`."""

    __slots__ = ("_user", "use")

    def __init__(self, use: ServerUse, client: str | None = None) -> None:
        self.use = use
        self._user = CallUser(use, client)

    @property
    def name(self) -> str:
        return self.use.spec.name

    def view(self) -> tools.UpstreamView:
        return self.use.view()

    def __repr__(self) -> str:
        return repr(self.use.server.main.upstream)

    async def call_tool(
        self, tool: str, arguments: tools.JsonObject, **options: Unpack[tools.CallOptions]
    ) -> tools.ToolOutcome:
        while True:
            upstream = await self._upstream()
            try:
                return await upstream.call_tool(tool, arguments, user=self._user, **options)
            except Misdirected:
                continue

    async def list_resources(self) -> tools.ResourceListing:
        use = self.use
        if use.over is None:
            # A further process is not started as long as the list of the main one is known.
            main = use.server.main.upstream
            process = use.server.process_of(self._user.client, creates=False)
            if process is None and main.view().resource_list is not None:
                return await main.list_resources()
        return await (await self._upstream()).list_resources()

    async def subscribe(self, uri: str, on_update: tools.UpdateFn) -> Callable[[], None]:
        remove = await (await self._upstream()).subscribe(uri, on_update)

        def again(use: ServerUse) -> Callable[[], None]:
            process = use.server.process_of(self._user.client) or use.server.main
            return process.upstream.subscribe_again(uri, on_update)

        return self._observe(remove, again)

    def on_log(
        self, listener: tools.LogFn, level: tools.LogLevel, owner: str | None = None, *, known_only: bool = False
    ) -> Callable[[], None]:
        def begin(use: ServerUse) -> Callable[[], None]:
            listeners = use.server.log_listeners
            return listeners.add(listener, level, owner, self._user.client, known_only=known_only)

        return self._observe(begin(self.use), begin)

    def _observe(
        self, remove: Callable[[], None], again: Callable[[ServerUse], Callable[[], None]]
    ) -> Callable[[], None]:
        observation = Observation(remove, again)
        observation.begin(self.use)
        return observation.end

    async def request(
        self, method: str, params: tools.JsonObject, **options: Unpack[tools.RequestOptions]
    ) -> tools.JsonObject:
        while True:
            upstream = await self._upstream()
            with suppress(Misdirected):
                return await upstream.request(method, params, user=self._user, **options)

    async def _upstream(self) -> Upstream:
        server, client = self.use.server, self._user.client
        while self.use.over is None:
            if (process := server.process_of(client)) is not None:
                return process.upstream
            await server.learn_roots_of(client)
        raise UpstreamUnavailable(self.name, f"{self.use.over}; nothing was sent")


def _check_names(specs: Sequence[UpstreamSpec]) -> None:
    if len({spec.name for spec in specs}) != len(specs):
        raise ValueError("two servers have the same name")


# Running servers that several pools of one event loop share.
#
# A server runs once for each definition, however many pools have it. Two definitions are equal if their processes would
# reach the same: the same name, resolved command, arguments, given variables, working directory, address, headers and
# limits, and for a local server the same inherited variables, except those of `environment.IRRELEVANT`. The first pool
# starts a server, and the last one to release it ends it. A server starts only after earlier ones with its name, which
# are being ended, have ended: two processes may interfere on the same files. `client_processes` has the rules for
# servers that need several processes.


logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 2.4
"""Seconds to close all servers. A server that ignores the end of its input and SIGTERM takes 1.8 of them."""


class SharedServers:
    """The running servers of any number of pools. Leaving this context manager ends all of them, in parallel.

    One task enters and leaves it. All pools are used in the same event loop, and left before.
    """

    def __init__(
        self, *, client_name: str = "codemode-mcp", client_version: str = "0", cache: ListingCache | None = None
    ) -> None:
        """`cache`: listings of earlier processes; without it every server is connected at the start."""
        self._client_name = client_name
        self._client_version = client_version
        self._cache = cache
        self._tasks: anyio.abc.TaskGroup | None = None
        self._importing = anyio.Lock()
        self._places = StartPlaces()
        # The mutable state.
        self._imported = False
        """True once the module of connections is imported."""
        self._clients = ClientRoots()
        self._learning: set[str] = set()
        """The clients that are being asked for changed roots."""
        self._servers: dict[str, list[SharedServer]] = {}
        """The servers that some pool uses, by name."""
        self._ending: dict[str, list[RunningServer]] = {}
        """The servers that are being ended, by name."""

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("a SharedServers can be entered once")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        for servers in self._servers.values():
            for server in servers:
                for process in tuple(server.running):
                    process.stop()
        # On the group's own scope, since a scope entered here could not enclose the group.
        self._tasks.cancel_scope.deadline = anyio.current_time() + CLOSE_TIMEOUT
        return await self._tasks.__aexit__(exc_type, exc, traceback)

    def acquire(self, spec: UpstreamSpec, on_change: Callable[[], None] | None) -> ServerUse:
        """Return a use of the server of this definition. Start the server if no pool uses it.

        Args:
            on_change: called in the event loop after the view has changed.
        """
        servers = self._servers.setdefault(spec.name, [])
        # Most names belong to one server. Its definition is computed only if there is something to compare it with.
        definition = definition_of(spec) if servers else None
        server = next((each for each in servers if definition_of(each.spec) == definition), None)
        if server is None:
            server = SharedServer(spec, self._clients, self._start)
            servers.append(server)
            self._start_main(server.main)
        else:
            note_document(server, spec)
        return ServerUse(server, spec, on_change)

    def release(self, use: ServerUse, why: str | None = None) -> list[RunningServer]:
        """End a use. End the server too if it has no other use. Return the processes that are being ended.

        Calls of this use end soon; with a reason, immediately. Calls of other uses are not affected.
        """
        server, name = use.server, use.spec.name
        use.end(why)
        if server.uses:
            return []
        self._servers[name].remove(server)
        if not self._servers[name]:
            del self._servers[name]
        ending = list(server.running)
        self._ending.setdefault(name, []).extend(ending)
        for process in ending:
            process.stop(why)
        return ending

    # Clients.

    def offer_roots(self, client: str | None, list_roots: tools.RootsFn | None) -> None:
        """Note a connected client.

        Args:
            client: the key of the client; None for the only client of this process, which needs no processes of its
                own.
            list_roots: asks the client for its roots; None if it cannot be asked outside its requests.
        """
        self._clients.offer(client, list_roots)

    def roots_changed(self, client: str | None) -> None:
        """Note that a client has reported other roots. Its later calls wait until it was asked for them."""
        known = self._clients.changed(client)
        if known and client is not None and client not in self._learning and self._tasks is not None:
            self._learning.add(client)
            self._tasks.start_soon(self._learn_roots, client)

    async def _learn_roots(self, client: str) -> None:
        # A client may report changes faster than it answers. It has one such task.
        while client in self._clients and self._clients.uris(client) is None:
            await self._clients.learn(client)
        self._learning.discard(client)
        self._end_unneeded()

    def forget_client(self, client: str | None) -> None:
        """Note that a client has left. Processes for this client alone end when their last call has ended."""
        self._clients.forget(client)
        self._end_unneeded()

    def _end_unneeded(self) -> None:
        for servers in tuple(self._servers.values()):
            for server in tuple(servers):
                server.end_unneeded()

    # The tasks of servers.

    @asynccontextmanager
    async def importing(self, uses: Iterable[ServerUse]) -> AsyncIterator[None]:
        """Wait until the processes of these servers are started, if they start now. Inside, no modules are imported."""
        async with self._importing:
            for use in uses:
                await use.server.main.begun.wait()
            yield

    def _start_main(self, main: RunningServer) -> None:
        upstream = main.upstream
        if self._cache is not None and (found := self._cache.load(upstream.spec)) is not None:
            upstream.report_saved_listing(found.view)
            if found.fresh and upstream.spec.start == "lazy":
                upstream.report_idle()
        self._start(main, after=tuple(self._ending.get(upstream.name, ())))

    def _start(self, running: RunningServer, after: tuple[RunningServer, ...] = ()) -> None:
        """Start the task of a process, whose server starts once the processes `after` have ended."""
        if self._tasks is None:
            raise RuntimeError("a server can be started only while its SharedServers is open")
        self._tasks.start_soon(self._run, running, after, name=f"upstream {running.upstream.name}")

    async def _run(self, running: RunningServer, after: tuple[RunningServer, ...]) -> None:
        upstream = running.upstream
        started: StartedProcess | None = None
        place: StartPlace | None = None
        try:
            with running.scope:
                for earlier in after:
                    await earlier.ended.wait()
                if upstream.spec.unusable is not None:
                    logger.warning("%s", upstream.spec.unusable)
                    upstream.report_down(upstream.spec.unusable)
                    running.begun.set()
                    await anyio.sleep_forever()
                if upstream.view().state == "idle":
                    running.begun.set()
                    await upstream.wanted.wait()
                    upstream.report_connecting()
                if upstream.spec.is_process:
                    place = self._places.try_take()
                    if place is None:
                        running.begun.set()
                        place = await self._places.take(upstream.urgent)
                if not self._imported:
                    # The import takes long, so it runs in a thread. The process of a stdio server starts meanwhile.
                    started = await start_ahead(upstream.spec, partial(upstream.log.add, "stderr"))
                    running.begun.set()
                    async with self._importing:
                        await anyio.to_thread.run_sync(importlib.import_module, "upstream_clients.connection")
                        self._imported = True
                running.begun.set()
                from upstream_clients.connection import Connection

                running.connection = Connection(
                    upstream,
                    client_name=self._client_name,
                    client_version=self._client_version,
                    cache=self._cache if running.is_main else None,
                    roots=running.list_roots,
                    started=started,
                    places=self._places,
                    place=place,
                )
            if running.connection is not None:
                await running.connection.run()
        finally:
            upstream.report_stopped()
            if running.connection is None:  # otherwise the connection ends the process, and the place
                if place is not None:
                    place.end()
                if started is not None:
                    await started.close()
            running.begun.set()  # after any failure too, or `importing` would wait forever
            running.ended.set()
            running.leave()
            ending = [each for each in self._ending.pop(upstream.name, ()) if each is not running]
            if ending:
                self._ending[upstream.name] = ending


def note_document(server: SharedServer, spec: UpstreamSpec) -> None:
    """Have a server read its OpenAPI document again if it is a file that a newer, equal spec knows to have changed."""
    server.document_version = spec.document_version
    for process in server.running:
        process.upstream.note_document(spec.document_version)


def definition_of(spec: UpstreamSpec) -> UpstreamSpec:
    """Return a spec that is equal for equal servers: with a resolved command, and with inherited variables in `env`."""
    if not spec.is_process or spec.command is None:
        return spec  # a connection to a remote server uses the variables of this process
    env = {**inherited(spec), **spec.env}
    command = find_executable(spec.command, os.pathsep.join(os.get_exec_path(env)))
    return replace(spec, command=command or spec.command, env={**relevant(inherited(spec)), **spec.env})
