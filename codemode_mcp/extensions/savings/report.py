"""A report on exposure and tasks: comparisons in words, JSON, and text for a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from codemode_mcp.audit.trajectory_files import moment, size
from codemode_mcp.base.display import columns, counted, padded, plain
from codemode_mcp.server.exposure.selection import Mode, choose_mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from codemode_mcp.extensions.savings.tasks import Exposure, Reads, Task, Tasks, Weight


BYTES_PER_TOKEN: Final = 4.0
"""Approximate bytes of a token in schemas, programs and JSON. docs/savings.md names the source."""

_KINDS: Final = {
    "look-up": "read declarations or searched, and called nothing",
    "single": "made one call only",
    "refused": "did not start",
    "failed": "failed",
    "task": "returned more than the calls had brought",
    "open": "have not ended",
}


class Report(Struct, frozen=True):
    """The contents of the report.

    Attributes:
        tasks: None if there are no recorded tasks.
        unrecorded: the reason why no tasks are recorded, in words.
        reads: the part of results that the model sees.
    """

    exposure: Exposure
    tasks: Tasks | None = None
    unrecorded: str = ""
    bytes_per_token: float = BYTES_PER_TOKEN
    reads: Reads = "content"

    def tokens(self, count: int) -> int:
        """Return the approximate number of tokens for a number of bytes."""
        return round(count / self.bytes_per_token)

    def amount(self, count: int) -> str:
        """Return a number of bytes in words: `1,234 bytes (about 309 tokens)`."""
        return f"{count:,} bytes (about {self.tokens(count):,} tokens)"


def verdict_of_exposure(report: Report) -> str:
    """Compare the sizes of tools in the prompt with and without code mode. Return one to three sentences."""
    exposure, amount = report.exposure, report.amount
    pays, pays_reading = exposure.pays_from(), exposure.pays_from(reading=True)
    if pays is None or pays_reading is None:
        return "No tools are known, so there is nothing to compare exec and wait with."
    if exposure.saved <= 0:
        return (
            f"Direct exposure would be cheaper here: by {amount(-exposure.saved)}. With tools like these code mode "
            f"pays from about {counted(pays[0], 'tool')} or {counted(pays[1], 'server')} on; you have "
            f"{counted(exposure.direct.tools, 'tool')}."
        )
    share = exposure.saved / exposure.direct.prompt
    saving = f"exec and wait take {_percent(share)} less of the prompt: {amount(exposure.saved)}."
    if exposure.saved <= exposure.reading:
        return (
            f"{saving} But a task that reads the declarations of one server ({exposure.reading:,} bytes) takes more "
            f"than that: then direct exposure would be cheaper here. With tools like these code mode pays from "
            f"{counted(pays[0], 'tool')} on if a task reads no declarations, and from about "
            f"{counted(pays_reading[0], 'tool')} on if it reads those of one server."
        )
    return (
        f"{saving} With tools like these code mode pays from about {counted(pays[0], 'tool')} on, and from "
        f"{counted(pays_reading[0], 'tool')} on if a task reads the declarations of one server."
    )


def verdict_of_tasks(report: Report) -> str:
    """Compare the bytes through the model with those of direct calling. Return a sentence, or "" without tasks."""
    tasks = report.tasks
    if tasks is None or not tasks.all:
        return ""
    if tasks.saved < 0:
        return f"Direct calling would have been cheaper in these tasks: by {report.amount(-tasks.saved)}."
    share = tasks.saved / tasks.direct if tasks.direct else 0.0
    return f"{_percent(share)} less went through the model than by direct calling: {report.amount(tasks.saved)}."


def costs(report: Report) -> Iterator[str]:
    """Yield a line for each kind of task for which code mode cost more."""
    costlier = () if report.tasks is None else report.tasks.costlier
    for kind, why in _KINDS.items():
        extra = [-task.saved for task in costlier if task.kind == kind]
        if extra:
            why = "has not ended" if kind == "open" and len(extra) == 1 else why
            yield f"{len(extra):,} that {why}: {report.amount(sum(extra))} more"


def costs_of_modes(report: Report) -> ModeCosts | None:
    """Return what the recorded tasks would have cost in each mode; None without tasks that have ended well."""
    costs = None if report.tasks is None else costs_by_mode(report.exposure, report.tasks.all)
    return costs if costs is not None and costs.search else None


def modes_in_words(report: Report) -> str:
    """Compare the modes of `expose` for the recorded tasks. Return a sentence, or "" without tasks."""
    costs = costs_of_modes(report)
    if costs is None:
        return ""
    return (
        f"A model would have read, with the mode code: {costs.code:,} bytes, direct: {costs.direct:,}, search: "
        f"{costs.search:,}. The least is {costs.best}; auto stands for {costs.auto} here."
    )


def left_out(report: Report) -> Iterator[str]:
    tasks = report.tasks
    if tasks is None:
        return
    if tasks.unmeasured:
        yield f"{counted(tasks.unmeasured, 'run')} left out: recorded without sizes, or without the beginning"
    if tasks.terminal:
        yield f"{counted(tasks.terminal, 'run')} left out: from codemode-mcp run, repl and other commands, not a model"
    if tasks.passed:
        yield f"{counted(tasks.passed, 'call')} of pass-through mode left out: these are direct calls"
    if tasks.lost:
        yield f"{counted(tasks.lost, 'event')} could not be recorded, so the figures are too small"


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON, with sizes in bytes. docs/savings.md describes the fields."""
    exposure, tasks = report.exposure, report.tasks
    tools, servers = exposure.pays_from() or (None, None)
    tools_with_reading, _ = exposure.pays_from(reading=True) or (None, None)

    def weight(of: Weight) -> dict[str, Any]:
        return {
            "tools": of.tools,
            "prompt_bytes": of.prompt,
            "prompt_tokens": report.tokens(of.prompt),
            "listing_bytes": of.listing,
            "instructions_bytes": of.instructions,
        }

    return {
        "bytes_per_token": report.bytes_per_token,
        "reads": report.reads,
        "exposure": {
            "servers": [
                {"name": server.name, "state": server.state, **weight(server.weight)}
                | {"declarations_bytes": server.declarations}
                | ({"why": server.why} if server.why else {})
                for server in exposure.servers
            ],
            "direct": weight(exposure.direct),
            "code_mode": weight(exposure.own),
            "saved_bytes": exposure.saved,
            "index_bytes": exposure.index,
            "one_tool_bytes": exposure.one_tool,
            "one_server_bytes": exposure.reading,
            "pays_from_tools": tools,
            "pays_from_servers": servers,
            "pays_from_tools_with_reading": tools_with_reading,
            "verdict": verdict_of_exposure(report),
        },
        "tasks": None if tasks is None else _tasks_as_json(report, tasks),
        "unrecorded": report.unrecorded or None,
    }


def _tasks_as_json(report: Report, tasks: Tasks) -> dict[str, Any]:
    return {
        "count": len(tasks.all),
        "through_model_bytes": tasks.through,
        "direct_bytes": tasks.direct,
        "saved_bytes": tasks.saved,
        "steps_saved": sum(task.steps_saved for task in tasks.all),
        "stayed_bytes": sum(task.stayed for task in tasks.all),
        "costlier": len(tasks.costlier),
        "costlier_by_bytes": -sum(task.saved for task in tasks.costlier),
        "left_out": {
            "unmeasured": tasks.unmeasured,
            "terminal": tasks.terminal,
            "pass_through_calls": tasks.passed,
            "lost_events": tasks.lost,
        },
        "verdict": verdict_of_tasks(report),
        "modes": None if (modes := costs_of_modes(report)) is None else {**structs.asdict(modes), "best": modes.best},
        "all": [
            {
                "id": task.id,
                "began": task.began,
                "kind": task.kind,
                "requests": task.requests,
                "calls": task.calls,
                "repeats": task.repeats,
                "sent_bytes": task.sent,
                "shown_bytes": task.shown,
                "through_model_bytes": task.through,
                "arguments_bytes": task.arguments,
                "results_bytes": task.results,
                "direct_bytes": task.direct,
                "saved_bytes": task.saved,
                "steps_saved": task.steps_saved,
                "stayed_bytes": task.stayed,
            }
            for task in tasks.all
        ],
    }


def _percent(share: float) -> str:
    """Return a percentage. A share below 1 is never rounded up to 100 %."""
    shown = min(share, 0.999) if share < 1 else share
    return f"{shown * 100:.1f}%" if shown > 0.99 else f"{shown * 100:.0f}%"


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
        structs.replace(server, name=_escaped(server.name), why=_escaped(server.why))
        for server in report.exposure.servers
    ]
    escaped = structs.replace(report, exposure=structs.replace(report.exposure, servers=tuple(servers)))
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


# The bytes that a model would have read for the recorded tasks in each mode of `expose`.
#
# A model reads the tools and the whole conversation again in each of its steps: for each call, and for its last words.
# The figures are estimates. In `code`, calls and answers are as recorded. In `search`, each tool costs a search first,
# and each call is a step. In `direct`, a task is a recorded program or single calls, whichever costs less, and no
# declarations are read.


HITS: Final = 8
"""Hits of a search by default. Each has about the size of the declaration of a tool."""

QUERY_BYTES: Final = 40
"""Bytes of the arguments of a search."""


class ModeCosts(Struct, frozen=True):
    """The bytes that a model would have read for all tasks, by mode.

    Attributes:
        auto: the mode that `auto` stands for with these tools.
    """

    code: int
    search: int
    direct: int
    auto: Mode

    @property
    def of_auto(self) -> int:
        """The bytes in the mode that `auto` stands for."""
        return self.direct if self.auto == "direct" else self.code

    @property
    def best(self) -> str:
        return min(("code", "direct", "search"), key=lambda mode: int(getattr(self, mode)))


def costs_by_mode(exposure: Exposure, tasks: Iterable[Task]) -> ModeCosts:
    """Return the costs of tasks that have ended well, and of look-ups before them.

    A task that only looked something up costs nothing in `search` and `direct`, because each tool is counted with its
    own search, or is known.
    """
    code = search = direct = 0
    own, found = exposure.own.prompt, exposure.searching.prompt
    listed = own + exposure.direct.prompt
    for task in tasks:
        if task.kind not in ("task", "single", "look-up"):
            continue
        recorded = bytes_read(own, task.through, task.requests)
        code += recorded
        if task.kind == "look-up":
            continue
        calls = task.calls - task.repeats
        by_calls = task.arguments + task.results
        looking = task.tools * (HITS * exposure.one_tool + QUERY_BYTES)
        search += bytes_read(found, by_calls + looking, calls + task.tools)
        direct += min(bytes_read(listed, by_calls, calls), bytes_read(listed, task.through, task.requests))
    return ModeCosts(code, search, direct, choose_mode(exposure.direct.prompt, None))


def bytes_read(prompt: int, through: int, steps: int) -> int:
    """Return the bytes that a model reads in a conversation.

    Args:
        prompt: bytes of the tools.
        through: bytes of all calls and their answers, which grow evenly.
        steps: number of calls. One more step is the last words of the model.
    """
    return (steps + 1) * prompt + through * (steps + 1) // 2
