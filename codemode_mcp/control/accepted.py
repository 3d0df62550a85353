"""A connection that the control socket has accepted: lines in both directions."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import anyio

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

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
        """True if `receive` does not have to wait for the next line."""
        return bool(self._lines)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the other side has not let the system take yet."""
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
        """True if the system has all of the data, or the connection is closed."""
        return self._writable.is_set() or self._closed.is_set()

    async def written(self) -> None:
        """Wait until the system has all of the data, or the connection is closed."""
        while not self.is_written:
            await self._writable.wait()

    def close(self) -> None:
        """Close the connection after everything is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately."""
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
