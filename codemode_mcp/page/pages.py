"""All pages of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.page.views import (
    approvals,
    clients,
    doctor,
    overview,
    policy,
    programs,
    runs,
    savings,
    servers,
    tools,
    trust,
)

if TYPE_CHECKING:
    from starlette.routing import Route

    from codemode_mcp.page.site import Site

_VIEWS = (overview, runs, approvals, servers, clients, programs, trust, tools, policy, savings, doctor)


def routes(site: Site) -> list[Route]:
    """Return the addresses of all pages."""
    return [route for view in _VIEWS for route in view.routes(site)]
