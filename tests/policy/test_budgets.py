"""Budgets: what is counted, when a budget is used up, and when it opens again."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.settings import BudgetSettings
from codemode_mcp.rules.policy.budgets import MAX_ACCOUNTS, SLOTS, Budgets
from codemode_mcp.rules.policy.policy import Caller

ANN = Caller("ann", "http", "ann", frozenset({"staff"}))
BOB = Caller("bob", "http", "bob")


def spent(budgets: Budgets, count: int = 1, *, now: float = 0.0, caller: Caller = ANN, server: str = "web") -> None:
    for _ in range(count):
        budgets.add(caller, str(caller.owner), server, now, "calls", 1)


def is_open(budgets: Budgets, *, now: float = 0.0, caller: Caller = ANN, server: str = "web") -> bool:
    return budgets.used_up(caller, str(caller.owner), server, now) is None


def test_a_budget_is_used_up_at_its_limit_and_opens_when_the_window_has_passed() -> None:
    budgets = Budgets([BudgetSettings("b", calls=3, window_seconds=60)])
    spent(budgets, 2)
    assert is_open(budgets)
    spent(budgets)
    found = budgets.used_up(ANN, "ann", "web", 10.0)
    assert found is not None
    assert (found.unit, found.used, found.limit, found.server) == ("calls", 3, 3, "web")
    assert found.opens_in == pytest.approx(51.0)
    assert not is_open(budgets, now=60.5)
    assert is_open(budgets, now=61.0)


def test_each_caller_and_each_server_has_its_own_account() -> None:
    budgets = Budgets([BudgetSettings("b", calls=1)])
    spent(budgets)
    assert not is_open(budgets)
    assert is_open(budgets, caller=BOB)
    assert is_open(budgets, server="mail")


def test_a_budget_applies_to_the_servers_and_callers_that_it_names() -> None:
    budgets = Budgets([BudgetSettings("b", server="we*", callers=("group:staff",), calls=1)])
    for caller in (ANN, BOB):
        for server in ("web", "mail"):
            spent(budgets, 5, caller=caller, server=server)
    assert not is_open(budgets)
    assert is_open(budgets, caller=BOB)
    assert is_open(budgets, server="mail")


def test_the_budget_that_opens_last_is_named() -> None:
    budgets = Budgets(
        [BudgetSettings("short", calls=1, window_seconds=60), BudgetSettings("long", calls=1, window_seconds=3600)]
    )
    spent(budgets)
    found = budgets.used_up(ANN, "ann", "web", 0.0)
    assert found is not None
    assert found.budget.name == "long"


@pytest.mark.parametrize("unit", ["bytes", "running_ms"])
def test_bytes_and_time_are_limited_alike(unit: str) -> None:
    budgets = Budgets([BudgetSettings("b", **{unit: 100})])  # type: ignore[arg-type]
    budgets.add(ANN, "ann", "web", 0.0, unit, 99)  # type: ignore[arg-type]
    assert is_open(budgets)
    budgets.add(ANN, "ann", "web", 0.0, unit, 1)  # type: ignore[arg-type]
    assert not is_open(budgets)


def test_a_budget_with_the_same_name_and_window_keeps_its_accounts_when_settings_change() -> None:
    budgets = Budgets([BudgetSettings("b", calls=1)])
    spent(budgets, 2)
    budgets.apply([BudgetSettings("b", calls=2)])
    assert not is_open(budgets)
    budgets.apply([BudgetSettings("b", calls=3)])
    assert is_open(budgets)
    budgets.apply([BudgetSettings("b", calls=1, window_seconds=60)])
    assert is_open(budgets)
    budgets.apply([])
    assert is_open(budgets)


def test_the_number_of_accounts_is_bounded() -> None:
    budgets = Budgets([BudgetSettings("b", calls=1)])
    for number in range(MAX_ACCOUNTS + 1):
        budgets.add(ANN, f"peer {number}", "web", 0.0, "calls", 1)
    assert len(budgets.views(0.0)) == MAX_ACCOUNTS
    assert budgets.used_up(ANN, "peer 0", "web", 0.0) is None
    assert budgets.used_up(ANN, f"peer {MAX_ACCOUNTS}", "web", 0.0) is not None


@given(
    limit=st.integers(1, 5),
    window=st.integers(1, 120),
    gaps=st.lists(st.integers(0, 90), max_size=40),
)
def test_no_interval_of_the_window_has_more_calls_than_the_budget(limit: int, window: int, gaps: list[int]) -> None:
    budgets = Budgets([BudgetSettings("b", calls=limit, window_seconds=window)])
    now, sent = 0.0, []
    for gap in gaps:
        now += gap
        found = budgets.used_up(ANN, "ann", "web", now)
        if found is None:
            spent(budgets, now=now)
            sent.append(now)
        else:
            # It opens at the named time, not earlier, and at most one slot later than the window requires.
            assert found.opens_in > 0
            opens = now + found.opens_in
            assert not is_open(copy.deepcopy(budgets), now=opens - 1e-3)
            assert is_open(copy.deepcopy(budgets), now=opens + 1e-6)
            assert opens <= sent[-limit] + window * (1 + 1 / SLOTS) + 1e-6
    for since in sent:
        assert sum(since <= each < since + window for each in sent) <= limit
