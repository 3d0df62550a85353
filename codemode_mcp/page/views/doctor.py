"""The page of the doctor: the findings about the configuration, its servers and this machine, when a person asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse
from starlette.routing import Route

from codemode_mcp.control.display import counted
from codemode_mcp.page.checkups import Checkups, Failed
from codemode_mcp.page.site import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site

GROUPS: Final = (("fail", "Failed"), ("warn", "Warnings"), ("info", "Good to know"), ("ok", "In order"))
"""Status and heading of the groups of findings, the most urgent first."""


def routes(site: Site) -> Sequence[Route]:
    """Return the addresses of this page."""
    checkups = Checkups()

    async def show(request: Request) -> Response:
        reports = [
            (
                report,
                [
                    (status, heading, [each for each in report.checks if each["status"] == status])
                    for status, heading in GROUPS
                ],
            )
            for report in checkups.reports
        ]
        return site.page(request, "doctor.html", reports=reports, running=checkups.is_running)

    async def run(request: Request) -> Response:
        # This changes nothing, so `ui.decide` does not matter. It starts servers, so it needs the secret of the page.
        done = {}
        try:
            for application in site.applications:
                if application.config.path not in done:
                    done[application.config.path] = await checkups.run(application)
        except Failed as error:
            raise Problem(str(error), 409) from None
        finally:
            site.changes.tell("doctor")
        checks = [check for report in done.values() for check in report.checks]
        failed, warnings = (sum(each["status"] == status for each in checks) for status in ("fail", "warn"))
        return JSONResponse(
            {"message": f"{counted(len(checks), 'check')}: {failed} failed, {counted(warnings, 'warning')}."}
        )

    return (Route("/doctor", show), Route("/doctor", run, methods=["POST"]))
