"""A report as text for a terminal. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from codemode_mcp.audit.timeline import moment, size
from codemode_mcp.control.display import columns, padded, plain
from codemode_mcp.savings.report import costs, left_out, modes_in_words, verdict_of_exposure, verdict_of_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.savings.report import Report
    from codemode_mcp.savings.tasks import Tasks

COLUMNS: Final = 100
"""Largest width of the report."""

MAX_SERVERS: Final = 30
"""Maximum number of servers with a line each. The other servers share one line."""

MAX_TASKS: Final = 20
"""Maximum number of tasks with a line. Only the latest tasks are drawn."""

_NAME: Final = 24
"""Columns for a name."""

_ASCII = str.maketrans({"█": "#", "░": "-", "▒": "!", "…": ".", "·": "-"})


def drawn(report: Report, width: int, *, unicode: bool = True) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        width: columns of the terminal. The report uses at least 70 and at most `COLUMNS`.
        unicode: False to draw in ASCII.
    """
    width = max(70, min(width, COLUMNS))
    if unicode:
        yield from _lines(report, width)
        return
    servers = [
        replace(server, name=_escaped(server.name), why=_escaped(server.why)) for server in report.exposure.servers
    ]
    escaped = replace(report, exposure=replace(report.exposure, servers=tuple(servers)))
    for line in _lines(escaped, width):
        yield line.translate(_ASCII).encode("ascii", "replace").decode()


def _lines(report: Report, width: int) -> Iterator[str]:
    yield from _exposure(report, width)
    yield ""
    if report.tasks is None or not report.tasks.all:
        yield from _folded(report.unrecorded, width)
        for line in left_out(report):
            yield from _folded(f"- {line}", width)
        return
    yield from _tasks(report, report.tasks, width)


def _exposure(report: Report, width: int) -> Iterator[str]:
    exposure = report.exposure
    room = width - _NAME - 29
    largest = max(exposure.direct.prompt, exposure.own.prompt, 1)

    def row(name: str, tools: int, count: int, mark: str = "█") -> str:
        bar = mark * max(round(count / largest * room), 1 if count else 0)
        return _with_bar(f"{padded(name, _NAME)} {tools:>6,} {count:>10,} {report.tokens(count):>9,}", bar, width)

    yield f"{'In every prompt':{_NAME}} {'tools':>6} {'bytes':>10} {'~tokens':>9}"
    by_size = sorted(exposure.servers, key=lambda server: -server.weight.prompt)
    for server in by_size[:MAX_SERVERS]:
        if server.state == "unknown":
            yield f"{padded(server.name, _NAME)} {'?':>6} {'?':>10} {'?':>9} left out: its tools are not known"
        else:
            yield row(server.name, server.weight.tools, server.weight.prompt, "░")
    rest = by_size[MAX_SERVERS:]
    if rest:
        tools, count = (sum(getattr(each.weight, what) for each in rest) for what in ("tools", "prompt"))
        yield row(f"… {len(rest)} more servers", tools, count, "░")
    yield row("all added directly", exposure.direct.tools, exposure.direct.prompt)
    yield row("exec and wait", exposure.own.tools, exposure.own.prompt)
    yield ""
    yield from _folded(verdict_of_exposure(report), width)
    yield from _folded(
        f"What a task may read: mcp/index.d.ts {exposure.index:,} bytes, the file of one server {exposure.reading:,}, "
        f"one tool of it {exposure.one_tool:,} (medians). In clients that show more: all of tools/list "
        f"{exposure.direct.listing:,} bytes directly, {exposure.own.listing:,} here; instructions "
        f"{exposure.direct.instructions:,} and {exposure.own.instructions:,}.",
        width,
    )
    for server in exposure.servers:
        if server.state != "listed":
            how = "is counted with its earlier tool list" if server.state == "remembered" else "is left out"
            yield from _folded(f"- {plain(server.name)} {how}: {plain(' '.join(server.why.split()))}", width)


def _tasks(report: Report, tasks: Tasks, width: int) -> Iterator[str]:
    shown = tasks.all[-MAX_TASKS:]
    largest = max(*(max(task.through, task.direct) for task in shown), 1)
    room = width - 67
    yield f"{'Recorded tasks':19} {'':11} {'':8} {'calls':>5} {'model':>9} {'direct':>9}"
    for task in reversed(shown):
        less, more = sorted((task.through, task.direct))
        both, whole = (max(round(each / largest * room), 1 if each else 0) for each in (less, more))
        bar = "█" * both + ("░" if task.saved >= 0 else "▒") * (whole - both)
        figures = f"{task.calls:>5,} {size(task.through):>9} {size(task.direct):>9}"
        yield _with_bar(f"{moment(task.began)[:19]} {padded(task.id, 11)} {task.kind:8} {figures}", bar, width)
    if len(tasks.all) > len(shown):
        yield f"… {len(tasks.all) - len(shown):,} earlier tasks; --json has all of them"
    yield "█ both  ░ direct calling only  ▒ code mode only"
    yield ""
    yield from _folded(verdict_of_tasks(report), width)
    calls, requests = sum(task.calls for task in tasks.all), sum(task.requests for task in tasks.all)
    steps = sum(task.steps_saved for task in tasks.all)
    repeats = sum(task.repeats for task in tasks.all)
    again = f" ({repeats:,} repeated an earlier call and are not counted)" if repeats else ""
    difference = f"{steps:,} fewer than with single calls" if steps >= 0 else f"{-steps:,} more than with single calls"
    stayed = sum(task.stayed for task in tasks.all)
    yield from _folded(
        f"{len(tasks.all):,} tasks made {calls:,} calls{again} in {requests:,} steps of the model, {difference}. "
        f"{report.amount(stayed)} of results stayed in the sandbox.",
        width,
    )
    yield from _folded(modes_in_words(report), width)
    if tasks.costlier:
        yield f"Code mode cost more in {len(tasks.costlier):,} of them:"
    for line in (*costs(report), *left_out(report)):
        yield from _folded(f"- {line}", width)


def _with_bar(figures: str, bar: str, width: int) -> str:
    """Return a row of figures and a bar. The bar is cut to the remaining columns."""
    return f"{figures} {bar[: max(0, width - columns(figures) - 1)]}".rstrip()


def _escaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _folded(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text. Lines are broken between words; a word longer than a line is broken too."""
    indent = "  " if text.startswith("- ") else ""
    line = ""
    for word in text.split(" "):
        rest = word
        if line and columns(f"{line} {rest}") <= width:
            line = f"{line} {rest}"
            continue
        if line:
            yield line
            line = indent
        while columns(line + rest) > width:
            end = 1
            while columns(line + rest[: end + 1]) <= width:
                end += 1
            yield line + rest[:end]
            line, rest = indent, rest[end:]
        line += rest
    if line.strip():
        yield line
