"""Protected servers as real processes, and a browser, for the tests of logins."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from codemode_mcp.cli.browser_login import log_in
from tests.ports import reserved_port
from upstream_clients import UpstreamSpec
from upstream_clients.errors import LoginError

SERVER = Path(__file__).resolve().parent.parent / "upstream_clients" / "servers" / "oauth_server.py"


class Protected:
    """`oauth_server.py`, or another script beside it, on a free port."""

    def __init__(self, script: str = SERVER.name) -> None:
        self._script = script
        self.port = reserved_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self._process: Any = None

    def spec(self, **more: Any) -> UpstreamSpec:
        return UpstreamSpec(**{"name": "srv", "transport": "http", "url": f"{self.origin}/mcp", **more})

    async def start(self, *flags: str) -> None:
        command = [sys.executable, str(SERVER.with_name(self._script)), str(self.port), *flags]
        self._process = await anyio.open_process(command, stderr=None)
        with anyio.fail_after(60):
            await self._process.stdout.receive()

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.aclose()

    async def be(self, *flags: str) -> None:
        """Reset the server, and have it behave as the flags say."""
        async with httpx2.AsyncClient() as client:
            (await client.post(f"{self.origin}/be", params={"flag": flags})).raise_for_status()

    async def seen(self, key: str) -> list[str]:
        """Return the values that the server has noted under a key, in order."""
        async with httpx2.AsyncClient() as client:
            noted = (await client.get(f"{self.origin}/seen")).json()
        return [each[key] for each in noted if key in each]

    async def forget(self, *, everything: bool = False) -> None:
        """Make all access tokens invalid, or all tokens."""
        async with httpx2.AsyncClient() as client:
            await client.post(f"{self.origin}/forget{'?all=1' if everything else ''}")


SHARED: list[Protected] = []
"""The one server that most tests use one after the other, made as new for each."""

_FROM_THE_START = frozenset(("--open", "--unbound", "--fixed-token"))


@asynccontextmanager
async def protected(*flags: str) -> AsyncIterator[Protected]:
    """Yield a new server that behaves as the flags say."""
    if SHARED and _FROM_THE_START.isdisjoint(flags):
        server = SHARED.pop()
        try:
            await server.be(*flags)
            yield server
        finally:
            SHARED.append(server)
        return
    server = Protected()
    try:
        await server.start(*flags)
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()


@asynccontextmanager
async def http_server(*flags: str) -> AsyncIterator[Protected]:
    """`http_server.py`: no login, but `--token`, and tools that take their time."""
    server = Protected("http_server.py")
    try:
        await server.start(*flags)
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()


async def browse(url: str) -> None:
    """Follow redirects, as a browser does."""
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        await client.get(url)


async def log_in_with(
    spec: UpstreamSpec, browser: Callable[[str], Awaitable[None]] = browse, *, timeout: float = 30
) -> str:
    """`log_in` together with a browser that follows its redirects. Raises as `log_in` does."""
    outcome: list[str | LoginError] = []
    async with anyio.create_task_group() as tasks:
        try:
            outcome.append(await log_in(spec, lambda url: tasks.start_soon(browser, url), timeout=timeout))
        except LoginError as error:
            outcome.append(error)
    match outcome:
        case [LoginError() as error]:
            raise error
        case [str() as where]:
            return where
    raise AssertionError(outcome)
