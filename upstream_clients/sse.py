"""The older HTTP+SSE transport: requests go out as POSTs, all that comes back is on one stream of events.

In place of the SDK's, which takes events of at most 1 MiB, and ends the connection at a larger one.
"""

from __future__ import annotations

import math
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage

from upstream_clients.events import read_events
from upstream_clients.line_messages import MAX_MESSAGE_BYTES, read_line
from upstream_clients.sdk_streams import to_sdk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from upstream_clients.sdk_streams import SdkItem


@asynccontextmanager
async def open_events(
    url: str, client: httpx2.AsyncClient
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[SdkItem], MemoryObjectSendStream[SessionMessage]]]:
    """Yield the streams of what the server says and what is said to it; `client` turns failures of POSTs into answers.

    Raises:
        httpx2.HTTPError: no stream of events.
        ValueError: the server names another host for its POSTs, to which the headers must not go.
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
                                await heard.send(to_sdk(await read_line(event.data)))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.TransportError, httpx2.SSEError):
                    pass  # the connection ends; an answer of any size is not worth the memory
            named.set()

        async def post(message: SessionMessage) -> None:
            body = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            await request_within_origin(client, "POST", endpoint, json=body)

        async with heard, incoming, outgoing, written, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await named.wait()
            if endpoint and urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                raise ValueError(f"the server at {urlsplit(url).netloc} sends its clients on to another host")

            async def write() -> None:
                # One after the other, for order matters at the start; the answers do not come here.
                async for message in written:
                    await post(message)

            tasks.start_soon(write)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
