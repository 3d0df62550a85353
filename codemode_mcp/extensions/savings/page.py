"""The page about savings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from starlette.routing import Route

from codemode_mcp.audit.trajectory_files import every, files_of
from codemode_mcp.extensions.savings.measure import exposure_of
from codemode_mcp.extensions.savings.report import (
    Report,
    costs,
    costs_of_modes,
    modes_in_words,
    verdict_of_exposure,
    verdict_of_tasks,
)
from codemode_mcp.extensions.savings.tasks import Tasks, tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import Site


DAYS: Final = 7
"""Days of recorded tasks that are shown."""


def routes(site: Site) -> Sequence[Route]:
    async def savings(request: Request) -> Response:
        application = site.chosen(request)
        tasks, unrecorded = await anyio.to_thread.run_sync(_recorded, application.config)
        report = Report(await exposure_of(application), tasks, unrecorded)
        return site.page(
            request,
            "savings.html",
            servers=sorted(report.exposure.servers, key=lambda each: -each.weight.prompt),
            own=report.exposure.own,
            direct=report.exposure.direct,
            tokens=report.tokens,
            verdict=verdict_of_exposure(report),
            of_tasks=verdict_of_tasks(report),
            costs=list(costs(report)),
            modes=costs_of_modes(report),
            of_modes=modes_in_words(report),
            unrecorded=unrecorded,
        )

    return (Route("/savings", savings),)


def _recorded(config: Config) -> tuple[Tasks | None, str]:
    """Return the recorded tasks of the last days, and the reason if there are none."""
    if config.audit.trajectory is None:
        return None, 'No tasks are recorded: add "audit": { "trajectory": "runs.jsonl" } to the configuration.'
    path = Path(config.audit.trajectory)
    try:
        if not files_of(path):
            return None, "No tasks are recorded yet; recording starts when a client calls exec."
        return tasks_of(every(path), "content", time.time() - DAYS * 24 * 3600.0), ""
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
