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
        latest = sorted(found, key=lambda each: each[0].age_ms)[:LATEST]
        views = [view for application in site.applications for view in application.server_views()]
        return site.page(
            request,
            "overview.html",
            waiting=list(waiting_runs(found)),
            runs=[control.report(view, where) for view, where, control in latest],
            running=sum(view.state == "running" for view, *_ in found),
            suspended=sum(view.state == "waiting" for view, *_ in found),
            total=len(found),
            servers=views,
            connected=sum(view.state == "ready" for view in views),
            problems=problems,
        )

    return (Route("/", overview),)
