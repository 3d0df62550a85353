"""Values and errors, as the prompt shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.display import columns
from codemode_mcp.cli.messages import COLUMNS
from codemode_mcp.extensions.repl.display import MAX_ITEMS, MAX_LINES, MAX_TEXT, lines_of, pointed, quoted, shown
from codemode_mcp.extensions.repl.prompt import HELP


def test_the_help_of_the_prompt_fits() -> None:
    assert all(len(line) <= COLUMNS for line in HELP.splitlines())


def text_of(value: Any, width: int = 60) -> str:
    return "\n".join("".join(text for _, text in line) for line in shown(value, width)[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (True, "true"),
        (None, "null"),
        ("it's", '"it\'s"'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": [1, {"odd-key": None}]}, "{ a: [ 1, { 'odd-key': null } ] }"),
        ([[[1]]], "[ [ [ 1 ] ] ]"),
        ([[[[1]]]], "[\n  [ [ [ 1 ] ] ]\n]"),
        (
            [{"id": 1, "title": "x" * 30}] * 2,
            "[\n  { id: 1, title: '" + "x" * 30 + "' },\n  { id: 1, title: '" + "x" * 30 + "' }\n]",
        ),
    ],
)
def test_values_are_written_as_node_writes_them(value: object, text: str) -> None:
    assert text_of(value) == text
    assert not shown(value, 60)[1]


def test_numbers_stand_side_by_side() -> None:
    assert text_of(list(range(30)), 50).count("\n") == 4


@pytest.mark.parametrize("value", [list(range(MAX_ITEMS + 1)), "x" * (MAX_TEXT + 1), [{"a": "y" * 70}] * MAX_LINES])
def test_what_is_long_is_cut_and_that_is_told(value: object) -> None:
    lines, cut = shown(value, 60)
    assert cut
    assert len(lines) <= MAX_LINES


def test_strings_are_in_quotes_that_they_do_not_hold() -> None:
    assert quoted("a") == "'a'"
    assert quoted("a'\"") == "`a'\"`"
    assert quoted("'\"`") == "'\\'\"`'"
    assert quoted("\x1b[2J\n\\") == "'\\x1b[2J\\n\\\\'"


def test_printed_text_keeps_its_lines_and_nothing_else() -> None:
    assert lines_of("a\tb\n\x1b[2Jc\rd") == "a       b\n\\x1b[2Jc\\x0dd"


def test_the_place_of_an_error_is_pointed_at() -> None:
    assert pointed("let a\n\tlet b = ;", 2, 10, 80) == ["   let b = ;", "           ^"]
    assert pointed("a", 2, 1, 80) == []
    line, mark = pointed("x" * 500 + "!" + "y" * 500, 1, 501, 80)
    assert line[mark.index("^")] == "!"
    assert len(line) <= 80


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=30,
)


@given(JSON, st.integers(1, 200))
def test_any_value_is_shown_in_lines_that_print(value: object, width: int) -> None:
    lines, _ = shown(value, width)
    assert len(lines) <= MAX_LINES
    for line in lines:
        text = "".join(part for _, part in line)
        assert text.isprintable()
        assert columns(text) >= 0


def test_what_is_nested_without_end_is_shown() -> None:
    value: list[Any] = []
    for _ in range(900):
        value = [value]
    assert shown(value, 80)[1]
