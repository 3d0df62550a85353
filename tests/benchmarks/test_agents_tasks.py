"""Tasks of `benchmarks/agents`: their answers, the servers behind them, and the figures on the page."""

from __future__ import annotations

import pytest

from benchmarks.agents import page
from benchmarks.agents.arms import ARMS
from benchmarks.agents.local import LocalCalls
from benchmarks.agents.offline import measure
from benchmarks.agents.task import differences, is_right
from benchmarks.agents.tasks import TASKS
from benchmarks.agents.worlds import WORLDS

pytestmark = pytest.mark.anyio
BY_NAME = {task.name: task for task in TASKS}


def test_there_are_thirty_tasks_or_more_over_one_to_five_servers() -> None:
    assert len(BY_NAME) == len(TASKS) >= 30
    assert {len(task.servers) for task in TASKS} == {1, 2, 3, 4, 5}
    assert {server for task in TASKS for server in task.servers} == set(WORLDS)


async def test_calls_of_tools_give_the_answer_and_the_tables_that_the_reference_computes() -> None:
    for task in TASKS:
        wanted, tables = task.solved()
        calls = LocalCalls(task)
        answer = await task.calls(calls)
        assert is_right(answer, wanted), (task.name, answer, wanted)
        for server in task.servers:
            assert differences(calls.worlds[server].tables, tables[server]) == [], task.name
        assert calls.called == set(task.needs), task.name
        assert {path.partition(".")[0] for path in task.needs} == set(task.servers), task.name


def test_wrong_answers_and_wrong_tables_are_noticed() -> None:
    assert is_right({"a": [1.00000001, "x"]}, {"a": [1, "x"]})
    for wrong in ({"a": [1.001, "x"]}, {"a": ["x", 1]}, {"a": [1, "x"], "b": 0}, None, True):
        assert not is_right(wrong, {"a": [1, "x"]})
    assert not is_right(True, 1)
    wanted = {"notes": [{"text": "a"}, {"text": "b"}]}
    assert differences({"notes": [{"text": "b"}, {"text": "a"}]}, wanted) == []
    assert differences({"notes": [{"text": "b"}, {"text": "b"}]}, wanted) == [
        'notes lacks {"text": "a"}',
        'notes has {"text": "b"}',
    ]


def test_the_page_has_the_figures_that_were_measured_with_these_tasks() -> None:
    measured, figures = page.read_figures()
    advice = f"the tasks or their servers have changed; run {page.UPDATE}"
    assert measured == page.sources(), advice
    assert [list(costs) for costs in figures.values()] == [[task.name for task in TASKS]] * 2, advice
    text = page.PAGE.read_text("utf-8")
    assert text == page.filled(text, TASKS, figures), advice


async def test_a_task_costs_in_each_arm_what_the_figures_say() -> None:
    """Measure one task with real servers, which refuse some calls at first."""
    name = "paid-not-delivered"
    _, figures = page.read_figures()
    found = {"needed": {name: {arm: await measure(BY_NAME[name], arm) for arm in ARMS}}}
    assert page.differing(figures, found) == [], f"texts that models read have changed; run {page.UPDATE}"
