"""The pages about calls that wait for a person, and the decisions about them.

A decision is about exactly the calls that the person was shown: each by its number and the digest of its arguments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import JSONResponse
from starlette.routing import Route

from codemode_mcp.control.protocol import MAX_DECIDED, digest_of
from codemode_mcp.control.protocol import Request as ControlRequest
from codemode_mcp.page.rendering import from_now
from codemode_mcp.page.site import Problem, one_of
from codemode_mcp.page.views.runs import runs_of, waiting_runs
from codemode_mcp.policy.approval import Remember, can_be_remembered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site

Decision = Literal["approve", "deny"]

MAX_TOGETHER: Final = 20
"""Calls of one run that are shown, and can be decided, together."""


def routes(site: Site) -> Sequence[Route]:
    """Return the addresses of these pages."""

    async def list_approvals(request: Request) -> Response:
        found, problems = await runs_of(site)
        waiting = list(waiting_runs(found))
        return site.page(request, "approvals.html", runs=waiting, problems=problems)

    async def show_approvals(request: Request) -> Response:
        answer = await site.ask(ControlRequest("show", request.path_params["run"]))
        run = answer["run"]
        calls = [_call(each) for each in run["waiting"][:MAX_TOGETHER]]
        return site.page(
            request,
            "approval.html",
            run=run,
            server=answer["server"],
            calls=calls,
            seen=json.dumps([[each["call"], each["digest"]] for each in calls]),
            more=len(run["waiting"]) + run["waitingOmitted"] - len(calls),
            lasting=bool(calls) and all(can_be_remembered(each["tool"]) for each in calls),
            config=answer["server"]["config"],
        )

    async def decide(request: Request) -> Response:
        body = await site.change(request)
        approved = one_of(body.get("decision"), Decision, "decision") == "approve"
        remember = one_of(body.get("remember", "no"), Remember, "remember")
        run = request.path_params["run"]
        wanted = ControlRequest("decide", run, _seen(body.get("calls")), approved, remember if approved else "no")
        answer = await site.ask(wanted)
        decided = answer["decided"]
        if not decided:
            raise Problem("Nothing was decided: these calls no longer wait.", 409)
        done = "approved" if approved else "denied"
        numbers = ", ".join(map(str, decided))
        message = f"Call{'' if len(decided) == 1 else 's'} {numbers} {done}."
        if answer["expiresMs"] is not None:
            message += f" The client must call wait by {from_now(answer['expiresMs'])}."
        return JSONResponse({"message": message, "decided": decided})

    return (
        Route("/approvals", list_approvals),
        Route("/approvals/{run}", show_approvals),
        Route("/approvals/{run}/decide", decide, methods=["POST"]),
    )


def _seen(calls: Any) -> tuple[tuple[int, str], ...]:
    """Return the calls that the person was shown. Raise `Problem`."""
    try:
        found = json.loads(calls) if isinstance(calls, str) else calls
        seen = tuple((number, digest) for number, digest in found)
    except (ValueError, TypeError, RecursionError):
        seen = ()
    is_valid = all(type(number) is int and isinstance(digest, str) for number, digest in seen)
    if not seen or len(seen) > MAX_DECIDED or not is_valid:
        raise Problem("The request does not name the calls that were shown.")
    return seen


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a waiting call for the page. Raise `Problem` if its arguments do not have their digest."""
    text, length = call["arguments"], call["characters"]
    is_whole = len(text) == length
    if is_whole and digest_of(text) != call["digest"]:
        raise Problem(f"The arguments of call {call['call']} do not have their digest. Nothing can be decided.", 500)
    effects = [name.replace("_", " ") for name, applies in call["effects"].items() if applies]
    return {
        **call,
        "whole": is_whole,
        "effects": ", ".join(effects) or "changes something, stays within its server",
        "seen": json.dumps([[call["call"], call["digest"]]]),
        "lasting": can_be_remembered(call["tool"]),
    }
