"""Streamable HTTP: the SDK's transport, and direct requests past its streams.

There are two differences to the SDK's transport. Large answers are read in a thread, by `line_messages.read_line`. And
`DirectPosts` sends a request with one task, and reads its answer from the bytes of the response, without a model or a
stream in between.

A direct request is sent once. The two common answers are read here: a plain body with the result, or a stream of events
whose first message is the result. In three cases the answer goes through the dispatcher instead:

- Any other response. The SDK's transport gets it unchanged, so the request need not be sent again.
- A stream that has any message before the result. From that message on, all its messages go to the dispatcher.
- An answer that comes while the dispatcher has unread messages. One of them may be a question of the same call or an
  announcement of changed tools, which an answer must not overtake.

A request is given up as in the SDK: the connection to a modern server is closed; a legacy server gets
`notifications/cancelled`, and its response is read to the end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx2
from mcp.client.streamable_http import RequestContext, StreamableHTTPTransport
from mcp.shared._context_streams import create_context_streams
from mcp.shared._httpx_utils import stream_within_origin
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from upstream_clients.direct import THREAD_BYTES, EncodedRequests, read_answer
from upstream_clients.events import EventBuffer, is_event_stream
from upstream_clients.http import WANTS_ANSWER
from upstream_clients.line_messages import read_line
from upstream_clients.sdk_streams import to_sdk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import TaskGroup
    from mcp.client.streamable_http import StreamWriter
    from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream

    from upstream_clients.direct import Answer
    from upstream_clients.events import Event
    from upstream_clients.sdk_streams import SdkItem

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.25
"""Seconds to read the rest of a stream of events after the answer. Only a connection whose response was read to its end
can be used for the next request."""


class StreamableTransport(StreamableHTTPTransport):
    """The SDK's transport, changed to read large messages in a thread."""

    def __init__(self, url: str, limit: int) -> None:
        """`limit`: maximum size of one event in bytes."""
        super().__init__(url, max_sse_event_size=limit)
        self._limit = limit

    async def _handle_json_response(
        self, response: httpx2.Response, read_stream_writer: StreamWriter, *, request_id: Any
    ) -> None:
        try:
            chunks = await _chunks(response)
        except httpx2.StreamError as error:
            await self.fail(read_stream_writer, request_id, f"Failed to parse JSON response: {error}")
            return
        await self.take_body(chunks, read_stream_writer, request_id)

    async def take_body(self, chunks: list[bytes], read_stream_writer: StreamWriter, request_id: Any) -> None:
        """Take a plain body, which is the answer to a request."""
        if _size(chunks) < THREAD_BYTES:
            response = httpx2.Response(HTTPStatus.OK, content=b"".join(chunks))
            await super()._handle_json_response(response, read_stream_writer, request_id=request_id)
            return
        item = to_sdk(await read_line(await anyio.to_thread.run_sync(b"".join, chunks)))
        if isinstance(item, Exception):
            await self.fail(read_stream_writer, request_id, f"Failed to parse JSON response: {item}")
        else:
            await read_stream_writer.send(item)

    async def fail(self, read_stream_writer: StreamWriter, request_id: Any, why: str) -> None:
        """Fail a request whose answer cannot be read."""
        await self._resolve_abandoned_request(read_stream_writer, request_id, why, code=PARSE_ERROR)

    async def _handle_sse_event(
        self,
        sse: httpx2.ServerSentEvent,
        read_stream_writer: StreamWriter,
        original_request_id: Any = None,
        resumption_callback: Any = None,
    ) -> bool:
        if sse.event != "message" or len(sse.data) < THREAD_BYTES:
            return await super()._handle_sse_event(sse, read_stream_writer, original_request_id, resumption_callback)
        data = sse.data.encode("utf-8", "replace")
        complete = await self._take_large(data, read_stream_writer, original_request_id)
        if sse.id and resumption_callback:
            await resumption_callback(sse.id)
        return complete

    async def _take_large(self, data: bytes | memoryview, read_stream_writer: StreamWriter, request_id: Any) -> bool:
        """Handle a large event, as `_handle_sse_event` handles others."""
        item = to_sdk(await read_line(data))
        try:
            if not isinstance(item, Exception):
                is_answer = isinstance(item.message, JSONRPCResponse | JSONRPCError)
                # As in the SDK: a stream answers only its own request, so a wrong id is corrected.
                if is_answer and request_id is not None:
                    item.message.id = request_id  # type: ignore[union-attr]  # see `is_answer`
                await read_stream_writer.send(item)
                return is_answer
            if request_id is None:
                await read_stream_writer.send(item)
                return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return request_id is not None
        await self.fail(read_stream_writer, request_id, f"Failed to parse SSE message: {item}")
        return True

    async def _handle_sse_response(self, response: httpx2.Response, ctx: RequestContext) -> None:
        await self.follow(response, ctx, None)

    async def follow(self, response: httpx2.Response, ctx: RequestContext, take: _Take | None) -> None:
        """Read the stream of events that answers a request, and open it again if it breaks.

        Args:
            take: gets each message first, until it returns False.
        """
        if not is_event_stream(response):
            await super()._handle_sse_response(response, ctx)
            return
        assert isinstance(ctx.session_message.message, JSONRPCRequest)
        request_id = ctx.session_message.message.id
        callback = ctx.metadata.on_resumption_token_update if ctx.metadata else None
        identity, retry = "", None
        buffer = EventBuffer(self._limit)

        async def is_answered(event: Event) -> bool:
            nonlocal identity, retry, take
            identity = event.identity or identity
            retry = event.retry if event.retry is not None else retry
            if event.name == "message" and event.data and take is not None:
                if await take(event.data):
                    return True
                take = None  # later messages must not overtake this one
            if event.name != "message" or len(event.data) < THREAD_BYTES:
                data = str(event.data, "utf-8", "replace")
                sse = httpx2.ServerSentEvent(event.name, data, event.identity, event.retry)
                return await self._handle_sse_event(sse, ctx.read_stream_writer, request_id, callback)
            complete = await self._take_large(event.data, ctx.read_stream_writer, request_id)
            if event.identity and callback:
                await callback(event.identity)
            return complete

        try:
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    for event in buffer.feed(chunk):
                        if await is_answered(event):
                            await _drain(chunks)
                            return
            for event in buffer.close():
                if await is_answered(event):
                    return
        except httpx2.SSEError as error:
            await self._resolve_abandoned_request(ctx.read_stream_writer, request_id, f"SSE stream failed: {error}")
            return
        except Exception:
            logger.debug("a stream of events ended", exc_info=True)
        if identity:
            await self._handle_reconnection(ctx, identity, retry)
        else:
            why = "SSE stream ended without a response"
            await self._resolve_abandoned_request(ctx.read_stream_writer, request_id, why)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a response after the answer, if it ends soon."""
    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx2.HTTPError, httpx2.StreamError):
        async for _ in chunks:
            pass


_Take = Callable[[bytes | memoryview], Awaitable[bool]]
"""A function that takes a message that is an answer in a common form. It returns False for any other message."""


@dataclass(slots=True, eq=False)
class _Post:
    """One request and its response.

    Attributes:
        begun: True once the request may have reached the server.
    """

    request_id: int
    body: bytes
    headers: Mapping[str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: bool = False


class DirectPosts(EncodedRequests):
    """The direct requests in flight to a server over streamable HTTP."""

    def __init__(
        self, transport: StreamableTransport, client: httpx2.AsyncClient, heard: StreamWriter, tasks: TaskGroup
    ) -> None:
        """`heard` takes messages for the dispatcher. `tasks` is the task group of the connection."""
        super().__init__()
        self.tell_cancelled: Callable[[int], None] = lambda _: None
        """Function that tells a legacy server that a request was given up. The owner of the dispatcher sets it."""
        self._transport = transport
        self._client = client
        self._heard = heard
        self._tasks = tasks
        self._posts: dict[int, _Post] = {}

    def _begin(self, request_id: int, body: bytes, headers: Mapping[str, str]) -> None:
        post = self._posts[request_id] = _Post(request_id, body, headers)
        self._tasks.start_soon(self._exchange, post)

    def _give_up(self, request_id: int, body: bytes) -> None:
        post = self._posts.get(request_id)
        if post is None:
            return
        # A legacy server need not stop when the connection is closed, so it is told, and its response is still read.
        if not post.begun or post.headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            post.scope.cancel()
        else:
            self.tell_cancelled(request_id)

    async def _exchange(self, post: _Post) -> None:
        """Send one request and read its response."""
        try:
            with post.scope:
                if post.request_id not in self._pending:
                    return  # given up before it was sent
                post.begun = True
                headers = {**self._transport._prepare_headers(), **post.headers}
                async with stream_within_origin(
                    self._client,
                    "POST",
                    self._transport.url,
                    content=post.body,
                    headers=headers,
                    extensions={WANTS_ANSWER: True},
                ) as response:
                    await self._read(post, response)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("an answer came after the connection was closed")
        finally:
            del self._posts[post.request_id]

    async def _read(self, post: _Post, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").lower()
        usual = response.is_success and response.status_code != HTTPStatus.ACCEPTED
        if usual and kind.startswith("application/json"):
            await self._read_body(post, response)
        elif usual and kind.startswith("text/event-stream"):

            async def take(message: bytes | memoryview) -> bool:
                read = await _answer([message])
                # The id in the answer is ignored: a stream answers only its own request.
                return read is not None and self._take(post.request_id, read[1])

            await self._transport.follow(response, self._context(post, self._client), take)
        else:
            await self._transport._handle_post_request(self._context(post, _ReceivedResponse(response)))

    async def _read_body(self, post: _Post, response: httpx2.Response) -> None:
        try:
            chunks = await _chunks(response)
        except httpx2.StreamError as error:
            await self._transport.fail(self._heard, post.request_id, f"Failed to parse JSON response: {error}")
            return
        read = await _answer(chunks)
        if read is None or read[0] != post.request_id or not self._take(post.request_id, read[1]):
            await self._transport.take_body(chunks, self._heard, post.request_id)

    def _take(self, request_id: int, answer: Answer) -> bool:
        """Give an answer to its request.

        Return False if the request was given up, or the dispatcher has unread messages.
        """
        # The dispatcher waits in `receive` only after it has handled all earlier messages.
        if request_id not in self._pending or not self._heard._inner.statistics().tasks_waiting_receive:
            return False
        self.count += 1
        try:
            self.resolve(request_id, answer)
        except Exception:
            logger.exception("taking the answer to a request failed")
        return True

    def _context(self, post: _Post, client: Any) -> RequestContext:
        """Return the SDK's record of a request that is already sent."""
        request = JSONRPCRequest(jsonrpc="2.0", id=post.request_id, method="tools/call")
        return RequestContext(client, self._transport.session_id, SessionMessage(request), None, self._heard)


class _ReceivedResponse:
    """A client for the SDK's transport that sends nothing, and returns a response that was received before."""

    max_redirects = 0

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def build_request(self, *_: Any, **__: Any) -> httpx2.Request:
        return self._response.request

    async def send(self, _: httpx2.Request, **__: Any) -> httpx2.Response:
        return self._response


async def _chunks(response: httpx2.Response) -> list[bytes]:
    """Return the chunks of a body. They are not joined here, since joining large ones takes long."""
    async with aclosing(response.aiter_bytes()) as chunks:
        return [chunk async for chunk in chunks]


def _size(chunks: Sequence[bytes | memoryview]) -> int:
    return sum(map(len, chunks))


async def _answer(chunks: Sequence[bytes | memoryview]) -> tuple[int, Answer] | None:
    """Read an answer, in a thread if it takes long."""
    if _size(chunks) < THREAD_BYTES:
        return _read_chunks(chunks)
    return await anyio.to_thread.run_sync(_read_chunks, chunks)


def _read_chunks(chunks: Sequence[bytes | memoryview]) -> tuple[int, Answer] | None:
    return read_answer(chunks[0] if len(chunks) == 1 else b"".join(chunks))


@asynccontextmanager
async def open_streamable(
    url: str, client: httpx2.AsyncClient, limit: int
) -> AsyncIterator[tuple[ContextReceiveStream[SdkItem], ContextSendStream[SessionMessage], DirectPosts]]:
    """Open the streams of messages from and to the server, and direct requests.

    Leaving ends the session and the requests.

    Args:
        limit: maximum size of one event in bytes.
    """
    transport = StreamableTransport(url, limit)
    heard, incoming = create_context_streams[Any](0)
    outgoing, written = create_context_streams[SessionMessage](0)
    async with heard, incoming, outgoing, written, anyio.create_task_group() as tasks:

        def open_get_stream() -> None:
            tasks.start_soon(transport.handle_get_stream, client, heard)

        tasks.start_soon(transport.post_writer, client, written, heard, outgoing, open_get_stream, tasks)
        try:
            yield incoming, outgoing, DirectPosts(transport, client, heard, tasks)
        finally:
            if transport.session_id:
                await transport.terminate_session(client)
            tasks.cancel_scope.cancel()
