"""The pages about tools and policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from codemode_mcp.audit.trajectory_files import Decision, decisions_in
from codemode_mcp.base.display import rough
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.catalog.catalog import EVERYTHING, Catalog
from codemode_mcp.config.edit import switch_tool
from codemode_mcp.extensions.page.site import Problem, Site, paged
from codemode_mcp.rules.policy.approval import AT_PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.requests import Request

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.rules.policy.budgets import AccountView, Unit
    from codemode_mcp.server.services import App


PAGE_SIZE: Final = 100
"""Tools on one page."""

MAX_QUERY: Final = 1000
"""Characters of a search."""


def routes(site: Site) -> Sequence[Route]:
    async def list_tools(request: Request) -> Response:
        application = site.chosen(request)
        query = request.query_params.get("q", "").strip()[:MAX_QUERY]
        server = request.query_params.get("server", "")
        catalog = await application.catalog_for(application.operator, None)
        servers = [view.name for view in application.server_views()]
        hits: list[dict[str, Any]] = []
        if query:
            identifiers = {each.name: each.identifier for each in catalog.servers}
            limit = application.settings().code_mode.search_default_limit
            ids = {entry.path: entry.id for entry in catalog.index.tools}
            hits = catalog.search(query, limit, identifiers.get(server), EVERYTHING)
            # Servers and groups of tools have no id.
            hits = [hit if "id" in hit else {**hit, "id": ids.get(hit["call"])} for hit in hits]
        rows = [] if query else [each for each in _rows(application, catalog) if server in ("", each["server"])]
        tools, number, pages = paged(request, rows, PAGE_SIZE)
        return site.page(
            request,
            "tools.html",
            tools=tools,
            hits=hits,
            query=query,
            server=server,
            servers=servers,
            held=sum(each["decision"] == "held" for each in rows),
            total=len(rows),
            number=number,
            pages=pages,
        )

    async def show_tool(request: Request) -> Response:
        application = site.chosen(request)
        catalog = await application.catalog_for(application.operator, None)
        tool_id = request.path_params["tool"]
        row = next((each for each in _rows(application, catalog) if each["id"] == tool_id), None)
        if row is None:
            raise Problem("There is no such tool.", 404)
        entry = catalog.get(tool_id)
        return site.page(
            request,
            "tool.html",
            tool=row,
            entry=entry,
            signature=None if entry is None else catalog.signature(entry),
            declaration=None if entry is None else _declaration(catalog, entry),
            config=application.config.path,
        )

    async def switch(request: Request) -> Response:
        body = await site.change(request)
        application, tool_id = site.chosen(request), request.path_params["tool"]
        catalog = await application.catalog_for(application.operator, None)
        if all(each["id"] != tool_id for each in _rows(application, catalog)):
            raise Problem("There is no such tool.", 404)
        if body.get("switch") not in ("on", "off"):
            raise Problem("switch is neither 'on' nor 'off'.")
        on = body["switch"] == "on"
        path = application.config.path
        if path is None:
            raise Problem("There is no configuration file to change.", 409)
        try:
            changed = await anyio.to_thread.run_sync(lambda: switch_tool(path, tool_id, on=on))
        except ConfigError as error:
            raise Problem("; ".join(error.problems), 409) from None
        if changed:
            application.auditor.emit("tool_switched", tool_id, by=AT_PAGE, on=on)
        where = "removed from" if on else "added to"
        done = f"The tool is {where} tools.deny in {path}." if changed else f"{path} has this already."
        return JSONResponse({"message": f"{done} It takes effect in a moment."})

    return (
        Route("/tools", list_tools),
        Route("/tools/{tool:path}/switch", switch, methods=["POST"]),
        Route("/tools/{tool:path}", show_tool),
    )


def _rows(application: App, catalog: Catalog) -> list[dict[str, Any]]:
    """Return all tools of servers and plugins, also those that are denied or held, each with the decision about it.

    Nothing is shown of a definition that a person has not accepted, but the name.
    """
    from codemode_mcp.catalog.entries import mcp_id
    from codemode_mcp.rules.trust.views import reason_of
    from upstream_clients.tools import Tool

    policy = application.policies.of(application.operator)
    rows = []
    for view in application.server_views():
        trusted = application.trust.trusted(view)
        usable = {tool.name: tool for tool in trusted.tools}
        for listed in view.tools:
            tool_id = mcp_id(view.name, listed.name)
            accepted = usable.get(listed.name) or application.trust.accepted_tool(view.name, listed.name)
            tool = accepted or Tool(listed.name)
            effects = policy.effects(tool_id, tool.annotations)
            decision, why = policy.explain(tool_id, effects)
            shown_decision: str = decision
            if listed.name in trusted.withheld and decision != "deny":
                shown_decision, why = "held", reason_of(trusted.withheld[listed.name])
            entry = catalog.get(tool_id)
            # Programs see the texts with overrides.
            shown = tool if entry is None else entry.tool
            row = _row(tool_id, view.name, shown, effects, shown_decision, why, policy.switches_off(tool_id))
            rows.append(row if accepted is not None else {**row, "effects": "", "schema": None})
    for entry in catalog.toolset.entries:
        decision, why = policy.explain(entry.id, entry.effects)
        off = policy.switches_off(entry.id)
        rows.append(_row(entry.id, entry.source_name, entry.tool, entry.effects, decision, why, off))
    return rows


def _row(tool_id: str, server: str, tool: Any, effects: Any, decision: str, why: str, off: bool) -> dict[str, Any]:
    named = (("read-only", effects.read_only), ("destructive", effects.destructive), ("open world", effects.open_world))
    return {
        "id": tool_id,
        "server": server,
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "schema": tool.input_schema,
        "effects": ", ".join(name for name, applies in named if applies),
        "decision": decision,
        "why": why,
        "off": off,
    }


def _declaration(catalog: Catalog, entry: Entry) -> str | None:
    """Return the declaration of a tool as a model reads it; None for a tool of a plugin."""
    if entry.source != "mcp":
        return None
    server = next((each for each in catalog.servers if each.name == entry.source_name), None)
    if server is None or entry.method != "tools/call":
        return None
    return str(catalog.files.read(f"{server.path}#{entry.tool.name}")["content"])


MAX_SHOWN: Final = 200
"""Latest decisions that are shown."""

_UNITS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes of results", "running_ms": "ms of running calls"}


def policy_routes(site: Site) -> Sequence[Route]:
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
