"""Listening sockets for HTTP, and their connections, with uvicorn behind them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from codemode_mcp.server.http.auth import error_body
from codemode_mcp.server.http.guards import bracketed, peer

log = logging.getLogger("codemode_mcp.http")

KEEP_ALIVE_SECONDS = 75
"""Seconds after which an idle connection is closed. Clients close their idle connections sooner. If the server were the
first, it could close a connection to which a request is on its way."""

BACKLOG = 2048

_OTHER_FILES = 256
"""Descriptors that are reserved for everything except connections."""

FLUSH_SECONDS = 0.5
"""Time limit for writing the last answers when the server stops, in seconds."""


class CannotListen(Exception):
    """An address on which the server cannot listen. The message has the address and the reason."""


UNRESOLVED = "this name cannot be resolved; give an address of this machine"


def addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return list(socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (OSError, UnicodeError):
        return []


def open_socket(host: str, port: int) -> socket.socket:
    where = f"{bracketed(host)}:{port}"
    found = addresses(host, port)
    if not found:
        raise CannotListen(f"cannot listen on {where}: {UNRESOLVED}")
    try:
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror}") from None
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            # On Windows, SO_REUSEADDR would allow two processes to listen on one port.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # After a restart, connections of the old process may still be in TIME_WAIT on this port.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            with suppress(OSError):  # all addresses include those of IPv4, whatever the default of the system is
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        match error.errno:
            case errno.EADDRINUSE:
                why = "another program uses this port; choose another one, or --port 0 for any free one"
            case errno.EADDRNOTAVAIL:
                why = "this machine has no such address"
            case _:
                why = error.strerror or str(error)
        raise CannotListen(f"cannot listen on {where}: {why}") from None
    return opened


class OpenConnections:
    """The open connections of uvicorn."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server = server
        self._state = state

    def close(self) -> None:
        """Accept no more connections. Idle connections end now, others after their response."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self) -> None:
        """End all connections, within twice `FLUSH_SECONDS`."""
        self.close()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FLUSH_SECONDS)
            for task in late:
                task.cancel()
            if late:  # a task that ignores its cancellation must not keep the process
                await asyncio.wait(late, timeout=FLUSH_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted connections close their sockets in the next round of the event loop


@asynccontextmanager
async def accept_connections(
    application: Any, opened: socket.socket, most: int, read_seconds: float
) -> AsyncIterator[OpenConnections]:
    """Serve an ASGI application on a listening socket for the duration of the context.

    Args:
        most: maximum number of open connections.
        read_seconds: timeout for the headers of a request, and again for its body.
    """
    # uvicorn logs a line for every invalid request, and tracebacks. The application logs what an operator needs.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    maximum, seconds = _allowed_connections(most), read_seconds

    # uvicorn makes the connections, so their limits are attributes of a class.
    class Limited(Connection):
        peers = Connections(maximum)
        read_seconds = seconds

    config = uvicorn.Config(
        application,
        http=Limited,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # `TrustedProxies` decides which headers of proxies are used
        server_header=False,
        date_header=False,  # `JsonSend` adds the header
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Limited(config, state, {}), sock=opened, backlog=BACKLOG)
    connections = OpenConnections(server, state)
    try:
        yield connections
    finally:
        with anyio.CancelScope(shield=True):
            await connections.end()


def _allowed_connections(connections: int) -> int:
    """Raise the limit of open files as far as needed and possible. Return the number of connections that it allows."""
    try:
        import resource
    except ImportError:  # Windows does not limit open files in this way
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft < wanted:
            room = max(1, soft - _OTHER_FILES)
            log.warning(
                "only %d connections are accepted, because the limit of open files is %d; raise it with ulimit -n",
                room,
                soft,
            )
            return room
    return connections


MAX_HEADER_BYTES = 32 * 1024

WRITE_SECONDS = 60.0
"""Seconds after which a client that reads nothing is disconnected."""

ADMITTED: Final = "codemode_mcp.admitted"
"""Key of an ASGI scope that is set once the request has passed authentication."""


class Connections:
    """The open connections of each peer, up to a limit.

    At the limit, a new connection replaces the longest idle connection of the peer that has the most connections. So no
    peer can keep others out with unused or unauthenticated connections.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        # The connections of a peer are ordered by their last use.
        self._by_peer: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection) -> bool:
        """Add a connection. Return False if there is no room for it."""
        own = self._by_peer.setdefault(connection.peer, {})
        own[connection] = None
        self._count += 1
        if self._count <= self._limit:
            return True
        largest = max(self._by_peer.values(), key=len)
        if len(largest) == len(own):
            largest = own  # a peer with as many connections as any other replaces its own, not another peer's
        replaced = next((each for each in largest if each is not connection and each.can_be_closed()), None)
        if replaced is None and connection not in largest and 2 * len(largest) > self._limit:
            # One peer uses more than half of all connections, and each is busy. Without this, its slow requests could
            # keep all other peers out.
            replaced = next(iter(largest))
        if replaced is None:
            self.remove(connection)
            return False
        self.remove(replaced)
        replaced.transport.close()
        return True

    def used(self, connection: Connection) -> None:
        """Record that a connection has just become idle."""
        own = self._by_peer.get(connection.peer, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def remove(self, connection: Connection) -> None:
        own = self._by_peer.get(connection.peer, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._by_peer[connection.peer]


class Connection(H11Protocol):
    """A connection that closes if its requests are too slow, if its client does not read, or to make room for another.

    Subclasses set `peers` and `read_seconds`, because uvicorn makes the instances.
    """

    peers: Connections
    peer: str = "unknown"
    read_seconds: float

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.peer = peer(self.client[0])
        if not self.peers.add(self):
            self._answer_error(503, "too many connections; try again")
        else:
            self._deadline = self.loop.call_later(self.read_seconds, self._too_slow)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.peers.used(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers.remove(self)
        self._cancel_deadline()
        self._cancel_write_deadline()
        super().connection_lost(exc)

    def can_be_closed(self) -> bool:
        """Return True if closing the connection loses no complete request of an authenticated client."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY:
            return True
        return ADMITTED not in self.scope

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_write_deadline()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls this in the handler of a parser's exception. Only the exception has the status.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # a response has begun, so no other one can be sent
            return
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._answer_error(status, "the headers are too large" if status == 431 else "this is not a valid HTTP request")

    def _watch(self) -> None:
        """Start the deadline of an incomplete head, or of the rest of a refused body. Otherwise cancel the deadline."""
        if self.transport.is_closing():
            return
        idle = self.conn.their_state is h11.IDLE
        if (idle and self.conn.trailing_data[0]) or self._is_answered_early():
            if self._deadline is None:
                self._deadline = self.loop.call_later(self.read_seconds, self._too_slow)
            return
        self._cancel_deadline()
        # uvicorn stops this timer for any data, and starts it only after a response. A client that sends nothing but
        # empty lines would otherwise keep the connection for ever.
        if idle and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _is_answered_early(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._is_answered_early():
            self.transport.close()
            return
        self._answer_error(408, f"the request did not arrive within {self.read_seconds:g} s (http.requestReadMs)")

    def _answer_error(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = error_body(status, message)
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
