"""Pools of servers that tests connect to, for fixtures and for other modules of tests.

Other modules cannot import `conftest`: several folders have a module of this name.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from upstream_clients import UpstreamPool, UpstreamSpec

SERVERS = Path(__file__).parent / "servers"


def python_server(script: str, *flags: str, name: str = "srv", **more: Any) -> UpstreamSpec:
    """Return the specification of a server under `servers/`."""
    return UpstreamSpec(name, command=sys.executable, args=(str(SERVERS / script), *flags), **more)


@asynccontextmanager
async def settled_pool(*specs: UpstreamSpec, **options: Any) -> AsyncIterator[UpstreamPool]:
    """Yield a pool whose servers have ended their first attempt."""
    async with UpstreamPool(specs, **options) as pool:
        await pool.wait_settled(None, timeout=30)
        yield pool
