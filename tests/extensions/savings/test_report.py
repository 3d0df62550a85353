"""Tests of what a report says, and how it is drawn."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from codemode_mcp.base.display import columns
from codemode_mcp.extensions.savings.report import (
    Report,
    as_json,
    costs,
    drawn,
    left_out,
    verdict_of_exposure,
    verdict_of_tasks,
)
from codemode_mcp.extensions.savings.tasks import Exposure, Server, Weight, tasks_of
from tests.extensions.savings.trajectories import run

HOSTILE = "\x1b[2J\u202e</text><script>alert(1)</script>\"&' 漢字漢字漢字漢字漢字漢字漢字漢字\ud800"
BIG = {"text_bytes": 5000, "digest": "one"}


def exposure(direct: int, tools: int = 10, own: int = 1600, reading: int = 1000) -> Exposure:
    return Exposure((Server("one", Weight(tools, direct, direct * 2), reading),), Weight(2, own, own * 2), 300, 100)


def report(*events: list[dict[str, Any]], direct: int = 10_000) -> Report:
    tasks = tasks_of([event for each in events for event in each]) if events else None
    return Report(exposure(direct), tasks, "" if events else "No tasks are recorded: see audit.trajectory.")


def test_few_tools_are_told_that_direct_exposure_would_be_cheaper_and_when_it_is_not() -> None:
    # 100 bytes a tool: seventeen are more than 1600.
    said = verdict_of_exposure(Report(exposure(1000)))
    assert said.startswith("Direct exposure would be cheaper here: by 600 bytes (about 150 tokens).")
    assert "about 17 tools or 2 servers on; you have 10 tools" in said


def test_where_reading_takes_more_than_is_saved_it_says_so() -> None:
    # 900 bytes are saved and 1000 read. 250 a tool: seven without, eleven with reading.
    said = verdict_of_exposure(Report(exposure(2500)))
    assert said.startswith("exec and wait take 36% less of the prompt: 900 bytes (about 225 tokens). But a task")
    assert "(1,000 bytes) takes more than that: then direct exposure would be cheaper here." in said
    assert "from 7 tools on if a task reads no declarations, and from about 11 tools on if it reads" in said


def test_many_tools_are_told_what_is_saved() -> None:
    said = verdict_of_exposure(Report(exposure(1_600_000), bytes_per_token=3.2))
    assert said.startswith("exec and wait take 99.9% less of the prompt: 1,598,400 bytes (about 499,500 tokens).")
    assert "cheaper here" not in said


def test_without_tools_there_is_nothing_to_compare() -> None:
    assert verdict_of_exposure(Report(Exposure((), Weight(2, 1600)))).startswith("No tools are known")


def test_tasks_are_judged_by_their_sum_and_costs_told_by_their_kind() -> None:
    saving = report(run(BIG, {**BIG, "digest": "two"}), run(name="run_b", text=400), run(name="run_c", status="failed"))
    # 10,020 directly; 80 + 460 + 80 through the model.
    assert verdict_of_tasks(saving) == (
        "94% less went through the model than by direct calling: 9,400 bytes (about 2,350 tokens)."
    )
    assert [*costs(saving)] == [
        "1 that read declarations or searched, and called nothing: 460 bytes (about 115 tokens) more",
        "1 that failed: 80 bytes (about 20 tokens) more",
    ]
    costing = report(run(BIG, text=6000))
    assert verdict_of_tasks(costing) == (
        "Direct calling would have been cheaper in these tasks: by 1,050 bytes (about 262 tokens)."
    )


def test_nothing_recorded_is_no_verdict() -> None:
    assert verdict_of_tasks(report()) == ""
    assert [*costs(report())] == [*left_out(report())] == []
    assert "No tasks are recorded" in "\n".join(drawn(report(), 100))


def test_what_is_left_out_is_said() -> None:
    old = [{**event, "text_bytes": None} for event in run()]
    lost = {"time": 1.0, "kind": "lost", "events": 1200}
    said = [*left_out(report(old, [lost]))]
    assert said[0].startswith("1 run left out")
    assert said[1].startswith("1,200 events could not be recorded")
    assert "- " + said[0][:30] in "\n".join(drawn(report(old, [lost]), 100))


@pytest.fixture
def hostile() -> Report:
    servers = (
        Server(HOSTILE, Weight(3, 9000), 10),
        Server("down", Weight(), 0, "unknown", f"{HOSTILE} " * 9),
        Server("old", Weight(2, 800), 5, "remembered", "it is gone:\nfor good"),
        *(Server(f"server-{number}", Weight(10**5, 10**6), 10) for number in range(60)),
    )
    events = [
        event
        for number in range(60)
        for event in run(BIG, name=f"run_{number}" + HOSTILE.replace("/", ""), text=number * 300)
    ]
    return Report(Exposure(servers, Weight(2, 1800)), tasks_of(events))


@pytest.mark.parametrize("width", [40, 80, 300])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits_and_holds_nothing_that_moves_the_cursor(hostile: Report, width: int, unicode: bool) -> None:
    lines = [*drawn(hostile, width, unicode=unicode)]
    # Bars are drawn in characters that take one column, but for terminals of East Asia.
    assert max(columns(line.translate(dict.fromkeys(map(ord, "█░▒…"), "#"))) for line in lines) <= max(
        70, min(width, 100)
    )
    text = "\n".join(lines)
    assert unicode or text.isascii()
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800]", text)
    for said in ("33 more servers", "40 earlier tasks", "is counted with its earlier tool list: it is gone: for good"):
        assert said in text


def test_json_has_every_figure_and_can_be_written(hostile: Report) -> None:
    told = json.loads(json.dumps(as_json(hostile)))
    servers, tasks = told["exposure"]["servers"], told["tasks"]
    assert told["exposure"]["direct"]["prompt_bytes"] == sum(each["prompt_bytes"] for each in servers)
    assert len(tasks["all"]) == tasks["count"] == 60
    for key in ("through_model_bytes", "direct_bytes", "saved_bytes", "steps_saved", "stayed_bytes"):
        assert tasks[key] == sum(each[key] for each in tasks["all"]), key
    assert servers[1]["state"] == "unknown"
    assert "why" not in servers[0]
    nothing = as_json(report())
    assert nothing["tasks"] is None
    assert nothing["unrecorded"].startswith("No tasks")
