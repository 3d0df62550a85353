"""All upstreams of one process, each connected by its own task, under one task group."""

from __future__ import annotations

import importlib
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread

from upstream_clients.process import StartedProcess, start_ahead
from upstream_clients.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence
    from types import TracebackType

    from upstream_clients.connection import Connection
    from upstream_clients.listing_cache import ListingCache
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import RootsFn, ToolSource, UpstreamView

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 2.4
"""Seconds to close all servers. A server that ignores the end of its input and SIGTERM takes 1.8 of them."""


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
        roots: RootsFn | None = None,
    ) -> None:
        """Prepare the servers.

        Args:
            on_change: called in the event loop after any view has changed.
            cache: listings of earlier processes; without it every server is connected at the start.
            roots: answers servers that ask for roots outside any call.

        Raises:
            ValueError: two specs have the same name.
        """
        _check_names(specs)
        self._on_change = on_change
        self._client_name = client_name
        self._client_version = client_version
        self._cache = cache
        self._roots = roots
        self._tasks: anyio.abc.TaskGroup | None = None
        self._importing = anyio.Lock()
        # The mutable state.
        self._imported = False
        """True once the module of connections is imported."""
        self._members = {spec.name: _Member(Upstream(spec, on_change)) for spec in specs}
        self._closing = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("an UpstreamPool can be entered once")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        for member in self._members.values():
            self._start(member)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._closing = True
        for member in self._members.values():
            member.stop()
        # On the group's own scope, since a scope entered here could not enclose the group.
        self._tasks.cancel_scope.deadline = anyio.current_time() + CLOSE_TIMEOUT
        return await self._tasks.__aexit__(exc_type, exc, traceback)

    def views(self) -> tuple[UpstreamView, ...]:
        """Return a view of every server, in the order of the specs."""
        return tuple(member.upstream.view() for member in self._members.values())

    def source(self, name: str) -> ToolSource:
        """Return one server. Raises `KeyError` for an unknown name."""
        return self._members[name].upstream

    async def wait_settled(self, names: Collection[str] | None, timeout: float) -> None:
        """Wait at most `timeout` seconds until each named server (all for None) has tools, or has failed once.

        No server is started for this.

        Raises:
            KeyError: a name is unknown.
        """
        waited_for = self._named(names)
        with anyio.move_on_after(timeout):
            for upstream in waited_for:
                await upstream.settled.wait()

    async def connect(self, names: Collection[str] | None, timeout: float) -> None:
        """Connect the named servers (all for None), idle ones too.

        Return when each is connected or has failed, or after `timeout` seconds.

        Raises:
            KeyError: a name is unknown.
        """
        waited_for = self._named(names)
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for upstream in waited_for:
                    tasks.start_soon(upstream.wait_attempted)

    @asynccontextmanager
    async def importing(self) -> AsyncIterator[None]:
        """Wait until the processes of eager servers are started. Inside, the pool imports no modules.

        The owner of the pool imports its own modules inside: if two threads import modules that import each other, an
        import can fail.
        """
        async with self._importing:
            for member in self._members.values():
                await member.begun.wait()
            yield

    def apply(self, specs: Sequence[UpstreamSpec]) -> None:
        """Replace the servers, and return immediately. Call `on_change` if there was any difference.

        A server with an equal spec is not touched. All others are closed. Their calls end immediately, with an error
        that says whether the call was sent. A server with a changed spec starts after its old process has ended, since
        two processes may interfere on the same files.

        Raises:
            ValueError: two specs have the same name. Nothing has changed then.
            RuntimeError: the pool is not open.
        """
        if self._tasks is None or self._closing:
            raise RuntimeError("an UpstreamPool can be changed only while it is open")
        _check_names(specs)
        before, self._members = self._members, {}
        added: list[tuple[_Member, _Member | None]] = []
        for spec in specs:
            old = before.get(spec.name)
            if old is not None and old.upstream.spec == spec:
                self._members[spec.name] = old
            else:
                self._members[spec.name] = member = _Member(Upstream(spec, self._on_change))
                added.append((member, old))
        for name, old in before.items():
            if self._members.get(name) is not old:
                gone = name not in self._members
                fate = "was removed from the configuration" if gone else "is restarted with a new configuration"
                old.stop(f"server {name!r} {fate}")
        for member, old in added:
            self._start(member, after=old)
        if list(before.items()) != list(self._members.items()) and self._on_change is not None:
            self._on_change()

    def __repr__(self) -> str:
        states: list[str] = [view.state for view in self.views()]
        shown = ("ready", "idle", "connecting", "down", "stopped")
        return f"<UpstreamPool: {', '.join(f'{states.count(state)} {state}' for state in shown)}>"

    def _named(self, names: Collection[str] | None) -> list[Upstream]:
        return [self._members[name].upstream for name in (self._members if names is None else names)]

    def _start(self, member: _Member, after: _Member | None = None) -> None:
        assert self._tasks is not None
        upstream = member.upstream
        if self._cache is not None and (found := self._cache.load(upstream.spec)) is not None:
            upstream.report_saved_listing(found.view)
            if found.fresh and upstream.spec.start == "lazy":
                upstream.report_idle()
        self._tasks.start_soon(self._run_member, member, after, name=f"upstream {upstream.name}")

    async def _run_member(self, member: _Member, after: _Member | None) -> None:
        """Run one server from its start to its end, once its predecessor `after` has ended."""
        upstream = member.upstream
        started: StartedProcess | None = None
        try:
            with member.scope:
                if after is not None:
                    await after.ended.wait()
                if upstream.view().state == "idle":
                    member.begun.set()
                    await upstream.wanted.wait()
                    upstream.report_connecting()
                if not self._imported:
                    # The import takes long, so it runs in a thread. The process of a stdio server starts meanwhile.
                    started = await start_ahead(upstream.spec)
                    member.begun.set()
                    async with self._importing:
                        await anyio.to_thread.run_sync(importlib.import_module, "upstream_clients.connection")
                        self._imported = True
                member.begun.set()
                from upstream_clients.connection import Connection

                member.connection = Connection(
                    upstream,
                    client_name=self._client_name,
                    client_version=self._client_version,
                    cache=self._cache,
                    roots=self._roots,
                    started=started,
                )
            if member.connection is not None:
                await member.connection.run()
        finally:
            upstream.report_stopped()
            if started is not None and member.connection is None:  # otherwise the connection ends the process
                await started.close()
            member.begun.set()  # after any failure too, or `importing` would wait forever
            member.ended.set()


class _Member:
    """One server of the pool."""

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


def _check_names(specs: Sequence[UpstreamSpec]) -> None:
    if len({spec.name for spec in specs}) != len(specs):
        raise ValueError("two servers have the same name")
