"""A trace as one page of HTML that needs no scripts, other files or network. Pure."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

from codemode_mcp.audit.timeline import svg_number
from codemode_mcp.cli.trace.text import heading
from codemode_mcp.control.display import plain
from codemode_mcp.page.timeline_rows import MAX_ROWS, Row, axis, escaped, key, rows, swatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.audit.timeline import Trace

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
            f"<title>{escaped(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escaped(first)}</h1>",
            f"<p>{escaped(second)}</p>",
            *_table(trace),
            f'<p class="key">{"".join(swatch(kind) + words for kind, words in key(trace))}</p>',
            "</body>",
            "</html>",
            "",
        ]
    )


def _table(trace: Trace) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr><th class="what">What</th>'
    yield f"<th>{_axis(trace)}</th>"
    yield '<th class="took">Took</th><th class="said">Result</th></tr></thead><tbody>'
    yield from map(_row, rows(trace))
    yield "</tbody></table></div>"
    if len(trace.calls) > MAX_ROWS:
        yield f"<p>… {len(trace.calls) - MAX_ROWS} more calls; --json has all of them</p>"
    if trace.lost:
        yield f'<p class="bad">{trace.lost} events were lost, so this is not everything.</p>'


def _row(row: Row) -> str:
    more = ""
    if row.input:
        more = f"<details><summary>input</summary><pre>{html.escape(row.input)}</pre></details>"
    mark = ' class="bad"' if row.failed else ""
    return (
        f'<tr><td class="what"><span class="name">{escaped(row.name)}</span>{more}</td><td>{row.bars}</td>'
        f'<td class="took">{escaped(row.took)}</td><td class="said"><span{mark}>{escaped(row.result)}</span></td></tr>'
    )


def _axis(trace: Trace) -> str:
    first, *middle, last = axis(trace)
    marks = [f'<span style="left:0">{escaped(first.text)}</span>']
    for mark in middle:
        place = svg_number(mark.at * 100)
        marks.append(f'<span class="mid" style="left:{place}%">{escaped(mark.text)}</span>')
    marks.append(f'<span class="end">{escaped(last.text)}</span>')
    return f'<div class="axis">{"".join(marks)}</div>'
