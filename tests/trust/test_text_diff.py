"""The differences between two definitions, as a person reads them."""

from __future__ import annotations

import random
import unicodedata
from time import thread_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.trust.text_diff import compare_definitions, shortened
from declarations.untrusted_text import HIDDEN

WORDS = st.lists(st.sampled_from(["read", "write", "the", "file", "a", ",", "."]), max_size=60).map(" ".join)


def shown(accepted: dict[str, Any] | None, present: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return each place with its text: `{+added+}`, `[-removed-]`."""
    marks = {"kept": "{}", "added": "{{+{}+}}", "removed": "[-{}-]"}
    return [
        (diff.where, "".join(marks[part.change].format(part.text) for part in diff.parts))
        for diff in compare_definitions(accepted, present)
    ]


def test_a_changed_word_is_shown_in_its_unchanged_text() -> None:
    assert shown({"description": "Delete one file."}, {"description": "Delete all files."}) == [
        ("/description", "Delete [-one file-]{+all files+}.")
    ]


def test_each_changed_value_has_its_json_pointer() -> None:
    before = {"name": "t", "inputSchema": {"properties": {"a/b": {"maxLength": 100}}, "required": ["x"]}}
    after = {"name": "t", "inputSchema": {"properties": {"a/b": {"maxLength": 1000}}, "required": ["y", "x"]}}
    assert shown(before, after) == [
        ("/inputSchema/properties/a~1b/maxLength", "[-100-]{+1000+}"),
        ("/inputSchema/required", '["x"{+, "y"+}]'),
    ]


def test_differences_without_meaning_are_left_out() -> None:
    before = {"name": "t", "inputSchema": {"required": ["a", "b"], "minimum": 1}}
    after = {"inputSchema": {"minimum": 1.0, "required": ["b", "a"]}, "name": "t"}
    assert shown(before, after) == []


def test_a_new_item_is_added_as_a_whole_and_a_removed_one_is_removed_as_a_whole() -> None:
    definition = {"inputSchema": {"type": "object"}, "description": "Adds.", "name": "add"}
    assert shown(None, definition) == [
        ("/name", "{+add+}"),
        ("/description", "{+Adds.+}"),
        ("/inputSchema/type", '{+"object"+}'),
    ]
    assert all(text.startswith("[-") for _, text in shown(definition, None))


def test_a_value_that_becomes_an_object_is_shown_with_its_members() -> None:
    assert shown({"a": True}, {"a": {"b": "c"}}) == [("/a/b", '{+"c"+}'), ("/a", "[-true-]")]


def test_empty_texts_and_missing_ones_differ() -> None:
    assert shown({}, {"description": ""}) == [("/description", '{+""+}')]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u200bb", "a\\u200bb"),
        ("a\U000e0041b", "a\\udb40\\udc41b"),
        ("a\u202eb", "a\\u202eb"),
        ("\x1b[2Ja", "\\u001b[2Ja"),
        ("שלום", "\\u05e9\\u05dc\\u05d5\\u05dd"),
        ("a\ud800", "a\\ud800"),
        ("a\rb", "a\\u000db"),
        ("e\u0301\u0301\u0301", "e\u0301\u0301\\u0301"),
    ],
)
def test_misleading_characters_are_escaped(text: str, expected: str) -> None:
    assert shown(None, {"description": text}) == [("/description", f"{{+{expected}+}}")]


def test_names_of_members_are_escaped() -> None:
    assert shown({}, {"a\u202e\n": 1}) == [("/a\\u202e\\n", "{+1+}")]


def test_long_runs_of_blanks_are_counted() -> None:
    assert shown(None, {"description": "a" + "\n \n" * 200 + "b" + " " * 300 + "c"}) == [
        ("/description", "{+a\n\\n{398}\nb \\x20{298} c+}")
    ]


def test_all_changes_stay_when_unchanged_text_is_shortened() -> None:
    long = "word " * 1000
    (diff,) = compare_definitions({"description": f"{long}old {long}"}, {"description": f"{long}new {long}"})
    parts = shortened(diff.parts)
    assert [part.change for part in parts] == ["omitted", "kept", "removed", "added", "kept", "omitted"]
    assert sum(len(part.text) for part in parts) < 400


@settings(deadline=None)
@given(WORDS, WORDS)
def test_parts_make_up_both_texts(old: str, new: str) -> None:
    for diff in compare_definitions({"description": f"x{old}"}, {"description": f"x{new}"}):
        assert "".join(part.text for part in diff.parts if part.change != "added") == f"x{old}"
        assert "".join(part.text for part in diff.parts if part.change != "removed") == f"x{new}"


@settings(deadline=None)
@given(st.text(), st.text())
def test_no_character_is_hidden_or_reorders_the_text(old: str, new: str) -> None:
    for diff in compare_definitions({"description": old, old: 1}, {"description": new, new: 1}):
        for text in (diff.where, *(part.text for part in diff.parts)):
            assert not HIDDEN.search(text.replace("\n", ""))
            assert {*map(unicodedata.bidirectional, text)}.isdisjoint(("R", "AL", "AN"))


def test_hostile_texts_are_compared_in_bounded_time() -> None:
    words = random.Random(1)
    definitions = [
        {str(number): {"description": " ".join(words.choices("ab", k=2000))} for number in range(100)} for _ in range(2)
    ]
    start = thread_time()
    compare_definitions(*definitions)
    compare_definitions({"description": "a b " * 200_000}, {"description": "b a " * 200_000})
    assert thread_time() - start < 20


def test_deeply_nested_definitions_are_compared() -> None:
    deep: object = 1
    for _ in range(900):
        deep = {"a": deep}
    assert len(compare_definitions({"a": 1}, {"a": deep})) == 2
