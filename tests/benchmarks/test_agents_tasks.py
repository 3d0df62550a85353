"""Tasks of `benchmarks/agents`: their answers, the servers behind them, and the figures on the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents import page
from benchmarks.agents.arms import ARMS, Toolbox
from benchmarks.agents.offline import measure
from benchmarks.agents.task import TASKS, differences, is_right
from benchmarks.agents.worlds import WORLDS, ToolError

pytestmark = pytest.mark.anyio
BY_NAME = {task.name: task for task in TASKS}


def test_there_are_thirty_tasks_or_more_over_one_to_five_servers() -> None:
    assert len(BY_NAME) == len(TASKS) >= 30
    assert {len(task.servers) for task in TASKS} == {1, 2, 3, 4, 5}
    assert {server for task in TASKS for server in task.servers} == set(WORLDS)


def test_the_recorded_calls_of_each_task_leave_the_right_tables() -> None:
    for task in TASKS:
        worlds = {name: WORLDS[name]() for name in task.servers}
        called, refused = set(), []
        for path, arguments in calls_of(task.calls):
            called.add(path)
            server, _, name = path.partition(".")
            try:
                worlds[server].call(name, arguments)
            except ToolError as error:
                refused.append(str(error))
        for server, tables in task.tables().items():
            assert differences(worlds[server].tables, tables) == [], task.name
        assert called == set(task.needs), task.name
        assert {path.partition(".")[0] for path in task.needs} == set(task.servers), task.name
        assert [each for each in refused if "is busy" not in each and "at a weekend" not in each] == [], task.name


def calls_of(steps: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for step in steps:
        if isinstance(step, dict):
            for part in step["all"]:
                yield from calls_of(part)
        else:
            yield from ((path, arguments) for path, *each in step for arguments in each)


def test_a_server_refuses_wrong_calls_and_says_what_is_wrong() -> None:
    billing = WORLDS["billing"]()
    refused = {
        "page must be of type integer.": ("list_invoices", {"page": True}),
        "page must be at least 1.": ("list_invoices", {"page": 0}),
        "There is no page 9; the last one is 5.": ("list_invoices", {"page": 9}),
        "status must be one of open, paid, void.": ("list_invoices", {"status": "late"}),
        "get_invoice needs the argument number.": ("get_invoice", {}),
        "get_invoice has no argument id; it has number.": ("get_invoice", {"id": "INV-1001"}),
        "There is nothing with number INV-1 in invoices.": ("get_invoice", {"number": "INV-1"}),
        "There is no tool pay.": ("pay", {}),
    }
    for message, (tool, arguments) in refused.items():
        with pytest.raises(ToolError, match=re.escape(message)):
            billing.call(tool, arguments)
    assert billing.tables == WORLDS["billing"].make()


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


def test_a_change_on_a_server_that_the_task_does_not_need_is_wrong(tmp_path: Path) -> None:
    box = Toolbox(tmp_path, ("crm", "wiki"), [], {})
    wanted = {"crm": WORLDS["crm"].make()}
    assert box.differences(wanted) == []
    wiki = WORLDS["wiki"]()
    wiki.call("create_page", {"id": "x", "title": "X", "text": "x"})
    (tmp_path / "wiki.json").write_text(json.dumps(wiki.tables), "utf-8")
    assert box.differences(wanted) == ['wiki: pages has {"id": "x", "title": "X", "text": "x"}']


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
