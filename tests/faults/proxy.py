"""A TCP proxy on loopback with faults that a test chooses."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Literal

from tests.ports import reserved_port

Line = Literal["good", "stalled", "lossy", "trickling", "endless headers", "silent"]
"""State of the line. stalled: bytes wait until it is another one. lossy: bytes vanish, connections stay. trickling:
answers come a byte at a time. endless headers: requests vanish, and each is answered with headers that have no end.
silent: new connections are accepted and nothing is ever read from them."""

BYTE_SECONDS = 0.001
HEADER_SECONDS = 0.02


class Proxy:
    """A proxy, once it accepts connections and until it is closed. `port` stays the same."""

    def __init__(self, target: int) -> None:
        self.port = reserved_port()
        self._target = target
        self._line: Line = "good"
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def close(self) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Aborted connections are closed in the next round of the event loop.
        await asyncio.sleep(0)

    def line(self, line: Line) -> None:
        """Set the state of the line, also for open connections."""
        self._line = line
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()

    def refuse(self) -> None:
        """Stop listening, and reset all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    async def accept(self) -> None:
        """Start listening, if stopped."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            while self._line == "silent":
                await self._changed.wait()
            back, onward = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(onward)
            up = asyncio.create_task(self._carry(reader, onward, answers=writer))
            down = asyncio.create_task(self._carry(back, writer, down=True))
            try:
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, onward):
                if each is not None:
                    each.transport.abort()
                    self._writers.discard(each)
            self._tasks.discard(task)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        down: bool = False,
        answers: asyncio.StreamWriter | None = None,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                while self._line in ("stalled", "silent"):
                    await self._changed.wait()
                if self._line == "lossy" or (self._line == "endless headers" and down):
                    continue
                if self._line == "endless headers" and answers is not None:
                    answers.write(b"HTTP/1.1 200 OK\r\n")
                    while self._line == "endless headers":
                        answers.write(b"X-More: 1\r\n")
                        await answers.drain()
                        await asyncio.sleep(HEADER_SECONDS)
                    return
                if self._line == "trickling" and down:
                    for byte in data:
                        writer.write(bytes((byte,)))
                        await writer.drain()
                        if self._line == "trickling":
                            await asyncio.sleep(BYTE_SECONDS)
                else:
                    writer.write(data)
                    await writer.drain()
