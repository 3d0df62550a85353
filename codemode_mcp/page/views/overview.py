"""The first page: what waits for a person, what runs, and the state of the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from codemode_mcp.page.views.runs import runs_of, waiting_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site

LATEST: Final = 8
"""Runs on the first page."""


def routes(site: Site) -> Sequence[Route]:
    """Return the address of this page."""

    async def overview(request: Request) -> Response:
        found, problems = await runs_of(site)
        latest = sorted(found, key=lambda each: each.age_ms)[:LATEST]
        views = [view for application in site.applications for view in application.server_views()]
        return site.page(
            request,
            "overview.html",
            waiting=list(waiting_runs(found)),
            runs=[each.report() for each in latest],
            running=sum(each.view.state == "running" for each in found),
            suspended=sum(each.view.state == "waiting" for each in found),
            total=len(found),
            servers=views,
            connected=sum(view.state == "ready" for view in views),
            problems=problems,
        )

    return (Route("/", overview),)
