"""An HTTP API on the loopback interface whose answers a test writes byte by byte, and its OpenAPI document."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from upstream_clients import UpstreamPool, UpstreamSpec
from upstream_clients.tools import ToolOutcome

JSON = "application/json"
CASE = {"name": "case", "in": "path", "required": True, "schema": {"type": "string"}}
_BODY = {"content": {JSON: {"schema": {"type": "object", "properties": {"text": {"type": "string"}}}}}}
_ANSWER = {"200": {"description": "The answer.", "content": {JSON: {"schema": {}}}}}


def operation(name: str, **more: Any) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": f"The operation {name}.",
        "parameters": [CASE],
        "responses": _ANSWER,
        **more,
    }


DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Loopback", "version": "1"},
    "paths": {
        "/{case}": {
            "get": operation("fetch"),
            "post": operation("send", requestBody=_BODY),
            "put": operation("replace", requestBody=_BODY),
        }
    },
}
"""A document without an address. Each operation gets the path of a scripted answer, and `fetch` is a GET."""


@dataclass
class Received:
    """One request as it came.

    Attributes:
        connection: number of the connection, in the order in which clients made them.
        left: set when the client has closed the connection.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    writer: asyncio.StreamWriter
    left: anyio.Event = field(default_factory=anyio.Event)


Reply = bytes | Callable[[Received], Awaitable[None]]
"""The bytes of an answer, or a function that writes them."""


def reply(status: str = "200 OK", body: object = b"", kind: str = JSON, *headers: str) -> bytes:
    """Return a whole answer. A body that is not bytes is written as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(fields).encode() + data


class LoopbackApi:
    """The server. `answers` has the replies for each path; the last one of a list is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, Reply | list[Reply]] = {}
        self.received: list[Received] = []
        self.port = 0
        self._connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def requests(self, path: str) -> list[Received]:
        """Return the requests for a path so far."""
        return [each for each in self.received if each.target.partition("?")[0] == path]

    def script(self, path: str, *replies: Reply) -> None:
        """Answer requests for a path with these replies, one after the other."""
        self.answers[path] = list(replies)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        current: list[Received] = []
        try:
            await self._serve(reader, writer, self._connections, current)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for each in current:
                each.left.set()
            with suppress(ConnectionError):
                writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, current: list[Received]
    ) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = first.split(" ")
            request = Received(method, target, headers, body, number, writer)
            self.received.append(request)
            current.append(request)
            scripted = self.answers.get(target.partition("?")[0], reply("404 Not Found", {"error": "no such path"}))
            if isinstance(scripted, list):
                scripted = scripted.pop(0) if len(scripted) > 1 else scripted[0]
            if isinstance(scripted, bytes):
                writer.write(scripted)
            else:
                answering = asyncio.ensure_future(scripted(request))
                # The end of the connection is noticed while the answer is being written.
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not answering.done():
                    answering.cancel()
                    return
                answering.result()
                return
            await writer.drain()


@asynccontextmanager
async def loopback_api(tls: ssl.SSLContext | None = None) -> AsyncIterator[LoopbackApi]:
    """Serve for the duration of the context."""
    api = LoopbackApi()
    server = await asyncio.start_server(api._connected, "127.0.0.1", 0, limit=1 << 24, ssl=tls)
    api.port = server.sockets[0].getsockname()[1]
    try:
        yield api
    finally:
        server.close()


def write_document(folder: Path, **more: Any) -> str:
    """Return the path of the document, with these members added."""
    path = folder / "api.json"
    path.write_text(json.dumps({**DOCUMENT, **more}), "utf-8")
    return str(path)


def spec_of(document: str, **more: Any) -> UpstreamSpec:
    return UpstreamSpec("api", transport="openapi", document=document, **more)


@asynccontextmanager
async def connected(spec: UpstreamSpec, **options: Any) -> AsyncIterator[UpstreamPool]:
    """Open a pool with one API that is ready."""
    async with UpstreamPool([spec], **options) as pool:
        await pool.wait_settled(None, timeout=30)
        view = pool.source("api").view()
        assert view.state == "ready", view
        yield pool


async def call(pool: UpstreamPool, tool: str, case: str, **arguments: Any) -> ToolOutcome:
    """Call an operation as programs do."""
    timeout = arguments.pop("timeout", 20)
    return await pool.source("api").call_tool(tool, {"case": case, **arguments}, timeout=timeout)
