"""Connections of uvicorn with limits on their number, and on requests that are not complete yet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from codemode_mcp.server.http.guards import peer
from codemode_mcp.server.http.responses import error_body

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle


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
