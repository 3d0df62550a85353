"""Calls of an HTTP API through its OpenAPI document, compared with the same requests made with httpx2.

    python benchmarks/run.py openapi

The API is a bare server of this file (`serve`), so that mostly the client's time is measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client.client import Client
from measure import ours, report

CALLS = 100
ROUNDS = 50
BAR = 1.3

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "tags": {"type": "array"}},
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "A pet.", "content": {"application/json": {"schema": PET}}}},
            }
        }
    },
}
ANSWER = json.dumps({"id": 7, "name": "Rex", "tags": ["dog", "small", "brown"]}).encode()

SEQUENTIAL = "for (let i = 0; i < %d; i++) await MCP.pets.getPet({ id: 7 }); return 1"
PARALLEL = "await Promise.all(Array.from({ length: %d }, () => MCP.pets.getPet({ id: 7 }))); return 1"
ONE = "return unwrap(await MCP.pets.getPet({ id: 7 })).id"


async def serve() -> None:
    """Answer every request on a port of the loopback interface with one pet, until the process ends."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(head + ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """Start the API. Yield its address."""
    process = await anyio.open_process([sys.executable, __file__, "serve"], stderr=None)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int((await process.stdout.receive()).split()[0])}"
    finally:
        with anyio.CancelScope(shield=True):
            process.kill()
            await process.aclose()


async def calls(rounds: int = ROUNDS, count: int = CALLS) -> list[tuple[str, float, float, float]]:
    """Return the rows: a name, the ratio, and the milliseconds of ours and of httpx2. `count`: calls of a program."""
    with tempfile.TemporaryDirectory() as folder:
        async with served() as url:
            document, config = Path(folder) / "pets.json", Path(folder) / "codemode-mcp.json"
            document.write_text(json.dumps(DOCUMENT))
            entry = {"openapi": str(document), "baseUrl": url, "maxConcurrentCalls": count}
            config.write_text(json.dumps({"mcpServers": {"pets": entry}}))
            async with Client(ours(config)) as client, httpx2.AsyncClient() as http:

                async def program(code: str) -> None:
                    result = await client.call_tool("exec", {"code": code})
                    assert not result.is_error, result

                async def get() -> None:
                    assert (await http.get(f"{url}/pets/7", headers={"Accept": "application/json"})).json()["id"] == 7

                async def in_turn() -> None:
                    for _ in range(count):
                        await get()

                async def together() -> None:
                    await asyncio.gather(*[get() for _ in range(count)])

                return [
                    (name, *await _compare(lambda code=code: program(code), other, rounds))  # type: ignore[misc]
                    for name, code, other in (
                        (f"{count} calls of an API in sequence, to the same by httpx2", SEQUENTIAL % count, in_turn),
                        (f"{count} calls of an API in parallel, to the same by httpx2", PARALLEL % count, together),
                        ("one exec with one call of an API, to one request by httpx2", ONE, get),
                    )
                ]


async def _compare(
    one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]], rounds: int
) -> tuple[float, float, float]:
    for work in (one, other):
        await work()
    times = [(await _timed(one), await _timed(other)) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in times)
    return (ratio, *(statistics.median(pair[i] for pair in times) * 1000 for i in (0, 1)))  # type: ignore[return-value]


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def openapi() -> None:
    """Print the rows. An `exec` has no bar here: it is a request of its own, with a program to run."""
    for name, ratio, ours_ms, http_ms in await calls():
        figure = f"{ratio:.2f}x ({ours_ms:.1f} ms to {http_ms:.1f} ms)"
        has_bar = not name.startswith("one exec")
        report(name, figure, f"<= {BAR}x" if has_bar else "none", not has_bar or ratio <= BAR)


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["serve"] else openapi())
