"""The parts that this extension adds to the core: a command, and a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.extension_points import Command, Extension, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import Site
    from codemode_mcp.extensions.savings.tasks import Tasks

DAYS: Final = 7
"""Days of recorded tasks that are shown."""


def _routes(site: Site) -> Sequence[Route]:
    import anyio.to_thread
    from starlette.routing import Route

    from codemode_mcp.extensions.savings import report as reports
    from codemode_mcp.extensions.savings.tasks import exposure_of

    async def savings(request: Request) -> Response:
        application = site.chosen(request)
        tasks, unrecorded = await anyio.to_thread.run_sync(_recorded, application.config)
        report = reports.Report(await exposure_of(application), tasks, unrecorded)
        return site.page(
            request,
            "savings.html",
            servers=sorted(report.exposure.servers, key=lambda each: -each.weight.prompt),
            own=report.exposure.own,
            direct=report.exposure.direct,
            tokens=report.tokens,
            verdict=reports.verdict_of_exposure(report),
            of_tasks=reports.verdict_of_tasks(report),
            costs=list(reports.costs(report)),
            modes=reports.costs_of_modes(report),
            of_modes=reports.modes_in_words(report),
            unrecorded=unrecorded,
        )

    return (Route("/savings", savings),)


def _recorded(config: Config) -> tuple[Tasks | None, str]:
    """Return the recorded tasks of the last days, and the reason if there are none."""
    from codemode_mcp.audit.trajectory_files import every, files_of
    from codemode_mcp.extensions.savings.tasks import tasks_of

    if config.audit.trajectory is None:
        return None, 'No tasks are recorded: add "audit": { "trajectory": "runs.jsonl" } to the configuration.'
    path = Path(config.audit.trajectory)
    try:
        if not files_of(path):
            return None, "No tasks are recorded yet; recording starts when a client calls exec."
        return tasks_of(every(path), "content", time.time() - DAYS * 24 * 3600.0), ""
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"


EXTENSION = Extension(
    commands={"savings": Command(f"{__package__}.command", 260)},
    pages=(Page("/savings", "Savings", _routes, Path(__file__).parent / "templates"),),
)
