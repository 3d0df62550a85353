"""`codemode-mcp trace`: the timeline of a run, from the trajectory or from a running program. Pure."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit import Redactor
from codemode_mcp.audit.redaction import Inputs
from codemode_mcp.audit.trajectory import document_of
from codemode_mcp.audit.trajectory_files import Bar, Call, Scale, Takeover, Trace, duration, moment, trace_of
from codemode_mcp.base.display import columns, counted, cut, padded, plain, table
from codemode_mcp.cli.messages import COLUMNS, is_utf8, say, stop
from codemode_mcp.extension_points import first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from codemode_mcp.audit.events import Event
    from codemode_mcp.config import Config


MAX_LINES: Final = 500
"""Maximum number of calls that are drawn. The text gives the number of the others."""

_LABEL: Final = 34
"""Largest number of columns for the name of a tool."""

_RESULT: Final = 26
"""Columns for the result of a call."""

_FIGURES: Final = 13 + _RESULT
_MAX_TAKEOVERS: Final = 3
_ASCII = str.maketrans({"█": "#", "░": "-", "┊": ":", "▒": "?", "…": ".", "·": "-", "µ": "u"})


def drawn(trace: Trace, width: int, *, unicode: bool = True) -> Iterator[str]:
    """Yield the lines of a trace.

    Args:
        width: columns of the terminal. The drawing uses at least 70.
        unicode: False to draw in ASCII.
    """
    for line in _lines(trace, max(width, 70)):
        yield line if unicode else line.translate(_ASCII)


def _lines(trace: Trace, width: int) -> Iterator[str]:
    yield from heading(trace)
    label = min(_LABEL, max(12, *(columns(plain(call.tool)) for call in trace.calls), 0)) if trace.calls else 12
    room = max(20, width - label - _FIGURES)
    scale = Scale(trace.earliest, max(trace.until, trace.earliest), trace.pauses)
    until = duration(max(0.0, trace.until - trace.earliest))
    yield ""
    yield f"{'':{label}} 0{until:>{room - 1}}"
    for request in trace.requests:
        bar = _bar(request.time, scale, room, trace, "█")
        yield _line(request.kind, label, bar, _took(request.time), request.result)
    for call in trace.calls[:MAX_LINES]:
        took = duration(call.milliseconds(trace.until) / 1000) if call.status else ""
        yield _line(call.tool, label, _call(call, scale, room, trace), took, call.result)
    if len(trace.calls) > MAX_LINES:
        yield f"… {len(trace.calls) - MAX_LINES} more calls; --html and --json have all of them"
    if trace.lost:
        yield f"{trace.lost} events were lost, so this is not everything"
    if trace.calls:
        yield ""
        yield "█ in flight  ░ queued  ▒ waiting for approval  ┊ the program is suspended"


def heading(trace: Trace) -> Iterator[str]:
    took = f" in {_took(trace.time)}" if _took(trace.time) else ""
    figures = [counted(len(trace.calls), "call")]
    if trace.pauses:
        paused = sum((trace.until if each.ended is None else each.ended) - each.began for each in trace.pauses)
        figures.append(f"suspended {counted(len(trace.pauses), 'time')} for {duration(paused)}")
    yield f"{plain(trace.id)}  {plain(_state(trace))}{took}, {', '.join(figures)}"
    takeovers = [_takeover(each, trace.time.began) for each in trace.takeovers[:_MAX_TAKEOVERS]]
    if len(trace.takeovers) > len(takeovers):
        takeovers.append(f"and {len(trace.takeovers) - len(takeovers)} times more")
    yield " · ".join([moment(trace.time.began), *map(plain, trace.about), *takeovers])


def _state(trace: Trace) -> str:
    return (trace.status or "no end recorded") + (f" ({trace.code})" if trace.code else "")


def _took(time: Bar) -> str:
    return "" if time.ended is None else duration(time.ended - time.began)


def _takeover(takeover: Takeover, began: float) -> str:
    process = "another process" if takeover.process is None else f"process {takeover.process}"
    return f"taken over by {process} after {duration(max(0.0, takeover.at - began))}"


def listed(traces: Sequence[Trace]) -> Iterator[str]:
    """Yield the lines of a table of runs. The columns have the same names as in `runs list`."""
    rows = []
    for trace in traces:
        servers = ", ".join(dict.fromkeys(call.tool.split(":")[1] for call in trace.calls if call.tool.count(":") > 1))
        calls = str(len(trace.calls))
        rows.append((trace.id, _state(trace), moment(trace.time.began), calls, _took(trace.time), servers))
    if rows:
        yield from table(("RUN", "STATE", "BEGAN", "CALLS", "TOOK", "SERVERS"), rows, 1000)


def as_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as JSON, with times in Unix seconds and sizes in bytes."""

    def span(bar: Bar) -> dict[str, Any]:
        return {"began": bar.began, "ended": bar.ended} | ({"detail": bar.detail} if bar.detail else {})

    return {
        "id": trace.id,
        **span(trace.time),
        "status": trace.status or None,
        "code": trace.code or None,
        "requests": [
            {"kind": each.kind, **span(each.time), "request": each.number, "status": each.status or None}
            | ({"code": each.code} if each.code else {})
            | ({"input": each.input} if each.input else {})
            for each in trace.requests
        ],
        "parked": [span(each) for each in trace.pauses],
        "takenOver": [{"at": each.at, "pid": each.process} for each in trace.takeovers],
        "calls": [
            {
                "id": call.id,
                "tool": call.tool,
                "made": call.made,
                **span(call.time),
                "status": call.status or None,
                "bytes": call.size,
                "dispatched": call.dispatched,
                "repeatable": call.repeatable,
            }
            | ({"code": call.code} if call.code else {})
            | ({"approval": span(call.asked)} if call.asked is not None else {})
            | ({"input": call.input} if call.input else {})
            for call in trace.calls
        ],
        "lost": trace.lost,
    }


def _line(name: str, label: int, bar: str, took: str, result: str) -> str:
    return f"{padded(name, label)} {bar} {took:>9}  {cut(result, _RESULT)}".rstrip()


def _call(call: Call, scale: Scale, room: int, trace: Trace) -> str:
    cells = list(_bar(call.time, scale, room, trace, "█"))
    if call.asked is not None:
        _fill(cells, call.asked, scale, trace, "▒")
    if call.made < call.time.began:
        first, last = round(scale(call.made) * room), round(scale(call.time.began) * room)
        cells[first:last] = "░" * (last - first)
    return "".join(cells)


def _bar(bar: Bar, scale: Scale, room: int, trace: Trace, mark: str) -> str:
    cells = [" "] * room
    for pause in trace.pauses:
        _fill(cells, pause, scale, trace, "┊")
    _fill(cells, bar, scale, trace, mark)
    return "".join(cells)


def _fill(cells: list[str], bar: Bar, scale: Scale, trace: Trace, mark: str) -> None:
    """Fill the cells of a bar with a mark. At least one cell is filled."""
    room = len(cells)
    first = min(round(scale(bar.began) * room), room - 1)
    last = max(first + 1, round(scale(trace.until if bar.ended is None else bar.ended) * room))
    cells[first:last] = mark * (min(last, room) - first)


MAX_EVENTS: Final = 200_000
"""Maximum number of events that are kept for a trace. Further events are counted as lost."""

MAX_INPUTS: Final = 64 * 1024 * 1024
"""Maximum number of characters of inputs that are kept for a trace."""


class Record:
    """The events of one run, kept for its trace."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._run: str | None = None
        self._inputs = 0
        self._lost = 0

    def __repr__(self) -> str:
        return f"<Record: {len(self._events)} events>"

    def listen(self, event: Event) -> None:
        """Keep an event. Pass this method to an auditor as a listener."""
        if event.kind == "run_started":
            self._run = event.id
        size = len(event.inputs or "")
        if len(self._events) >= MAX_EVENTS or self._inputs + size > MAX_INPUTS:
            self._lost += 1
            return
        self._inputs += size
        self._events.append(event)

    def trace(self, inputs: Inputs, redact: Callable[[str], str]) -> Trace | None:
        """Return the trace of the run, or None if no run has started.

        The trace is the same as one that is read from a trajectory.
        """
        if self._run is None:
            return None
        documents = [document_of(event, inputs, redact) for event in self._events]
        if self._lost:
            documents.append({"time": self._events[-1].time, "kind": "lost", "events": self._lost})
        return trace_of(self._run, documents)


def page(trace: Trace) -> str:
    """Return the HTML of the page of a trace. End the command if nothing in this installation writes pages."""
    timeline_page = first(lambda each: each.timeline_page)
    if timeline_page is None:
        stop(1, "this installation writes no pages; leave out the option for HTML")
    return timeline_page(trace, list(heading(trace)))


class Drawing(Record):
    """The events of the run, and how they are shown."""

    def show(self, config: Config, html: Path | None, *, draw: bool) -> None:
        """Draw the run on stderr, and write its page."""
        redactor = Redactor()
        redactor.know(config.secretive)
        found = self.trace(Inputs(include=config.audit.include_inputs), redactor)
        if found is None:
            say("the program did not start: there is no trace of it")
            return
        if draw:
            width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stderr.isatty() else COLUMNS
            for line in drawn(found, width, unicode=is_utf8(sys.stderr)):
                sys.stderr.write(f"{line}\n")
        if html is not None:
            try:
                html.write_text(page(found), "utf-8")
            except OSError as error:
                stop(1, f"cannot write the trace to {html}: {error.strerror}; name another file with --trace-html")
            say(f"the trace is in {html}")
