"""Reports of `codemode-mcp doctor`, which runs as a child of this process when a person asks for it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from codemode_mcp.page.child_commands import child_command

if TYPE_CHECKING:
    from codemode_mcp.page.application import Application

SECONDS: Final = 180.0
"""Timeout of a checkup. Servers that do not answer take a minute each, several of them at the same time."""

MAX_BYTES: Final = 4 * 1024 * 1024
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
        """The latest reports."""
        return [*self._reports.values()]

    @property
    def is_running(self) -> bool:
        """True while a checkup runs."""
        return self._lock.locked()

    async def run(self, application: Application) -> Report:
        """Check the configuration of an application. Raise `Failed`."""
        if self.is_running:
            raise Failed("The checks are running already.")
        async with self._lock:
            config = application.config.path
            report = Report(None if config is None else str(config), time.time(), await _checks(application))
            self._reports[report.config] = report
            return report


async def _checks(application: Application) -> list[dict[str, Any]]:
    text = b""
    with anyio.move_on_after(SECONDS):
        async with child_command(application, "doctor", "--json") as process:
            assert process.stdout is not None
            async for chunk in process.stdout:
                text += chunk
                if len(text) > MAX_BYTES:
                    raise Failed(f"The report is larger than {MAX_BYTES} bytes. Run codemode-mcp doctor instead.")
            await process.wait()
        try:
            checks = json.loads(text)
        except ValueError:
            raise Failed("The checks ended without a report. Run codemode-mcp doctor instead.") from None
        found: list[dict[str, Any]] = checks
        return found
    raise Failed(f"The checks did not end within {SECONDS:g} s. Run codemode-mcp doctor instead.")
