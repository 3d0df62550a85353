"""A report on exposure and tasks: comparisons in words, and JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import counted
from codemode_mcp.savings.modes import costs_by_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.savings.exposure import Exposure, Weight
    from codemode_mcp.savings.modes import ModeCosts
    from codemode_mcp.savings.tasks import Reads, Tasks

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


@dataclass(frozen=True, slots=True)
class Report:
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
    """Yield a line for each kind of runs and calls that the report leaves out."""
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
        "modes": None if (modes := costs_of_modes(report)) is None else {**asdict(modes), "best": modes.best},
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
