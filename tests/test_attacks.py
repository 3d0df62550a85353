"""The page on security states how many attacks of each class are kept as tests."""

from __future__ import annotations

import pytest

from tests.attacks import TESTS, Attacks, cases, classes


def test_every_module_of_attacks_on_the_sandbox_is_in_a_class() -> None:
    named = {module for each in classes() for module in each.modules}
    assert {f"sandbox_escape/{path.stem}" for path in (TESTS / "sandbox_escape").glob("test_*.py")} <= named


@pytest.mark.parametrize("attacks", [pytest.param(each, id=each.name) for each in classes()])
def test_a_class_of_attacks_has_the_cases_that_the_page_states(attacks: Attacks) -> None:
    count = sum(map(cases, attacks.modules))
    # A few new cases are no reason to change the page; a lost one is.
    assert attacks.stated <= count <= attacks.stated * 1.25 + 5, "run: python -m tests.attacks"
