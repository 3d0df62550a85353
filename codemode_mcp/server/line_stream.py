"""Messages of one client as lines of JSON on a pair of file descriptors: MCP's stdio transport.

The event loop reads and writes pipes and sockets when they are ready, without a thread. Terminals, files, and all
descriptors on Windows cannot be polled; threads read and write them.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import stat
import sys
import threading
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from codemode_mcp.json_text import joined_halves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

READ_BYTES: Final = 256 * 1024
MAX_WAITING: Final = 100
"""Lines that are read ahead. Reading then pauses until one is received."""


class LineStream:
    """The lines of a client in both directions. Use `open_line_stream`."""

    def __init__(self, source: int, sink: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        # received
        self._partial: list[bytes] = []
        self._waiting: deque[str] = deque()
        self._news: asyncio.Future[None] | None = None
        self._ended = False
        self._reading = False
        self._resume = threading.Event()
        self._start: Callable[[], object] = self._resume.set
        self._stop: Callable[[], object] = self._resume.clear
        # sent
        self._unsent: deque[_Message] = deque()
        self._write: Callable[[memoryview], int] | None = None
        self._socket: socket.socket | None = None
        self._writing = False
        self._broken = False
        self._turn = asyncio.Lock()

    async def receive(self) -> str | None:
        """Return the next line, or None after the client has closed its end."""
        while not self._waiting:
            if self._ended:
                return None
            self._resume_reading()
            self._news = self._loop.create_future()
            try:
                await self._news
            finally:
                self._news = None
        line = self._waiting.popleft()
        if len(self._waiting) < MAX_WAITING:
            self._resume_reading()
        return whole(line)

    def unread(self, lines: Iterable[str]) -> None:
        """Put lines back, to be received before all others."""
        self._waiting.extendleft(reversed([*lines]))

    async def send(self, message: bytes) -> None:
        """Write a message and a line feed. The message must not contain one. Messages are written in order.

        If this is cancelled, the message is written whole or not at all.

        Raises:
            anyio.BrokenResourceError: the client has closed its end.
        """
        if self._broken:
            raise anyio.BrokenResourceError
        if self._write is None:
            await self._send_by_thread(message + b"\n")
            return
        item = _Message(memoryview(message + b"\n"))
        self._unsent.append(item)
        if len(self._unsent) == 1:
            self._flush()
        if item.over:
            if self._broken:
                raise anyio.BrokenResourceError
            return
        item.written = self._loop.create_future()
        try:
            await item.written
        except asyncio.CancelledError:
            if not item.begun and item in self._unsent:
                self._unsent.remove(item)
            raise
        if self._broken:
            raise anyio.BrokenResourceError

    # reading

    def _open(self) -> None:
        if _is_pollable(self._source):
            self._start = partial(self._loop.add_reader, self._source, self._on_readable)
            self._stop = partial(self._loop.remove_reader, self._source)
        else:
            threading.Thread(target=self._read_in_thread, name="standard input", daemon=True).start()
        if not _is_pollable(self._sink):
            return
        # The descriptors stay blocking: a change would affect every process that shares them.
        if stat.S_ISSOCK(os.fstat(self._sink).st_mode):
            self._socket = socket.socket(fileno=os.dup(self._sink))
            self._write = partial(_write_to_socket, self._socket)
        else:
            self._write = partial(_write_to_pipe, self._sink)

    def _close(self) -> None:
        self._ended = True
        if self._reading:
            self._stop()
        self._break()
        if self._socket is not None:
            self._socket.close()

    def _resume_reading(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            self._start()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._source, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Add data that was read. No data means the end of the stream."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
            self._waiting.extend(line.decode("utf-8", "replace") for line in lines)
        if rest:
            self._partial.append(rest)
        if not data:
            self._ended = True
            if self._partial:
                self._waiting.append(b"".join(self._partial).decode("utf-8", "replace"))
                self._partial.clear()
        if self._reading and (self._ended or len(self._waiting) >= MAX_WAITING):
            self._reading = False
            self._stop()
        if self._news is not None and not self._news.done() and (self._waiting or self._ended):
            self._news.set_result(None)

    def _read_in_thread(self) -> None:
        while True:
            self._resume.wait()
            try:
                data = os.read(self._source, READ_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._take, data)
            except RuntimeError:  # the loop has ended
                return
            if not data:
                return

    # writing

    def _flush(self) -> None:
        assert self._write is not None
        while self._unsent:
            item = self._unsent[0]
            try:
                written = self._write(item.left)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:
                self._break()
                return
            item.begun = item.begun or written > 0
            if written < len(item.left):
                item.left = item.left[written:]
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._sink, self._flush)
                return
            del self._unsent[0]
            item.end()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sink)

    def _break(self) -> None:
        """Drop all unsent messages, because nothing can be written."""
        self._broken = True
        while self._unsent:
            self._unsent.popleft().end()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sink)

    async def _send_by_thread(self, line: bytes) -> None:
        async with self._turn:
            # A write that has begun is completed even if the request is cancelled.
            with anyio.CancelScope(shield=True):
                try:
                    await anyio.to_thread.run_sync(_write_whole, self._sink, line)
                except OSError:
                    self._broken = True
                    raise anyio.BrokenResourceError from None


class _Message:
    """A line that is being written."""

    __slots__ = ("begun", "left", "over", "written")

    def __init__(self, left: memoryview) -> None:
        self.left = left
        self.begun = False
        self.over = False
        self.written: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.over = True
        if self.written is not None and not self.written.done():
            self.written.set_result(None)


@asynccontextmanager
async def open_line_stream(source: int, sink: int) -> AsyncIterator[LineStream]:
    """Open the lines of a client for the duration of the context. The descriptors stay open and blocking.

    If the input cannot be polled, a thread may still wait for input afterwards.
    """
    lines = LineStream(source, sink)
    lines._open()
    try:
        yield lines
    finally:
        lines._close()


def whole(line: str) -> str:
    r"""Return a line of JSON without escaped halves of surrogate pairs, such as `\ud83d`, which have no UTF-8 form.

    Two halves become their character. A single half becomes U+FFFD.
    """
    if "\\ud" not in line and "\\uD" not in line:
        return line
    try:
        return joined_halves(json.dumps(json.loads(line), ensure_ascii=False))
    except (ValueError, RecursionError):
        return line


def _is_pollable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _write_to_socket(connection: socket.socket, data: memoryview) -> int:
    """Write as much as possible without waiting. Return the number of bytes."""
    return connection.send(data, socket.MSG_DONTWAIT)


def _write_to_pipe(sink: int, data: memoryview) -> int:
    """Write as much as possible without waiting. Return the number of bytes."""
    poll = select.poll()
    poll.register(sink, select.POLLOUT)
    written = 0
    # A pipe that is ready takes PIPE_BUF bytes without blocking (POSIX).
    while written < len(data):
        ready = poll.poll(0)
        if not ready:
            break
        if ready[0][1] & select.POLLERR:
            raise BrokenPipeError
        written += os.write(sink, data[written : written + select.PIPE_BUF])
    return written


def _write_whole(sink: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(sink, left) :]
