"""A server as a child process that speaks MCP on its pipes, one JSON-RPC message a line.

In place of the SDK's transport for it, since a server is taken here as it comes: its children end with it, whether it
left them behind or was killed; a line may be large, or never end, without harm to others; and whoever writes does not
wait for a server that does not read.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage

from upstream_clients.environment import passed_on
from upstream_clients.wire import LineBuffer, TooLong, read_line, too_long

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail
    from upstream_clients.wire import Incoming

logger = logging.getLogger(__name__)

FLUSH_TIMEOUT = 0.3
"""Seconds for what was already written to reach the server's pipe."""

EXIT_TIMEOUT = 1.0
"""Seconds that a server has to leave by itself, from when it is closed."""

TERMINATE_TIMEOUT = 0.8
"""Seconds between SIGTERM and SIGKILL, for the server and whatever it has started."""

REAP_TIMEOUT = 0.5
"""Seconds for the event loop to notice a death that is certain."""

WATCH_INTERVAL = 0.5
"""Seconds between two looks whether the process is there. Mostly its pipe says so at once, but a child of the server
may hold that open."""

_POLL = 0.01


@asynccontextmanager
async def open_process(
    spec: UpstreamSpec, stderr: StderrTail
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """Start the server; the streams of what it says and what is said to it. Leaving ends it and all that it started.

    `stderr` takes what it says there, and how it ended.

    Raises:
        OSError: it cannot be started.
        ValueError: a NUL in what should be started.
    """
    process = await _start(spec, stderr.file)
    # Nothing is awaited between the start and the `try`: a cancellation there would leave the process behind.
    heard, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, written = anyio.create_memory_object_stream[SessionMessage](math.inf)
    flushed = anyio.Event()

    async def read() -> None:
        buffer = LineBuffer()
        async with heard:
            try:
                async for chunk in process.stdout:
                    for line in buffer.feed(chunk):
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
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
                await process.stdin.send(line.encode("utf-8", "replace"))
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
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                incoming.close()
                outgoing.close()
                began = anyio.current_time()
                with anyio.move_on_after(FLUSH_TIMEOUT):
                    await flushed.wait()
                stderr.exit_code = await _stop(process, began)
            tasks.cancel_scope.cancel()
            heard.close()
            written.close()


async def _start(spec: UpstreamSpec, errlog: TextIO) -> Any:
    """An `anyio.abc.Process`, or on Windows the SDK's stand-in for one. A group of its own, or a Job Object."""
    assert spec.command is not None
    env = passed_on(os.environ, spec.withheld) | dict(spec.env)
    if sys.platform == "win32":  # pragma: no cover
        from mcp.os.win32.utilities import create_windows_process, get_windows_executable_command

        command = await anyio.to_thread.run_sync(get_windows_executable_command, spec.command)
        return await create_windows_process(command, list(spec.args), env, errlog, spec.cwd)
    return await anyio.open_process(
        [spec.command, *spec.args], env=env, stderr=errlog, cwd=spec.cwd, start_new_session=True
    )


async def _stop(process: Any, began: float) -> int | None:
    """End of input, then force; for the server and its descendants. Every wait is bounded. The exit code of a server
    that needed no force.

    The bounds count from `began`, a time of the event loop, so that on a busy machine they do not add up.
    """
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    code: int | None = process.returncode if await _exited(process, began + EXIT_TIMEOUT) else None
    if sys.platform == "win32":  # pragma: no cover
        from mcp.os.win32.utilities import close_process_job, terminate_windows_process_tree

        if process.returncode is None:
            await terminate_windows_process_tree(process)
        close_process_job(process)
    else:
        await _end_group(process, began + EXIT_TIMEOUT + TERMINATE_TIMEOUT)
    if not await _exited(process, anyio.current_time() + REAP_TIMEOUT):
        logger.warning("process %d cannot be ended", process.pid)
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdout.aclose()
    # asyncio closes the transport with the last pipe, and one of them a process out of our reach may hold open.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
    return code


async def _exited(process: Any, deadline: float) -> bool:
    # `wait` would also wait for the pipes, which a child of the server may hold open.
    while process.returncode is None and anyio.current_time() < deadline:  # noqa: ASYNC110 - likewise
        await anyio.sleep(_POLL)
    return process.returncode is not None


async def _end_group(process: Any, deadline: float) -> None:
    """What is left of the server's process group; its id stays the server's as long as one member lives."""
    if _signal(process.pid, signal.SIGTERM):
        # A server that left by itself leaves its children as much time.
        deadline = min(deadline, anyio.current_time() + TERMINATE_TIMEOUT)
        while _signal(process.pid, 0) and anyio.current_time() < deadline:  # noqa: ASYNC110 - likewise
            await anyio.sleep(_POLL)
        _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether the group may have members still."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # members of another user, or on macOS ones that nobody has waited for
    return True
