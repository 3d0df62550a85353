"""A pool whose `call_tool` uses `try_call` where possible, so that tests of `call_tool` test direct calls too."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from started_pools import settled_pool

from upstream_clients.tools import Unfinished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from upstream_clients import ToolOutcome, UpstreamPool, UpstreamSpec


class DirectSource:
    """A source whose `call_tool` is `try_call`, as dispatchers use it.

    Attributes:
        upstream: the server behind the source.
        sent: names of the tools whose calls were sent immediately.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.upstream = source.use.server.main.upstream
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def call_tool(self, tool: str, arguments: Any, **options: Any) -> ToolOutcome:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = None
        if "begin" not in options:
            call = self._source.try_call(tool, arguments, on_end=ended.set_result, **options)
        if call is None:
            outcome: ToolOutcome = await self._source.call_tool(tool, arguments, **options)
            return outcome
        self.sent.append(tool)
        try:
            end = await ended
        except BaseException:
            call.cancel()
            raise
        if isinstance(end, Unfinished):
            end = await end.rest()
        if isinstance(end, Exception):
            raise end
        return end  # type: ignore[no-any-return]


class DirectPool:
    """A pool whose sources are `DirectSource`."""

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self.sources: dict[str, DirectSource] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def source(self, name: str) -> DirectSource:
        source = self._pool.source(name)
        return self.sources.setdefault(name, DirectSource(source))

    def check_direct(self) -> None:
        """Fail if no call was sent directly."""
        assert any(source.sent for source in self.sources.values()), "no call was sent directly"


@asynccontextmanager
async def direct_pool(*specs: UpstreamSpec, **options: Any) -> AsyncIterator[DirectPool]:
    """Open a pool as `conftest.settled_pool` does."""
    async with settled_pool(*specs, **options) as pool:
        yield DirectPool(pool)


@asynccontextmanager
async def strictly_direct_pool(*specs: UpstreamSpec, **options: Any) -> AsyncIterator[DirectPool]:
    """Open a pool. Fail at its end if no call was sent directly."""
    async with direct_pool(*specs, **options) as pool:
        yield pool
        pool.check_direct()
