"""Running servers that several pools of one event loop share.

A server runs once for each definition, however many pools have it. Two definitions are equal if their processes would
reach the same: the same name, resolved command, arguments, given variables, working directory, address, headers and
limits, and the same inherited variables, except those of `environment.IRRELEVANT`. The first pool starts a server, and
the last one to release it ends it. A server starts only after earlier ones with its name, which are being ended, have
ended: two processes may interfere on the same files.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread

from upstream_clients.environment import relevant
from upstream_clients.process import StartedProcess, inherited, start_ahead
from upstream_clients.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType

    from upstream_clients.connection import Connection
    from upstream_clients.listing_cache import ListingCache
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, RootsFn, UpstreamView

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
        # The mutable state.
        self._imported = False
        """True once the module of connections is imported."""
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
                server.main.stop()
        # On the group's own scope, since a scope entered here could not enclose the group.
        self._tasks.cancel_scope.deadline = anyio.current_time() + CLOSE_TIMEOUT
        return await self._tasks.__aexit__(exc_type, exc, traceback)

    def acquire(self, spec: UpstreamSpec, on_change: Callable[[], None] | None, roots: RootsFn | None) -> ServerUse:
        """Return a use of the server of this definition. Start the server if no pool uses it.

        Args:
            on_change: called in the event loop after the view has changed.
            roots: answers the server when it asks for roots outside any call.
        """
        servers = self._servers.setdefault(spec.name, [])
        server = next((each for each in servers if each.has_definition(spec)), None)
        if server is None:
            server = SharedServer(spec)
            servers.append(server)
            self._start(server)
        return ServerUse(server, spec, on_change, roots)

    def release(self, use: ServerUse, why: str | None = None) -> None:
        """End a use. End the server too if it has no other use.

        Calls of this use end soon; with a reason, immediately. Calls of other uses are not affected.
        """
        server, name = use.server, use.spec.name
        use.end(why)
        if server.uses:
            return
        self._servers[name].remove(server)
        if not self._servers[name]:
            del self._servers[name]
        if not server.main.ended.is_set():
            self._ending.setdefault(name, []).append(server.main)
        server.main.stop(why)

    @asynccontextmanager
    async def importing(self, uses: Iterable[ServerUse]) -> AsyncIterator[None]:
        """Wait until the processes of these servers are started, if they start now. Inside, no modules are imported."""
        async with self._importing:
            for use in uses:
                await use.server.main.begun.wait()
            yield

    def _start(self, server: SharedServer) -> None:
        if self._tasks is None:
            raise RuntimeError("a server can be started only while its SharedServers is open")
        upstream = server.main.upstream
        if self._cache is not None and (found := self._cache.load(upstream.spec)) is not None:
            upstream.report_saved_listing(found.view)
            if found.fresh and upstream.spec.start == "lazy":
                upstream.report_idle()
        self._tasks.start_soon(self._run, server.main, server.list_roots, name=f"upstream {upstream.name}")

    async def _run(self, running: RunningServer, roots: RootsFn) -> None:
        """Run one server from its start to its end."""
        upstream = running.upstream
        started: StartedProcess | None = None
        try:
            with running.scope:
                for earlier in tuple(self._ending.get(upstream.name, ())):
                    await earlier.ended.wait()
                if upstream.view().state == "idle":
                    running.begun.set()
                    await upstream.wanted.wait()
                    upstream.report_connecting()
                if not self._imported:
                    # The import takes long, so it runs in a thread. The process of a stdio server starts meanwhile.
                    started = await start_ahead(upstream.spec)
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
                    cache=self._cache,
                    roots=roots,
                    started=started,
                )
            if running.connection is not None:
                await running.connection.run()
        finally:
            upstream.report_stopped()
            if started is not None and running.connection is None:  # otherwise the connection ends the process
                await started.close()
            running.begun.set()  # after any failure too, or `importing` would wait forever
            running.ended.set()
            self._forget(running)

    def _forget(self, running: RunningServer) -> None:
        ending = self._ending.get(running.upstream.name, [])
        if running in ending:
            ending.remove(running)
        if not ending:
            self._ending.pop(running.upstream.name, None)


class SharedServer:
    """One server that runs, for all pools that have its definition.

    Attributes:
        spec: the definition of the first pool.
        uses: the uses by pools; the server ends with the last one.
    """

    def __init__(self, spec: UpstreamSpec) -> None:
        self.spec = spec
        self.uses: list[ServerUse] = []
        self.main = RunningServer(Upstream(spec, self._report_change))
        self._definition: UpstreamSpec | None = None

    def has_definition(self, spec: UpstreamSpec) -> bool:
        """Return True if a server of this spec would be equal to this one."""
        if self._definition is None:  # not earlier, since most servers have one pool
            self._definition = _definition(self.spec)
        return _definition(spec) == self._definition

    async def list_roots(self) -> JsonObject:
        """Answer the server when it asks for roots outside any call."""
        roots = next((use.roots for use in self.uses if use.roots is not None), None)
        return {"roots": []} if roots is None else await roots()

    def _report_change(self) -> None:
        for use in tuple(self.uses):
            use.report_change()


class ServerUse:
    """The use of a server by one pool.

    Attributes:
        spec: the pool's own definition. It is equal to the definition of the server.
        roots: answers the server when it asks for roots outside any call.
        over: the reason why the use has ended; None before that.
    """

    def __init__(
        self, server: SharedServer, spec: UpstreamSpec, on_change: Callable[[], None] | None, roots: RootsFn | None
    ) -> None:
        self.server = server
        self.spec = spec
        self.roots = roots
        self.over: str | None = None
        self._on_change = on_change
        server.uses.append(self)
        if spec is not server.spec:
            server.spec.followers.append(spec)

    def view(self) -> UpstreamView:
        """Return the view of the server, or a view of a stopped server after the end of the use."""
        view = self.server.main.upstream.view()
        return view if self.over is None else replace(view, state="stopped", error=self.over)

    def report_change(self) -> None:
        """Report to the pool that the view has changed."""
        if self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                logger.exception("the observer of server %r failed", self.spec.name)

    def end(self, why: str | None) -> None:
        """End this use, and its calls if the server has other uses."""
        self.over = why or f"server {self.spec.name!r} is closed"
        server = self.server
        server.uses.remove(self)
        server.spec.followers[:] = [spec for spec in server.spec.followers if spec is not self.spec]
        if server.uses:
            server.main.upstream.calls.reject(self.over, self)


class RunningServer:
    """One server with its task."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.scope = anyio.CancelScope()
        """Encloses everything before the connection."""
        self.connection: Connection | None = None
        self.begun = anyio.Event()
        """Set once `importing` need not wait for this server: its process has started, or starts later."""
        self.ended = anyio.Event()

    def stop(self, why: str | None = None) -> None:
        """End its task soon. With a reason, end its calls immediately."""
        if why is not None:
            self.upstream.calls.reject(why)
            self.upstream.report_stopped(why)
        if self.connection is None:
            self.upstream.report_stopped()
            self.scope.cancel()
        else:
            self.connection.stop()


def _definition(spec: UpstreamSpec) -> UpstreamSpec:
    """Return a spec that is equal for equal servers: with a resolved command, and with inherited variables in `env`."""
    if spec.command is None:
        return replace(spec, env={**relevant(os.environ if spec.environ is None else spec.environ), **spec.env})
    env = {**inherited(spec), **spec.env}
    command = shutil.which(spec.command, path=os.pathsep.join(os.get_exec_path(env)))
    return replace(spec, command=command or spec.command, env={**relevant(inherited(spec)), **spec.env})
