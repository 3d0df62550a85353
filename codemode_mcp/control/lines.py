"""The lines of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from codemode_mcp.control.protocol import BadMessage

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream


class LineReader:
    """The reader of lines of at most `limit` bytes from a stream."""

    def __init__(self, stream: ByteReceiveStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    async def next(self) -> bytes:
        """Return the next line, without its line feed.

        Raises:
            BadMessage: the line is too long, or the stream ended before the line.
        """
        while True:
            if self._chunks and b"\n" in self._chunks[-1]:
                line, _, rest = b"".join(self._chunks).partition(b"\n")
                self._chunks, self._size = [rest] if rest else [], len(rest)
                return line
            if self._size > self._limit:
                raise BadMessage(f"more than {self._limit} bytes in one line")
            try:
                chunk = await self._stream.receive(65536)
            except anyio.EndOfStream:
                raise BadMessage("the other side closed the connection in the middle of a line") from None
            self._chunks.append(chunk)
            self._size += len(chunk)
