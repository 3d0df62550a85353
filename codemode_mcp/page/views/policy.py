"""The page about policy: the rules in force, and what was decided, by whom and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.routing import Route

from codemode_mcp.audit.decisions import decisions_in
from codemode_mcp.page.rendering import rough

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.audit.decisions import Decision
    from codemode_mcp.page.site import Site
    from codemode_mcp.policy.budgets import AccountView, Unit

MAX_SHOWN: Final = 200
"""Latest decisions that are shown."""

_UNITS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes of results", "running_ms": "ms of running calls"}


def routes(site: Site) -> Sequence[Route]:
    """Return the address of this page."""

    async def policy(request: Request) -> Response:
        application = site.chosen(request)
        tools = application.config.tools
        contexts = [(each.name, ", ".join(each.callers), each.rules) for each in tools.contexts]
        trajectory = application.config.audit.trajectory
        decisions = [] if trajectory is None else await anyio.to_thread.run_sync(_decisions, Path(trajectory))
        return site.page(
            request,
            "policy.html",
            policies=[("all callers" if not contexts else "callers in no context", "", tools.policy), *contexts],
            decisions=decisions,
            recorded=trajectory is not None,
            budgets=[use for view in application.budget_views() for use in _uses(view)],
            has_budgets=bool(tools.budgets),
        )

    return (Route("/policy", policy),)


def _decisions(path: Path) -> list[Decision]:
    try:
        return decisions_in(path)[:MAX_SHOWN]
    except OSError:
        return []


def _uses(view: AccountView) -> Iterator[dict[str, Any]]:
    """Yield the limits of a budget, each with the amount that one caller has used at one server."""
    for unit, words in _UNITS.items():
        limit = getattr(view.budget, unit)
        if limit is not None:
            yield {
                "budget": view.budget.name,
                "caller": "stdio" if view.caller.startswith("stdio:") else view.caller,
                "server": view.server,
                "used": view.used[unit],
                "limit": limit,
                "what": f"{words} in {rough(view.budget.window_seconds)}",
            }
