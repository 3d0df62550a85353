"""A report as one SVG that needs nothing else: no script, no file, no font of its own. Pure."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.savings.report import verdict_of_exposure, verdict_of_tasks
from codemode_mcp.cli.trace.text import moment
from codemode_mcp.cli.trace.timeline import size
from codemode_mcp.control.display import counted, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.cli.savings.report import Report
    from codemode_mcp.cli.savings.tasks import Task

MAX_SERVERS: Final = 40
MAX_TASKS: Final = 40

_WIDTH: Final = 900
_LEFT: Final = 200
"""Left end of bars; names stand before it."""

_ROOM: Final = 420
"""Width of the longest bar; figures stand behind it."""

_ROW: Final = 22
_BAR: Final = 14
_STYLE: Final = """
svg { color-scheme: light dark; background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1c2330; } .soft { fill: #5c6675; font-size: 12px; } .head { font-size: 15px; font-weight: 600; }
.end { text-anchor: end; } .direct { fill: #b9c6da; } .odd { fill: #9fb0ca; } .own { fill: #2f6fdb; }
.more { fill: #c8372d; }
@media (prefers-color-scheme: dark) { svg { background: #14181f; } text { fill: #e4e8ef; } .soft { fill: #98a3b3; }
  .direct { fill: #46546a; } .odd { fill: #5a6a83; } .own { fill: #6ea3ff; } .more { fill: #ff7b72; }
}
"""


def plot(report: Report) -> str:
    """Return the whole file."""
    page = _Page()
    page.exposure(report)
    page.tasks(report)
    height = page.y + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" aria-label="What code mode saves">',
            f"<style>{_STYLE}</style>",
            *page.parts,
            "</svg>",
            "",
        ]
    )


class _Page:
    """Rows from the top down."""

    def __init__(self) -> None:
        self.y = 10
        self.parts: list[str] = []

    def exposure(self, report: Report) -> None:
        exposure = report.exposure
        largest = max(exposure.direct.prompt, exposure.own.prompt, 1)
        by_size = sorted(exposure.servers, key=lambda server: -server.weight.prompt)
        self._head("In every prompt: tool names, descriptions and input schemas")
        at = 0.0
        for number, server in enumerate(by_size):
            width = server.weight.prompt / largest * _ROOM
            title = f"{server.name}: {report.amount(server.weight.prompt)}"
            self._rect(at, width, "odd" if number % 2 else "direct", title)
            at += width
        self._row(f"all {exposure.direct.tools:,} tools directly", at, self._figure(report, exposure.direct.prompt))
        width = exposure.own.prompt / largest * _ROOM
        self._rect(0, width, "own", f"exec and wait: {report.amount(exposure.own.prompt)}")
        self._row("exec and wait", width, self._figure(report, exposure.own.prompt))
        self._said(verdict_of_exposure(report))
        self._head("Each server, added directly")
        largest = max([server.weight.prompt for server in by_size] + [exposure.own.prompt, 1])
        width = exposure.own.prompt / largest * _ROOM
        self._rect(0, width, "own", f"exec and wait: {report.amount(exposure.own.prompt)}")
        self._row("exec and wait", width, self._figure(report, exposure.own.prompt))
        for server in by_size[:MAX_SERVERS]:
            if server.state == "unknown":
                self._row(server.name, 0, "its tools are not known")
                continue
            width = server.weight.prompt / largest * _ROOM
            self._rect(0, width, "direct", f"{server.name}: {report.amount(server.weight.prompt)}")
            tools = counted(server.weight.tools, "tool")
            self._row(server.name, width, f"{self._figure(report, server.weight.prompt)}, {tools}")
        if len(by_size) > MAX_SERVERS:
            self._said(f"and {len(by_size) - MAX_SERVERS} more servers")

    def tasks(self, report: Report) -> None:
        tasks = report.tasks
        if tasks is None or not tasks.all:
            self._said(report.unrecorded)
            return
        self._head("Recorded tasks: through the model, against calling the tools directly")
        shown = tasks.all[-MAX_TASKS:]
        largest = max(*(max(task.through, task.direct) for task in shown), 1)
        for task in reversed(shown):
            self._task(task, _ROOM / largest)
        if len(tasks.all) > len(shown):
            self._said(f"and {len(tasks.all) - len(shown):,} earlier ones")
        self._key()
        self._said(verdict_of_tasks(report))

    def _task(self, task: Task, scale: float) -> None:
        less, more = sorted((task.through * scale, task.direct * scale))
        title = f"{task.id}: {task.through:,} bytes through the model, {task.direct:,} directly"
        self._rect(0, less, "own", title)
        self._rect(less, more - less, "direct" if task.saved >= 0 else "more", title)
        calls = counted(task.calls, "call")
        self._row(
            f"{moment(task.began)[5:16]}  {task.kind}",
            more,
            f"{size(task.through)} for {size(task.direct)}, {calls}",
        )

    def _key(self) -> None:
        at = 0
        for mark, words in (("own", "both"), ("direct", "only directly"), ("more", "only in code mode")):
            self._rect(at, 14, mark, words)
            self.parts.append(f'<text class="soft" x="{_LEFT + at + 20}" y="{self.y + 11}">{words}</text>')
            at += 150
        self.y += _ROW

    def _head(self, text: str) -> None:
        self.y += 24
        self.parts.append(f'<text class="head" x="20" y="{self.y}">{_text(text)}</text>')
        self.y += 14

    def _said(self, text: str) -> None:
        for line in _lines(text):
            self.parts.append(f'<text class="soft" x="20" y="{self.y + 14}">{_text(line)}</text>')
            self.y += 17
        self.y += 8

    def _row(self, name: str, at: float, figure: str) -> None:
        """Name and figures of the row whose bars have been drawn, the last of them up to `at`."""
        y = self.y + _BAR - 3
        self.parts.append(f'<text class="end" x="{_LEFT - 10}" y="{y}">{_text(cut(name, 26))}</text>')
        self.parts.append(f'<text x="{_number(_LEFT + at + 8)}" y="{y}">{_text(figure)}</text>')
        self.y += _ROW

    def _rect(self, at: float, width: float, kind: str, title: str) -> None:
        width = max(width, 1.5) if not at else width
        self.parts.append(
            f'<rect class="{kind}" x="{_number(_LEFT + at)}" y="{self.y}" width="{_number(max(0.0, width))}" '
            f'height="{_BAR}"><title>{_text(title)}</title></rect>'
        )

    def _figure(self, report: Report, count: int) -> str:
        return f"{size(count)}, ~{report.tokens(count):,} tokens"


def _lines(text: str) -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(text, 130)


def _text(text: str) -> str:
    return html.escape(cut(text, 300))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
