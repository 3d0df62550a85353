"""The control socket of a serving process, in a private folder of the user, and its connections.

Only processes of the same user are admitted. On a Unix socket, the system names the user of the client. On a loopback
port, both sides prove that they know the token in the endpoint's file, which only this user can read.

A connection of a terminal has one small request and a timeout. The number of such connections is limited, and requests
are answered one after another. So a flood of requests delays only other requests to this socket. A relay attaches an
MCP client instead: its connection is handed over after its first line, and carries messages of MCP from then on. It has
no other right: it cannot list runs or decide about calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast

import anyio
import anyio.to_thread

from codemode_mcp.server.control import endpoints, protocol
from codemode_mcp.server.control.endpoints import Endpoint, peer_user, proof, proves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup


log = logging.getLogger("codemode_mcp.server.control")

CONNECTION_SECONDS = 10.0
"""Timeout of a connection, from its beginning to the last byte of the answer."""

MAX_CONNECTIONS = 16
"""Maximum number of concurrent connections. Further connections are closed without an answer."""

MAX_WAITING = 64
"""Maximum number of connections that wait to be accepted."""

PAUSE_SECONDS = 0.2
"""Pause after a connection could not be accepted."""


class Answering(Protocol):
    """The answers to requests; see `answers.Control`."""

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a request. Raise nothing."""
        ...


@asynccontextmanager
async def listening(
    control: Answering,
    *,
    attach: Attach | None = None,
    loopback: bool = sys.platform == "win32",
    folders: Sequence[Path] | None = None,
) -> AsyncIterator[Endpoint | None]:
    """Answer requests for the duration of the context.

    If this is impossible, log a warning and yield None: the process serves its clients nevertheless.

    Args:
        attach: serves relays; None to refuse them.
        loopback: listen on a port instead of a Unix socket.
        folders: candidates for the folder of the endpoint; None for the folders of the user.
    """
    token = secrets.token_hex(32)
    try:
        endpoint, listener_socket, open_file = await anyio.to_thread.run_sync(_listen, token, loopback, folders)
    except (endpoints.NoPrivateFolder, OSError) as error:
        log.warning("`codemode-mcp runs` cannot reach this process: %s", error)
        yield None
        return
    try:
        door = _Door(control, attach, token if loopback else None)
        async with anyio.create_task_group() as group:
            async with door.accepting(listener_socket, group):
                yield endpoint
            group.cancel_scope.cancel()
    finally:
        listener_socket.close()
        if open_file is not None:
            open_file.close()
        with suppress(OSError):
            endpoint.path.unlink()


def _listen(
    token: str, loopback: bool, folders: Sequence[Path] | None
) -> tuple[Endpoint, socket.socket, BinaryIO | None]:
    """Return an endpoint, its listening socket, and the file of the endpoint if it has to stay open.

    Raises:
        NoPrivateFolder: the user has no usable private folder.
        OSError: the endpoint cannot be made.
    """
    for folder in endpoints.folders() if folders is None else folders:
        _remove_stale_in(folder)
    endpoint = endpoints.new_endpoint("json" if loopback else "sock", folders)
    listener = socket.socket(socket.AF_INET if loopback else socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        if not loopback:
            # The socket gets its final name only when it listens. A client or another server that finds it before would
            # be refused, and take it for the socket of a process that was killed.
            unready = endpoint.path.with_suffix(".new")
            listener.bind(os.fspath(unready))
            os.chmod(unready, 0o600)
            listener.listen(MAX_WAITING)
            os.rename(unready, endpoint.path)
            return endpoint, listener, None
        listener.bind(("127.0.0.1", 0))
        listener.listen(MAX_WAITING)
        # The file is made last, when clients can connect. It stays open, because an open file cannot be removed on
        # Windows: this is how `remove_stale` knows there that the process is running.
        descriptor = os.open(endpoint.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "wb", buffering=0)
        try:
            file.write(protocol.encode({"port": listener.getsockname()[1], "token": token}))
        except BaseException:
            file.close()
            raise
        return endpoint, listener, file
    except BaseException:
        listener.close()
        for path in (endpoint.path, endpoint.path.with_suffix(".new")):
            with suppress(OSError):
                path.unlink()
        raise


def _remove_stale_in(folder: Path) -> None:
    """Remove the endpoints of processes that were killed."""
    try:
        found = endpoints.endpoints_in(folder)
    except endpoints.NotPrivate:
        return
    for endpoint in found:
        if endpoint.kind == "json":
            # Its port is not tried: another program may listen there by now.
            endpoints.remove_stale(endpoint)
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(endpoint.path))
            except ConnectionRefusedError:
                endpoints.remove_stale(endpoint)
            except OSError:
                pass  # the queue of connections is full, so the process is running


class _Door:
    """The connections to one socket.

    Args:
        token: the secret of a loopback port; None for a Unix socket.
    """

    def __init__(self, control: Answering, attach: Attach | None, token: str | None) -> None:
        self._control = control
        self._attach = attach
        self._token = token
        self._connections = 0
        """Number of open connections of terminals, and of others that have not sent their first line."""

    @asynccontextmanager
    async def accepting(self, listener: socket.socket, group: TaskGroup) -> AsyncIterator[None]:
        """Serve connections in tasks of a group. New ones are accepted for the duration of the context."""
        loop = asyncio.get_running_loop()

        def take(connection: Accepted) -> None:
            if self._connections >= MAX_CONNECTIONS:
                connection.abort()
                return
            self._connections += 1
            group.start_soon(self._serve, connection)

        def accept() -> Accepted:
            return Accepted(protocol.MAX_REQUEST, take)

        if listener.family == socket.AF_INET:
            server: asyncio.Server = await loop.create_server(accept, sock=listener)
        else:
            server = await loop.create_unix_server(accept, sock=listener)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, connection: Accepted) -> None:
        relay: dict[str, Any] | None = None
        try:
            with anyio.move_on_after(CONNECTION_SECONDS) as scope:
                relay = await self._answer_request(connection)
            if scope.cancelled_caught:
                connection.abort()
        except (OSError, anyio.BrokenResourceError):
            pass  # the client closed the connection
        except Exception:
            log.exception("a connection to the control socket failed unexpectedly")
        finally:
            self._connections -= 1
            if relay is None:
                connection.close()
        if relay is not None and self._attach is not None:
            try:
                await self._attach(connection, relay)
            finally:
                connection.close()

    async def _answer_request(self, connection: Accepted) -> dict[str, Any] | None:
        """Answer a terminal. Return the first message of a relay, which is not answered here."""
        if self._token is None and peer_user(connection.socket) != os.geteuid():
            log.warning("a process of another user was rejected at the control socket")
            return None
        try:
            if self._token is not None and not await _authenticate(connection, self._token):
                return None
            line = await _next_line(connection)
            if self._attach is not None and (message := protocol.attach_request(line)) is not None:
                return message
            answer = await self._control.answer(line)
        except protocol.BadMessage as error:
            answer = {"ok": False, "error": str(error)}
        data = protocol.encode(answer)
        if len(data) > protocol.MAX_ANSWER:
            too_large = f"the answer would be larger than {protocol.MAX_ANSWER} bytes"
            data = protocol.encode({"ok": False, "error": too_large})
        await connection.send(data)
        return None


async def _next_line(connection: Accepted) -> bytes:
    line = await connection.receive()
    if line is None:
        if connection.too_long:
            raise protocol.BadMessage(f"more than {protocol.MAX_REQUEST} bytes in one line")
        raise protocol.BadMessage("the other side closed the connection in the middle of a line")
    return line


async def _authenticate(connection: Accepted, token: str) -> bool:
    """Return True if the client has proved that it knows the token. This side then sends its own proof.

    The client proves first, so that a client without the token gets no proof.
    """
    ours = secrets.token_hex(16)
    await connection.send(protocol.encode({"nonce": ours}))
    message = protocol.decode(await _next_line(connection))
    theirs = message.get("nonce")
    if not isinstance(theirs, str) or not proves(message.get("proof"), token, "client", (ours, theirs)):
        return False
    await connection.send(protocol.encode({"proof": proof(token, "server", (ours, theirs))}))
    return True


MAX_READ_AHEAD: Final = 100
"""Lines that are read before they are received. At this number, reading pauses until a line is received."""

MAX_BYTES_AHEAD: Final = 1024 * 1024
"""Bytes of such lines at which reading pauses, too. A line that is being read does not count: it may be longer."""


class Accepted(asyncio.Protocol):
    """An accepted connection. Its lines are bytes without their line feeds.

    Args:
        limit: maximum bytes of a received line. A longer line ends what can be received.
        on_open: called in the event loop as soon as the connection can be used.

    Attributes:
        limit: see above. It may be changed at any time.
        too_long: True after a line that was longer than the limit.
    """

    def __init__(self, limit: int, on_open: Callable[[Accepted], None]) -> None:
        self.limit = limit
        self.too_long = False
        self._on_open = on_open
        self._transport: asyncio.Transport | None = None
        # The state of reading. The parts of an incomplete line are joined once, so that this takes linear time.
        self._lines: deque[bytes] = deque()
        self._lines_size = 0
        self._incomplete: list[bytes] = []
        self._incomplete_size = 0
        self._ended = False
        self._reading_paused = False
        self._line_ready: asyncio.Future[None] | None = None
        # The state of writing.
        self._writable = anyio.Event()
        self._writable.set()
        self._closed = anyio.Event()

    @property
    def socket(self) -> socket.socket:
        assert self._transport is not None
        return cast("socket.socket", self._transport.get_extra_info("socket"))

    @property
    def has_line(self) -> bool:
        return bool(self._lines)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None or self._closed.is_set() else self._transport.get_write_buffer_size()

    async def receive(self) -> bytes | None:
        """Return the next line. Return None after the end of the stream, and after a line that is too long."""
        while not self._lines:
            if self._ended or self.too_long:
                return None
            self._line_ready = asyncio.get_running_loop().create_future()
            try:
                await self._line_ready
            finally:
                self._line_ready = None
        line = self._lines.popleft()
        self._lines_size -= len(line)
        if self._reading_paused and not self._is_far_ahead and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return line

    def write(self, data: bytes) -> None:
        """Write data as soon as possible, in order. Data for a closed connection is dropped."""
        if self._transport is not None and not self._closed.is_set():
            self._transport.write(data)

    async def send(self, data: bytes) -> None:
        """Write data, and wait while the other side reads too slowly. All of the data is written, even if cancelled.

        Raises:
            anyio.BrokenResourceError: the connection is closed.
        """
        self.write(data)
        await self.written()
        if self._closed.is_set():
            raise anyio.BrokenResourceError

    @property
    def is_written(self) -> bool:
        return self._writable.is_set() or self._closed.is_set()

    async def written(self) -> None:
        while not self.is_written:
            await self._writable.wait()

    def close(self) -> None:
        """Close the connection after everything is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)  # `send` returns when the system has all of the data
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self.too_long:
            return
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._incomplete, lines[0]))
            self._incomplete, self._incomplete_size = [], 0
        if rest:
            self._incomplete.append(rest)
            self._incomplete_size += len(rest)
        self._lines.extend(lines)
        self._lines_size += sum(map(len, lines))
        if self._incomplete_size > self.limit or any(len(line) > self.limit for line in lines):
            self.too_long = True
            self._lines.clear()
            self._lines_size = 0
            self._incomplete = []
        if self._is_far_ahead and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Implement `asyncio.Protocol`. The other direction stays open."""
        self._ended = True
        self._wake()
        return True

    def pause_writing(self) -> None:
        self._writable = anyio.Event()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._closed.set()
        self._writable.set()
        self._wake()

    @property
    def _is_far_ahead(self) -> bool:
        return len(self._lines) >= MAX_READ_AHEAD or self._lines_size >= MAX_BYTES_AHEAD

    def _wake(self) -> None:
        if (
            self._line_ready is not None
            and not self._line_ready.done()
            and (self._lines or self._ended or self.too_long)
        ):
            self._line_ready.set_result(None)


if TYPE_CHECKING:
    Attach = Callable[[Accepted, dict[str, Any]], Awaitable[None]]
    """A function that serves a relay: its connection, and its first message."""
