"""All upstreams of one process, each connected by its own task, under one task group."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread

from upstream_clients.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import TracebackType

    from upstream_clients.connection import Connection
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import ToolSource, UpstreamView

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 4.5
"""Seconds within which all is closed. A server that ignores the end of its input and SIGTERM takes 4.1 of them."""


class UpstreamPool:
    """An async context manager. Entering waits for no server; leaving closes all of them, in parallel.

    Enter and leave it in one task; look and call from any task of the same event loop.
    """

    def __init__(
        self,
        specs: Sequence[UpstreamSpec],
        *,
        client_name: str = "codemode-mcp",
        client_version: str = "0",
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`on_change` is called, without arguments and in the event loop, after any view has changed.

        Raises:
            ValueError: two specs have one name.
        """
        self._upstreams = {spec.name: Upstream(spec, on_change) for spec in specs}
        if len(self._upstreams) != len(specs):
            raise ValueError("two servers have the same name")
        self._client_name = client_name
        self._client_version = client_version
        self._connections: dict[str, Connection] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("an UpstreamPool can be entered once")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        if self._upstreams:
            self._tasks.start_soon(self._connect_all)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._closing = True
        for connection in self._connections.values():
            connection.stop()
        for name in self._upstreams.keys() - self._connections.keys():
            self._upstreams[name].stopped()
        # On the group's own scope: a scope entered here could not lie round the group that is left within it.
        self._tasks.cancel_scope.deadline = anyio.current_time() + CLOSE_TIMEOUT
        return await self._tasks.__aexit__(exc_type, exc, traceback)

    def views(self) -> tuple[UpstreamView, ...]:
        """Every server as it is now, in the order of the specs."""
        return tuple(upstream.view() for upstream in self._upstreams.values())

    def source(self, name: str) -> ToolSource:
        """The tools of one server. Raises `KeyError` for an unknown name."""
        return self._upstreams[name]

    async def wait_settled(self, names: Collection[str] | None, timeout: float) -> None:
        """Return when each named server (all for `None`) has ended its first attempt, or after `timeout` seconds.

        Raises:
            KeyError: a name is unknown.
        """
        waited_for = [self._upstreams[name] for name in (self._upstreams if names is None else names)]
        with anyio.move_on_after(timeout):
            for upstream in waited_for:
                await upstream.settled.wait()

    def __repr__(self) -> str:
        states = [view.state for view in self.views()]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("ready", "connecting", "down", "stopped"))
        return f"<UpstreamPool: {counts}>"

    async def _connect_all(self) -> None:
        # The MCP SDK takes most of a second to import: in a thread, and not before somebody has servers.
        await anyio.to_thread.run_sync(importlib.import_module, "upstream_clients.connection")
        if not self._closing:
            for upstream in self._upstreams.values():
                self._connect(upstream)

    def _connect(self, upstream: Upstream) -> None:
        from upstream_clients.connection import Connection

        assert self._tasks is not None
        connection = Connection(upstream, client_name=self._client_name, client_version=self._client_version)
        self._connections[upstream.name] = connection
        self._tasks.start_soon(connection.run, name=f"upstream {upstream.name}")
