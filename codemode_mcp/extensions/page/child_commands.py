"""Commands that run as a child of the serving process for a person at the page: `doctor` and `login`."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import anyio
import anyio.abc
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import Process, TaskGroup, TaskStatus

    from codemode_mcp.server.services import App


@asynccontextmanager
async def child_command(
    application: App, *words: str, arguments: tuple[str, ...] = (), stderr: int = subprocess.DEVNULL
) -> AsyncIterator[Process]:
    """Run a command for the configuration of an application, with its variables. Kill it at the end of the context.

    Args:
        words: the command and its options.
        arguments: what follows `--`.
        stderr: as for `subprocess`.

    Raises:
        OSError: the process cannot be started.
    """
    config = application.config.path
    command = [sys.executable, "-m", "codemode_mcp", *words]
    command += [] if config is None else ["--config", str(config)]
    command += ["--", *arguments] if arguments else []
    async with await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        env={**application.environ},
        cwd=Path.home() if config is None else os.path.dirname(config),
    ) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


# Reports of `codemode-mcp doctor`, which runs as a child of this process when a person asks for it.


CHECKUP_SECONDS: Final = 180.0
"""Timeout of a checkup. Servers that do not answer take a minute each, several of them at the same time."""

MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of a report."""


class Report(NamedTuple):
    """The result of a checkup.

    Attributes:
        time: Unix seconds of its end.
        checks: the checks as `codemode-mcp doctor --json` writes them (docs/doctor.md).
    """

    config: str | None
    time: float
    checks: list[dict[str, Any]]


class Failed(Exception):
    """Error for a checkup without a report. The text is the reason."""


class Checkups:
    """The latest report of each configuration, in memory. One checkup runs at a time."""

    def __init__(self) -> None:
        self._reports: dict[str | None, Report] = {}
        self._lock = anyio.Lock()

    @property
    def reports(self) -> list[Report]:
        return [*self._reports.values()]

    @property
    def is_running(self) -> bool:
        return self._lock.locked()

    async def run(self, application: App) -> Report:
        """Check the configuration of an application. Raise `Failed`."""
        if self.is_running:
            raise Failed("The checks are running already.")
        async with self._lock:
            config = application.config.path
            report = Report(None if config is None else str(config), time.time(), await _checks(application))
            self._reports[report.config] = report
            return report


async def _checks(application: App) -> list[dict[str, Any]]:
    text = b""
    with anyio.move_on_after(CHECKUP_SECONDS):
        async with child_command(application, "doctor", "--json") as process:
            assert process.stdout is not None
            async for chunk in process.stdout:
                text += chunk
                if len(text) > MAX_REPORT_BYTES:
                    raise Failed(
                        f"The report is larger than {MAX_REPORT_BYTES} bytes. Run codemode-mcp doctor instead."
                    )
            await process.wait()
        try:
            checks = json.loads(text)
        except ValueError:
            raise Failed("The checks ended without a report. Run codemode-mcp doctor instead.") from None
        found: list[dict[str, Any]] = checks
        return found
    raise Failed(f"The checks did not end within {CHECKUP_SECONDS:g} s. Run codemode-mcp doctor instead.")


# Logins to servers that a person begins on the page. `codemode-mcp login` makes them, as a child of this process.
#
# The command prints the address of the login, which the page shows as a link. The person opens it in the browser that
# shows the page, and the command ends when the server has sent the browser back to it.


log = logging.getLogger("codemode_mcp.extensions.page")

LOGIN_SECONDS: Final = 300
"""Seconds that a login may take."""

MAX_OUTPUT_BYTES: Final = 64 * 1024
"""Maximum bytes of the output of the command."""

MAX_LOGINS: Final = 8
"""Maximum number of logins at the same time."""


class Login(Struct):
    """One login.

    Attributes:
        url: the address to open; None before it is known, and in the end.
        outcome: the end of the login as a sentence; None until then.
    """

    url: str | None = None
    outcome: str | None = None

    @property
    def host(self) -> str:
        return "" if self.url is None else urlsplit(self.url).netloc


class Logins:
    """The latest login to each server.

    Args:
        on_change: called when a login has got its address, or has ended.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._logins: dict[str, Login] = {}

    def of(self, server: str) -> Login | None:
        """Return the latest login to a server."""
        return self._logins.get(server)

    async def begin(self, application: App, server: str, group: TaskGroup) -> Login | None:
        """Begin a login, unless one is open. Return it when its address is known, or when it has ended.

        Args:
            group: the login continues in it.

        Returns:
            The login; None if there are too many.
        """
        known = self._logins.get(server)
        if known is not None and known.outcome is None:
            return known
        if sum(each.outcome is None for each in self._logins.values()) >= MAX_LOGINS:
            return None
        login = self._logins[server] = Login()
        await group.start(self._run, application, server, login)
        return login

    async def _run(self, application: App, server: str, login: Login, *, task_status: TaskStatus[None]) -> None:
        options = ("--no-browser", "--timeout", str(LOGIN_SECONDS))
        output, begun = b"", False
        try:
            with anyio.move_on_after(LOGIN_SECONDS + 10):
                async with child_command(
                    application, "login", *options, arguments=(server,), stderr=subprocess.STDOUT
                ) as process:
                    assert process.stdout is not None
                    async for chunk in process.stdout:
                        output = (output + chunk)[:MAX_OUTPUT_BYTES]
                        login.url = login.url or _address_in(output)
                        if login.url is not None and not begun:
                            begun = True
                            self._on_change()
                            task_status.started()
                    await process.wait()
        except OSError as error:
            output = str(error).encode()
        except Exception:
            log.exception("a login that was begun on the page failed in an unexpected way")
        finally:
            said = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
            login.outcome = said[-1] if said and said[-1] != login.url else "the login did not end in time"
            login.url = None
            self._on_change()
        if not begun:
            task_status.started()


def _address_in(output: bytes) -> str | None:
    """Return the address that the command has printed on a line of its own; None if there is none yet."""
    for line in output.decode("utf-8", "replace").splitlines(keepends=True):
        text = line.strip()
        if line.startswith("  ") and line.endswith("\n") and urlsplit(text).scheme in ("http", "https"):
            return text
    return None
