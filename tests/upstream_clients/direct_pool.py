"""A pool whose sources note which calls were sent past the dispatcher, and can send calls by the dispatcher, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from started_pools import settled_pool

from upstream_clients import ToolOutcome, UpstreamPool, UpstreamSpec
from upstream_clients.live_connection import LiveConnection


class DirectSource:
    """A source of a pool.

    Attributes:
        upstream: the server behind the source.
        sent: names of the tools whose calls of `call_tool` were sent past the dispatcher.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.upstream = source.use.server.main.upstream
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def call_tool(self, tool: str, arguments: Any, **options: Any) -> ToolOutcome:
        link = self.upstream._link
        direct = None if link is None else link._dispatcher.direct
        before = -1 if direct is None else _made(direct)
        try:
            outcome: ToolOutcome = await self._source.call_tool(tool, arguments, **options)
        finally:
            if direct is not None and _made(direct) > before:
                self.sent.append(tool)
        return outcome

    async def call_by_dispatcher(self, tool: str, arguments: Any, **options: Any) -> ToolOutcome:
        """Call a tool as a traced process does."""

        async def never(*_: object) -> None:
            return None

        with patch.object(LiveConnection, "_send_directly", never):
            outcome: ToolOutcome = await self._source.call_tool(tool, arguments, **options)
        return outcome


def _made(direct: Any) -> int:
    """Return the number of direct requests on a connection so far."""
    return int(repr(direct._ids).removeprefix("count(").removesuffix(")"))


class DirectPool:
    """A pool whose sources are `DirectSource`."""

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def source(self, name: str) -> DirectSource:
        return DirectSource(self._pool.source(name))


@asynccontextmanager
async def direct_pool(*specs: UpstreamSpec, **options: Any) -> AsyncIterator[DirectPool]:
    """Open a pool as `conftest.settled_pool` does."""
    async with settled_pool(*specs, **options) as pool:
        yield DirectPool(pool)
