"""What is kept for an owner between programs."""

from __future__ import annotations

import pytest

from codemode_mcp.errors import ProgramError
from codemode_mcp.values import ENTRY, FULL_OWNERS, Values


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


def test_owners_that_were_not_here_for_longest_make_room_for_others() -> None:
    values = Values(10_000)
    values.store("early", "kept", "1")
    for number in range(FULL_OWNERS + 1):
        values.store(f"owner {number}", "large", "x" * 9_000)
        values.store("early", "kept", "1")
    assert values.load("early", "kept") == "1"
    assert values.load("owner 0", "large") is None
    assert values.load(f"owner {FULL_OWNERS}", "large") is not None


def test_room_that_an_owner_gives_back_is_there_for_others() -> None:
    values = Values(10_000)
    for number in range(FULL_OWNERS):
        for _ in range(100):
            values.store(f"owner {number}", "large", "x" * 9_000)
    assert all(values.load(f"owner {number}", "large") for number in range(FULL_OWNERS))
