"""Access to this process from a terminal of its user, and the command that calls a person to it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from msgspec.structs import asdict

from codemode_mcp import __version__
from codemode_mcp.server.profiles import KEYS, ConnectedClients, override_of, profile_json, profile_of
from upstream_clients.environment import path_to_start, system_variables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.base.settings import ProfileOverride
    from codemode_mcp.server.control.answers import Control
    from codemode_mcp.server.services import App, Parts


STORE_SECONDS = 2.0
"""Seconds that a terminal waits for a store that is being opened."""


async def terminal_control(
    app: App,
    parts: Parts,
    *,
    serves: Callable[[str], bool],
    open_page: Callable[[], Awaitable[dict[str, Any]]] | None,
    export: Callable[[str], bytes] | None,
) -> Control:
    """Return the answers to requests of terminals.

    Args:
        app: an application that serves clients.
        serves: returns True if this process may resume the runs of an owner without a request of the owner.
        open_page, export: see `Control`.
    """
    from codemode_mcp.audit.redaction import Inputs
    from codemode_mcp.process.app.server_control import ServerControl
    from codemode_mcp.server.control.answers import Control, ServerFacts

    assert app.transport is not None
    path, mode = app.config.path, "code" if app.code_mode else "pass-through"
    inputs = Inputs(include=app.config.audit.include_inputs)
    about = ServerFacts(app.transport, mode, None if path is None else str(path), __version__)
    # So that a terminal that asks right after the start is shown the runs in the store, too.
    await parts.store.wait_attempted(STORE_SECONDS)

    def arguments(text: str) -> dict[str, Any]:
        return inputs.of_arguments(text, app.redact)

    return Control(
        parts.manager.operator,
        about,
        arguments,
        may_take_over=serves,
        clients=lambda: clients_json(app.clients, app.config.tools.clients),
        servers=ServerControl(app, parts.pool),
        open_page=open_page,
        export=export,
    )


def listen(control: Control) -> AbstractAsyncContextManager[object]:
    """Answer the requests of terminals on a socket of this process, for the duration of the context."""
    from codemode_mcp.server.control.server import listening

    return listening(control)


def clients_json(connected: ConnectedClients, overrides: Sequence[ProfileOverride]) -> list[dict[str, Any]]:
    listed = []
    for each in connected.listed():
        override = override_of(each.client.name, overrides)
        listed.append(
            {
                **asdict(each.client),
                "requests": each.requests,
                "idleMs": round(each.idle_seconds * 1000),
                "profile": profile_json(profile_of(each.client.name, overrides)),
                "overrides": [] if override is None else [KEYS[field] for field, _ in override.values],
            }
        )
    return listed


def terminal_command() -> str:
    """Return the command that runs codemode-mcp in a terminal of its user: with its whole path, quoted for a shell."""
    started = os.path.abspath(sys.argv[0])
    if Path(started).stem == "codemode-mcp" and os.path.isfile(started):
        words = [started]
    else:
        words = [sys.executable, "-m", "codemode_mcp"]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


# The operator's command that is run when a program waits for a person's approval.
#
# The command gets the id of the run, and no text that a program or a server has written. It runs without a shell,
# without our streams, with the environment that servers get, and in its own process group, which is killed after
# `LIMIT_SECONDS`. A command that fails is logged; it never fails a call.


log = logging.getLogger("codemode_mcp.notify")

LIMIT_SECONDS = 10.0
"""Timeout of one command."""

CONCURRENT = 4
"""Maximum number of commands that run at the same time. Further notices wait."""

MAX_WAITING = 32
"""Maximum number of notices that run or wait. Further notices are dropped and logged."""

MIN_INTERVAL = 5.0
"""Minimum seconds between two notices of the same run."""

RUN_VARIABLE = "CODEMODE_MCP_RUN_ID"


class Notifier:
    """The runner of the command of `tools.approval.notify`.

    Args:
        command: returns the current program and its arguments; empty if no command is configured.
        environ: the environment variables of which the command inherits those of the system.
    """

    def __init__(
        self,
        group: TaskGroup,
        command: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._group = group
        self._command = command
        self._clock = clock
        self._environ = environ
        self._limiter = anyio.CapacityLimiter(CONCURRENT)
        self._pending = 0
        self._latest: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Notifier: {self._pending} pending>"

    def __call__(self, run_id: str) -> None:
        """Start the command for a run whose calls begin to wait for a person. It neither waits nor raises."""
        command = tuple(self._command())
        now = self._clock()
        self._latest = {run: at for run, at in self._latest.items() if at > now - MIN_INTERVAL}
        if not command or run_id in self._latest:
            return
        if self._pending >= MAX_WAITING:
            log.warning("tools.approval.notify was not run for run %s: %d others wait", run_id[:12], self._pending)
            return
        self._latest[run_id] = now
        self._pending += 1
        self._group.start_soon(self._notify, command, run_id)

    async def _notify(self, command: tuple[str, ...], run_id: str) -> None:
        try:
            async with self._limiter:
                await _run(command, run_id, self._environ)
        except (OSError, ValueError) as error:
            log.error("tools.approval.notify could not be run: %s", type(error).__name__)
        finally:
            self._pending -= 1


@asynccontextmanager
async def open_notifier(
    command: Callable[[], Sequence[str]], environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Notifier]:
    """Yield a notifier. Leaving kills the commands that still run."""
    async with anyio.create_task_group() as group:
        yield Notifier(group, command, environ=environ)
        group.cancel_scope.cancel()


async def _run(command: tuple[str, ...], run_id: str, environ: Mapping[str, str]) -> None:
    flags = 0
    if sys.platform == "win32":  # pragma: no cover
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    variables = system_variables(environ)
    process = await asyncio.create_subprocess_exec(
        path_to_start(command[0], variables.get("PATH")),
        *command[1:],
        run_id,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=variables | {RUN_VARIABLE: run_id},
        start_new_session=sys.platform != "win32",
        creationflags=flags,
    )
    try:
        with anyio.move_on_after(LIMIT_SECONDS) as limit:
            await process.wait()
    finally:
        _end(process)
        with anyio.CancelScope(shield=True):
            await process.wait()
    if limit.cancelled_caught:
        log.warning("tools.approval.notify was ended: it took more than %g s", LIMIT_SECONDS)
    elif process.returncode:
        log.warning("tools.approval.notify failed with exit code %d", process.returncode)


def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return  # its process id may belong to another process by now
    with suppress(OSError):
        if sys.platform == "win32":  # pragma: no cover
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
