"""Streamable HTTP: the SDK's transport, and direct requests past its streams.

There are two differences to the SDK's transport. Messages are read by `line_messages.read_line`, without models: large
ones in a thread, and an answer belongs to its POST, whatever its id. A message of a stream that is none of JSON-RPC is
logged and passed over. And `DirectPosts` sends a request with one task, and reads its answer from the bytes of the
response, without a stream in between.

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
from mcp_types import JSONRPCRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from upstream_clients.direct import THREAD_BYTES, EncodedRequests, read_answer
from upstream_clients.error_mapping import HttpFault, is_session_lost
from upstream_clients.events import EventBuffer, is_event_stream
from upstream_clients.http import WANTS_ANSWER
from upstream_clients.jsonrpc import INTERNAL_ERROR, JsonRpcError
from upstream_clients.line_messages import read_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import TaskGroup
    from mcp.client.streamable_http import StreamWriter
    from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream

    from upstream_clients.direct import Answer
    from upstream_clients.events import Event
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.line_messages import Incoming
    from upstream_clients.sdk_streams import SdkItem

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.25
"""Seconds to read the rest of a stream of events after the answer. Only a connection whose response was read to its end
can be used for the next request."""


class StreamableTransport(StreamableHTTPTransport):
    """The SDK's transport, changed to read messages as those of other transports are read, large ones in a thread."""

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
            await self.fail(read_stream_writer, request_id, f"its answer cannot be read: {error}")
            return
        await self.take_body(chunks, read_stream_writer, request_id)

    async def take_body(self, chunks: list[bytes], read_stream_writer: StreamWriter, request_id: Any) -> None:
        """Take a plain body, which is the answer to a request."""
        body = await anyio.to_thread.run_sync(b"".join, chunks) if _size(chunks) >= THREAD_BYTES else b"".join(chunks)
        item = await self._take(body, read_stream_writer, request_id)
        if not _is_answer(item):
            said = _text_of(item)
            why = f"its answer is not one of JSON-RPC: {said}" if said else "its answer is empty"
            await self.fail(read_stream_writer, request_id, why)

    async def fail(self, read_stream_writer: StreamWriter, request_id: Any, why: str) -> None:
        """Fail a request that gets no answer."""
        error = JsonRpcError(INTERNAL_ERROR, why, HttpFault(None, sent=True, usable=True).to_data())
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await read_stream_writer.send({"jsonrpc": "2.0", "id": request_id, "error": error.as_json()})  # type: ignore[arg-type]

    async def _resolve_abandoned_request(
        self, read_stream_writer: StreamWriter, request_id: Any, message: str, *, code: int = 0
    ) -> None:
        await self.fail(read_stream_writer, request_id, message)

    async def _handle_sse_event(
        self,
        sse: httpx2.ServerSentEvent,
        read_stream_writer: StreamWriter,
        original_request_id: Any = None,
        resumption_callback: Any = None,
    ) -> bool:
        is_answered = False
        if sse.event == "message" and sse.data:
            data = sse.data.encode("utf-8", "replace")
            is_answered = _is_answer(await self._take(data, read_stream_writer, original_request_id))
        if sse.id and resumption_callback:
            await resumption_callback(sse.id)
        return is_answered and original_request_id is not None

    async def _take(
        self,
        data: bytes | memoryview,
        read_stream_writer: StreamWriter,
        request_id: RequestId | None,
        *,
        has_begun: bool = False,
    ) -> Incoming:
        """Take the text of a message, and return the message.

        What is no message is passed on, too: the dispatcher logs it, and counts it.

        Args:
            has_begun: True if the server has sent messages about the request before.
        """
        item = await read_line(data, request_id)
        if has_begun and isinstance(item, dict) and "error" in item:
            error = JsonRpcError(item["error"]["code"], item["error"]["message"], item["error"].get("data"))
            if is_session_lost(error, in_session=True):  # the server may have acted before it lost the session
                item["error"]["data"] = HttpFault(HTTPStatus.OK, sent=True, session_lost=True).to_data()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection is being closed
            await read_stream_writer.send(item)  # type: ignore[arg-type]  # see `sdk_streams.SdkItem`
        return item

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
        identity, retry, last, has_begun = "", None, "", False
        buffer = EventBuffer(self._limit)

        async def is_answered(event: Event) -> bool:
            nonlocal identity, retry, last, has_begun, take
            identity = event.identity or identity
            retry = event.retry if event.retry is not None else retry
            is_last = False
            if event.name == "message" and event.data:
                if take is not None and await take(event.data):
                    return True
                take = None  # later messages must not overtake this one
                item = await self._take(event.data, ctx.read_stream_writer, request_id, has_begun=has_begun)
                is_last, last = _is_answer(item), _text_of(item)
                has_begun = has_begun or isinstance(item, dict)
            if event.identity and callback:
                await callback(event.identity)
            return is_last

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
            await self.fail(ctx.read_stream_writer, request_id, f"its stream of events cannot be read: {error}")
            return
        except Exception:
            logger.debug("a stream of events ended", exc_info=True)
        if identity:
            await self._handle_reconnection(ctx, identity, retry)
        else:
            why = "its stream of events ended without an answer" + (f"; the last message was: {last}" if last else "")
            await self.fail(ctx.read_stream_writer, request_id, why)


def _is_answer(item: Incoming) -> bool:
    return isinstance(item, dict) and "method" not in item


def _text_of(item: Incoming) -> str:
    """Return what is shown of a message that is no answer."""
    return str(item.get("method", "")) if isinstance(item, dict) else str(item)


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
                return read is not None and self._take(post.request_id, read[1])

            await self._transport.follow(response, self._context(post, self._client), take)
        else:
            await self._transport._handle_post_request(self._context(post, _ReceivedResponse(response)))

    async def _read_body(self, post: _Post, response: httpx2.Response) -> None:
        try:
            chunks = await _chunks(response)
        except httpx2.StreamError as error:
            await self._transport.fail(self._heard, post.request_id, f"its answer cannot be read: {error}")
            return
        read = await _answer(chunks)
        # The id in the answer is ignored: a response answers only its own request.
        if read is None or not self._take(post.request_id, read[1]):
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
