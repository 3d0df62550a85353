"""The page about clients: those that are connected now, and those that have sent requests, with their profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from codemode_mcp.control.protocol import Request as ControlRequest
from codemode_mcp.page.site import Problem
from codemode_mcp.policy.approval import AT_PAGE
from codemode_mcp.server.profiles import traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site


def routes(site: Site) -> Sequence[Route]:
    """Return the address of this page."""

    async def list_clients(request: Request) -> Response:
        known = []
        for control in site.controls:
            answer = await control.handle(ControlRequest("clients"), AT_PAGE)
            if not answer["ok"]:
                raise Problem(str(answer["error"]), 500)
            known += [{**each, "traits": traits(each["profile"])} for each in answer["clients"]]
        return site.page(request, "clients.html", connected=site.connected(), clients=known)

    return (Route("/clients", list_clients),)
