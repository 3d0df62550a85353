"""A server as a child process that speaks MCP on its pipes, one JSON-RPC message a line.

Not the SDK's transport, since a server is taken here as it comes: its children end with it, whether it
left them behind or was killed; a line may be large, or never end, without harm to others; and whoever writes does not
wait for a server that does not read.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from upstream_clients.direct import DirectRequests
from upstream_clients.jsonrpc import Message
from upstream_clients.process import start, stop
from upstream_clients.wire import LineBuffer, TooLong, read_line, too_long

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterator, Mapping

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail
    from upstream_clients.wire import Incoming

FLUSH_TIMEOUT = 0.3
"""Seconds for what was already written to reach the server's pipe."""

WATCH_INTERVAL = 0.5
"""Seconds between two looks whether the process is there. Mostly its pipe says so at once, but a child of the server
may hold that open."""


class ProcessTransport:
    """The pipes of a server. Satisfies `dispatcher.Transport`."""

    last_context: contextvars.Context | None = None

    def __init__(
        self, incoming: MemoryObjectReceiveStream[Incoming], outgoing: MemoryObjectSendStream[Message]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> Incoming:
        """Return the next message, as `dispatcher.Transport` says."""
        return await self._incoming.receive()

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message, as `dispatcher.Transport` says."""
        self._outgoing.send_nowait(message)


@asynccontextmanager
async def open_process(
    spec: UpstreamSpec, stderr: StderrTail, process: Any = None
) -> AsyncIterator[tuple[ProcessTransport, DirectRequests | None]]:
    """Start the server and yield its pipes, and requests past them.

    Leaving ends it and all that it started.

    Args:
        stderr: takes what it says there, and how it ended.
        process: the server's process, where it was started before (see `process.start`).

    Raises:
        OSError: it cannot be started.
        ValueError: a NUL in what should be started.
    """
    if process is None:
        process = await start(spec, stderr.file)
    # Nothing is awaited between the start and the `try`: a cancellation there would leave the process behind.
    heard, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, written = anyio.create_memory_object_stream[Message](math.inf)
    flushed = anyio.Event()
    direct = _direct(process)

    async def read() -> None:
        buffer = LineBuffer()
        async with heard:
            try:
                async for chunk in process.stdout:
                    for line in buffer.feed(chunk):
                        # Not past lines that the dispatcher has yet to look at: they may change what the answer means.
                        idle = heard.statistics().tasks_waiting_receive > 0
                        if idle and direct is not None and isinstance(line, bytes) and direct.take(line):
                            continue
                        if isinstance(line, bytes) and line.strip() and not line.lstrip().startswith((b"{", b"[")):
                            stderr.note_stray(line)
                        await heard.send(too_long(line) if isinstance(line, TooLong) else await read_line(line))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                pass  # either the connection is being closed, or it has just ended
        # What it still says nobody wants to hear; but a server that cannot write cannot leave.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
            while True:
                await process.stdout.receive()

    async def write() -> None:
        try:
            async for message in written:
                await process.stdin.send(_line_of(message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            heard.close()  # who does not listen any more will not answer either
        finally:
            flushed.set()

    async def watch() -> None:
        while process.returncode is None:  # noqa: ASYNC110 - nothing tells of a death but this
            await anyio.sleep(WATCH_INTERVAL)
        # What is in the pipe is read first, unless there is no end to it.
        await anyio.sleep(WATCH_INTERVAL)
        heard.close()

    async with anyio.create_task_group() as tasks:
        try:
            for task in (read, write, watch):
                tasks.start_soon(task)
            yield ProcessTransport(incoming, outgoing), direct
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


def _line_of(message: Message) -> bytes:
    return to_json(message) + b"\n"


def _direct(process: Any) -> DirectRequests | None:
    """Return requests past the streams, where the process has the event loop's own pipe (not so on Windows)."""
    transport = getattr(getattr(process.stdin, "_stream", None), "transport", None)
    if not isinstance(transport, asyncio.WriteTransport):
        return None

    def write(data: bytes) -> None:
        if not transport.is_closing():
            transport.write(data)

    return DirectRequests(write)
