"""The SDK's server over HTTP, which acts once for each call: `http_server.py PORT LEDGER WEATHER [--legacy] [--sse]`.

`--legacy` refuses the modern revision and keeps sessions, `--sse` offers nothing but the older HTTP+SSE transport.

WEATHER is a file whose words say what happens to POSTs, read for each of them: `fail STATUS[,STATUS...] SHARE SEED`
answers so many calls of a hundred with one of these statuses and does nothing else, `fail_all STATUS` every request;
`swallow STATUS` acts, and answers with that status. `how` of a call: `now`, `never`, `die` (acts, then ends).
"""

from __future__ import annotations

import argparse
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
parser.add_argument("weather", type=Path)
parser.add_argument("--legacy", action="store_true")
parser.add_argument("--sse", action="store_true")
given = parser.parse_args()
ledger = Ledger(given.ledger)


async def list_tools(context, params):
    return ListToolsResult(tools=[Tool(name="act", input_schema=SCHEMA)])


async def call_tool(context, params):
    arguments = params.arguments
    name, how = arguments["id"], arguments.get("how", "now")
    ledger.note(f"act {name}")
    if how == "die":
        os._exit(1)
    if how == "never":
        try:
            await anyio.sleep_forever()
        finally:
            ledger.note(f"cancelled {name}")
    return CallToolResult(content=[TextContent(type="text", text=name)])


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


async def entrance(scope, receive, send):
    if scope["type"] != "http" or scope["method"] != "POST":
        await app(scope, receive, send)
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
        ledger.note(f"refused {status}")
        await PlainTextResponse("no", status, {"retry-after": "1"})(scope, receive, send)
        return
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again():
        return waiting.pop() if waiting else await receive()

    async def lost(message):
        pass

    if words[0] == "swallow" and b'"tools/call"' in body:
        await app(scope, again, lost)
        ledger.note(f"refused {words[1]}")
        await PlainTextResponse("no", int(words[1]))(scope, again, send)
        return
    await app(scope, again, send)


class Listening(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("serving", flush=True)


Listening(uvicorn.Config(entrance, port=given.port, log_level="critical", backlog=1024)).run()
