"""Streamable HTTP: the transport of the dispatcher, and direct requests past its stream.

Every request is a POST with a task of its own. Its answer is the body of the response, or a message of a stream of
events. Messages are read by `line_messages.read_line`, without models: large ones in a thread, and an answer belongs to
its POST, whatever its id. A message of a stream that is none of JSON-RPC is logged and passed over. Notifications and
answers to the server are sent one after the other, in the order in which they were given.

`DirectPosts` sends a request with one task, and reads its answer from the bytes of the response, without a stream in
between. A direct request is sent once. The two common answers are read here: a plain body with the result, or a stream
of events whose first message is the result. In three cases the answer goes through the dispatcher instead:

- Any other response.
- A stream that has any message before the result. From that message on, all its messages go to the dispatcher.
- An answer that comes while the dispatcher has unread messages. One of them may be a question of the same call or an
  announcement of changed tools, which an answer must not overtake.

To give a request up, the connection to a modern server is closed; a legacy server gets `notifications/cancelled`, and
its response is read to the end. A stream of events that breaks is opened again with the id of its latest event, if it
has ids: `_RECONNECTIONS` times in a row without success.
"""

from __future__ import annotations

import contextvars
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import httpx2
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field

from upstream_clients.direct import THREAD_BYTES, Answer, EncodedRequests, read_answer
from upstream_clients.error_mapping import HttpFault, is_session_lost
from upstream_clients.http import SESSION_HEADER, VERSION_HEADER, WANTS_ANSWER, McpHttpClient
from upstream_clients.jsonrpc import INTERNAL_ERROR, JsonRpcError, Message, RequestId, form_of, key_of
from upstream_clients.line_messages import Incoming, read_line
from upstream_clients.sse import read_events

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 0.25
"""Seconds to read the rest of a stream of events after the answer. Only a connection whose response was read to its end
can be used for the next request."""

GIVEN_UP_SECONDS: Final = 10.0
"""Seconds for which the response to a request that was given up is still read."""

_RECONNECTIONS: Final = 2
"""Attempts in a row to open a stream of events again."""

_RECONNECTION_MS: Final = 1000
"""Milliseconds before a stream of events is opened again, if the server does not say another time."""

_Take = Callable[[bytes | memoryview], Awaitable[bool]]
"""A function that takes a message that is an answer in a common form. It returns False for any other message."""


class _Post(Struct, eq=False):
    """A request that is being sent, or whose response is being read."""

    is_modern: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class _Place(Struct):
    """The place in a stream of events from which it can be read on.

    Attributes:
        identity: the id of the latest event; empty if events have none.
        retry: milliseconds to wait before the stream is opened again; None if the server has not said it.
        last: what was last on the stream and is no answer.
        has_begun: True if the server has sent messages on the stream.
    """

    identity: str = ""
    retry: int | None = None
    last: str = ""
    has_begun: bool = False

    async def pause(self) -> None:
        await anyio.sleep((_RECONNECTION_MS if self.retry is None else self.retry) / 1000)


class StreamableTransport:
    """A `dispatcher.Transport` over streamable HTTP.

    Args:
        limit: maximum size of one event in bytes.
        tasks: the task group of the connection.
    """

    def __init__(self, url: str, client: McpHttpClient, limit: int, tasks: TaskGroup) -> None:
        self.last_context: contextvars.Context | None = None
        self._url = url
        self._client = client
        self._limit = limit
        self._tasks = tasks
        self._session_id: str | None = None
        self._version: str | None = None
        """The protocol version of the latest message that had one, for those that have none."""
        self._posts: dict[RequestId, _Post] = {}
        self._heard, self._incoming = anyio.create_memory_object_stream[tuple[contextvars.Context, Any]](0)
        self._outgoing, self._written = anyio.create_memory_object_stream[
            tuple[contextvars.Context, Any, Mapping[str, str]]
        ](0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send messages for the duration of the context. Leaving it ends the session."""
        async with self._heard, self._incoming, self._outgoing, self._written:
            self._tasks.start_soon(self._write)
            try:
                yield
            finally:
                if self._session_id is not None:
                    await self._end_session()
                self._tasks.cancel_scope.cancel()

    async def receive(self) -> Incoming:
        self.last_context, item = await self._incoming.receive()
        received: Incoming = item
        return received

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        await self._outgoing.send((contextvars.copy_context(), message, headers or {}))

    @property
    def is_idle(self) -> bool:
        """True if the dispatcher waits for a message. It does so only after it has handled all earlier messages."""
        return self._heard.statistics().tasks_waiting_receive > 0

    async def hear(self, item: Incoming) -> None:
        """Give a message to the dispatcher."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection is being closed
            await self._heard.send((contextvars.copy_context(), item))

    async def fail(self, request_id: RequestId, why: str) -> None:
        error = JsonRpcError(INTERNAL_ERROR, why, HttpFault(None, sent=True, usable=True).to_data())
        await self.hear({"jsonrpc": "2.0", "id": request_id, "error": error.as_json()})

    # Messages to the server.

    async def _write(self) -> None:
        try:
            async with self._written, self._heard:
                async for context, message, headers in self._written:
                    await self._send(context, message, headers)
        except Exception:
            logger.exception("sending messages failed")

    async def _send(self, context: contextvars.Context, message: Message, headers: Mapping[str, str]) -> None:
        method = message.get("method")
        if method == "initialize":
            self._version = None  # the version of an attempt without a handshake is no part of the handshake
        else:
            self._version = headers.get(VERSION_HEADER, self._version)
        if method == "notifications/cancelled" and self._gives_up(message["params"]["requestId"]):
            return
        if method == "notifications/initialized":
            self._tasks.start_soon(self._listen)
        if form_of(message) != "request":
            await self._post(message, headers)
            return
        # Registered before the task runs: the next message may already give the request up.
        post = self._posts[key_of(message["id"])] = _Post(self._version in MODERN_PROTOCOL_VERSIONS)
        context.run(self._tasks.start_soon, self._request, post, message, headers)

    def _gives_up(self, request_id: RequestId) -> bool:
        """Give up a request to a modern server. Return False if a legacy server has to be told."""
        post = self._posts.get(key_of(request_id))
        if post is None:
            return self._version in MODERN_PROTOCOL_VERSIONS
        if post.is_modern:
            post.scope.cancel()
        return post.is_modern

    async def _request(self, post: _Post, message: Message, headers: Mapping[str, str]) -> None:
        key = key_of(message["id"])
        try:
            with post.scope:
                await self._post(message, headers)
        finally:
            if self._posts.get(key) is post:
                del self._posts[key]

    async def _post(self, message: Message, headers: Mapping[str, str]) -> None:
        request_id = message["id"] if form_of(message) == "request" else None
        extensions = {} if request_id is None else {WANTS_ANSWER: True}
        async with self.exchange(headers, json=message, extensions=extensions) as response:
            if message.get("method") == "initialize" and response.is_success:
                self._session_id = response.headers.get(SESSION_HEADER) or self._session_id
            if request_id is not None:
                await self.read(response, request_id)

    def exchange(self, headers: Mapping[str, str], **parts: Any) -> AbstractAsyncContextManager[httpx2.Response]:
        return self._client.exchange("POST", self._url, headers={**self._headers(), **headers}, **parts)

    def _headers(self) -> dict[str, str]:
        known = {SESSION_HEADER: self._session_id, VERSION_HEADER: self._version}
        return {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **{name: value for name, value in known.items() if value},
        }

    async def _end_session(self) -> None:
        try:
            async with self._client.exchange("DELETE", self._url, headers=self._headers()) as response:
                logger.debug("the session was ended with status %d", response.status_code)
        except (httpx2.HTTPError, httpx2.StreamError):
            logger.debug("the session could not be ended", exc_info=True)

    # Messages of the server.

    async def read(self, response: httpx2.Response, request_id: RequestId) -> None:
        """Read the response to a request. `McpHttpClient` gives each response one of two media types."""
        if response.status_code == HTTPStatus.ACCEPTED:
            await self.fail(request_id, "the server accepted the request without an answer (202 Accepted)")
        elif (following := response.next_request) is not None:
            to = following.url.copy_with(userinfo=b"", query=None, fragment=None)
            await self.fail(request_id, f"the server redirects to {to}, which is not followed")
        elif response.status_code >= HTTPStatus.BAD_REQUEST:  # `McpHttpClient` has written this answer
            error = json.loads(await response.aread())["error"]
            await self.hear({"jsonrpc": "2.0", "id": request_id, "error": error})
        elif _is_event_stream(response):
            await self.follow(response, request_id)
        else:
            try:
                chunks = await _chunks(response)
            except httpx2.StreamError as error:
                await self.fail(request_id, f"its answer cannot be read: {error}")
            else:
                await self.take_body(chunks, request_id)

    async def take_body(self, chunks: list[bytes], request_id: RequestId) -> None:
        body = await anyio.to_thread.run_sync(b"".join, chunks) if _size(chunks) >= THREAD_BYTES else b"".join(chunks)
        item = await self._take(body, request_id)
        if not _is_answer(item):
            said = _text_of(item)
            why = f"its answer is not one of JSON-RPC: {said}" if said else "its answer is empty"
            await self.fail(request_id, why)

    async def _take(
        self, data: bytes | memoryview, request_id: RequestId | None, *, has_begun: bool = False
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
        await self.hear(item)
        return item

    async def follow(self, response: httpx2.Response, request_id: RequestId, take: _Take | None = None) -> None:
        """Read the stream of events that answers a request, and open it again if it breaks.

        Args:
            take: gets each message first, until it returns False.
        """
        place = _Place()
        if await self._read_events(response, request_id, place, take):
            return
        failures = 0
        while place.identity and failures < _RECONNECTIONS:
            await place.pause()
            failures += 1
            with suppress(httpx2.HTTPError):
                async with self._get(place.identity) as again:
                    if again.is_success and _is_event_stream(again):
                        if await self._read_events(again, request_id, place, None):
                            return
                        failures = 0
        why = "its stream of events ended without an answer" + (
            f"; the last message was: {place.last}" if place.last else ""
        )
        await self.fail(request_id, why)

    async def _read_events(
        self, response: httpx2.Response, request_id: RequestId, place: _Place, take: _Take | None
    ) -> bool:
        """Read a stream until the answer to a request. Return False if the stream ended or broke without one."""
        try:
            async with aclosing(read_events(response, self._limit)) as events:
                async for event in events:
                    place.identity = event.identity or place.identity
                    place.retry = event.retry if event.retry is not None else place.retry
                    if event.name != "message" or not event.data:
                        continue
                    if take is None or not await take(event.data):
                        take = None  # later messages must not overtake this one
                        item = await self._take(event.data, request_id, has_begun=place.has_begun)
                        place.last = _text_of(item)
                        place.has_begun = place.has_begun or isinstance(item, dict)
                        if not _is_answer(item):
                            continue
                    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx2.HTTPError, httpx2.StreamError):
                        async for _ in events:
                            pass
                    return True
        except httpx2.SSEError as error:
            await self.fail(request_id, f"its stream of events cannot be read: {error}")
            return True
        except Exception:
            logger.debug("a stream of events ended", exc_info=True)
        return False

    async def _listen(self) -> None:
        """Read the stream of the server's own messages, and open it again if it ends. It is optional."""
        place, failures = _Place(), 0
        while self._session_id is not None and failures < _RECONNECTIONS:
            failures += 1
            try:
                async with self._get(place.identity) as response:
                    if response.next_request is not None:
                        return
                    if response.is_success and _is_event_stream(response):
                        async with aclosing(read_events(response, self._limit)) as events:
                            async for event in events:
                                place.identity = event.identity or place.identity
                                place.retry = event.retry if event.retry is not None else place.retry
                                if event.name == "message" and event.data:
                                    await self._take(event.data, None)
                        failures = 0
            except Exception:
                logger.debug("the stream of the server's own messages ended", exc_info=True)
            await place.pause()

    def _get(self, identity: str) -> AbstractAsyncContextManager[httpx2.Response]:
        headers = {"cache-control": "no-store", **self._headers()}
        return self._client.exchange(
            "GET", self._url, headers=headers | ({"last-event-id": identity} if identity else {})
        )


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def _is_answer(item: Incoming) -> bool:
    return isinstance(item, dict) and "method" not in item


def _text_of(item: Incoming) -> str:
    return str(item.get("method", "")) if isinstance(item, dict) else str(item)


class _DirectPost(Struct, eq=False):
    """One direct request and its response.

    Attributes:
        begun: True once the request may have reached the server.
    """

    request_id: int
    body: bytes
    headers: Mapping[str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: bool = False


class DirectPosts(EncodedRequests):
    """The direct requests in flight to a server over streamable HTTP.

    Args:
        tasks: the task group of the connection.
    """

    def __init__(self, transport: StreamableTransport, tasks: TaskGroup) -> None:
        super().__init__()
        self.tell_cancelled: Callable[[int], None] = lambda _: None
        """Function that tells a legacy server that a request was given up. The owner of the dispatcher sets it."""
        self._transport = transport
        self._tasks = tasks
        self._posts: dict[int, _DirectPost] = {}

    def _begin(self, request_id: int, body: bytes, headers: Mapping[str, str]) -> None:
        post = self._posts[request_id] = _DirectPost(request_id, body, headers)
        self._tasks.start_soon(self._exchange, post)

    def _give_up(self, request_id: int, body: bytes) -> None:
        post = self._posts.get(request_id)
        if post is None:
            return
        # A legacy server need not stop when the connection is closed, so it is told, and its response is still read
        # for a while: the server may never have heard of it.
        if not post.begun or post.headers.get(VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            post.scope.cancel()
        else:
            post.scope.deadline = anyio.current_time() + GIVEN_UP_SECONDS
            self.tell_cancelled(request_id)

    async def _exchange(self, post: _DirectPost) -> None:
        try:
            with post.scope:
                if post.request_id not in self._pending:
                    return  # given up before it was sent
                post.begun = True
                extensions = {WANTS_ANSWER: True}
                async with self._transport.exchange(post.headers, content=post.body, extensions=extensions) as response:
                    await self._read(post.request_id, response)
        finally:
            del self._posts[post.request_id]

    async def _read(self, request_id: int, response: httpx2.Response) -> None:
        if not response.is_success or response.status_code == HTTPStatus.ACCEPTED:
            await self._transport.read(response, request_id)
        elif _is_event_stream(response):

            async def take(message: bytes | memoryview) -> bool:
                read = await _answer([message])
                return read is not None and self._take(request_id, read[1])

            await self._transport.follow(response, request_id, take)
        else:
            await self._read_body(request_id, response)

    async def _read_body(self, request_id: int, response: httpx2.Response) -> None:
        try:
            chunks = await _chunks(response)
        except httpx2.StreamError as error:
            await self._transport.fail(request_id, f"its answer cannot be read: {error}")
            return
        read = await _answer(chunks)
        # The id in the answer is ignored: a response answers only its own request.
        if read is None or not self._take(request_id, read[1]):
            await self._transport.take_body(chunks, request_id)

    def _take(self, request_id: int, answer: Answer) -> bool:
        """Give an answer to its request.

        Return False if the request was given up, or the dispatcher has unread messages.
        """
        if request_id not in self._pending or not self._transport.is_idle:
            return False
        self.count += 1
        try:
            self.resolve(request_id, answer)
        except Exception:
            logger.exception("taking the answer to a request failed")
        return True


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
    url: str, client: McpHttpClient, limit: int
) -> AsyncIterator[tuple[StreamableTransport, DirectPosts]]:
    """Open the transport to a server, and direct requests. Leaving ends the session and the requests.

    Args:
        limit: maximum size of one event in bytes.
    """
    async with anyio.create_task_group() as tasks:
        transport = StreamableTransport(url, client, limit, tasks)
        async with transport.running():
            yield transport, DirectPosts(transport, tasks)
