"""What is kept for an owner between programs."""

from __future__ import annotations

import pytest

from codemode_mcp.errors import ProgramError
from codemode_mcp.values import ENTRY, Values


def test_values_belong_to_their_owner_and_the_last_one_counts() -> None:
    values = Values(10_000)
    values.store("ann", "k", "1")
    values.store("ann", "k", "2")
    assert values.load("ann", "k") == "2"
    assert values.load("bob", "k") is None


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    values = Values(2000)
    values.store("ann", "k", "x" * 1000)
    with pytest.raises(ProgramError, match=r"do not fit"):
        values.store("ann", "k2", "x" * 1000)
    assert values.load("ann", "k") == "x" * 1000
    values.store("ann", "k", "small")
    values.store("ann", "k2", "x" * 1000)
    values.store("bob", "k", "x" * 1000)


def test_many_small_values_are_bounded_too() -> None:
    values = Values(100 * ENTRY)
    for n in range(99):
        values.store("ann", str(n), "")
    with pytest.raises(ProgramError):
        values.store("ann", "one more", "")


def test_results_make_room_and_stored_values_do_not() -> None:
    values = Values(3000)
    values.store("ann", "k", "x" * 500)
    first = values.offload("ann", "a" * 800)
    second = values.offload("ann", "b" * 800)
    assert first is not None
    assert second is not None
    third = values.offload("ann", "c" * 800)
    assert third is not None
    assert values.load("ann", first) is None
    assert values.load("ann", second) == "b" * 800
    assert values.load("ann", "k") == "x" * 500
    assert values.offload("ann", "d" * 5000) is None
    assert values.load("ann", third) == "c" * 800


def test_refs_cannot_be_stored_under() -> None:
    with pytest.raises(ProgramError, match="belong to results"):
        Values(1000).store("ann", "result:1", "1")
