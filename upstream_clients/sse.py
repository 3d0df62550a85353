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
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest

from upstream_clients.events import read_events
from upstream_clients.line_messages import MAX_MESSAGE_BYTES, read_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from upstream_clients.sdk_streams import SdkItem


@asynccontextmanager
async def open_events(
    url: str, client: httpx2.AsyncClient
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[SdkItem], MemoryObjectSendStream[SessionMessage]]]:
    """Yield the streams of messages from and to the server. `client` turns failures of POSTs into answers.

    Raises:
        httpx2.HTTPError: the URL has no stream of events.
        ValueError: the server names another host for POSTs. That host must not get our headers.
    """
    endpoint = ""
    named = anyio.Event()

    async with sse_within_origin(client, url, max_event_size=MAX_MESSAGE_BYTES) as events:
        events.response.raise_for_status()
        heard, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, written = anyio.create_memory_object_stream[SessionMessage](math.inf)

        async def read() -> None:
            nonlocal endpoint
            async with heard:
                try:
                    async with aclosing(read_events(events, MAX_MESSAGE_BYTES)) as arriving:
                        async for event in arriving:
                            if event.name == "endpoint":
                                endpoint = urljoin(url, str(event.data, "utf-8", "replace"))
                                named.set()
                            elif event.name == "message" and event.data:
                                await heard.send(await read_line(event.data))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.TransportError, httpx2.SSEError):
                    pass  # the connection ends, also at an event that is too large
            named.set()  # also without an endpoint, so that the wait below ends

        async def post(message: JSONRPCMessage) -> None:
            body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            response = await request_within_origin(client, "POST", endpoint, json=body)
            if isinstance(message, JSONRPCRequest) and response.status_code >= HTTPStatus.BAD_REQUEST:
                # No answer comes on the stream. The body is one: `client` has made it.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await heard.send(await read_line(response.content, message.id))

        async with heard, incoming, outgoing, written, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await named.wait()
            if endpoint and urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                raise ValueError(f"the server at {urlsplit(url).netloc} refers its clients to another host")

            async def write() -> None:
                # One after the other, since the order matters during the handshake. This costs little: a POST ends
                # before its answer, which comes on the other stream.
                async for message in written:
                    await post(message.message)

            tasks.start_soon(write)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
