"""Tests of what is put around an input, and how its positions are put right."""

from __future__ import annotations

import json

from codemode_mcp.extensions.repl.cells import SessionNames, identifiers_in, position_in, unwrapped, wrapped
from codemode_mcp.program.preflight import inspect


def same(line: int, column: int) -> tuple[int, int]:
    return line, column


def test_the_authors_lines_stand_one_line_further_down() -> None:
    for last in (None, "ref"):
        lines = wrapped("const a = 1;\na", ["a"], "key", earlier=True, last=last).split("\n")
        assert lines[1:3] == ["const a = 1;", "a"]
        assert len(lines) == 4


def test_a_program_that_speaks_of_nothing_earlier_loads_nothing() -> None:
    first, *_ = wrapped("1", [], "key", earlier=False).split("\n")
    assert ".load(" not in first
    assert ".load(" in wrapped("1", [], "key", earlier=True).split("\n")[0]


def test_positions_are_the_authors_again() -> None:
    text = "Error: no (cell.js:3:7)\n    at f (cell.js:2:1)\n    at get (cell.js:1:400)\n    at cell.js:3:7"
    assert unwrapped(text, 2, same) == "Error: no (cell.js:2:7)\n    at f (cell.js:1:1)\n    at cell.js:2:7"


def test_what_the_implicit_return_puts_in_is_taken_away_again() -> None:
    found = inspect("let a\nf(a)", "javascript")
    assert found.returning == "let a\nreturn (f(a))"
    assert unwrapped("at cell.ts:3:9", 2, found.author_position) == "at cell.ts:2:1"


def test_positions_beyond_the_text_are_not_the_authors() -> None:
    assert unwrapped("cell.js:9:3 cell.js:0:1", 2, same) == "cell.js:9:3 cell.js:1:1"


def test_the_place_that_an_error_is_about_is_found() -> None:
    assert position_in("x (cell.ts:12:3)\n at cell.ts:1:1") == (12, 3)
    assert position_in("x (cell.py:12:3)") is None


def test_names_in_a_program_are_found_whatever_they_are_in() -> None:
    assert {"a", "_", "b$", "c"} <= identifiers_in("a(_.x, `${b$}`) // c")


def test_what_is_kept_is_of_three_kinds() -> None:
    found = SessionNames(json.dumps({"a": {"value": 1}, "f": {"source": "() => 1"}, "m": {"lost": "a Map"}, "u": {}}))
    assert found.values == {"a": 1, "u": None}
    assert found.functions == ["f"]
    assert found.lost == {"m": "a Map"}
    assert found.all == {"a", "f", "m", "u"}
    assert SessionNames(None).all == set()
    assert SessionNames("[1]").all == set()


def test_what_a_program_itself_has_put_in_its_place_is_nothing() -> None:
    found = SessionNames('{"a": 5, "b": null, "c": [1], "d": "lost", "e": {"value": 1}}')
    assert (found.values, found.functions, found.lost) == ({"e": 1}, [], {})
