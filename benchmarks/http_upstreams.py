"""Calls to servers over HTTP: what one costs, and how long a large answer holds up calls to another server.

    python benchmarks/http_upstreams.py

The server is a bare one of this file (`serve`), so that mostly the client's time is measured. Servers differ in whether
they answer as a plain body or as a stream of events, and in their protocol era.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from upstream_clients import UpstreamPool, UpstreamSpec

CALLS = 100
ROUNDS = 5
LARGE = 50_000_000
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("echo", "large", "rows")]
CAPABILITIES = {"tools": {}}


# the server


def answer(method: str, params: dict[str, Any], modern: bool) -> dict[str, Any]:
    """Return the result of a request, or its error."""
    match method:
        case "server/discover" if modern:
            return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        case "initialize" if not modern:
            info = {"name": "bare", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            text = str(params.get("arguments", {}).get("text"))
            if params["name"] == "large":
                text = "x" * LARGE
            if params["name"] == "rows":
                rows = [{"id": number, "name": f"row {number}"} for number in range(LARGE // 35)]
                return {"content": [], "structuredContent": {"rows": rows}}
            return {"content": [{"type": "text", "text": text}]}
    return {}


async def serve(port: int, *, modern: bool, stream: bool) -> None:
    """Serve on a port of the loopback interface until the process ends."""
    large: dict[str, bytes] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = head.decode().lower().split("\r\n")
            length = next((int(each.split(":")[1]) for each in fields if each.startswith("content-length:")), 0)
            message = json.loads(await reader.readexactly(length)) if length else {}
            if not head.startswith(b"POST") or "id" not in message:
                code = b"202 Accepted" if head.startswith(b"POST") else b"405 Method Not Allowed"
                writer.write(b"HTTP/1.1 " + code + b"\r\nContent-Length: 0\r\n\r\n")
                continue
            method, params = message["method"], message.get("params", {})
            name = params.get("name", "")
            if name not in large:
                result = json.dumps(answer(method, params, modern)).encode()
                if name in ("large", "rows"):
                    large[name] = result
            else:
                result = large[name]
            kind = b'"error":{"code":-32601,"message":"no"}' if result == b"{}" else b'"result":' + result
            body = b'{"jsonrpc":"2.0","id":%d,%s}' % (message["id"], kind)
            session = b"" if modern else b"Mcp-Session-Id: 1\r\n"
            if stream:
                event = b"event: message\r\ndata: " + body + b"\r\n\r\n"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%sTransfer-Encoding: chunked\r\n\r\n"
                    b"%x\r\n%s\r\n0\r\n\r\n" % (session, len(event), event)
                )
            else:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
                    % (session, len(body), body)
                )
            await writer.drain()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# the client


@asynccontextmanager
async def served(name: str, *flags: str) -> AsyncIterator[UpstreamSpec]:
    """Start a server; what to connect to."""
    process = await anyio.open_process([sys.executable, __file__, "serve", *flags], stderr=None)
    try:
        assert process.stdout is not None
        port = int((await process.stdout.receive()).split()[0])
        yield UpstreamSpec(name, transport="http", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        with anyio.CancelScope(shield=True):
            process.kill()
            await process.aclose()


async def in_turn(one: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        await one()


async def concurrently(one: Callable[[], Any]) -> None:
    await asyncio.gather(*[one() for _ in range(CALLS)])


async def calls(source: Any) -> None:
    """Print the cost of calls, one after the other and concurrent."""
    for name, shape in (("in turn", in_turn), ("concurrent", concurrently)):
        best: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            wall, processor = time.perf_counter(), time.process_time()
            await shape(lambda: source.call_tool("echo", {"text": "x"}))
            best.append((time.perf_counter() - wall, time.process_time() - processor))
        wall, processor = (min(each) * 1000 / CALLS for each in zip(*best, strict=True))
        print(f"    {CALLS} calls {name}: {wall:.2f} ms a call, {processor:.2f} ms of processor time", flush=True)


async def held_up(large: Any, other: Any, tool: str) -> None:
    """Print for how long the event loop, and calls to another server, wait while a large answer is read."""
    longest = slowest = busiest = 0.0
    over = False

    async def tick() -> None:
        nonlocal longest, busiest
        while not over:
            began, processor = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
            busiest = max(busiest, time.process_time() - processor)

    async def ping() -> None:
        nonlocal slowest
        while not over:
            began = time.perf_counter()
            await other.call_tool("echo", {"text": "x"})
            slowest = max(slowest, time.perf_counter() - began)

    tasks = [asyncio.ensure_future(tick()), asyncio.ensure_future(ping())]
    began = time.perf_counter()
    outcome = await large.call_tool(tool, {})
    took = time.perf_counter() - began
    assert not isinstance(outcome, Exception), outcome
    del outcome
    await asyncio.sleep(0.1)  # freeing it counts too
    over = True
    await asyncio.gather(*tasks)
    print(
        f"    {tool} ({LARGE // 1_000_000} MB): {took:.2f} s; the loop waited {longest * 1000:.0f} ms at most "
        f"(processor time: {busiest * 1000:.0f} ms), a call to another server {slowest * 1000:.0f} ms",
        flush=True,
    )


async def measure() -> None:
    for flags in ([], ["--stream"], ["--modern"], ["--modern", "--stream"]):
        async with AsyncExitStack() as stack:
            specs = [await stack.enter_async_context(served(name, *flags)) for name in ("one", "two")]
            pool = await stack.enter_async_context(UpstreamPool(specs))
            await pool.wait_settled(None, timeout=30)
            assert all(view.state == "ready" for view in pool.views()), pool.views()
            print(f"  {' '.join(flags) or 'legacy, plain bodies'}")
            await calls(pool.source("one"))
            for tool in ("large", "rows"):
                for _ in range(2):
                    await held_up(pool.source("one"), pool.source("two"), tool)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", default="measure", choices=["measure", "serve"])
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args()
    if options.what == "serve":
        asyncio.run(serve(0, modern=options.modern, stream=options.stream))
        return
    asyncio.run(measure())


if __name__ == "__main__":
    main()
