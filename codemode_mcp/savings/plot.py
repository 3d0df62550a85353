"""A report as one SVG file that loads no scripts, fonts or other files. Pure."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING, Final

from codemode_mcp.audit.timeline import moment, size, svg_number
from codemode_mcp.control.display import counted, cut
from codemode_mcp.savings.report import verdict_of_exposure, verdict_of_tasks

if TYPE_CHECKING:
    from codemode_mcp.savings.report import Report
    from codemode_mcp.savings.tasks import Task

MAX_SERVERS: Final = 40
MAX_TASKS: Final = 40

_WIDTH: Final = 900
_LEFT: Final = 200
"""Position of the left end of the bars. The names are to the left of it."""

_LONGEST: Final = 420
"""Width of the longest bar. The figures are to the right of a bar."""

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


def plot(report: Report, *, styled: bool = True) -> str:
    """Return the report as the text of an SVG file.

    Args:
        styled: False to leave out the style, for a page with rules for these classes.
    """
    page = _Page()
    page.exposure(report)
    page.tasks(report)
    height = page.y + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" aria-label="What code mode saves">',
            *([f"<style>{_STYLE}</style>"] if styled else []),
            *page.parts,
            "</svg>",
            "",
        ]
    )


class _Page:
    """A drawing to which rows are added from the top down."""

    def __init__(self) -> None:
        self.y = 10
        self.parts: list[str] = []

    def exposure(self, report: Report) -> None:
        """Add the bars for the sizes of tools in the prompt."""
        exposure, own = report.exposure, report.exposure.own.prompt
        scale = _LONGEST / max(exposure.direct.prompt, own, 1)
        by_size = sorted(exposure.servers, key=lambda server: -server.weight.prompt)
        self._head("In every prompt: tool names, descriptions and input schemas")
        at = 0.0
        for number, server in enumerate(by_size):
            width = server.weight.prompt * scale
            title = f"{server.name}: {report.amount(server.weight.prompt)}"
            self._rect(at, width, "odd" if number % 2 else "direct", title)
            at += width
        self._row(f"all {exposure.direct.tools:,} tools directly", at, _figure(report, exposure.direct.prompt))
        self._bar("exec and wait", own, scale, "own", report)
        self._paragraph(verdict_of_exposure(report))
        self._head("Each server, added directly")
        scale = _LONGEST / max([server.weight.prompt for server in by_size] + [own, 1])
        self._bar("exec and wait", own, scale, "own", report)
        for server in by_size[:MAX_SERVERS]:
            if server.state == "unknown":
                self._row(server.name, 0, "its tools are not known")
            else:
                tools = counted(server.weight.tools, "tool")
                self._bar(server.name, server.weight.prompt, scale, "direct", report, f", {tools}")
        if len(by_size) > MAX_SERVERS:
            self._paragraph(f"and {len(by_size) - MAX_SERVERS} more servers")

    def tasks(self, report: Report) -> None:
        """Add the bars of the recorded tasks."""
        tasks = report.tasks
        if tasks is None or not tasks.all:
            self._paragraph(report.unrecorded)
            return
        self._head("Recorded tasks: bytes through the model, and bytes of direct calling")
        shown = tasks.all[-MAX_TASKS:]
        largest = max(*(max(task.through, task.direct) for task in shown), 1)
        for task in reversed(shown):
            self._task(task, _LONGEST / largest)
        if len(tasks.all) > len(shown):
            self._paragraph(f"and {len(tasks.all) - len(shown):,} earlier tasks")
        self._key()
        self._paragraph(verdict_of_tasks(report))

    def _task(self, task: Task, scale: float) -> None:
        less, more = sorted((task.through * scale, task.direct * scale))
        title = f"{task.id}: {task.through:,} bytes through the model, {task.direct:,} directly"
        self._rect(0, less, "own", title)
        self._rect(less, more - less, "direct" if task.saved >= 0 else "more", title)
        figure = f"{size(task.through)} for {size(task.direct)}, {counted(task.calls, 'call')}"
        self._row(f"{moment(task.began)[5:16]}  {task.kind}", more, figure)

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

    def _paragraph(self, text: str) -> None:
        for line in textwrap.wrap(text, 130):
            self.parts.append(f'<text class="soft" x="20" y="{self.y + 14}">{_text(line)}</text>')
            self.y += 17
        self.y += 8

    def _bar(self, name: str, count: int, scale: float, kind: str, report: Report, more: str = "") -> None:
        """Add a row with one bar."""
        self._rect(0, count * scale, kind, f"{name}: {report.amount(count)}")
        self._row(name, count * scale, _figure(report, count) + more)

    def _row(self, name: str, at: float, figure: str) -> None:
        """Add the name and figure of a row whose bars are drawn already.

        Args:
            at: the right end of the last bar, measured from the left end of the bars.
        """
        y = self.y + _BAR - 3
        self.parts.append(f'<text class="end" x="{_LEFT - 10}" y="{y}">{_text(cut(name, 26))}</text>')
        self.parts.append(f'<text x="{svg_number(_LEFT + at + 8)}" y="{y}">{_text(figure)}</text>')
        self.y += _ROW

    def _rect(self, at: float, width: float, kind: str, title: str) -> None:
        width = max(width, 1.5) if not at else width
        self.parts.append(
            f'<rect class="{kind}" x="{svg_number(_LEFT + at)}" y="{self.y}" width="{svg_number(max(0.0, width))}" '
            f'height="{_BAR}"><title>{_text(title)}</title></rect>'
        )


def _figure(report: Report, count: int) -> str:
    return f"{size(count)}, ~{report.tokens(count):,} tokens"


def _text(text: str) -> str:
    return html.escape(cut(text, 300))
