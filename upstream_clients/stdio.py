"""A server as a child process that speaks MCP on its pipes, and its start on trial.

The SDK's transport is not used, since servers may misbehave. Here, children that a server leaves behind are ended. A
line may be large, or never end, without harm to other servers. And a writer does not wait for a server that does not
read.

Order matters: an answer that is read past the dispatcher must not overtake an earlier message, which may be a question
of the same call or an announcement of changed tools. So a line is taken directly only while no earlier line is unread,
here and in the dispatcher.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import msgspec
from msgspec import Struct

from upstream_clients.direct import DirectRequests
from upstream_clients.jsonrpc import Message
from upstream_clients.line_messages import Incoming, LineBuffer, TooLong, error_for_long_line, read_line
from upstream_clients.process import ServerProcess, start, stop
from upstream_clients.server_log import StderrTail

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from upstream_clients.spec import UpstreamSpec


FLUSH_TIMEOUT = 0.3
"""Seconds to write the remaining messages to the server's pipe."""

_MAY_BE_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")

WATCH_INTERVAL = 0.5
"""Seconds between two checks whether the process lives. Its pipe usually ends with it, but a child may keep it open."""


class StreamTransport:
    """A `dispatcher.Transport` over two streams of messages. `pid` is the process of a server; None for others."""

    last_context: contextvars.Context | None = None

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[Incoming],
        outgoing: MemoryObjectSendStream[Message],
        pid: int | None = None,
    ) -> None:
        self.pid = pid
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> Incoming:
        return await self._incoming.receive()

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        try:
            self._outgoing.send_nowait(message)  # `send` would let requests that are written directly come first
        except anyio.WouldBlock:
            await self._outgoing.send(message)


@asynccontextmanager
async def open_process(
    spec: UpstreamSpec, stderr: StderrTail, process: ServerProcess | None = None
) -> AsyncIterator[tuple[StreamTransport, DirectRequests | None]]:
    """Start the server and yield its transport, and direct requests. Leaving ends the server and its children.

    Args:
        stderr: takes the server's standard error and its exit code.
        process: the server's process, if it was started before (see `process.start`).

    Raises:
        OSError: the server cannot be started.
        ValueError: the command or an argument has a NUL.
    """
    if process is None:
        process = await start(spec, stderr.file)
    child = process.child
    # Nothing is awaited between the start and the `try`: a cancellation there would leave the process behind.
    heard, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, written = anyio.create_memory_object_stream[Message](math.inf)
    flushed = anyio.Event()
    direct = _direct(child)

    def take_answer(line: bytes | TooLong) -> bool:
        """Take a line that answers a direct request. Return False for any other line."""
        # The dispatcher waits in `receive` only after it has handled all earlier messages. A flag of ours would be
        # wrong while the dispatcher is still handling a message that it has received.
        idle = heard.statistics().tasks_waiting_receive > 0
        return idle and direct is not None and isinstance(line, bytes) and direct.take(line)

    async def read() -> None:
        async with _open_output(process, take_answer) as output:
            async with heard:
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the connection is being closed
                    while (line := await output.receive()) is not None:
                        if take_answer(line):  # the dispatcher may have become idle since the line was queued
                            continue
                        if isinstance(line, bytes) and line.strip() and not _MAY_BE_JSON.match(line):
                            stderr.note_stray(line)
                        await heard.send(
                            error_for_long_line(line) if isinstance(line, TooLong) else await read_line(line)
                        )
            # Reading continues while the server is ended: a server that cannot write may not be able to exit.
            await output.discard()

    async def write() -> None:
        try:
            async for message in written:
                await child.stdin.send(_line_of(message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            heard.close()  # a server that does not read will not answer either
        finally:
            flushed.set()

    async def watch() -> None:
        while child.returncode is None:  # noqa: ASYNC110 - there is no event for the end of a process
            await anyio.sleep(WATCH_INTERVAL)
        # What is left in the pipe is read first, within this time.
        await anyio.sleep(WATCH_INTERVAL)
        heard.close()

    try:
        async with anyio.create_task_group() as tasks:
            try:
                for task in (read, write, watch):
                    tasks.start_soon(task)
                yield StreamTransport(incoming, outgoing, child.pid), direct
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()
                    outgoing.close()
                    began = anyio.current_time()
                    with anyio.move_on_after(FLUSH_TIMEOUT):
                        await flushed.wait()
                    stderr.exit_code = await stop(process, began)
                tasks.cancel_scope.cancel()
                heard.close()
                written.close()
    finally:
        if process.output is not None:
            # In the next round of the event loop, in which asyncio's transport first closes the pipe itself.
            asyncio.get_running_loop().call_soon(process.output.close)


class _Output(asyncio.Protocol):
    """The lines of a server's standard output.

    The event loop calls `data_received`, and one task calls `receive`. Reading pauses while a line is unread, so a fast
    server fills its own pipe and not our memory.

    Args:
        take: takes a line immediately, or returns False. It is called only while no earlier line is unread.
    """

    def __init__(self, take: Callable[[bytes | TooLong], bool]) -> None:
        self._take = take
        self._buffer = LineBuffer()
        self._lines: deque[bytes | TooLong] = deque()
        self._transport: asyncio.ReadTransport | None = None
        self._paused = False
        self._ended = False
        self._discards = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def receive(self) -> bytes | TooLong | None:
        """Return the next line; None at the end. Raises any exception that `take` has raised."""
        while self._failure is not None or not self._lines:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            self._resume()
            await self._wait()
        return self._lines.popleft()

    async def discard(self) -> None:
        self._discards = True
        self._lines.clear()
        while not self._ended:
            self._resume()
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        for line in self._buffer.feed(data):
            if not self._take_immediately(line):
                self._lines.append(line)
                self._wake()
        if self._lines and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _take_immediately(self, line: bytes | TooLong) -> bool:
        """Take a line, unless earlier lines are unread. Return False if it was not taken."""
        # Without a waiter, the reading task still handles the line that it has received last.
        if self._failure is not None or self._lines or self._waiter is None or self._waiter.done():
            return False
        try:
            return self._take(line)
        except Exception as error:
            # Raised by `receive`, in the task that owns the connection. The event loop would only log it.
            self._failure = error
            self._wake()
            return True

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._wake()


@asynccontextmanager
async def _open_output(process: ServerProcess, take: Callable[[bytes | TooLong], bool]) -> AsyncIterator[_Output]:
    output = _Output(take)
    if process.output is not None:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: output, process.output)
        try:
            yield output
        finally:
            transport.close()
        return
    async with anyio.create_task_group() as tasks:  # pragma: no cover - Windows
        tasks.start_soon(_pump, process.child.stdout, output)
        yield output
        tasks.cancel_scope.cancel()


async def _pump(stream: AsyncIterable[bytes], output: _Output) -> None:  # pragma: no cover - Windows
    source = _PumpTransport()
    output.connection_made(source)
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for chunk in stream:
            output.data_received(chunk)
            await source.resumed.wait()
    output.connection_lost(None)


class _PumpTransport(asyncio.ReadTransport):  # pragma: no cover - Windows
    """A transport for `_Output` that pauses `_pump`."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed = anyio.Event()
        self.resumed.set()

    def pause_reading(self) -> None:
        self.resumed = anyio.Event()

    def resume_reading(self) -> None:
        self.resumed.set()


def _line_of(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _direct(child: Any) -> DirectRequests | None:
    """Return direct requests if the process has a pipe of the event loop. On Windows it has none."""
    # anyio has no way to write without waiting, so the transport of asyncio is used.
    transport = getattr(getattr(child.stdin, "_stream", None), "transport", None)
    if not isinstance(transport, asyncio.WriteTransport):
        return None

    def write(data: bytes) -> None:
        if not transport.is_closing():
            transport.write(data)

    return DirectRequests(write)


# A trial start of a stdio server: it gets `initialize`, and is ended.


PROTOCOL: Final = "2025-06-18"


class Handshake(Struct, frozen=True):
    """The result of a start.

    Attributes:
        server: name and version of the server; empty if it did not answer.
        problem: reason why the server did not start or answer; empty if it did.
    """

    server: str = ""
    problem: str = ""


async def shake_hands(spec: UpstreamSpec, seconds: float) -> Handshake:
    """Start a stdio server, send `initialize` only, and end the server with its children.

    Wait `seconds` for the answer.
    """
    tail = StderrTail(spec.name, spec.redact)
    answer: Handshake | None = None
    try:
        with tail:
            async with open_process(spec, tail) as (transport, _):
                params = {
                    "protocolVersion": PROTOCOL,
                    "capabilities": {},
                    "clientInfo": {"name": "codemode-mcp-doctor", "version": "0"},
                }
                await transport.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
                with anyio.move_on_after(seconds):
                    try:
                        while answer is None:
                            answer = _answer(await transport.receive())
                    except anyio.EndOfStream:
                        answer = Handshake(problem="it exited before it answered")
    except (OSError, ValueError) as error:
        return Handshake(problem=f"it cannot be started: {getattr(error, 'strerror', None) or error}")
    answer = answer or Handshake(problem=f"it did not answer within {seconds:.0f} s")
    if not answer.problem:
        return answer
    code = "" if tail.exit_code is None else f" with code {tail.exit_code}" if tail.exit_code >= 0 else ""
    said = tail.telling_line or tail.stray_line
    exited = answer.problem.replace("it exited", f"it exited{code}")
    return Handshake(problem=exited + (f"; it said: {said}" if said else ""))


def _answer(message: Incoming) -> Handshake | None:
    if isinstance(message, Exception):
        return None
    match message:
        case {"id": 1, "result": result}:
            about = result.get("serverInfo")
            about = about if isinstance(about, dict) else {}
            return Handshake(server=" ".join(str(about[key]) for key in ("name", "version") if key in about) or "?")
        case {"id": 1, "error": error}:
            return Handshake(problem=f"it refused initialize: {error['message']}")
    return None
