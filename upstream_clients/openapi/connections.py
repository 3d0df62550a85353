"""HTTP/1.1 connections to the servers of APIs, and the answers that are read from them.

Why not httpx2: its request, response and pool take most of the time of a call. Here a request is written as bytes, and
its answer is read where the event loop delivers it. A request through a proxy of the environment is sent by httpx2,
which knows proxies (`exchanges`).

A connection that got more bytes than its answer has, or bytes without a request, is closed: they could be taken for
the next answer.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
import h11
import httpx2
from msgspec import Struct

from upstream_clients.eager import Reply
from upstream_clients.fetch import resolve, resolve_permitted
from upstream_clients.http import socket_options
from upstream_clients.openapi.api import ApiResponse

# HTTP/1.1 answers, read from bytes without I/O.
#
# The common answer is read directly: HTTP/1.1, a plain head, and a body of a stated length. `h11` reads every other
# one, from its first byte. If in doubt, `read_head` returns None, so that it never reads an answer differently than
# `h11`.


MAX_HEAD_BYTES: Final = 128 * 1024
"""Size of the head of an answer."""

MAX_FIELDS: Final = 1000
"""Lines of the head of an answer."""

MAX_PIECES: Final = 200_000
"""Chunks of an answer."""

PIECES_PER_STEP: Final = 200
"""Chunks that are read in one step, which takes a few milliseconds."""


class Head(NamedTuple):
    """The head of an answer in the common form.

    Attributes:
        length: bytes of the body.
        keeps_connection: True if the connection can be used for another request, after the answer.
    """

    status: int
    reason: str
    headers: dict[str, str]
    length: int
    keeps_connection: bool


def read_head(head: bytes | bytearray, method: str) -> Head | None:
    """Return the head of an answer in the common form; None for any other. `head` ends with its blank line.

    Raises:
        httpx2.RemoteProtocolError: it has too many lines.
    """
    if method == "HEAD" or not head.endswith(b"\r\n\r\n"):
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        return None
    _check_fields(len(lines))
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name, value = found[1].lower(), found[2].rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length) or "transfer-encoding" in headers or status[1] in ("204", "304"):
        return None
    connection = headers.get("connection", "keep-alive").lower()
    return Head(int(status[1]), status[2] or "", headers, int(length), connection == "keep-alive")


class AnswerParser:
    """The reader of one answer that is not in the common form."""

    def __init__(self, method: str, max_body_bytes: int) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._h11.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._h11.send(h11.EndOfMessage())
        self._max_body_bytes = max_body_bytes
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._pieces = 0
        self.has_more = False

    @property
    def keeps_connection(self) -> bool:
        return self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE and not self._h11.trailing_data[0]

    def receive(self, data: bytes) -> None:
        """Take bytes of the answer, or its end (`b""`). `advance` reads them."""
        self._h11.receive_data(data)

    def advance(self) -> ApiResponse | None:
        """Read what was received. Return the answer once it is complete.

        Without an answer, `has_more` is True if another step has to follow.

        Raises:
            httpx2.RemoteProtocolError: the bytes are not a valid answer.
            UnreadableBody: the body is too large.
        """
        self.has_more = False
        try:
            for _ in range(PIECES_PER_STEP):
                match self._h11.next_event():
                    case h11.NEED_DATA | h11.PAUSED:
                        return None
                    case h11.InformationalResponse(status_code=101):
                        raise httpx2.RemoteProtocolError("the server switched to another protocol")
                    case h11.Response() as head:
                        self._head = head
                    case h11.Data(data=piece):
                        self._body += piece
                        if len(self._body) > self._max_body_bytes:
                            raise too_large(self._max_body_bytes)
                    case h11.EndOfMessage():
                        return self._answer()
                    case h11.ConnectionClosed():
                        raise httpx2.RemoteProtocolError("the server disconnected without sending a response")
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from None
        self._pieces += PIECES_PER_STEP
        if self._pieces > MAX_PIECES:
            raise httpx2.RemoteProtocolError(f"the answer came in more than {MAX_PIECES} chunks")
        self.has_more = True
        return None

    def _answer(self) -> ApiResponse:
        assert self._head is not None
        _check_fields(len(self._head.headers))
        headers: dict[str, str] = {}
        for name, value in self._head.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        reason = bytes(self._head.reason).decode("latin-1")
        return ApiResponse(self._head.status_code, reason, headers, bytes(self._body))


def _check_fields(count: int) -> None:
    if count > MAX_FIELDS:
        raise httpx2.RemoteProtocolError(f"the head of the answer has more than {MAX_FIELDS} lines")


BLANK_LINE: Final = re.compile(rb"\n\r?\n")
"""The end of a head, also of one without carriage returns."""

_STATUS_LINE: Final = re.compile(r"HTTP/1\.1 ([2-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


# The body of an HTTP answer, within a limit that also counts after decompression.


ACCEPTED_ENCODINGS: Final = "gzip, deflate"
"""Value of `Accept-Encoding`. Other encodings are not read: their decoders have no limit of size."""

_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class UnreadableBody(Exception):
    """A body cannot be read. The text says why."""


class TooLarge(UnreadableBody):
    """A body is larger than the limit."""


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the answer is larger than {limit} bytes; ask for less at a time")


async def read_stream(stream: AsyncIterable[bytes], limit: int) -> bytes:
    """Return all bytes of a stream. Raises `UnreadableBody` if there are more than `limit`."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content encoding.

    Raises:
        UnreadableBody: the body is too large, or its encoding is unknown or wrong.
    """
    if encoding not in _WINDOWS:
        raise UnreadableBody(f"the answer has the content encoding {encoding[:40]!r}, which was not asked for")
    # Some servers send `deflate` without its header.
    for window in (_WINDOWS[encoding], -zlib.MAX_WBITS) if encoding == "deflate" else (_WINDOWS[encoding],):
        decoder = zlib.decompressobj(window)
        try:
            found = decoder.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(found) > limit:
            raise too_large(limit)
        if not decoder.eof:
            raise UnreadableBody(f"the answer ends before its {encoding} data does")
        return found
    raise UnreadableBody(f"the answer is not valid {encoding}")


CONNECT_TIMEOUT: Final = 10.0
"""Seconds to look a name up, to connect and to agree on TLS."""

KEEP_SECONDS: Final = 5.0
"""Seconds for which an unused connection is kept."""

QUIET_SECONDS: Final = 0.2
"""Seconds after which the event loop gets a turn before a connection is used again, to notice that it has ended."""

MAX_KEPT: Final = 20
"""Unused connections that are kept for one server, and servers for which some are kept."""

_HAPPY_EYEBALLS_DELAY: Final = 0.25


class Endpoint(NamedTuple):
    """A server: `http` or `https`, its host name or address, and its port."""

    scheme: str
    host: str
    port: int


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request.

    Raises:
        httpx2.LocalProtocolError: a part of it has a character that would change the meaning of the head.
    """
    if (
        not _TARGET.fullmatch(target)
        or not _TOKEN.fullmatch(method + "".join(headers))
        or _FORBIDDEN.search("".join(headers.values()))
    ):
        raise httpx2.LocalProtocolError("a character that is not allowed")
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode("utf-8", "replace")


class Connections:
    """The connections of one client.

    Args:
        guarded: True to connect to public addresses only.
        keeps: False to use no connection twice, for servers that another party may name without end.
    """

    def __init__(self, *, guarded: bool, keeps: bool = True) -> None:
        self._guarded = guarded
        self._keeps = keeps
        self._kept: dict[Endpoint, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def exchange(
        self, endpoint: Endpoint, method: str, head: bytes, body: bytes | None, max_body_bytes: int
    ) -> ApiResponse:
        """Send a request and return its answer. Cancelling closes the connection of the request.

        Raises:
            httpx2.TransportError: there was no answer, or it broke off.
            UnreadableBody: the body is larger than `max_body_bytes`.
        """
        connection = await self._take(endpoint)
        try:
            return await connection.exchange(method, head + body if body else head, max_body_bytes)
        finally:
            self.release(endpoint, connection)

    def release(self, endpoint: Endpoint, connection: Connection) -> None:
        if connection.is_reusable and self._keeps:
            self._keep(endpoint, connection)
        else:
            self._open.discard(connection)
            connection.close()

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._kept.clear()

    async def _take(self, endpoint: Endpoint) -> Connection:
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(endpoint, [])
        yielded = False
        while kept:
            connection = kept.pop()
            if now - connection.unused_since > KEEP_SECONDS:
                self._drop([*kept, connection])
                kept.clear()
                break
            if not yielded and now - connection.unused_since > QUIET_SECONDS:
                await asyncio.sleep(0)  # the loop reads what has come, the end of the connection too
                yielded = True
            if connection.is_reusable:
                return connection
            self._open.discard(connection)
        connection = await self._connect(endpoint)
        self._open.add(connection)
        return connection

    def _keep(self, endpoint: Endpoint, connection: Connection) -> None:
        # The last one is the server that was used last. Redirects may lead to any number of others.
        kept = self._kept.pop(endpoint, [])
        self._kept[endpoint] = kept
        connection.unused_since = asyncio.get_running_loop().time()
        kept.append(connection)
        if len(kept) > MAX_KEPT:
            self._drop([kept.pop(0)])
        if len(self._kept) > MAX_KEPT:
            self._drop(self._kept.pop(next(iter(self._kept))))

    def _drop(self, connections: list[Connection]) -> None:
        for connection in connections:
            self._open.discard(connection)
            connection.close()

    async def _connect(self, endpoint: Endpoint) -> Connection:
        """Raises `httpx2.ConnectError` or `httpx2.ConnectTimeout`."""
        scheme, host, port = endpoint
        options: dict[str, Any] = {}
        if scheme == "https":
            if self._tls is None:
                self._tls = await anyio.to_thread.run_sync(httpx2.create_ssl_context)
            options = {"ssl": self._tls, "server_hostname": host}
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                addresses = await (resolve_permitted(host, port, None) if self._guarded else resolve(host, port))
                return await _connect_to_first(addresses, port, options)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"no connection within {CONNECT_TIMEOUT:g} s") from None
        except socket.gaierror as error:
            raise httpx2.ConnectError(f"the name {host!r} cannot be resolved: {error.strerror or error}") from None
        except UnicodeError:
            raise httpx2.ConnectError(f"{host!r} is not a valid host name") from None
        except OSError as error:
            raise httpx2.ConnectError(str(error.strerror or error)) from None


async def _connect_to_first(addresses: list[str], port: int, options: dict[str, Any]) -> Connection:
    """Return the first connection of attempts that begin shortly after each other (RFC 8305, section 5).

    Not the `happy_eyeballs_delay` of asyncio, which leaves a socket open if it is cancelled at the end of an attempt.
    """
    loop = asyncio.get_running_loop()
    connected: list[Connection] = []
    failures: list[OSError] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            _, connection = await loop.create_connection(Connection, address, port, **options)
            connected.append(connection)
        except OSError as error:
            failures.append(error)
        if connected or isinstance(failures[-1], ssl.SSLError):  # other addresses have the same certificate
            group.cancel_scope.cancel()
        ended.set()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                ended = anyio.Event()
                group.start_soon(attempt, address, ended)
                with anyio.move_on_after(_HAPPY_EYEBALLS_DELAY):
                    await ended.wait()
    except BaseException:
        for connection in connected:
            connection.close()
        raise
    for connection in connected[1:]:
        connection.close()
    if not connected:
        raise failures[-1]
    return connected[0]


class _Exchange(Struct):
    """A request whose answer is not complete yet.

    Attributes:
        head: the head of the answer, once it was read directly.
        parser: reads the answer if it is not read directly.
        lost: the reason for which no more bytes come, with `parser`.
    """

    method: str
    answer: Reply[ApiResponse]
    max_body_bytes: int
    head: Head | None = None
    parser: AnswerParser | None = None
    lost: str | None = None


class Connection(asyncio.Protocol):
    """One connection. It has one request at a time."""

    def __init__(self) -> None:
        self.unused_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None
        self._received: bytes | bytearray = b""
        self._is_over = False

    @property
    def is_reusable(self) -> bool:
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and not self._is_over and self._exchange is None

    def close(self) -> None:
        """Close the connection, without waiting."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, method: str, data: bytes, max_body_bytes: int) -> ApiResponse:
        if not self.is_reusable:  # closed between its opening and now
            self._is_over = True
            raise httpx2.ConnectError("the server closed the connection before a request was sent")
        assert self._transport is not None
        answer: Reply[ApiResponse] = Reply(loop=asyncio.get_running_loop())
        self._exchange = _Exchange(method, answer, max_body_bytes)
        self._transport.write(data)
        # If this is cancelled, `_exchange` stays, and so the connection is not used again.
        return await answer

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for option in socket_options():
                    connected.setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.close()
            return
        try:
            self._take(exchange, data)
        except (httpx2.TransportError, UnreadableBody) as error:
            self._end(exchange, error)

    def eof_received(self) -> None:
        self._lost("the server disconnected without sending a response")

    def connection_lost(self, error: Exception | None) -> None:
        why = "the server disconnected without sending a response"
        self._lost(why if error is None else f"the connection broke ({error})")

    def _lost(self, why: str) -> None:
        self._is_over = True
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.parser is not None:
            exchange.lost = exchange.lost or why
            exchange.parser.receive(b"")
            self._advance(exchange, exchange.parser)
            return
        if exchange.head is not None:
            why = "the server closed the connection without sending the complete body"
        self._end(exchange, httpx2.RemoteProtocolError(why))

    def _advance(self, exchange: _Exchange, parser: AnswerParser) -> None:
        """Read what the parser has received, in steps between which the event loop does other work."""
        if self._exchange is not exchange:
            return
        assert self._transport is not None
        try:
            answer = parser.advance()
        except (httpx2.TransportError, UnreadableBody) as error:
            self._end(exchange, error)
            return
        if answer is not None:
            self._is_over |= not parser.keeps_connection
            self._transport.resume_reading()
            self._end(exchange, answer)
        elif parser.has_more:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._advance, exchange, parser)
        elif exchange.lost is not None:
            self._end(exchange, httpx2.RemoteProtocolError(exchange.lost))
        else:
            self._transport.resume_reading()

    def _take(self, exchange: _Exchange, data: bytes) -> None:
        if exchange.parser is not None:
            exchange.parser.receive(data)
            if not exchange.parser.has_more:
                self._advance(exchange, exchange.parser)
            return
        if not self._received:
            self._received = data
        elif isinstance(self._received, bytearray):
            self._received += data
        else:
            self._received = bytearray(self._received) + data
        head = exchange.head
        if head is None:
            received = self._received
            blank = BLANK_LINE.search(received)
            if blank is None:
                if len(received) > MAX_HEAD_BYTES:
                    raise httpx2.RemoteProtocolError(f"the head of the answer exceeded {MAX_HEAD_BYTES} bytes")
                return
            head = exchange.head = read_head(received[: blank.end()], exchange.method)
            if head is None:
                exchange.parser = AnswerParser(exchange.method, exchange.max_body_bytes)
                self._received = b""
                self._take(exchange, bytes(received))
                return
            if head.length > exchange.max_body_bytes:
                raise too_large(exchange.max_body_bytes)
            self._received = received[blank.end() :]
        size = len(self._received)
        if size >= head.length:
            body = bytes(self._received if size == head.length else self._received[: head.length])
            self._is_over |= not head.keeps_connection or size > head.length
            self._end(exchange, ApiResponse(head.status, head.reason, head.headers, body))

    def _end(self, exchange: _Exchange, outcome: ApiResponse | Exception) -> None:
        self._exchange, self._received = None, b""
        if isinstance(outcome, Exception):
            self._is_over = True
            exchange.answer.fail(outcome)
        else:
            exchange.answer.bring(outcome)


_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(r"[!-~]+")
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
