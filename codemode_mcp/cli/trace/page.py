"""A trace as one page of HTML that needs no scripts, other files or network. Pure."""

from __future__ import annotations

import html
import json
import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.trace.text import heading, moment
from codemode_mcp.cli.trace.timeline import Bar, Scale, duration, size
from codemode_mcp.control.display import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.cli.trace.timeline import Call, Trace

MAX_ROWS: Final = 5_000
"""Maximum number of calls that are drawn. The page gives the number of the others."""

MIN_FOLDED: Final = 4
"""Least number of successive completed calls of one tool that share a row."""

_WIDTH: Final = 1000
"""Width of the drawing, in units of the SVG."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5c6675; --line: #d9dee6; --ground: #ffffff; --band: #f4f6f9;
  --call: #2f6fdb; --failed: #c8372d; --queued: #b9c6da; --asked: #b7791f; --request: #6b7688; --pause: #e7ebf1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --soft: #98a3b3; --line: #333b48; --ground: #14181f;
  --band: #1b212a; --call: #6ea3ff; --failed: #ff7b72; --queued: #46546a; --asked: #e0a84a; --request: #8d98a9;
  --pause: #313a48; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 82rem; background: var(--ground); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.15rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: .15rem 0; color: var(--soft); }
code, .name, pre { font-family: ui-monospace, monospace; font-size: 12.5px; }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; width: 100%; min-width: 44rem; table-layout: fixed; }
th, td { text-align: left; padding: .22rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top;
  font-weight: normal; overflow-wrap: anywhere; }
thead th { color: var(--soft); font-size: 12px; border-bottom-width: 2px; vertical-align: bottom; }
tbody tr:nth-child(even) { background: var(--band); }
.what { width: 25%; } .took { width: 6.5rem; text-align: right; white-space: nowrap; } .said { width: 19%; }
td.took { font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: 18px; }
.axis { position: relative; height: 1.2em; } .axis span { position: absolute; white-space: nowrap; }
.axis .mid { transform: translateX(-50%); } .axis .end { right: 0; }
.call { fill: var(--call); } .failed { fill: var(--failed); } .queued { fill: var(--queued); }
.asked { fill: var(--asked); } .request { fill: var(--request); } .pause { fill: var(--pause); }
.edge { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 2; vector-effect: non-scaling-stroke; }
.taken { stroke: var(--asked); stroke-width: 2; vector-effect: non-scaling-stroke; }
.bad { color: var(--failed); } .key { margin-top: 1rem; } .key svg { display: inline-block; width: 14px; height: 10px;
  margin: 0 .35rem 0 1rem; } .key svg:first-child { margin-left: 0; }
details summary { cursor: pointer; color: var(--soft); font-size: 12px; } pre { margin: .3rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; max-height: 20rem; overflow-y: auto; }
"""


def page(trace: Trace) -> str:
    """Return the HTML of the page of a trace."""
    first, second = heading(trace)
    title = f"Run {plain(trace.id)[:16]}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{_text(first)}</h1>",
            f"<p>{_text(second)}</p>",
            *_table(trace),
            *_key(trace),
            "</body>",
            "</html>",
            "",
        ]
    )


def _table(trace: Trace) -> Iterator[str]:
    earliest, latest = trace.earliest, max(trace.until, trace.earliest)
    scale = Scale(earliest, latest, trace.pauses)
    yield '<div class="scroll"><table><thead><tr><th class="what">What</th>'
    yield f"<th>{_axis(earliest, latest, trace, scale)}</th>"
    yield '<th class="took">Took</th><th class="said">Result</th></tr></thead><tbody>'
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
    yield "</tbody></table></div>"
    if len(trace.calls) > MAX_ROWS:
        yield f"<p>… {len(trace.calls) - MAX_ROWS} more calls; --json has all of them</p>"
    if trace.lost:
        yield f'<p class="bad">{trace.lost} events were lost, so this is not everything.</p>'


def _row_key(call: Call) -> object:
    """Return a key. Successive calls with the same key can share a row."""
    is_plain = call.status == "completed" and call.time.ended is not None and call.asked is None and not call.input
    return call.tool if is_plain else call.id, is_plain


def _folded(calls: Sequence[Call], trace: Trace, scale: Scale, earliest: float) -> str:
    """Return one row for several completed calls of one tool.

    The row shows the number of calls, a bar for each call, the time from the first to the last moment, and the total
    size of the results.
    """
    whole = Bar(min(call.made for call in calls), max(call.time.ended or call.made for call in calls))
    title = f"{plain(calls[0].tool)}, {len(calls)} calls: {_span(whole, earliest)}"
    bars = _bars(trace, scale, [(call.time, "call", title) for call in calls])
    return _row(f"{calls[0].tool} x{len(calls)}", bars, whole, size(sum(call.size for call in calls)), False, {})


def _call(call: Call, trace: Trace, scale: Scale, earliest: float) -> str:
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


def _row(name: str, bars: str, time: Bar, result: str, bad: bool, inputs: Mapping[str, Any]) -> str:
    took = "" if time.ended is None else duration(max(0.0, time.ended - time.began))
    more = ""
    if inputs:
        text = plain_lines(json.dumps(inputs, ensure_ascii=False, indent=1))
        more = f"<details><summary>input</summary><pre>{html.escape(text)}</pre></details>"
    mark = ' class="bad"' if bad else ""
    return (
        f'<tr><td class="what"><span class="name">{_text(name)}</span>{more}</td><td>{bars}</td>'
        f'<td class="took">{_text(took)}</td><td class="said"><span{mark}>{_text(result)}</span></td></tr>'
    )


def _bars(trace: Trace, scale: Scale, parts: list[tuple[Bar, str, str]]) -> str:
    drawn = [_rect(pause, "pause", _pause(pause), trace, scale, 0, 18) for pause in trace.pauses]
    drawn += [_rect(bar, kind, title, trace, scale, 4, 10) for bar, kind, title in parts]
    lines = [("taken", takeover.at) for takeover in trace.takeovers] + [("edge", pause.began) for pause in trace.pauses]
    for kind, when in lines:
        at = svg_number(scale(when) * _WIDTH)
        drawn.append(f'<line class="{kind}" x1="{at}" x2="{at}" y1="0" y2="18"/>')
    label = _text(parts[-1][2]) if parts else ""
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
        f"<title>{_text(title)}</title></rect>"
    )


def _axis(earliest: float, latest: float, trace: Trace, scale: Scale) -> str:
    marks = ['<span style="left:0">0</span>']
    length = latest - earliest
    if not trace.pauses and length > 0:
        step = 10 ** math.floor(math.log10(length / 2))
        while length / step > 5:
            step *= 2 if length / step <= 10 else 5
        at = step
        while at < length * 0.9:
            marks.append(
                f'<span class="mid" style="left:{svg_number(at / length * 100)}%">{_text(duration(at))}</span>'
            )
            at += step
    before = 0.0
    for pause in trace.pauses:
        at = scale(pause.began)
        if at - before > 0.25 and at < 0.75:
            before = at
            text = f"suspended at {duration(pause.began - earliest)}"
            marks.append(f'<span class="mid" style="left:{svg_number(at * 100)}%">{_text(text)}</span>')
    marks.append(f'<span class="end">{_text(duration(max(0.0, length)))}</span>')
    return f'<div class="axis">{"".join(marks)}</div>'


def _key(trace: Trace) -> Iterator[str]:
    def swatch(kind: str, words: str) -> str:
        return f'<svg viewBox="0 0 14 10"><rect class="{kind}" width="14" height="10"/></svg>{words}'

    shown = [swatch("call", "in flight"), swatch("failed", "failed")]
    if any(call.made < call.time.began for call in trace.calls):
        shown.append(swatch("queued", "queued"))
    if any(call.asked is not None for call in trace.calls):
        shown.append(swatch("asked", "waiting for approval"))
    if trace.takeovers:
        line = '<svg viewBox="0 0 14 10"><line class="taken" x1="7" x2="7" y1="0" y2="10"/></svg>'
        shown.append(f"{line}another process takes it over")
    if trace.pauses:
        shown.append(swatch("pause", "the program is suspended; drawn shorter than it was"))
    yield f'<p class="key">{"".join(shown)}</p>'


def _pause(pause: Bar) -> str:
    took = "" if pause.ended is None else f" for {duration(pause.ended - pause.began)}"
    return f"suspended{took}, {plain(pause.detail)}, from {moment(pause.began)}"


def _span(bar: Bar, earliest: float) -> str:
    end = "no end recorded" if bar.ended is None else duration(max(0.0, bar.ended - earliest))
    return f"{duration(max(0.0, bar.began - earliest))} to {end}"


def _text(text: str) -> str:
    return html.escape(plain(text, right_to_left=True))


def plain_lines(text: str) -> str:
    """Return a text with its unprintable and misleading characters escaped, except for line ends."""
    return "\n".join(plain(line, right_to_left=True) for line in text.split("\n"))


def svg_number(value: float) -> str:
    """Return a number for an SVG attribute, with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
