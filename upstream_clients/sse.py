"""The older HTTP+SSE transport, server-sent events, and the streams of the SDK's transports.

It replaces the SDK's, which ends the connection at an event of more than 1 MiB.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from upstream_clients.jsonrpc import Message, form_of
from upstream_clients.line_messages import MAX_MESSAGE_BYTES, read_line
from upstream_clients.stdio import StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from upstream_clients.http import McpHttpClient


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
        # Without a buffer, so that the sender of a message that no POST has carried learns that it was not sent.
        outgoing, written = anyio.create_memory_object_stream[Any](0)

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
            written.close()  # no answer would be heard
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
                with suppress(anyio.ClosedResourceError):
                    async for message in written:
                        await post(message)

            tasks.start_soon(write)
            yield StreamTransport(incoming, outgoing)
            tasks.cancel_scope.cancel()


# Server-sent events from bytes, for streams whose events may be many megabytes.
#
# Used instead of httpx2's reader, which reads the text of an event several times, in the event loop.


LARGE = 256 * 1024
"""Size in bytes from which the data of an event is not copied."""


class Event(NamedTuple):
    """One event.

    Attributes:
        data: UTF-8, unchecked, with its lines joined.
        identity: the latest id on the stream; empty if there was none.
        retry: milliseconds to wait before the stream is opened again; None if the event does not set a time.
    """

    name: str
    data: bytes | memoryview
    identity: str
    retry: int | None


class EventBuffer:
    """The events of a stream of bytes, in linear time.

    Args:
        limit: maximum size of one event in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The mutable state.
        self._parts: list[bytes] = []
        """Bytes of the current line."""
        self._part_bytes = 0
        self._event_bytes = 0
        """Bytes of the current event's complete lines."""
        self._is_first = True
        """True until the first line, which may begin with a byte order mark."""
        self._ends_in_return = False
        """True if the last chunk ended in a carriage return. A line feed may follow."""
        self._name = ""
        self._data: list[bytes | memoryview] = []
        self._identity = ""
        self._retry: int | None = None
        self._has_fields = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Return the events that end in `chunk`.

        Raises:
            httpx2.SSEError: an event is larger than the limit.
        """
        # A carriage return at the end is held back: with a line feed at the start of the next chunk, it is one line
        # end.
        if self._ends_in_return:
            chunk = b"\r" + chunk
        self._ends_in_return = chunk.endswith(b"\r")
        if self._ends_in_return:
            chunk = chunk[:-1]
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            event = self._read_line(self._joined(end))
            if event is not None:
                yield event
        self._parts.append(rest)
        self._part_bytes += len(rest)
        self._check(self._part_bytes)

    def close(self) -> Iterator[Event]:
        """Return the events that the end of the stream completes."""
        if self._ends_in_return:
            self._ends_in_return = False
            yield from self.feed(b"\n\n")

    def _joined(self, end: bytes) -> bytes:
        if self._part_bytes:
            end = b"".join([*self._parts, end])
        self._parts.clear()
        self._part_bytes = 0
        return end

    def _read_line(self, line: bytes) -> Event | None:
        if self._is_first:
            self._is_first, line = False, line.removeprefix(BOM_UTF8)
        if not line:
            return self._finish_event()
        if line.startswith(b":"):
            return None
        self._event_bytes += len(line)
        self._check(0)
        colon = line.find(b":")
        name, start = (line, len(line)) if colon < 0 else (line[:colon], colon + 1)
        if line[start : start + 1] == b" ":
            start += 1
        match name:
            case b"data":
                self._data.append(memoryview(line)[start:] if len(line) >= LARGE else line[start:])
            case b"event":
                self._name = line[start:].decode("utf-8", "replace")
            case b"id" if b"\0" not in line:
                self._identity = line[start:].decode("utf-8", "replace")
            case b"retry":
                try:
                    self._retry = int(line[start:])
                except ValueError:
                    return None
            case _:
                return None
        self._has_fields = True
        return None

    def _finish_event(self) -> Event | None:
        self._event_bytes = 0
        if not self._has_fields:
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        event = Event(self._name or "message", data, self._identity, self._retry)
        self._name, self._data, self._retry, self._has_fields = "", [], None, False
        return event

    def _check(self, pending: int) -> None:
        if self._event_bytes + pending > self._limit:
            raise httpx2.SSEError(f"Server-sent event exceeded the {self._limit} byte limit.")


async def read_events(response: httpx2.Response, limit: int) -> AsyncGenerator[Event, None]:
    """Yield the events of a stream.

    Raises:
        httpx2.TransportError: the stream broke.
        httpx2.SSEError: the response is no stream of events, or an event is larger than `limit` bytes.
    """
    if not is_event_stream(response):
        async for sse in httpx2.EventSource(response, max_event_size=limit):
            yield Event(sse.event, sse.data.encode("utf-8", "replace"), sse.id, sse.retry)
        return
    buffer = EventBuffer(limit)
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            for event in buffer.feed(chunk):
                yield event
    for event in buffer.close():
        yield event


def is_event_stream(response: httpx2.Response) -> bool:
    """Return True if a response is a stream of events in UTF-8."""
    kind, _, parameters = response.headers.get("content-type", "").lower().partition(";")
    return kind.strip() == "text/event-stream" and ("charset" not in parameters or "utf-8" in parameters)
