"""One connection: uvicorn's, with limits on what has not become a request yet."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from codemode_mcp.server.http.guards import peer

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle


MAX_HEADER_BYTES = 32 * 1024

WRITE_SECONDS = 60.0
"""A client that reads nothing for so long has gone."""


ADMITTED: Final = "codemode_mcp.admitted"
"""Key of an ASGI scope that is set once the request was let in."""


class Connections:
    """The open connections of each peer, up to a limit.

    At the limit a new connection takes the place of one of the peer that has the most, which is the one that has been
    idle longest. So no peer keeps others out by connections that it does not use, or before it was let in.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._by_peer: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection) -> bool:
        """Add a connection; False where there is no room for it."""
        who = connection.peer
        self._by_peer.setdefault(who, {})[connection] = None
        self._count += 1
        if self._count <= self._limit:
            return True
        theirs = max(self._by_peer.values(), key=len)
        if len(theirs) == len(self._by_peer[who]):
            theirs = self._by_peer[who]
        spare = next((each for each in theirs if each is not connection and each.is_spare()), None)
        if spare is None and connection not in theirs and 2 * len(theirs) > self._limit:
            spare = next(iter(theirs))  # more than half of all are in use by one peer
        if spare is None:
            self.remove(connection)
            return False
        self.remove(spare)
        spare.transport.close()
        return True

    def used(self, connection: Connection) -> None:
        """Note that a connection has just become idle."""
        theirs = self._by_peer.get(connection.peer, {})
        if connection in theirs:
            del theirs[connection]
            theirs[connection] = None

    def remove(self, connection: Connection) -> None:
        theirs = self._by_peer.get(connection.peer, {})
        if connection in theirs:
            del theirs[connection]
            self._count -= 1
            if not theirs:
                del self._by_peer[connection.peer]


class Connection(H11Protocol):
    """Closes itself when headers do not come in time, when the client does not read, or when there are too many.

    Subclasses set `peers` and `read_seconds`.
    """

    peers: Connections
    peer: str = "unknown"
    read_seconds: float

    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.peer = peer(self.client[0])
        if not self.peers.add(self):
            self._turn_away(503, "too many connections; try again")
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
        self._lift()
        self._read_again()
        super().connection_lost(exc)

    def is_spare(self) -> bool:
        """Decide if the connection can be closed without a loss: no request of it that was let in is there whole."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY:
            return True
        return ADMITTED not in self.scope

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls this where it handles what the parser has refused; only the exception knows which it was.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # in the middle of an answer; there is no room for another
            return
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._turn_away(status, "the headers are too large" if status == 431 else "this is no valid HTTP request")

    def _watch(self) -> None:
        """Run the clock while a part of a head is there, and while the rest of an unwanted body comes."""
        if self.transport.is_closing():
            return
        idle = self.conn.their_state is h11.IDLE
        if (idle and self.conn.trailing_data[0]) or self._is_answered_early():
            if self._deadline is None:
                self._deadline = self.loop.call_later(self.read_seconds, self._too_slow)
            return
        self._lift()
        if idle and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _is_answered_early(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _lift(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _read_again(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._is_answered_early():
            self.transport.close()
            return
        self._turn_away(408, "the request did not come in time")

    def _turn_away(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = error_body(status, message)
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()


def error_body(status: int, message: str, **data: Any) -> bytes:
    """Return a JSON-RPC error that answers no particular request."""
    code = -32603 if status >= 500 else -32600
    error = {"code": code, "message": message} | ({"data": data} if data else {})
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}, ensure_ascii=False).encode()
