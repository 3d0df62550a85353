"""The decisions of a trajectory: who decided what, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit.trajectory_files import MAX_DECISIONS, decisions_in

EVENTS: list[tuple[dict[str, Any], tuple[str, str, str, str, str]]] = [
    (
        {"kind": "call_decided", "id": "run_1/2", "tool": "mcp:a:b", "approved": True, "remember": "run", "by": "ann"},
        ("mcp:a:b", "approved", "ann", "asked for by the rule 'x'", "run_1"),
    ),
    (
        {
            "kind": "call_decided",
            "id": "run_1/3",
            "tool": "mcp:a:b",
            "approved": False,
            "by": "terminal",
            "why": "declined",
        },
        ("mcp:a:b", "denied", "a person at a terminal", "declined", "run_1"),
    ),
    (
        {"kind": "call_ended", "id": "run_1/4", "tool": "mcp:a:c", "status": "failed", "why": "denied by the rule 'y'"},
        ("mcp:a:c", "refused", "policy", "denied by the rule 'y'", "run_1"),
    ),
    (
        {"kind": "tool_switched", "id": "mcp:a:d", "by": "ann", "on": False},
        ("mcp:a:d", "switched off", "ann", "", ""),
    ),
    ({"kind": "item_accepted", "id": "a.d", "by": "ann"}, ("a.d", "accepted", "ann", "", "")),
]
ASKED = {"kind": "call_asked", "id": "run_1/2", "tool": "mcp:a:b", "reason": "asked for by the rule 'x'"}


def write(path: Path, *events: dict[str, Any]) -> Path:
    lines = [json.dumps({"time": 1.0, **event}, separators=(",", ":")) + "\n" for event in events]
    path.write_text("".join(lines), "utf-8")
    return path


def test_each_decision_has_its_author_and_reason_and_other_events_are_left_out(tmp_path: Path) -> None:
    others = [
        {"kind": "call_ended", "id": "run_1/5", "tool": "mcp:a:b", "status": "completed"},
        {"kind": "run_ended", "id": "run_1", "why": "x"},
    ]
    found = decisions_in(write(tmp_path / "runs.jsonl", ASKED, *(event for event, _ in EVENTS), *others))
    shown = [(each.subject, each.done, each.by, each.why, each.run) for each in found]
    assert shown == [expected for _, expected in reversed(EVENTS)]
    assert found[-1].remember == "run"


def test_an_item_that_several_processes_hold_is_one_decision(tmp_path: Path) -> None:
    held = {"kind": "item_held", "id": "a.d", "status": "new", "digest": "1"}
    other = {**held, "digest": "2", "status": "changed"}
    accepted = {"kind": "item_accepted", "id": "a.d", "by": "ann", "digest": "2"}
    found = decisions_in(write(tmp_path / "runs.jsonl", held, {**held, "id": "a.e"}, held, other, held, accepted, held))
    shown = [(each.subject, each.done, each.by, each.why) for each in reversed(found)]
    assert shown == [
        ("a.d", "held", "the pins", "new"),
        ("a.e", "held", "the pins", "new"),
        ("a.d", "held", "the pins", "changed"),
        ("a.d", "held", "the pins", "new"),
        ("a.d", "accepted", "ann", ""),
        ("a.d", "held", "the pins", "new"),
    ]


def test_only_the_latest_decisions_are_returned(tmp_path: Path) -> None:
    events = [{"kind": "tool_switched", "id": f"mcp:a:{number}"} for number in range(MAX_DECISIONS + 10)]
    found = decisions_in(write(tmp_path / "runs.jsonl", *events))
    assert len(found) == MAX_DECISIONS
    assert found[0].subject == f"mcp:a:{MAX_DECISIONS + 9}"


def test_damaged_and_missing_files_have_no_decisions(tmp_path: Path) -> None:
    assert decisions_in(tmp_path / "none.jsonl") == []
    (tmp_path / "damaged.jsonl").write_bytes(b'\xff"why":\n{"kind":"call_decided","id":1,"why":{}}\n')
    assert decisions_in(tmp_path / "damaged.jsonl") == []


@pytest.mark.parametrize("value", [None, "x", [], {}])
def test_fields_of_other_types_count_as_empty(value: object, tmp_path: Path) -> None:
    event = {"kind": "call_decided", "id": "x", "time": value, "by": [value], "why": [value], "approved": value}
    (only,) = decisions_in(write(tmp_path / "runs.jsonl", event))
    assert (only.time, only.by, only.why, only.done) == (0.0, "", "", "denied")
