"""The page about policy: the rules in force, and what was decided, by whom and why."""

from __future__ import annotations

from collections import OrderedDict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.routing import Route

from codemode_mcp.audit.event_fields import number, text
from codemode_mcp.audit.trajectory_files import events_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site

MAX_DECISIONS: Final = 200
"""Latest decisions that are shown."""

MAX_ASKED: Final = 20_000
"""Calls whose reason for asking is remembered until they are decided."""

_WORDS: Final = {
    "call_decided": "a call",
    "tool_switched": "a tool",
    "item_accepted": "what a server lists",
    "item_rejected": "what a server lists",
    "item_held": "what a server lists",
    "server_restarted": "a server",
}
"""Subjects of decisions, by the kind of their event."""


def routes(site: Site) -> Sequence[Route]:
    """Return the address of this page."""

    async def policy(request: Request) -> Response:
        application = site.first()
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
        )

    return (Route("/policy", policy),)


def _decisions(path: Path) -> list[dict[str, Any]]:
    """Return the latest decisions in the trajectory, the newest first. Blocks."""
    found: deque[dict[str, Any]] = deque(maxlen=MAX_DECISIONS)
    reasons: OrderedDict[str, str] = OrderedDict()
    try:
        for event in events_with(path, tuple(f'"kind":"{kind}"' for kind in (*_WORDS, "call_asked"))):
            kind, about = text(event, "kind"), text(event, "id")
            if kind == "call_asked":
                reasons[about] = text(event, "reason")
                if len(reasons) > MAX_ASKED:
                    reasons.popitem(last=False)
            elif kind in _WORDS:
                found.append(_decision(event, kind, about, reasons.pop(about, "")))
    except OSError:
        return []
    return [*reversed(found)]


def _decision(event: dict[str, Any], kind: str, about: str, reason: str) -> dict[str, Any]:
    match kind:
        case "call_decided":
            done = "approved" if event.get("approved") is True else "denied"
            subject = text(event, "tool") or about
        case "tool_switched":
            done = "switched on" if event.get("on") is True else "switched off"
            subject = about
        case _:
            done = kind.partition("_")[2]
            subject = about
    run, _, call = about.partition("/")
    return {
        "time": number(event.get("time")) or 0.0,
        "subject": subject,
        "what": _WORDS[kind],
        "done": done,
        "by": text(event, "by"),
        "why": ": ".join(filter(None, (reason, text(event, "why") or text(event, "status")))),
        "remember": text(event, "remember"),
        "run": run if call else "",
    }
