"""Running servers that several pools of one event loop share.

A server runs once for each definition, however many pools have it. Two definitions are equal if their processes would
reach the same: the same name, resolved command, arguments, given variables, working directory, address, headers and
limits, and for a local server the same inherited variables, except those of `environment.IRRELEVANT`. The first pool
starts a server, and the last one to release it ends it. A server starts only after earlier ones with its name, which
are being ended, have ended: two processes may interfere on the same files. `client_processes` has the rules for servers
that need several processes.
"""

from __future__ import annotations

import importlib
import logging
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread

from upstream_clients.client_processes import RunningServer, ServerUse, SharedServer
from upstream_clients.client_roots import ClientRoots
from upstream_clients.environment import relevant
from upstream_clients.executables import find_executable
from upstream_clients.process import StartedProcess, inherited, start_ahead
from upstream_clients.start_places import StartPlaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType

    from upstream_clients.listing_cache import ListingCache
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.start_places import StartPlace
    from upstream_clients.tools import RootsFn

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

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None:
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
        """Run one process from its start to its end."""
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
