"""The older HTTP+SSE transport: messages to the server are POSTs, its own messages come on one stream of events.

It replaces the SDK's, which ends the connection at an event of more than 1 MiB.
"""

from __future__ import annotations

import math
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from upstream_clients.events import read_events
from upstream_clients.jsonrpc import form_of
from upstream_clients.line_messages import MAX_MESSAGE_BYTES, read_line
from upstream_clients.stdio import StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from upstream_clients.http import McpHttpClient
    from upstream_clients.jsonrpc import Message

_HEADERS = {"accept": "text/event-stream", "cache-control": "no-store"}


@asynccontextmanager
async def open_events(url: str, client: McpHttpClient) -> AsyncIterator[StreamTransport]:
    """Yield the transport to a server. `client` turns failures of POSTs into answers.

    Raises:
        httpx2.HTTPError: the URL has no stream of events.
        ValueError: the server names another host for POSTs. That host must not get our headers.
    """
    endpoint = ""
    named = anyio.Event()

    async with client.exchange("GET", url, headers=_HEADERS) as response:
        response.raise_for_status()
        heard, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, written = anyio.create_memory_object_stream[Any](math.inf)

        async def read() -> None:
            nonlocal endpoint
            async with heard:
                try:
                    async with aclosing(read_events(response, MAX_MESSAGE_BYTES)) as arriving:
                        async for event in arriving:
                            if event.name == "endpoint":
                                endpoint = urljoin(url, str(event.data, "utf-8", "replace"))
                                named.set()
                            elif event.name == "message" and event.data:
                                await heard.send(await read_line(event.data))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.TransportError, httpx2.SSEError):
                    pass  # the connection ends, also at an event that is too large
            named.set()  # also without an endpoint, so that the wait below ends

        async def post(message: Message) -> None:
            async with client.exchange("POST", endpoint, json=message) as answer:
                body = await answer.aread()
            if form_of(message) == "request" and answer.status_code >= HTTPStatus.BAD_REQUEST:
                # No answer comes on the stream. The body is one: `client` has made it.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await heard.send(await read_line(body, message["id"]))

        async with heard, incoming, outgoing, written, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await named.wait()
            if endpoint and urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                raise ValueError(f"the server at {urlsplit(url).netloc} refers its clients to another host")

            async def write() -> None:
                # One after the other, since the order matters during the handshake. This costs little: a POST ends
                # before its answer, which comes on the other stream.
                async for message in written:
                    await post(message)

            tasks.start_soon(write)
            yield StreamTransport(incoming, outgoing)
            tasks.cancel_scope.cancel()
