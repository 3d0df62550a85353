"""Servers to connect to: real processes, each in a few lines under `servers/`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from counted_processes import Processes
from started_pools import SERVERS, python_server, settled_pool

from tests.sdk_servers import SdkServer
from upstream_clients import ToolSource, UpstreamPool, UpstreamSpec, UpstreamView


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share a server."""
    return "asyncio"


@pytest.fixture
def raw_server() -> Callable[..., UpstreamSpec]:
    """Return a legacy server of bare JSON lines whose flags choose how it misbehaves."""
    return lambda *flags, **more: python_server("raw_server.py", *flags, **more)


@pytest.fixture
def sdk_server() -> Callable[..., UpstreamSpec]:
    """Return a well-behaved server made with the SDK, which speaks both eras."""
    return lambda *flags, **more: python_server("sdk_server.py", *flags, **more)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    """Return the processes of a server that counts its starts."""
    return Processes(tmp_path / "pids")


@pytest.fixture
def pool_of() -> Callable[..., Any]:
    """`async with pool_of(spec, ...) as pool`: a pool whose servers have ended their first attempt."""
    return settled_pool


@pytest.fixture(scope="module")
async def shared_pool() -> AsyncIterator[UpstreamPool]:
    """Yield a pool of one server made with the SDK, for tests that change neither. A call's `key` is its test's own."""
    async with settled_pool(python_server("sdk_server.py", description="Says things.")) as pool:
        yield pool


@pytest.fixture
def sdk_pool(shared_pool: UpstreamPool) -> Any:
    """Return the shared pool; a module may replace this to wrap it."""
    return shared_pool


class Changes:
    """An `on_change` callback that can be waited on."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = anyio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._happened.set()
        self._happened = anyio.Event()

    async def until(self, source: ToolSource, condition: Callable[[UpstreamView], bool]) -> UpstreamView:
        with anyio.fail_after(20):
            while not condition(source.view()):
                await self._happened.wait()
        return source.view()


@pytest.fixture
def changes() -> Changes:
    return Changes()


class HttpServer(SdkServer):
    """A process of `servers/http_server.py`, on a port that stays the same after restarts."""

    def __init__(self, *flags: str) -> None:
        super().__init__(SERVERS / "http_server.py", *flags)

    def spec(self, transport: str = "http", path: str = "/mcp", **more: Any) -> UpstreamSpec:
        url = f"http://127.0.0.1:{self.port}{path}"
        return UpstreamSpec("srv", transport=transport, url=url, **more)  # type: ignore[arg-type]


@pytest.fixture
def http_server() -> Callable[..., Any]:
    """`async with http_server("--legacy") as server`."""

    @asynccontextmanager
    async def run(*flags: str) -> AsyncIterator[HttpServer]:
        server = HttpServer(*flags)
        await server.start()
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.kill()

    return run


@pytest.fixture(scope="module")
async def server_of() -> AsyncIterator[Callable[..., Any]]:
    """`await server_of("--legacy")`: a server that all tests of a module with these flags share. No test may end it."""
    started: dict[tuple[str, ...], HttpServer] = {}

    async def shared(*flags: str) -> HttpServer:
        if flags not in started:
            started[flags] = HttpServer(*flags)
            await started[flags].start()
        return started[flags]

    try:
        yield shared
    finally:
        with anyio.CancelScope(shield=True):
            for server in started.values():
                await server.kill()
