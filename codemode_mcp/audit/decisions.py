"""The decisions in a trajectory: who decided what, and why."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.event_fields import number, text
from codemode_mcp.audit.trajectory_files import events_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

MAX_DECISIONS: Final = 500
"""Maximum number of decisions that are read, the latest ones."""

MAX_ASKED: Final = 20_000
"""Maximum number of calls whose reason for asking is remembered until they are decided."""

MAX_HELD: Final = 20_000
"""Maximum number of items whose latest state is remembered while a trajectory is read."""

_SUBJECTS: Final = {
    "call_decided": "a call",
    "tool_switched": "a tool",
    "item_accepted": "what a server lists",
    "item_rejected": "what a server lists",
    "item_held": "what a server lists",
    "server_restarted": "a server",
    "program_proposed": "a saved program",
    "program_accepted": "a saved program",
    "program_rejected": "a saved program",
    "program_removed": "a saved program",
}
"""Subjects of decisions, by the kind of their event."""

_PERSONS: Final = {"terminal": "a person at a terminal", "page": "a person at the page"}
"""Sources of decisions of a person in words, by their names in events about calls."""

_MARKS: Final = ('"kind":"call_asked"', '"why":', *(f'"kind":"{kind}"' for kind in _SUBJECTS))
"""Texts of which the line of a decision, or of a question, has one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision.

    Attributes:
        time: Unix seconds.
        kind: the kind of the subject, in words.
        subject: the tool, server or item.
        done: the decision, in words.
        by: who decided, in words.
        remember: `run` or `always` for an approval that also holds for later calls.
        run: the id of the run, for a call.
    """

    time: float
    kind: str
    subject: str
    done: str
    by: str
    why: str
    remember: str = ""
    run: str = ""


def decisions_in(path: Path) -> list[Decision]:
    """Return the latest decisions of a trajectory, newest first. Raise `OSError`. Blocks."""
    return [*reversed(deque(_read(events_with(path, _MARKS)), MAX_DECISIONS))]


def _read(events: Iterable[Mapping[str, Any]]) -> Iterator[Decision]:
    reasons: OrderedDict[str, str] = OrderedDict()
    held: dict[str, tuple[str, str]] = {}
    for event in events:
        kind, about = text(event, "kind"), text(event, "id")
        if kind.startswith("item_"):
            # Each process that sees the list reports a held item. Only the first of these events is a decision.
            state = text(event, "status"), text(event, "digest")
            if kind == "item_held" and held.get(about) == state:
                continue
            held[about] = state
            if len(held) > MAX_HELD:
                held.clear()
        if kind == "call_asked":
            reasons[about] = text(event, "reason")
            if len(reasons) > MAX_ASKED:
                reasons.popitem(last=False)
        elif kind in _SUBJECTS or (kind == "call_ended" and text(event, "why")):
            yield _decision(event, kind, about, reasons.pop(about, ""))


def _decision(event: Mapping[str, Any], kind: str, about: str, reason: str) -> Decision:
    subject, by = about, text(event, "by")
    match kind:
        case "call_decided":
            done = "approved" if event.get("approved") is True else "denied"
            subject, by = text(event, "tool") or about, _PERSONS.get(by, by)
        case "call_ended":
            done, by = "refused", "policy"
            subject = text(event, "tool") or about
        case "tool_switched":
            done = "switched on" if event.get("on") is True else "switched off"
        case "item_held":
            done, by = "held", "the pins"
        case "program_proposed":
            done, by = "proposed", "a program"
        case _:
            done = kind.partition("_")[2]
    run, _, call = about.partition("/")
    return Decision(
        time=number(event.get("time")) or 0.0,
        kind=_SUBJECTS.get(kind, "a call"),
        subject=subject,
        done=done,
        by=by,
        why=": ".join(filter(None, (reason, text(event, "why") or text(event, "status")))),
        remember=text(event, "remember"),
        run=run if call else "",
    )
