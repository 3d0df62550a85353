"""Tests of what runs have cost and what direct calling would have cost, by figures worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from codemode_mcp.extensions.savings.tasks import Task, Tasks, tasks_of
from tests.extensions.savings.trajectories import run

FIRST = {"text_bytes": 500, "structured_bytes": 400, "bytes": 1000}
SECOND = {"given": 30, "text_bytes": 700, "bytes": 800}


def only(tasks: Tasks) -> Task:
    (task,) = tasks.all
    return task


def test_a_run_of_two_calls_sends_its_program_and_its_answer_and_saves_their_arguments_and_results() -> None:
    task = only(tasks_of(run(FIRST, SECOND)))
    assert (task.kind, task.requests, task.calls) == ("task", 1, 2)
    assert task.through == 60 + 20
    assert task.direct == (10 + 500) + (30 + 700)
    assert task.saved == 1240 - 80
    assert task.stayed == 1200 - 20
    assert task.steps_saved == 2 - 1


def test_a_client_that_shows_structured_content_has_other_figures() -> None:
    task = only(tasks_of(run(FIRST, SECOND), "structured"))
    assert task.through == 60 + 300
    assert task.direct == (10 + 400) + (30 + 700)


def test_a_result_that_is_no_mcp_tools_counts_whole() -> None:
    assert only(tasks_of(run({"bytes": 90}))).direct == 10 + 90


def test_every_wait_is_a_step_with_its_own_question_and_answer() -> None:
    events = run(FIRST, status="")
    waits = [
        {"time": 1001.0, "kind": "wait", "id": "req_w", "run": "run_a", "bytes": 40},
        {"time": 1002.0, "kind": "run_ended", "id": "run_a", "status": "completed"},
        {"time": 1002.0, "kind": "answered", "id": "req_w", "run": "run_a", "status": "completed", "text_bytes": 5},
    ]
    assert only(tasks_of(events)).kind == "open"
    task = only(tasks_of([*events, *waits]))
    assert (task.kind, task.requests, task.through) == ("single", 2, 60 + 20 + 40 + 5)
    assert task.steps_saved == 1 - 2


def test_what_a_person_was_asked_went_through_no_model() -> None:
    answers: list[dict[str, Any]] = [
        {"time": 1001.0, "kind": "exec", "id": "req_b", "run": "run_a", "bytes": 0, "answers": 1},
        {"time": 1001.0, "kind": "answered", "id": "req_b", "run": "run_a", "status": "completed", "text_bytes": 7},
    ]
    events = run(FIRST)
    events[-1] = {"time": 1000.0, "kind": "answered", "id": "req_run_a", "run": "run_a", "status": "asks"}
    task = only(tasks_of([*events, *answers]))
    assert (task.requests, task.through) == (1, 60 + 7)


def test_what_failed_is_cost_alone_for_it_is_done_again() -> None:
    task = only(tasks_of(run(FIRST, status="failed")))
    assert (task.kind, task.direct, task.stayed) == ("failed", 0, 0)
    assert (task.saved, task.steps_saved) == (-80, -1)


def test_an_attempt_of_which_nothing_ran_is_cost_alone() -> None:
    answered = {"time": 1.0, "kind": "answered", "id": "r", "status": "failed", "code": "invalid_input"}
    exec_ = {"time": 1.0, "kind": "exec", "id": "r", "bytes": 30}
    task = only(tasks_of([exec_, {**answered, "text_bytes": 100}]))
    assert (task.kind, task.through, task.direct) == ("refused", 130, 0)
    # A wait for a run that there is not.
    wait = {**exec_, "kind": "wait", "run": "run_gone"}
    assert only(tasks_of([wait, {**answered, "text_bytes": 100}])).kind == "refused"


def test_a_look_up_and_a_single_call_whose_answer_is_all_of_the_result_cost_more() -> None:
    tasks = tasks_of([*run(text=4000), *run(FIRST, name="run_b", text=500)])
    assert [(task.kind, task.saved) for task in tasks.costlier] == [("look-up", -4060), ("single", -50)]


def test_the_same_question_again_counts_once_where_asking_again_does_no_harm() -> None:
    same = {**FIRST, "digest": "same", "repeatable": True}
    task = only(tasks_of(run(same, same, same)))
    assert (task.calls, task.repeats, task.direct, task.steps_saved) == (3, 2, 510, 0)
    harmful = {**same, "repeatable": False}
    assert only(tasks_of(run(harmful, harmful))).direct == 2 * 510
    other_tool = {**same, "tool": "mcp:s:u"}
    assert only(tasks_of(run(same, other_tool))).direct == 2 * 510


def test_tools_of_ours_would_not_be_called_directly() -> None:
    task = only(tasks_of(run({**FIRST, "tool": "core:results:load"}, {**FIRST, "tool": "client:session:sample"})))
    assert (task.kind, task.calls, task.direct) == ("look-up", 0, 0)


def test_runs_without_sizes_or_beginning_or_model_are_counted_and_left_out() -> None:
    old = [{key: value for key, value in event.items() if key != "text_bytes"} for event in run(name="run_old")]
    older = [{key: value for key, value in event.items() if key != "bytes"} for event in run(name="run_older")]
    torn = run(FIRST, name="run_torn")[2:]
    terminal = [{"time": 1.0, "kind": "run_started", "id": "run_t"}, {"time": 1.0, "kind": "run_ended", "id": "run_t"}]
    passed = [{"time": 1.0, "kind": "call_started", "id": "call_x/1", "tool": "mcp:s:t"}]
    lost = [{"time": 1.0, "kind": "lost", "events": 3}]
    tasks = tasks_of([*old, *older, *torn, *terminal, *passed, *lost])
    assert tasks == Tasks((), unmeasured=3, terminal=1, passed=1, lost=3)


def test_what_began_before_is_left_out_with_all_that_belongs_to_it() -> None:
    events = [*run(FIRST, name="run_old", at=10.0), *run(FIRST, name="run_new", at=20.0)]
    assert [task.id for task in tasks_of(events, since=15.0).all] == ["run_new"]
    assert tasks_of(events[2:], since=15.0).unmeasured == 0


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"time": "now", "kind": "exec", "id": "r"},
        {"time": 1.0, "kind": ["exec"], "id": "r"},
        {"time": 1.0, "kind": "exec"},
        {"time": 1.0, "kind": "exec", "id": "r", "bytes": "many"},
        {"time": 1.0, "kind": "exec", "id": "r", "bytes": -5},
        {"time": 1.0, "kind": "call_started", "id": "run_z/1", "tool": 7, "input": "x"},
        {"time": 1.0, "kind": "call_ended", "id": "run_z/1", "text_bytes": True, "bytes": 1e400},
        {"time": 1.0, "kind": "answered", "id": "r", "text_bytes": 10**30},
        {"time": True, "kind": "lost", "events": 2},
        {"time": 10**400, "kind": "lost", "events": 2},
        {"time": 1e300, "kind": "exec", "id": "r", "bytes": 5},
        {"time": float("inf"), "kind": "exec", "id": "r", "bytes": 5},
    ],
    ids=lambda event: str(event)[:60],
)
def test_what_is_no_event_changes_no_figure(event: dict[str, Any]) -> None:
    tasks = tasks_of([event, *run(FIRST)])
    assert (only(tasks).through, only(tasks).direct) == (80, 510)


@pytest.mark.parametrize("seed", range(20))
def test_totals_are_the_sums_of_their_parts_and_nothing_is_negative(seed: int) -> None:
    chance = random.Random(seed)
    events: list[dict[str, Any]] = []
    for number in range(chance.randrange(12)):
        calls = [
            {
                "given": chance.randrange(1000),
                "digest": chance.choice("ab"),
                "repeatable": chance.random() < 0.5,
                "text_bytes": chance.randrange(5000),
            }
            for _ in range(chance.randrange(6))
        ]
        status = chance.choice(["completed", "failed", ""])
        events += run(*calls, name=f"run_{number}", status=status, sent=chance.randrange(1, 99), at=float(number))
    # Some of it was never written.
    events = [event for event in events if chance.random() < 0.95]
    tasks = tasks_of(events)
    assert tasks.through == sum(task.sent + task.shown for task in tasks.all)
    assert tasks.direct == sum(task.direct for task in tasks.all)
    assert tasks.saved == sum(task.saved for task in tasks.all) == tasks.direct - tasks.through
    for task in tasks.all:
        assert min(task.direct, task.through, task.arguments, task.results, task.stayed, task.repeats) >= 0
        assert task.repeats <= task.calls
        assert task.direct <= task.arguments + task.results
