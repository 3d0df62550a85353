"""No text of a server or a program moves a cursor, ends a line, hides words or reverses the text around it."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declarations.untrusted_text import (
    HIDDEN,
    drop_hidden,
    escape_hidden,
    escape_line,
    escape_misleading,
    json_escape,
)


def test_every_control_separator_direction_and_surrogate_is_hidden() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        turns = unicodedata.bidirectional(character) in {
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        }
        if turns or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            assert HIDDEN.match(character), hex(code)


@pytest.mark.parametrize("text", ["plain", "Größe 12 µm", "漢字", "हिन्दी", "naïve 😀", "שלום", "a  b"])
def test_text_that_hides_nothing_is_left_alone(text: str) -> None:
    assert drop_hidden(text) == escape_hidden(text) == escape_line(text) == text


def test_hidden_characters_are_dropped_but_for_those_to_keep() -> None:
    assert drop_hidden("a\n\tb\x1b\u202e\u3164\u2800\ufe0f\ud800c", keep="\n") == "a\nbc"


def test_hidden_characters_are_escaped() -> None:
    assert escape_hidden("a\nb\u202e\u2800\ud800\U000e0041\uffff") == r"a\nb\u202e\u2800\ud800\U000e0041\uffff"


def test_a_line_is_cut_before_it_is_escaped() -> None:
    assert escape_line("\n" * 10, 4) == r"\n\n\n…"


@given(st.text())
def test_nothing_hidden_is_left(text: str) -> None:
    assert not HIDDEN.search(drop_hidden(text))
    assert not HIDDEN.search(escape_hidden(text))
    shown = escape_misleading(text, json_escape)
    assert shown.isprintable()
    assert not HIDDEN.search(shown)


@given(st.characters(codec=None))
def test_the_escapes_are_those_of_json(character: str) -> None:
    assert json.loads(f'"{json_escape(character)}"') == character


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('["א",1]', r'["\u05d0",1]'),
        ("e\u0301\u0301\u0301", "e\u0301\u0301\\u0301"),
        ("\u0301a", r"\u0301a"),
        ("\u00a0", r"\u00a0"),
    ],
    ids=["right to left", "piled up", "no character below", "another space"],
)
def test_letters_and_marks_that_change_what_is_around_them_are_escaped(text: str, shown: str) -> None:
    assert escape_misleading(text, json_escape) == shown


def test_right_to_left_letters_can_be_shown() -> None:
    assert escape_misleading("שלום", json_escape, right_to_left=True) == "שלום"
