"""The SDK's server over HTTP, acting once for each call: `http_server.py PORT LEDGER NAME WEATHER [--legacy] [--sse]`.

`--legacy` refuses the modern revision and keeps sessions, `--sse` offers nothing but the older HTTP+SSE transport.

WEATHER is a file whose words say what happens to POSTs, read for each of them: `fail STATUS[,STATUS...] SHARE SEED`
answers so many calls of a hundred with one of these statuses and does nothing else, `fail_all STATUS` every request;
`swallow STATUS` acts, and answers with that status. `how` of a call: `now`, `never`. The ledger also has every
`stream` that a client keeps open, and its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import zlib
from pathlib import Path

import anyio
import uvicorn
from ledger import SCHEMA, Ledger
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("ledger")
parser.add_argument("name")
parser.add_argument("weather", type=Path)
parser.add_argument("--legacy", action="store_true")
parser.add_argument("--sse", action="store_true")
given = parser.parse_args()
ledger = Ledger(given.ledger)
ledger.write(what="started", server=given.name)
acts = 0


async def list_tools(context, params):
    return ListToolsResult(tools=[Tool(name="append", input_schema=SCHEMA)])


async def call_tool(context, params):
    global acts
    acts += 1
    key, serial = params.arguments["key"], f"{os.getpid()}-{acts}"
    ledger.write(what="act", server=given.name, tool=params.name, key=key, serial=serial)
    if params.arguments.get("how") == "never":
        try:
            await anyio.sleep_forever()
        finally:
            ledger.write(what="cancelled", server=given.name, key=key)
    return CallToolResult(content=[TextContent(type="text", text=json.dumps({"key": key, "serial": serial}))])


def make_server() -> Server:
    return Server("ledger", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


def sse_app() -> Starlette:
    transport = SseServerTransport("/messages/")

    async def connect(request):
        server = make_server()
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(
        routes=[Route("/mcp", connect, methods=["GET"]), Mount("/messages/", transport.handle_post_message)]
    )


app = sse_app() if given.sse else make_server().streamable_http_app()


def weather() -> list[str]:
    try:
        return given.weather.read_text("utf-8").split()
    except OSError:
        return []


def refused(words: list[str], body: bytes) -> int | None:
    """Return the error status for a POST that is refused: always the same for the same request."""
    if words[0] == "fail_all":
        return int(words[1])
    if words[0] != "fail" or b'"tools/call"' not in body:
        return None
    statuses, share, seed = words[1:]
    lot = random.Random(int(seed) ^ zlib.crc32(body))
    return int(lot.choice(statuses.split(","))) if lot.random() * 100 < int(share) else None


async def stream(scope, receive, send):
    """Write down how long a client keeps a stream open."""
    is_open = False

    async def watched(message):
        nonlocal is_open
        await send(message)
        if scope["type"] == "http" and message.get("status") == 200 and not is_open:
            is_open = True
            ledger.write(what="stream", server=given.name, more=1)

    try:
        await app(scope, receive, watched)
    finally:
        if is_open:
            ledger.write(what="stream", server=given.name, more=-1)


async def entrance(scope, receive, send):
    if scope["type"] != "http" or scope["method"] != "POST":
        await stream(scope, receive, send)
        return
    headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
    if given.legacy and headers.get("mcp-protocol-version") == "2026-07-28":
        error = {"code": -32600, "message": "Bad Request: Unsupported protocol version"}
        await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
        return
    words = weather()
    if not words:
        await app(scope, receive, send)
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    if (status := refused(words, body)) is not None:
        await PlainTextResponse("no", status, {"retry-after": "1"})(scope, receive, send)
        return
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again():
        return waiting.pop() if waiting else await receive()

    async def lost(message):
        pass

    if words[0] == "swallow" and b'"tools/call"' in body:
        await app(scope, again, lost)
        await PlainTextResponse("no", int(words[1]))(scope, again, send)
        return
    await app(scope, again, send)


class Listening(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("serving", flush=True)


# A process that was stopped for longer would close connections with requests that it has not read.
Listening(uvicorn.Config(entrance, port=given.port, log_level="critical", backlog=1024, timeout_keep_alive=30)).run()
