"""HTTP/1.1 connections to the servers of APIs, kept for later requests.

Why not httpx2: its request, response and pool take most of the time of a call. Here a request is written as bytes, and
its answer is read where the event loop delivers it. A request through a proxy of the environment is sent by httpx2,
which knows proxies (`client`).

A connection that got more bytes than its answer has, or bytes without a request, is closed: they could be taken for
the next answer.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread
import httpx2

from upstream_clients.address_guard import resolve, resolve_permitted
from upstream_clients.eager import Reply
from upstream_clients.http import socket_options
from upstream_clients.openapi.answer_bytes import BLANK_LINE, MAX_HEAD_BYTES, AnswerParser, RawAnswer, read_head
from upstream_clients.openapi.response_body import UnreadableBody, too_large

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.answer_bytes import Head

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
    ) -> RawAnswer:
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
        """Take a connection back: keep it, or close it."""
        if connection.is_reusable and self._keeps:
            self._keep(endpoint, connection)
        else:
            self._open.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close all connections."""
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


@dataclass(slots=True)
class _Exchange:
    """A request whose answer is not complete yet.

    Attributes:
        head: the head of the answer, once it was read directly.
        parser: reads the answer if it is not read directly.
        lost: the reason for which no more bytes come, with `parser`.
    """

    method: str
    answer: Reply[RawAnswer]
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
        """True if another request can be sent."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and not self._is_over and self._exchange is None

    def close(self) -> None:
        """Close the connection, without waiting."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, method: str, data: bytes, max_body_bytes: int) -> RawAnswer:
        """Send a request and return its answer."""
        if not self.is_reusable:  # closed between its opening and now
            self._is_over = True
            raise httpx2.ConnectError("the server closed the connection before a request was sent")
        assert self._transport is not None
        answer: Reply[RawAnswer] = Reply(loop=asyncio.get_running_loop())
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
            self._end(exchange, RawAnswer(head.status, head.reason, head.headers, body))

    def _end(self, exchange: _Exchange, outcome: RawAnswer | Exception) -> None:
        self._exchange, self._received = None, b""
        if isinstance(outcome, Exception):
            self._is_over = True
            exchange.answer.fail(outcome)
        else:
            exchange.answer.bring(outcome)


_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(r"[!-~]+")
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
