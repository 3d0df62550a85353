"""The pages about pins: what servers have changed since a person accepted it, and the decisions about the changes.

A decision is about exactly the definition that the person was shown, by its digest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import anyio.to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from codemode_mcp.extensions.page.site import Problem, Site, one_of
from codemode_mcp.rules.policy.approval import AT_PAGE
from codemode_mcp.rules.trust.comparison import ItemReport, Stale
from codemode_mcp.rules.trust.findings import Examples, grouped, new_findings
from codemode_mcp.rules.trust.items import Kind, is_api, reference
from codemode_mcp.rules.trust.pins_file import PinsUnavailable
from codemode_mcp.rules.trust.text_diff import differences_of, shortened
from codemode_mcp.rules.trust.views import state_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from starlette.requests import Request

    from codemode_mcp.server.services import App

MAX_ITEMS: Final = 50
"""Items of one server that are shown with their differences, and can be decided, together."""

MAX_VALUES: Final = 200
"""Values of one item that are shown."""

Decision = Literal["accept", "reject"]


def routes(site: Site) -> Sequence[Route]:
    async def list_servers(request: Request) -> Response:
        servers = [_server(application, name) for application, name in _servers(site)]
        found = (application.trust.problem(name) for application, name in _servers(site))
        problems = [each for each in found if each is not None]
        return site.page(request, "trust.html", servers=servers, problems=problems)

    async def show_server(request: Request) -> Response:
        name = request.path_params["server"]
        application = _application_of(site, name)
        reports = application.trust.reports(name)
        differing = [each for each in reports if each.status != "accepted"]
        shown = differing[:MAX_ITEMS]
        tools = {view.name: {tool.name for tool in view.tools} for view in application.server_views()}
        every = set().union(*(names for server, names in tools.items() if server != name))
        others = frozenset(every - tools.get(name, set()))
        of_api = is_api(reports)
        examples = Examples()
        items = await anyio.to_thread.run_sync(lambda: [_item(each, others, examples, of_api=of_api) for each in shown])
        return site.page(
            request,
            "trust_server.html",
            server=_server(application, name),
            items=items,
            groups=grouped(examples.every) if examples.is_cut else (),
            together=json.dumps([each["shown"] for each in items if each["acceptable"]]),
            acceptable=sum(each["acceptable"] for each in items),
            more=len(differing) - len(shown),
            accepted=[each.name for each in reports if each.status == "accepted" and each.kind == "tool"],
        )

    async def decide(request: Request) -> Response:
        body = await site.change(request)
        name = request.path_params["server"]
        decision = one_of(body.get("decision"), Decision, "decision")
        seen = _seen(body.get("items"))
        trust = _application_of(site, name).trust
        decide = trust.accept if decision == "accept" else trust.reject
        if decision == "accept" and any(
            (each.kind, each.name) in seen and differences_of(each) is None for each in trust.reports(name)
        ):
            raise Problem("Nothing was accepted: one of these definitions cannot be shown.", 409)
        try:
            await decide(name, seen, AT_PAGE)
        except KeyError:
            raise Problem("There is no such item, or the lock file decides about it.", 409) from None
        except (Stale, PinsUnavailable) as error:
            raise Problem(f"Nothing was decided: {error}.", 409) from None
        site.changes.tell("trust", "tools")
        (kind, item), *others = seen
        done = f"{len(seen)} items of {name[:60]} are" if others else f"{reference(name, kind, item)} is"
        return JSONResponse({"message": f"{done} {decision}ed."})

    return (
        Route("/trust", list_servers),
        Route("/trust/{server:path}/decide", decide, methods=["POST"]),
        Route("/trust/{server:path}", show_server),
    )


def _seen(items: Any) -> dict[tuple[Kind, str], str]:
    """Return the digests of the items that the person was shown. Raise `Problem`."""
    try:
        found = json.loads(items) if isinstance(items, str) else items
        seen = {(one_of(kind, Kind, "kind"), item): digest for kind, item, digest in found}
    except (ValueError, TypeError, RecursionError):
        seen = {}
    if not 0 < len(seen) <= MAX_ITEMS or not all(
        isinstance(item, str) and isinstance(digest, str) for (_, item), digest in seen.items()
    ):
        raise Problem("The request does not name the items that were shown.")
    return seen


def _servers(site: Site) -> list[tuple[App, str]]:
    found: dict[str, App] = {}
    for application in site.applications:
        for spec in application.config.upstreams:
            found.setdefault(spec.name, application)
    return [(application, name) for name, application in found.items()]


def _application_of(site: Site, server: str) -> App:
    """Return the application of a server. Raise `Problem` for an unknown server."""
    for application, name in _servers(site):
        if name == server:
            return application
    raise Problem("There is no such server.", 404)


def _server(application: App, name: str) -> dict[str, Any]:
    every = application.trust.reports(name)
    reports = [each for each in every if each.kind != "entry"]
    return {
        "name": name,
        "address": f"/trust/{quote(name, safe='')}",
        "followed": not application.trust.is_pinned(name),
        "other_entry": any(each.kind == "entry" and each.status != "accepted" for each in every),
        "total": len(reports),
        "held": sum(each.held for each in reports),
        "texts": sum(not each.held and each.status in ("text_changed", "rejected") for each in reports),
        "removed": sum(each.status == "removed" for each in reports),
    }


def _item(report: ItemReport, others: Collection[str], examples: Examples, *, of_api: bool) -> dict[str, Any]:
    accepted, present = report.accepted, report.present
    shown = accepted if present is None else present
    assert shown is not None  # an item is accepted or present
    found_differences = differences_of(report)
    unknown, differences = found_differences is None, found_differences or ()
    more = max(0, len(differences) - MAX_VALUES)
    item = [report.kind, report.name, shown.digest]
    found = new_findings(report, others, is_api=of_api) if report.is_comparable else ()
    findings, more_findings = examples.split(report, found)
    return {
        "reference": reference(report.server, report.kind, report.name),
        "status": report.status,
        "state": state_of(report),
        "shown": item,
        "one": json.dumps([item]),
        "can_accept": not unknown and not more,
        "acceptable": not unknown and not more and report.status != "rejected",
        "unknown": unknown and report.is_comparable,
        "can_reject": report.is_comparable and report.status in ("text_changed", "changed", "new"),
        "differences": [(each.where or "/", shortened(each.parts)) for each in differences[:MAX_VALUES]],
        "more": more,
        "findings": findings,
        "more_findings": more_findings,
    }
