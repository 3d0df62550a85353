"""The first page: what waits for a person, what runs, and the state of the servers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from codemode_mcp.page.views.programs import proposed_names
from codemode_mcp.page.views.runs import runs_of, waiting_runs
from codemode_mcp.page.views.servers import servers_of

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
        servers = await servers_of(site)
        states = Counter("needs a login" if each["loginRequired"] else each["state"] for each in servers)
        return site.page(
            request,
            "overview.html",
            waiting=list(waiting_runs(found)),
            runs=[each.report() for each in latest],
            running=sum(each.view.state == "running" for each in found),
            suspended=sum(each.view.state == "waiting" for each in found),
            total=len(found),
            held=[each for each in servers if each["held"]],
            proposals=await proposed_names(site),
            logins=[each for each in servers if each["loginRequired"]],
            enabled=len(servers) - states["disabled"],
            usable=states["ready"] + states["idle"],
            down=states["down"],
            problems=problems,
        )

    return (Route("/", overview),)
