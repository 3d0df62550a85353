"""MCP's stdio transport: the messages of one client as lines of JSON on a pair of file descriptors.

The event loop reads and writes pipes and sockets when they are ready, without a thread. Threads read and write all
other descriptors: terminals, files, and every descriptor on Windows.

The descriptors stay in blocking mode. The mode belongs to the open file description, so a change would affect every
process that shares the descriptors, such as the shell that started this one. Therefore a write never asks for more than
the descriptor takes without blocking.
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
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from codemode_mcp.base.strict_json import join_surrogates

READ_BYTES: Final = 256 * 1024
MAX_READ_AHEAD: Final = 100
"""Lines that are read before they are received. At this number, reading pauses until a line is received."""


class Lines(Protocol):
    """The messages of one client as lines of JSON, in both directions."""

    async def receive(self) -> str | None:
        """Return the next line, as `repaired_line` does, or None after the client has closed its end."""
        ...

    def unread(self, lines: Iterable[str]) -> None:
        """Put lines back. `receive` returns them before all others."""
        ...

    async def send(self, message: bytes) -> None:
        """Write a message and a line feed. Raise `anyio.BrokenResourceError` if the client has closed its end."""
        ...


class LineStream:
    """The lines of a client in both directions. Use `open_line_stream`.

    Args:
        source: the descriptor to read from.
        sink: the descriptor to write to.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        # The state of reading. An incomplete line is a list of pieces, which are joined once: if each piece were
        # appended to the line, a line of many megabytes would take quadratic time.
        self._incomplete: list[bytes] = []
        self._read_ahead: deque[str] = deque()
        self._line_ready: asyncio.Future[None] | None = None
        self._ended = False
        self._reading = False
        self._may_read = threading.Event()
        self._start_reading: Callable[[], object] = self._may_read.set
        self._stop_reading: Callable[[], object] = self._may_read.clear
        # The state of writing.
        self._unsent: deque[_Message] = deque()
        self._write: Callable[[memoryview], int] | None = None
        self._socket: socket.socket | None = None
        self._writing = False
        self._broken = False
        self._write_lock = asyncio.Lock()

    async def receive(self) -> str | None:
        while not self._read_ahead:
            if self._ended:
                return None
            self._resume_reading()
            self._line_ready = self._loop.create_future()
            try:
                await self._line_ready
            finally:
                self._line_ready = None
        line = self._read_ahead.popleft()
        if len(self._read_ahead) < MAX_READ_AHEAD:
            self._resume_reading()
        return repaired_line(line)

    def unread(self, lines: Iterable[str]) -> None:
        self._read_ahead.extendleft(reversed([*lines]))

    async def send(self, message: bytes) -> None:
        """Write a message and a line feed. The message must not contain a line feed. Messages are written in order.

        If this is cancelled, the whole message is written or nothing of it.

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
        # If other messages are unsent, the descriptor is full. The event loop calls `_flush` as soon as it has room.
        if len(self._unsent) == 1:
            self._flush()
        if item.is_done:
            if self._broken:
                raise anyio.BrokenResourceError
            return
        item.done = self._loop.create_future()
        try:
            await item.done
        except asyncio.CancelledError:
            # A message that has begun stays in the queue: without its rest, the next message would continue its line.
            if not item.has_begun and item in self._unsent:
                self._unsent.remove(item)
            raise
        if self._broken:
            raise anyio.BrokenResourceError

    # reading

    def _open(self) -> None:
        if _is_pollable(self._source):
            self._start_reading = partial(self._loop.add_reader, self._source, self._on_readable)
            self._stop_reading = partial(self._loop.remove_reader, self._source)
        else:
            # A daemon: nothing can end a thread that waits in `os.read`, and the process has to exit nevertheless.
            threading.Thread(target=self._read_in_thread, name="standard input", daemon=True).start()
        if not _is_pollable(self._sink):
            return
        if stat.S_ISSOCK(os.fstat(self._sink).st_mode):
            # A duplicate, because the socket object closes its descriptor when it is collected.
            self._socket = socket.socket(fileno=os.dup(self._sink))
            self._write = partial(_write_to_socket, self._socket)
        else:
            self._write = partial(_write_to_pipe, self._sink)

    def _close(self) -> None:
        self._ended = True
        if self._reading:
            self._stop_reading()
        self._drop_unsent()
        if self._socket is not None:
            self._socket.close()

    def _resume_reading(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            self._start_reading()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._source, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the client has reset the connection
            data = b""
        self._add(data)

    def _add(self, data: bytes) -> None:
        """Add data that was read. Empty data means the end of the stream.

        Reading may be paused when this is called: a thread that was already waiting for input delivers it later.
        """
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._incomplete, lines[0]))
            self._incomplete.clear()
            self._read_ahead.extend(line.decode("utf-8", "replace") for line in lines)
        if rest:
            self._incomplete.append(rest)
        if not data:
            self._ended = True
            if self._incomplete:
                self._read_ahead.append(b"".join(self._incomplete).decode("utf-8", "replace"))
                self._incomplete.clear()
        if self._reading and (self._ended or len(self._read_ahead) >= MAX_READ_AHEAD):
            self._reading = False
            self._stop_reading()
        if self._line_ready is not None and not self._line_ready.done() and (self._read_ahead or self._ended):
            self._line_ready.set_result(None)

    def _read_in_thread(self) -> None:
        while True:
            self._may_read.wait()
            try:
                data = os.read(self._source, READ_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._add, data)
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
                written = self._write(item.rest)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:
                self._drop_unsent()
                return
            item.has_begun = item.has_begun or written > 0
            if written < len(item.rest):
                item.rest = item.rest[written:]
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._sink, self._flush)
                return
            del self._unsent[0]
            item.finish()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sink)

    def _drop_unsent(self) -> None:
        self._broken = True
        while self._unsent:
            self._unsent.popleft().finish()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sink)

    async def _send_by_thread(self, line: bytes) -> None:
        # Without the lock, two threads could write at the same time, and parts of their lines would mix.
        async with self._write_lock:
            # A write that has begun is completed even if the request is cancelled: the next message would otherwise
            # continue its line.
            with anyio.CancelScope(shield=True):
                try:
                    await anyio.to_thread.run_sync(_write_whole, self._sink, line)
                except OSError:
                    self._broken = True
                    raise anyio.BrokenResourceError from None


class _Message:
    """A line in the queue for writing.

    Attributes:
        rest: the bytes that are not written yet.
        has_begun: some bytes are written.
        is_done: all bytes are written, or the client has disconnected.
        done: wakes the sender of the message, if it waits.
    """

    __slots__ = ("done", "has_begun", "is_done", "rest")

    def __init__(self, rest: memoryview) -> None:
        self.rest = rest
        self.has_begun = False
        self.is_done = False
        self.done: asyncio.Future[None] | None = None

    def finish(self) -> None:
        self.is_done = True
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


@asynccontextmanager
async def open_line_stream(source: int, sink: int) -> AsyncIterator[LineStream]:
    """Open the lines of a client for the duration of the context. The descriptors stay open.

    If the event loop cannot poll the source, a thread may still wait for input after the context.
    """
    lines = LineStream(source, sink)
    lines._open()
    try:
        yield lines
    finally:
        lines._close()


def repaired_line(line: str) -> str:
    r"""Return a line of JSON without a byte order mark and escaped surrogates, such as `\ud83d`.

    Surrogates have no UTF-8 form. A pair of them becomes its character. A single surrogate becomes U+FFFD.
    """
    line = line.removeprefix("\ufeff")
    # Nearly no line has a surrogate. The others are not parsed here, because their reader parses them.
    if "\\ud" not in line and "\\uD" not in line:
        return line
    try:
        return join_surrogates(json.dumps(json.loads(line), ensure_ascii=False))
    except (ValueError, RecursionError):
        return line  # the reader of the messages refuses the line


def _is_pollable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _write_to_socket(connection: socket.socket, data: memoryview) -> int:
    # The flag makes only this call non-blocking, not the socket.
    return connection.send(data, socket.MSG_DONTWAIT)


def _write_to_pipe(sink: int, data: memoryview) -> int:
    poll = select.poll()
    poll.register(sink, select.POLLOUT)
    written = 0
    # A blocking pipe has no flag for a single call. But POSIX promises that a pipe which `poll` reports as ready takes
    # PIPE_BUF bytes without blocking, so no more are written before it is polled again.
    while written < len(data):
        ready = poll.poll(0)
        if not ready:
            break
        if ready[0][1] & select.POLLERR:  # the client has closed its end
            raise BrokenPipeError
        written += os.write(sink, data[written : written + select.PIPE_BUF])
    return written


def _write_whole(sink: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(sink, rest) :]
