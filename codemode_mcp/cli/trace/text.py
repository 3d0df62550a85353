"""A trace in a terminal. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.trace.timeline import Scale, duration, size
from codemode_mcp.control.display import columns, counted, cut, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.cli.trace.timeline import Bar, Call, Takeover, Trace

MAX_ROWS: Final = 500
"""Calls that are drawn; the rest is counted."""

_LABEL: Final = 34
_SAID: Final = 26
_FIGURES: Final = 13 + _SAID
_TAKEOVERS: Final = 3
_DRAWN = str.maketrans({"█": "#", "░": "-", "┊": ":", "▒": "?", "…": ".", "·": "-", "µ": "u"})


def drawn(trace: Trace, width: int, *, unicode: bool = True) -> Iterator[str]:
    """Yield the lines of a trace, at most `width` columns each where that leaves room for anything."""
    for line in _lines(trace, max(width, 70)):
        yield line if unicode else line.translate(_DRAWN)


def _lines(trace: Trace, width: int) -> Iterator[str]:
    yield from heading(trace)
    label = min(_LABEL, max(12, *(columns(plain(call.tool)) for call in trace.calls), 0)) if trace.calls else 12
    room = max(20, width - label - _FIGURES)
    earliest = min([trace.time.began, *(request.time.began for request in trace.requests)])
    scale = Scale(earliest, max(trace.until, earliest), trace.pauses)
    until = duration(max(0.0, trace.until - earliest))
    yield ""
    yield f"{'':{label}} 0{until:>{room - 1}}"
    for request in trace.requests:
        end = request.time.ended
        said = " ".join(part for part in (request.status, request.code) if part) or "no answer recorded"
        took = "" if end is None else duration(end - request.time.began)
        yield _row(request.kind, label, _bar(request.time, scale, room, trace, "█"), took, said)
    for call in trace.calls[:MAX_ROWS]:
        yield _row(call.tool, label, _call(call, scale, room, trace), *_figures(call, trace))
    if len(trace.calls) > MAX_ROWS:
        yield f"… {len(trace.calls) - MAX_ROWS} more calls; --html and --json have all of them"
    if trace.lost:
        yield f"{trace.lost} events were lost meanwhile; what is shown is not all"
    if trace.calls:
        yield ""
        yield "█ in flight  ░ queued  ▒ waiting for approval  ┊ the program is suspended"


def heading(trace: Trace) -> Iterator[str]:
    """Yield the facts of the run, in two lines."""
    status = trace.status or "no end recorded"
    code = f" ({trace.code})" if trace.code else ""
    took = "" if trace.time.ended is None else f" in {duration(trace.time.ended - trace.time.began)}"
    figures = [counted(len(trace.calls), "call")]
    if trace.pauses:
        paused = sum((trace.until if each.ended is None else each.ended) - each.began for each in trace.pauses)
        figures.append(f"suspended {counted(len(trace.pauses), 'time')} for {duration(paused)}")
    yield f"{plain(trace.id)}  {plain(status + code)}{took}, {', '.join(figures)}"
    taken = [_taken(each, trace.time.began) for each in trace.takeovers[:_TAKEOVERS]]
    if len(trace.takeovers) > len(taken):
        taken.append(f"and {len(trace.takeovers) - len(taken)} times more")
    yield " · ".join([moment(trace.time.began), *map(plain, trace.about), *taken])


def _taken(takeover: Takeover, began: float) -> str:
    process = "another process" if takeover.process is None else f"process {takeover.process}"
    return f"taken over by {process} after {duration(max(0.0, takeover.at - began))}"


def listed(traces: Sequence[Trace]) -> Iterator[str]:
    """Yield one line for each run, under the names that `runs list` has for the same columns."""
    rows = [["RUN", "STATE", "BEGAN", "CALLS", "TOOK", "SERVERS"]]
    for trace in traces:
        took = "" if trace.time.ended is None else duration(trace.time.ended - trace.time.began)
        state = (trace.status or "no end recorded") + (f" ({trace.code})" if trace.code else "")
        sources = dict.fromkeys(call.tool.split(":")[1] for call in trace.calls if call.tool.count(":") > 1)
        row = (trace.id, state, moment(trace.time.began), str(len(trace.calls)), took, ", ".join(sources))
        rows.append([cut(cell, 100) for cell in row])
    widths = [max(columns(row[number]) for row in rows) for number in range(len(rows[0]))]
    for shown in rows if traces else ():
        yield "  ".join(
            cell + " " * (width - columns(cell)) for cell, width in zip(shown, widths, strict=True)
        ).rstrip()


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def as_json(trace: Trace) -> dict[str, Any]:
    """Return a trace for programs: times in Unix seconds, sizes in bytes."""

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


def _row(name: str, label: int, bar: str, took: str, said: str) -> str:
    shown = cut(name, label)
    shown += " " * max(0, label - columns(shown))
    return f"{shown} {bar} {took:>9}  {cut(said, _SAID)}".rstrip()


def _figures(call: Call, trace: Trace) -> tuple[str, str]:
    if not call.status:
        return "", "no end recorded"
    took = duration(call.milliseconds(trace.until) / 1000)
    if call.status == "completed":
        return took, size(call.size)
    return took, f"{call.status}: {call.code}" if call.code else call.status


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
    """Fill the cells of a bar, at least one, however short it was."""
    room = len(cells)
    first = min(round(scale(bar.began) * room), room - 1)
    last = max(first + 1, round(scale(trace.until if bar.ended is None else bar.ended) * room))
    cells[first:last] = mark * (min(last, room) - first)
