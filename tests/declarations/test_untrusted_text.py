"""No text of a server or a program moves a cursor, ends a line, hides words or reverses the text around it."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declarations.untrusted_text import (
    HIDDEN,
    count_blanks,
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
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://\u0430pple.com/\u0444", r"https://\u0430pple.com/" + "\u0444"),
        ("https://ex\u00e1mple.com:8/", r"https://ex\u00e1mple.com:8/"),
        ("https://a@\u043e\u043e\u043e.\u0440\u0444", r"https://a@\u043e\u043e\u043e.\u0440\u0444"),
        ("https://a.example\u2044b.evil.example", r"https://a.example\u2044b.evil.example"),
        ("mail a@\u0430\u0440\u0440\u04cf\u0435.com", r"mail a@\u0430\u0440\u0440\u04cf\u0435.com"),
        ("p\u0430y the \u0441afe", r"p\u0430y the \u0441afe"),
        ("\uff41dmin or admin\uff11", "\uff41dmin".replace("\uff41", r"\uff41") + " or admin" + r"\uff11"),
        ("\U0001d41admin", r"\ud835\udc1admin"),
        ("\u13aasia \u0251lpha \u0131d", r"\u13aasia \u0251lpha \u0131d"),
    ],
)
def test_letters_that_look_like_ascii_are_escaped_in_words_with_ascii_and_in_hosts(text: str, shown: str) -> None:
    assert escape_misleading(text, json_escape) == shown
    assert escape_misleading(text, json_escape, right_to_left=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "\u0421\u0447\u0451\u0442 \u2116 5",
        "\u03b2 and \u03b3",
        "Gr\u00f6\u00dfe na\u00efve 12 \u00b5m",
        "it\u2019s 2010\u20132020",
        "API\u6587\u6863",
        "1\u00d72",
    ],
)
def test_words_of_one_alphabet_and_signs_of_prose_are_shown(text: str) -> None:
    assert escape_misleading(text, json_escape) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a" + " " * 9 + "b", r"a \x20{7} b"),
        ("a" + " " * 8 + "b", "a" + " " * 8 + "b"),
        ("a" + "\n" * 500 + "b", "a\n\\n{498}\nb"),
        ("a" + "\n   " * 500 + "\nb", "a\n\\n{499}\nb"),
    ],
)
def test_long_runs_of_blanks_are_shown_as_their_length(text: str, shown: str) -> None:
    assert count_blanks(text) == shown


def test_blanks_that_are_usual_in_code_stay() -> None:
    text = "if (a)\n" + " " * 24 + "b();\n\n\n\nc();"
    assert count_blanks(text, is_code=True) == text
    assert count_blanks("a();" + " " * 4000 + "b();", is_code=True) == r"a(); \x20{3998} b();"
