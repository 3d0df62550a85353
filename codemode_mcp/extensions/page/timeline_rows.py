"""The timeline of a run as rows with SVG drawings, for the page and for `codemode-mcp trace --html`. Pure."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from codemode_mcp.audit.trajectory_files import Bar, Call, Scale, Trace, duration, moment, size, svg_number
from codemode_mcp.base.display import plain

MAX_ROWS: Final = 5_000
"""Maximum number of calls that are drawn."""

MIN_FOLDED: Final = 4
"""Least number of successive completed calls of one tool that share a row."""

_WIDTH: Final = 1000
"""Width of the drawing, in units of the SVG."""


class Row(Struct, frozen=True):
    """One request, call, or group of calls.

    Attributes:
        bars: the drawing, as SVG.
        took: the duration in words; empty if no end is recorded.
        failed: True to mark the result as bad.
        input: the recorded input as text; empty if there is none.
    """

    name: str
    bars: str
    took: str
    result: str
    failed: bool
    input: str


class Mark(Struct, frozen=True):
    """A time on the axis. `at`: its position from 0 to 1."""

    at: float
    text: str


def drawing(trace: Trace) -> dict[str, Any]:
    """Return the values of the template of a timeline."""
    return {
        "rows": list(rows(trace)),
        "axis": list(axis(trace)),
        "key": [(swatch(kind), words) for kind, words in key(trace)],
        "omitted": max(0, len(trace.calls) - MAX_ROWS),
    }


def rows(trace: Trace) -> Iterator[Row]:
    """Yield the rows of a timeline: the requests, then at most `MAX_ROWS` calls."""
    earliest, latest = trace.earliest, max(trace.until, trace.earliest)
    scale = Scale(earliest, latest, trace.pauses)
    for request in trace.requests:
        title = f"{request.kind}: {_span(request.time, earliest)}"
        bar = _bars(trace, scale, [(request.time, "request", title)])
        yield _row(request.kind, bar, request.time, request.result, request.code != "", request.input)
    for _, group in groupby(trace.calls[:MAX_ROWS], _row_key):
        calls = list(group)
        if len(calls) >= MIN_FOLDED:
            yield _folded(calls, trace, scale, earliest)
        else:
            for call in calls:
                yield _call(call, trace, scale, earliest)


def axis(trace: Trace) -> Iterator[Mark]:
    earliest, latest = trace.earliest, max(trace.until, trace.earliest)
    scale = Scale(earliest, latest, trace.pauses)
    yield Mark(0, "0")
    length = latest - earliest
    if not trace.pauses and length > 0:
        step = 10 ** math.floor(math.log10(length / 2))
        while length / step > 5:
            step *= 2 if length / step <= 10 else 5
        at = step
        while at < length * 0.9:
            yield Mark(at / length, duration(at))
            at += step
    before = 0.0
    for pause in trace.pauses:
        place = scale(pause.began)
        if place - before > 0.25 and place < 0.75:
            before = place
            yield Mark(place, f"suspended at {duration(pause.began - earliest)}")
    yield Mark(1, duration(max(0.0, length)))


def key(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield the kinds of bars and lines that the drawing may have, each with its meaning."""
    yield "call", "in flight"
    yield "failed", "failed"
    if any(call.made < call.time.began for call in trace.calls):
        yield "queued", "queued"
    if any(call.asked is not None for call in trace.calls):
        yield "asked", "waiting for approval"
    if trace.takeovers:
        yield "taken", "another process takes it over"
    if trace.pauses:
        yield "pause", "the program is suspended; drawn shorter than it was"


def swatch(kind: str) -> str:
    if kind == "taken":
        return '<svg viewBox="0 0 14 10"><line class="taken" x1="7" x2="7" y1="0" y2="10"/></svg>'
    return f'<svg viewBox="0 0 14 10"><rect class="{kind}" width="14" height="10"/></svg>'


def _row_key(call: Call) -> object:
    """Return a key. Successive calls with the same key can share a row."""
    is_plain = call.status == "completed" and call.time.ended is not None and call.asked is None and not call.input
    return call.tool if is_plain else call.id, is_plain


def _folded(calls: Sequence[Call], trace: Trace, scale: Scale, earliest: float) -> Row:
    """Return one row for several completed calls of one tool.

    The row shows the number of calls, a bar for each call, the time from the first to the last moment, and the total
    size of the results.
    """
    whole = Bar(min(call.made for call in calls), max(call.time.ended or call.made for call in calls))
    title = f"{plain(calls[0].tool)}, {len(calls)} calls: {_span(whole, earliest)}"
    bars = _bars(trace, scale, [(call.time, "call", title) for call in calls])
    return _row(f"{calls[0].tool} x{len(calls)}", bars, whole, size(sum(call.size for call in calls)), False, {})


def _call(call: Call, trace: Trace, scale: Scale, earliest: float) -> Row:
    parts: list[tuple[Bar, str, str]] = []
    if call.made < call.time.began:
        queued = Bar(call.made, call.time.began)
        parts.append((queued, "queued", f"queued: {_span(queued, earliest)}"))
    kind = "failed" if call.status == "failed" else "call"
    parts.append((call.time, kind, f"{plain(call.tool)}: {_span(call.time, earliest)}"))
    if call.asked is not None:
        parts.append((call.asked, "asked", f"waiting for approval: {_span(call.asked, earliest)}"))
    result = call.result
    if call.asked is not None and call.asked.detail:
        result += f"; {call.asked.detail}"
    if call.status == "failed":
        result += ", sent" if call.dispatched else ", not sent"
    whole = Bar(call.made, call.time.ended)
    return _row(call.tool, _bars(trace, scale, parts), whole, result, call.status == "failed", call.input)


def _row(name: str, bars: str, time: Bar, result: str, failed: bool, inputs: Mapping[str, Any]) -> Row:
    took = "" if time.ended is None else duration(max(0.0, time.ended - time.began))
    text = plain_lines(json.dumps(inputs, ensure_ascii=False, indent=1)) if inputs else ""
    return Row(name, bars, took, result, failed, text)


def _bars(trace: Trace, scale: Scale, parts: list[tuple[Bar, str, str]]) -> str:
    drawn = [_rect(pause, "pause", _pause(pause), trace, scale, 0, 18) for pause in trace.pauses]
    drawn += [_rect(bar, kind, title, trace, scale, 4, 10) for bar, kind, title in parts]
    lines = [("taken", takeover.at) for takeover in trace.takeovers] + [("edge", pause.began) for pause in trace.pauses]
    for kind, when in lines:
        at = svg_number(scale(when) * _WIDTH)
        drawn.append(f'<line class="{kind}" x1="{at}" x2="{at}" y1="0" y2="18"/>')
    label = escaped(parts[-1][2]) if parts else ""
    return (
        f'<svg viewBox="0 0 {_WIDTH} 18" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(drawn)}</svg>"
    )


def _rect(bar: Bar, kind: str, title: str, trace: Trace, scale: Scale, top: int, height: int) -> str:
    first = scale(bar.began) * _WIDTH
    last = scale(trace.until if bar.ended is None else bar.ended) * _WIDTH
    width = max(2.0, last - first)
    first = min(first, _WIDTH - width)
    return (
        f'<rect class="{kind}" x="{svg_number(first)}" y="{top}" width="{svg_number(width)}" height="{height}">'
        f"<title>{escaped(title)}</title></rect>"
    )


def _pause(pause: Bar) -> str:
    took = "" if pause.ended is None else f" for {duration(pause.ended - pause.began)}"
    return f"suspended{took}, {plain(pause.detail)}, from {moment(pause.began)}"


def _span(bar: Bar, earliest: float) -> str:
    end = "no end recorded" if bar.ended is None else duration(max(0.0, bar.ended - earliest))
    return f"{duration(max(0.0, bar.began - earliest))} to {end}"


def escaped(text: str) -> str:
    """Return a text for HTML, with its unprintable and misleading characters escaped."""
    return html.escape(plain(text, right_to_left=True))


def plain_lines(text: str) -> str:
    """Return a text with its unprintable and misleading characters escaped, except for line ends."""
    return "\n".join(plain(line, right_to_left=True) for line in text.split("\n"))
