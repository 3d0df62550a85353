"""Tests of the choice of a process for a run that several processes report."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from codemode_mcp.server.control.protocol import merge_reports


def view(where: str | None, *, observed: bool = False, ended: bool = False) -> dict[str, Any]:
    found = {"id": "run_a", "observed": observed, "endedMs": 5 if ended else None}
    return found if where is None else {**found, "where": where}


LADDER = {
    "drives": view("here", observed=True),
    "has ended it": view("here", ended=True),
    "carries its calls": view("here"),
    "sees it driven": view("elsewhere", observed=True),
    "could resume it": {**view("stored"), "adoptable": True},
    "sees it in its store": view("stored"),
}
"""Reports by their distance from the run, the closest first."""


@pytest.mark.parametrize("count", range(1, len(LADDER) + 1))
def test_a_run_is_listed_once_by_the_process_closest_to_it(count: int) -> None:
    lowest = [*LADDER.items()][-count:]
    for order in permutations(lowest):
        (found,) = merge_reports((source, [told]) for source, told in order)
        assert (found.source, found.disputed) == (lowest[0][0], False)


def test_two_that_have_the_same_run_are_in_dispute_until_one_of_them_drives_it() -> None:
    assert [each.disputed for each in merge_reports([("a", [view("here")]), ("b", [view(None)])])] == [True]
    told = [("a", [view("here")]), ("b", [view("here")]), ("c", [view("here", observed=True)])]
    assert [(each.source, each.disputed) for each in merge_reports(told)] == [("c", False)]


def test_several_that_could_resume_a_run_are_as_good_as_the_first() -> None:
    told = [("a", [view("stored")]), ("b", [view("stored")])]
    assert [(each.source, each.disputed) for each in merge_reports(told)] == [("a", False)]


def test_runs_stay_in_the_order_in_which_they_are_told() -> None:
    one, two = {**view("stored"), "id": "run_1"}, {**view("here"), "id": "run_2"}
    assert [each.view["id"] for each in merge_reports([("a", [one, two]), ("b", [{**one, "where": "here"}])])] == [
        "run_1",
        "run_2",
    ]
