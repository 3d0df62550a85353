"""The pages about runs and about calls that wait for a person."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio.to_thread
from msgspec import Struct, structs
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from codemode_mcp.audit.trajectory_files import Bar, Call, Trace
from codemode_mcp.extensions.page.site import Problem, Site, from_now, one_of, paged
from codemode_mcp.extensions.page.timeline_rows import Row, drawing
from codemode_mcp.rules.policy.approval import Remember, may_be_always
from codemode_mcp.server.control.protocol import MAX_DECIDED, digest_of
from codemode_mcp.server.control.protocol import Request as ControlRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request

    from codemode_mcp.runs.views import RunView
    from codemode_mcp.server.control.answers import Control, Where


PAGE_SIZE: Final = 100
"""Runs on one page of the list."""

MAX_TOOLS: Final = 5
"""Tools of waiting calls that are named in a list of runs."""

STATES: Final = ("running", "waiting", "completed", "failed", "aborted", "expired")
"""The states by which runs can be filtered."""


def routes(site: Site) -> Sequence[Route]:
    async def list_runs(request: Request) -> Response:
        state, text = request.query_params.get("state", ""), request.query_params.get("q", "").strip()[:200]
        found, problems = await runs_of(site)
        counts = Counter(each.view.state for each in found)
        chosen = [each for each in found if _matches(each.view, state, text)]
        shown, number, pages = paged(request, chosen, PAGE_SIZE)
        return site.page(
            request,
            "runs.html",
            runs=[each.report() for each in shown],
            total=len(found),
            chosen=len(chosen),
            counts={each: counts[each] for each in STATES},
            state=state,
            text=text,
            number=number,
            pages=pages,
            problems=problems,
        )

    async def show_run(request: Request) -> Response:
        run_id = request.path_params["run"]
        recorded = await _recorded(site, run_id)
        try:
            answer = await site.ask(ControlRequest("show", run_id))
        except Problem:
            if recorded is None:
                raise
            return site.page(request, "run.html", **_shown(None, recorded), id=recorded.id, transcript=None)
        run = answer["run"]
        trace = recorded if recorded is not None and len(recorded.calls) >= len(run["calls"]) else None
        transcript = next(filter(None, (each.transcript(run["id"]) for each in site.controls)), None)
        return site.page(request, "run.html", **_shown(run, trace), id=run["id"], transcript=transcript)

    async def cancel(request: Request) -> Response:
        await site.change(request)
        answer = await site.ask(ControlRequest("cancel", request.path_params["run"]))
        if not answer["cancelled"]:
            raise Problem("The run ended before it could be cancelled.", 409)
        return JSONResponse({"message": "The run is cancelled."})

    return (
        Route("/runs", list_runs),
        Route("/runs/{run}", show_run),
        Route("/runs/{run}/cancel", cancel, methods=["POST"]),
    )


class Listed(Struct):
    """A run in a list.

    Attributes:
        control: the application that has reported the run.
        passed: milliseconds since that report.
    """

    view: RunView
    where: Where
    control: Control
    passed: int = 0

    @property
    def age_ms(self) -> int:
        return self.view.age_ms + self.passed

    def report(self) -> dict[str, Any]:
        """Return the report on the run, as JSON, with its present ages."""
        report = self.control.report(self.view, self.where)
        later = {"ageMs": self.passed, "endedMs": self.passed, "expiresMs": -self.passed}
        return report | {key: max(0, report[key] + by) for key, by in later.items() if report[key] is not None}


async def runs_of(site: Site) -> tuple[list[Listed], list[str]]:
    """Return all runs, and problems of stores.

    Runs that wait for a person come first, the others by age. Each run is listed once, by the application that has it.
    """
    found: dict[str, Listed] = {}
    problems = []
    controls = site.controls
    for control in controls:
        (stored, store), passed = await site.stored_runs.of(control)
        if "problem" in store:
            problems.append(store["problem"])
        for view, where in stored:
            if view.id not in found:
                found[view.id] = Listed(view, where, control, passed)
    for control in controls:
        for view, where in control.live():
            found[view.id] = Listed(view, where, control)
    return sorted(found.values(), key=lambda each: (not each.view.approvals, each.age_ms)), problems


def _matches(view: RunView, state: str, text: str) -> bool:
    if state and view.state != state:
        return False
    return not text or view.id.startswith(text) or text.casefold() in (view.principal or "").casefold()


async def _recorded(site: Site, run_id: str) -> Trace | None:
    """Return the timeline of a run from the trajectory; None without a trajectory, or if the run is not in it."""
    from codemode_mcp.audit.trajectory_files import NoTrace, find

    for application in site.applications:
        trajectory = application.config.audit.trajectory
        if trajectory is not None:
            try:
                return await anyio.to_thread.run_sync(find, Path(trajectory), run_id)
            except (NoTrace, OSError):
                continue
    return None


def _shown(run: Mapping[str, Any] | None, recorded: Trace | None) -> dict[str, Any]:
    """Return the values of the page of a run.

    Args:
        recorded: its timeline from the trajectory; None to draw it from the report of the run.
    """
    trace = recorded if recorded is not None or run is None else _trace_of(run)
    assert trace is not None
    drawn = drawing(trace)
    if run is not None and run["endedMs"] is None:
        drawn["rows"] = [_unended(row) for row in drawn["rows"]]
    return {
        "run": run,
        "trace": trace,
        **drawn,
        "program": _program_in(trace),
        "calls": [] if run is None else [{**each, "shown": _arguments(each["arguments"])} for each in run["calls"]],
    }


def _unended(row: Row) -> Row:
    """Return a row of a run that has not ended: a call without a recorded end is in flight, or waits for a person."""
    result = row.result.removeprefix("no end recorded")
    return row if result == row.result else structs.replace(row, result=result.removeprefix("; ") or "in flight")


def _arguments(arguments: Mapping[str, Any]) -> Any:
    for name in ("value", "shape", "text", "omitted"):
        if name in arguments:
            return arguments[name]
    return ""


def _program_in(trace: Trace) -> str:
    """Return the program in a recorded timeline; empty if it was not recorded."""
    for request in trace.requests:
        value = request.input.get("value", request.input.get("code"))
        if request.kind == "exec" and isinstance(value, str):
            return value
    return ""


def _trace_of(run: Mapping[str, Any]) -> Trace:
    """Return the timeline of a run from its report. Its times are seconds since the start of the run."""
    until = (run["ageMs"] - (run["endedMs"] or 0)) / 1000
    calls = []
    for each in run["calls"]:
        began, ended = each["atMs"] / 1000, (each["atMs"] + each["ms"]) / 1000
        is_over = each["status"] in ("completed", "failed")
        is_asked = each["status"] == "needs_approval"
        calls.append(
            Call(
                str(each["call"]),
                each["tool"],
                began,
                Bar(began, ended if is_over else None),
                status=each["status"] if is_over else "",
                code="" if is_over else each["status"].replace("_", " "),
                size=each["bytes"],
                dispatched=each["dispatched"],
                repeatable=each["repeatable"],
                asked=Bar(began, None, "waits for a person") if is_asked else None,
            )
        )
    return Trace(run["id"], Bar(0.0, until if run["endedMs"] is not None else None), until, calls=tuple(calls))


def waiting_runs(found: Sequence[Listed]) -> Iterator[dict[str, Any]]:
    """Yield the reports on the runs with calls that wait for a person, with the tools of these calls.

    The tools of a run that this process does not have are not known.
    """
    for each in found:
        if each.view.approvals:
            yield each.report() | {"tools": each.control.waiting_tools(each.view.id)[:MAX_TOOLS]}


# The pages about calls that wait for a person, and the decisions about them.
#
# A decision is about exactly the calls that the person was shown: each by its number and the digest of its arguments.


Decision = Literal["approve", "deny"]

MAX_TOGETHER: Final = 20
"""Calls of one run that are shown, and can be decided, together."""


def approval_routes(site: Site) -> Sequence[Route]:
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
            lasting=bool(calls) and may_be_always(each["tool"] for each in calls),
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
        "lasting": may_be_always([call["tool"]]),
    }
