"""The lines of a client whose relay is attached to the instance."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from codemode_mcp.instance import wire
from codemode_mcp.server.client_messages import Refused, read_message
from codemode_mcp.server.line_stream import repaired_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.control.accepted import Accepted
    from upstream_clients.jsonrpc import RequestId

log = logging.getLogger("codemode_mcp.instance")

MAX_UNSENT: Final = 1024 * 1024
"""Bytes that a client has not read yet, from which on no more of its lines are received."""

_MARK: Final = wire.MARK[0]


class RelayedLines:
    """The messages of one client, as `line_stream.Lines`, and the messages of its relay.

    Args:
        connection: the connection to the relay, which is attached.
        on_interrupted: takes a request that an earlier instance left unanswered: the request, the id of its run, and
            True if some calls of the run may have been sent. It returns the line to receive instead; None for no line.
        notes_calls: tell the relay about every `tools/call` that it may have been sent on, before it is received.
    """

    def __init__(
        self,
        connection: Accepted,
        on_interrupted: Callable[[dict[str, Any], str | None, bool], str | None],
        *,
        notes_calls: bool = False,
    ) -> None:
        self._notes_calls = notes_calls
        self._connection = connection
        self._on_interrupted = on_interrupted
        self._unread: deque[str] = deque()
        self._held = False
        self._closed = False

    def hold(self) -> None:
        """Let no further line be received. The relay brings unanswered requests to the next instance."""
        self._held = True

    def close(self) -> None:
        """Drop everything that is sent from now on."""
        self._closed = True

    async def receive(self) -> str | None:
        """Return the next line of the client, or None after the client has left."""
        if self._unread:
            return self._unread.popleft()
        if self._connection.has_line:
            # One line in each round of the event loop: the requests of other clients are handled between those of a
            # client that sends many.
            await anyio.lowlevel.checkpoint()
        while self._connection.unsent_bytes > MAX_UNSENT:
            await self._connection.written()  # the client does not read, so it gets no more to read
        while (line := await self._connection.receive()) is not None:
            if self._held:
                await anyio.sleep_forever()
            if not line or line[0] != _MARK:
                text = repaired_line(line.decode("utf-8", "replace"))
                if self._notes_calls:
                    self._note_call(text)
                return text
            match wire.decode_note(line):
                case {"interrupted": dict() as request, "run": run, "dispatched": bool() as dispatched}:
                    instead = self._on_interrupted(request, run if isinstance(run, str) else None, dispatched)
                    if instead is not None:
                        return instead
                case _:
                    log.warning("a relay has sent an unknown message")
        if self._connection.too_long:
            log.warning("a client was disconnected: it sent a line of more than %d bytes", self._connection.limit)
        return None

    def _note_call(self, text: str) -> None:
        message = read_message(text)
        if not isinstance(message, Refused) and message.get("method") == "tools/call" and "id" in message:
            self.notes_of(message["id"]).write(None, dispatched=True)

    def unread(self, lines: Iterable[str]) -> None:
        self._unread.extendleft(reversed([*lines]))

    async def send(self, message: bytes) -> None:
        """Write a message for the client. Raise `anyio.BrokenResourceError` if the relay has gone."""
        if self._closed:
            raise anyio.BrokenResourceError
        await self._connection.send(message + b"\n")

    def notes_of(self, request: RequestId) -> RelayNotes:
        """Return the notes about the run of a request."""
        return RelayNotes(self._connection, request)


class RelayNotes:
    """Notes to a relay about the run of one request, as `runs.questions.RunNotes`."""

    def __init__(self, connection: Accepted, request: RequestId) -> None:
        self._connection = connection
        self._request = request

    @property
    def are_written(self) -> bool:
        return self._connection.is_written

    def write(self, run_id: str | None, *, dispatched: bool) -> bool:
        """Write a note; see `RunNotes`. The run is None in pass-through mode."""
        note = {"progress": self._request, "run": run_id, "dispatched": dispatched}
        self._connection.write(wire.encode_note(note))
        return self._connection.is_written

    async def written(self) -> None:
        await self._connection.written()
