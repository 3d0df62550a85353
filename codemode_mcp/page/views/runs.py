"""The pages about runs: the list, and one run with its timeline, its program and its output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.responses import JSONResponse
from starlette.routing import Route

from codemode_mcp.audit.timeline import Bar, Call, Trace
from codemode_mcp.control.protocol import Request as ControlRequest
from codemode_mcp.page.site import Problem
from codemode_mcp.page.timeline_rows import drawing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.control.answers import Control, Where
    from codemode_mcp.page.site import Site
    from codemode_mcp.page.timeline_rows import Row
    from codemode_mcp.runs.views import RunView

PAGE_SIZE: Final = 100
"""Runs on one page of the list."""

MAX_TOOLS: Final = 5
"""Tools of waiting calls that are named in a list of runs."""

STATES: Final = ("running", "waiting", "completed", "failed", "aborted", "expired")
"""The states by which runs can be filtered."""


def routes(site: Site) -> Sequence[Route]:
    """Return the addresses of these pages."""

    async def list_runs(request: Request) -> Response:
        state, text = request.query_params.get("state", ""), request.query_params.get("q", "").strip()[:200]
        number = request.query_params.get("page", "1")
        found, problems = await runs_of(site)
        counts = Counter(each.view.state for each in found)
        chosen = [each for each in found if _matches(each.view, state, text)]
        pages = max(1, -(-len(chosen) // PAGE_SIZE))
        page = min(pages, max(1, int(number) if number.isascii() and number.isdecimal() else 1))
        shown = chosen[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        return site.page(
            request,
            "runs.html",
            runs=[each.report() for each in shown],
            total=len(found),
            chosen=len(chosen),
            counts={each: counts[each] for each in STATES},
            state=state,
            text=text,
            number=page,
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
            return site.page(request, "run.html", **_shown(None, None, recorded), id=recorded.id, transcript=None)
        run = answer["run"]
        trace = recorded if recorded is not None and len(recorded.calls) >= len(run["calls"]) else None
        transcript = next(filter(None, (each.transcript(run["id"]) for each in site.controls)), None)
        return site.page(
            request, "run.html", **_shown(run, answer["server"], trace), id=run["id"], transcript=_printed(transcript)
        )

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


@dataclass(slots=True)
class Listed:
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


def _shown(run: Mapping[str, Any] | None, server: Mapping[str, Any] | None, recorded: Trace | None) -> dict[str, Any]:
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
        "server": server,
        "trace": trace,
        **drawn,
        "program": _program_in(trace),
        "calls": [] if run is None else [{**each, "shown": _arguments(each["arguments"])} for each in run["calls"]],
    }


def _unended(row: Row) -> Row:
    """Return a row of a run that has not ended: a call without a recorded end is in flight, or waits for a person."""
    result = row.result.removeprefix("no end recorded")
    return row if result == row.result else replace(row, result=result.removeprefix("; ") or "in flight")


def _arguments(arguments: Mapping[str, Any]) -> Any:
    """Return the part of a call's arguments that is known, as JSON."""
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


def _printed(transcript: Any) -> dict[str, Any] | None:
    if transcript is None:
        return None
    from codemode_mcp.runs.outputs import printed

    outputs = None if transcript.outputs is None else "\n".join(map(printed, transcript.outputs))
    return {
        "source": transcript.source,
        "output": outputs,
        "value": transcript.value,
        "error": transcript.error,
        "ended": transcript.ended,
    }


def waiting_runs(found: Sequence[Listed]) -> Iterator[dict[str, Any]]:
    """Yield the reports on the runs with calls that wait for a person, with the tools of these calls.

    The tools of a run that this process does not have are not known.
    """
    for each in found:
        if each.view.approvals:
            yield each.report() | {"tools": each.control.waiting_tools(each.view.id)[:MAX_TOOLS]}
