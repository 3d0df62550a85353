"""The choice that the mode `auto` stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.server.exposure.selection import DIRECT_BYTES, choose_mode


def test_small_tools_are_listed_and_others_are_called_in_programs() -> None:
    assert choose_mode(0, None) == choose_mode(DIRECT_BYTES, None) == "direct"
    assert choose_mode(DIRECT_BYTES + 1, None) == "code"


def test_a_small_change_of_the_tools_does_not_change_the_choice() -> None:
    assert choose_mode(round(DIRECT_BYTES * 1.2), "direct") == "direct"
    assert choose_mode(round(DIRECT_BYTES * 0.8), "code") == "code"
    assert choose_mode(DIRECT_BYTES * 2, "direct") == "code"
    assert choose_mode(DIRECT_BYTES // 2, "code") == "direct"


@given(st.integers(0, 10_000), st.sampled_from(["direct", "code", None]))
def test_a_choice_stays_while_the_tools_stay(size: int, before: object) -> None:
    chosen = choose_mode(size, before)  # type: ignore[arg-type]
    assert choose_mode(size, chosen) == chosen
