"""The process of a stdio server: its start, and its end together with its children.

This module imports little, so that a server can start while the modules of connections are imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from io import FileIO, RawIOBase
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import anyio.to_thread
from msgspec import Struct

from upstream_clients.environment import passed_on, path_to_start
from upstream_clients.server_log import StderrTail

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.spec import UpstreamSpec


logger = logging.getLogger(__name__)

EXIT_TIMEOUT = 1.0
"""Seconds for a server to exit after its input was closed."""

TERMINATE_TIMEOUT = 0.8
"""Seconds between SIGTERM and SIGKILL, for the server and its children."""

REAP_TIMEOUT = 0.5
"""Seconds for the event loop to notice the end of a killed process."""

_POLL = 0.01


class ServerProcess(Struct, frozen=True):
    """The process of a stdio server.

    Attributes:
        child: an `anyio.abc.Process`, or on Windows the SDK's replacement for one.
        output: the read end of the standard output; None on Windows, where `child` has a stream for it.
    """

    child: Any
    output: RawIOBase | None


class StartedProcess(Struct, frozen=True):
    """A stdio server that was started before its connection.

    Attributes:
        process: the result of `start`.
        stderr: the open pipe of the standard error.
    """

    process: ServerProcess
    stderr: StderrTail

    async def close(self) -> None:
        """End a server that no connection uses."""
        with anyio.CancelScope(shield=True), self.stderr:
            self.stderr.exit_code = await stop(self.process, anyio.current_time())
        if self.process.output is not None:
            self.process.output.close()


async def start_ahead(spec: UpstreamSpec, on_line: Callable[[str], object] | None = None) -> StartedProcess | None:
    """Start a stdio server before its connection.

    Returns:
        The process; None for other servers, on Windows, and if the server cannot be started. In the last case, the
        connection tries again and reports the reason.
    """
    if not spec.is_process or sys.platform == "win32":
        return None
    stderr = StderrTail(spec.name, spec.redact, on_line)
    stderr.open()
    try:
        process = await start(spec, stderr.file)
    except BaseException as error:
        stderr.close()
        if isinstance(error, (OSError, ValueError)):
            return None
        raise
    return StartedProcess(process, stderr)


def inherited(spec: UpstreamSpec) -> dict[str, str]:
    return passed_on(os.environ if spec.environ is None else spec.environ, spec.withheld)


async def start(spec: UpstreamSpec, errlog: TextIO) -> ServerProcess:
    """Start a stdio server in a new process group; on Windows in a Job Object.

    Raises:
        OSError: the server cannot be started.
        ValueError: the command or an argument has a NUL.
    """
    assert spec.command is not None
    env = inherited(spec) | dict(spec.env)
    # Of a name alone, the system would also find a program of the current folder if PATH has a relative entry.
    command = path_to_start(spec.command, os.pathsep.join(os.get_exec_path(env)))
    if sys.platform == "win32":  # pragma: no cover
        from mcp.os.win32.utilities import create_windows_process

        return ServerProcess(await create_windows_process(command, list(spec.args), env, errlog, spec.cwd), None)
    # A pipe of our own. Data from a pipe of asyncio's own would pass two more rounds of the event loop.
    source, sink = os.pipe()
    output = FileIO(source)
    try:
        child = await anyio.open_process(
            [command, *spec.args],
            env=env,
            stdout=sink,
            stderr=errlog,
            cwd=spec.cwd,
            start_new_session=True,  # so that signals reach the children too, and Ctrl-C in a terminal does not
        )
    except BaseException:
        output.close()
        raise
    finally:
        os.close(sink)  # the child has its own; as long as any is open, the pipe does not end
    return ServerProcess(child, output)


async def stop(server: ServerProcess, began: float) -> int | None:
    """End a server and its descendants: close its input, then send signals. The pipe of its output stays open.

    Args:
        began: time of the event loop from which all timeouts count, so that delays of a busy machine do not add up.

    Returns:
        The exit code, if the server exited without a signal of ours.
    """
    process = server.child
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
    if server.output is None:  # pragma: no cover
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await process.stdout.aclose()
    # asyncio closes the transport with the last pipe, but a process that could not be ended may hold one open.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
    return code


async def _exited(process: Any, deadline: float) -> bool:
    # `process.wait()` would also wait for the pipes, which a child of the server may hold open.
    while process.returncode is None and anyio.current_time() < deadline:  # noqa: ASYNC110 - there is no event for it
        await anyio.sleep(_POLL)
    return process.returncode is not None


async def _end_group(process: Any, deadline: float) -> None:
    """End the remaining processes of the server's process group.

    The server itself may have exited. The system does not reuse the id of a group as long as a member lives.
    """
    if _signal(process.pid, signal.SIGTERM):
        # If the server exited early, `deadline` is far. Its children still get `TERMINATE_TIMEOUT` at most.
        deadline = min(deadline, anyio.current_time() + TERMINATE_TIMEOUT)
        while _signal(process.pid, 0) and anyio.current_time() < deadline:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(_POLL)
        _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group. Return False if the group has no members left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # members that belong to another user, or on macOS zombies
    return True
