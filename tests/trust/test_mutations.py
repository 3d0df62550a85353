"""The bars: every change of a listing is held back, and another order of the same listing never is."""

import pytest

from tests.properties import examples
from tests.trust.mutations import CHANGES, escapes, false_alarms, labelled_listings, mutations, recorded_listings

LISTINGS = recorded_listings() | labelled_listings()


@pytest.mark.parametrize("seed", [1, 2])
def test_all_of_200_changes_are_held_back(seed: int) -> None:
    changed = mutations(LISTINGS, 200, seed)
    assert len(changed) == 200
    assert {mutation.kind for mutation in changed} == {change.__name__ for change in CHANGES}
    escaped = [(mutation.kind, mutation.server, why) for mutation in changed if (why := escapes(mutation)) is not None]
    assert escaped == []


def test_another_order_of_a_listing_is_no_change() -> None:
    assert false_alarms(labelled_listings(), 10, 1)[0] == 0


def test_recorded_lists_in_other_orders_are_no_changes() -> None:
    recorded = recorded_listings()
    if not recorded:
        pytest.skip("the recorded tool lists are not beside this repository")
    times = examples(10)
    alarms, count = false_alarms(recorded, times, 1)
    assert (alarms, count) == (0, times * len(recorded))
