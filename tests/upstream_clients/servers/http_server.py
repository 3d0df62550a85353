"""The SDK server over HTTP: `http_server.py PORT [--legacy] [--sse] [--json] [--no-post] [--token TOKEN]`.

Prints a line when it serves. A call of the tool `http_NNN` is answered with that HTTP status.

`--legacy` refuses the modern revision; `--sse` offers nothing but the older HTTP+SSE transport; `--json` answers in
plain bodies and not in event streams; `--no-post` refuses what it should be asked.
"""

from __future__ import annotations

import argparse

import uvicorn
from mcp.server.sse import SseServerTransport
from sdk_app import make_server
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--legacy", action="store_true")
parser.add_argument("--sse", action="store_true")
parser.add_argument("--json", action="store_true")
parser.add_argument("--no-post", action="store_true")
parser.add_argument("--token")
parser.add_argument("--ttl", help="read by sdk_app")
parser.add_argument("--log", action="store_true", help="read by sdk_app")
arguments = parser.parse_args()


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


app = sse_app() if arguments.sse else make_server().streamable_http_app(json_response=arguments.json)


async def gatekeeper(scope, receive, send):
    if scope["type"] == "http":
        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        if arguments.token and headers.get("authorization") != f"Bearer {arguments.token}":
            await PlainTextResponse("go away", 401)(scope, receive, send)
            return
        if arguments.no_post and scope["method"] == "POST":
            await PlainTextResponse("go away", 403)(scope, receive, send)
            return
        if (name := headers.get("mcp-name", "")).startswith("http_"):
            await PlainTextResponse("here you are", int(name.removeprefix("http_")))(scope, receive, send)
            return
        if arguments.legacy and headers.get("mcp-protocol-version") == "2026-07-28":
            error = {"code": -32600, "message": "Bad Request: Unsupported protocol version"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
            return
    await app(scope, receive, send)


class Server(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("serving", flush=True)


Server(uvicorn.Config(gatekeeper, port=arguments.port, log_level="critical")).run()
