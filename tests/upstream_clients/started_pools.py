"""Pools of servers that tests connect to, for fixtures and for other modules of tests.

Other modules cannot import `conftest`: several folders have a module of this name.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sdk_servers import forked
from upstream_clients import UpstreamPool, UpstreamSpec

SERVERS = Path(__file__).parent / "servers"


def python_server(script: str, *flags: str, name: str = "srv", **more: Any) -> UpstreamSpec:
    """Return the specification of a server under `servers/`."""
    path = SERVERS / script
    command, *arguments = forked(path, *flags) if script == "sdk_server.py" else [sys.executable, str(path), *flags]
    return UpstreamSpec(name, command=command, args=tuple(arguments), **more)


@asynccontextmanager
async def settled_pool(*specs: UpstreamSpec, **options: Any) -> AsyncIterator[UpstreamPool]:
    """Yield a pool whose servers have ended their first attempt."""
    async with UpstreamPool(specs, **options) as pool:
        await pool.wait_settled(None, timeout=30)
        yield pool
