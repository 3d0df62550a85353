"""The kinds of floods that one principal makes: `python -m tests.floods.kinds KIND URL TOKEN`, until it is killed.

It prints a line once each of its workers has done its first step.
"""

from __future__ import annotations

import functools
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx2

from tests.floods.wire import LEGACY, Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Step = Callable[[Wire], Awaitable[Any]]

MIB = 1024 * 1024
READY_SECONDS = 3.0
"""A flood counts as begun after that, though some first steps have not ended: many of them are meant to hang."""

ADDRESS: Final = "127.0.0.2" if sys.platform == "linux" else None
"""Address that the flood comes from: another address than that of the principal who is measured."""

_PAUSE = 0.02
"""Seconds after a refusal."""


def program(code: str, **arguments: Any) -> Step:
    async def step(wire: Wire) -> None:
        params = {"name": "exec", "arguments": {"code": code, **arguments}}
        answer = await wire.ask("tools/call", params)
        if "error" in answer:
            await anyio.sleep(_PAUSE)

    return step


async def progress(wire: Wire) -> None:
    await wire.exec("await MCP.wild.flood({})", _meta={"progressToken": "flood"})


async def bodies(wire: Wire) -> None:
    """Send large bodies that parse into many values."""
    if (await wire.post(_many_values())).status_code != 200:
        await anyio.sleep(_PAUSE)


@functools.cache
def _many_values() -> str:
    values = [[number] for number in range(400_000)]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": values}}
    return json.dumps(message)


async def half_bodies(wire: Wire) -> None:
    async with await _connect(wire) as connection:
        await connection.send(_head(wire, 4 * MIB))
        await connection.send(_HALF)
        with suppress(anyio.EndOfStream):
            await connection.receive()


async def connections(wire: Wire) -> None:
    async with await _connect(wire) as connection:
        await connection.send(b"POST /mcp HTTP/1.1\r\n")
        with suppress(anyio.EndOfStream):
            await connection.receive()


async def sessions(wire: Wire) -> None:
    answer = await wire.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INITIALIZE})
    if answer.status_code != 200:
        await anyio.sleep(_PAUSE)


async def logins(wire: Wire) -> None:
    await wire.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, authorization="Bearer " + "wrong" * 8)


async def suspended(wire: Wire) -> None:
    await wire.exec_alone("const kept = 'x'.repeat(2e6); await yield_control(); return kept.length")


async def cancels(wire: Wire) -> None:
    with anyio.move_on_after(0.05):
        await wire.exec_alone("await Promise.all(Array.from({ length: 16 }, () => MCP.wild.hang({})))")


async def lists(wire: Wire) -> None:
    await wire.ask("tools/list")


_CALL_MANY = "await Promise.all(Array.from({ length: 16 }, () => MCP.wild.hang({})))"
_LARGE = "const text = '" + "x" * 900_000 + "'; return text.length"

KINDS: Final[dict[str, tuple[int, Step]]] = {
    "progress": (4, progress),
    "bodies": (8, bodies),
    "half bodies": (100, half_bodies),
    "sessions": (16, sessions),
    "connections": (2500, connections),
    "logins": (64, logins),
    "computing": (40, program("for (;;) {}", timeoutMs=5000)),
    "memory": (40, program("const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1))", timeoutMs=5000)),
    "outputs": (40, program("text('x'.repeat(900000))")),
    "programs": (8, program(_LARGE)),
    "hanging": (40, program(_CALL_MANY, timeoutMs=5000)),
    "suspended": (16, suspended),
    "cancels": (40, cancels),
    "lists": (64, lists),
    "results": (8, program("return (await MCP.wild.big({ size: 8_000_000 })).content.length")),
}
"""The workers of each kind, and what each of them repeats."""

_HALF: Final = b" " * (3 * MIB)

_WITHOUT_SESSION: Final = ("half bodies", "sessions", "connections", "logins")

_INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "floods", "version": "1"}}


def _head(wire: Wire, length: int) -> bytes:
    url = httpx2.URL(wire.url)
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"host: {url.host}:{url.port}",
        f"authorization: Bearer {wire.token}",
        "content-type: application/json",
        f"content-length: {length}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _connect(wire: Wire) -> anyio.abc.SocketStream:
    url = httpx2.URL(wire.url)
    return await anyio.connect_tcp(url.host, url.port or 80, local_host=ADDRESS)


async def flood(kind: str, url: str, token: str) -> None:
    workers, step = KINDS[kind]
    begun, all_begun = 0, anyio.Event()

    async def repeat(wire: Wire) -> None:
        nonlocal begun
        first = True
        while True:
            try:
                if wire.session is None and kind not in _WITHOUT_SESSION:
                    await wire.open()
                await step(wire)
            except (OSError, httpx2.HTTPError, anyio.BrokenResourceError, anyio.EndOfStream, ValueError, KeyError):
                await anyio.sleep(_PAUSE)
            if first:
                first, begun = False, begun + 1
                if begun == workers:
                    all_begun.set()

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    transport = httpx2.AsyncHTTPTransport(limits=limits, local_address=ADDRESS)
    async with httpx2.AsyncClient(timeout=60, transport=transport) as http, anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(repeat, Wire(http, url, token))
        with anyio.move_on_after(READY_SECONDS):
            await all_begun.wait()
        print("flooding", flush=True)


def main() -> None:
    import resource

    kind, url, token = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    anyio.run(flood, kind, url, token)


if __name__ == "__main__":
    main()
