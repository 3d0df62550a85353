"""The differences between two definitions, as a person reads them."""

import json
import random
import unicodedata
from time import thread_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.rules.trust.comparison import ItemReport
from codemode_mcp.rules.trust.items import Item, item_of
from codemode_mcp.rules.trust.text_diff import ValueDiff, compare_definitions, differences_of, look_alikes, shortened
from declarations.untrusted_text import HIDDEN
from tests.properties import examples

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


ALIKE = [
    ([{"maximum": 10}], {"0": {"maximum": 10}}),
    ([["a"]], [{"0": "a"}]),
    ({"a": {"0": [{}]}}, {"a": [{"0": {}}]}),
    ([[1], 2], {"0": [1], "1": 2}),
    ("5", 5),
    ("5.5", 5.5),
    ("true", True),
    ("null", None),
    ("{}", {}),
    ("[]", []),
    ('["a"]', ["a"]),
    ('"a"', "a"),
    ("1e3", 1000),
    ("NaN", float("nan")),
    (1, True),
    (0, False),
    ("", None),
    ("", {}),
    ("a\u200bb", "a\\u200bb"),
    ("a\nb", "a\\nb"),
    ("a" + " " * 20 + "b", "a \\x20{18} b"),
    ("\u00e9", "e\u0301"),
    ("\uff41", "a"),
    ("\u0441\u043e\u0440", "cop"),
    ("p\u0430y", "pay"),
    ("p\u0430y", "p\\u0430y"),
    ("https://\u0430\u0440\u0440\u04cf\u0435.com/x", "https://apple.com/x"),
    ("a\n\n \n\nb", "a\n\n\n\nb"),
    ({"\u200b": 1}, {"\\u200b": 1}),
    ({"0": 1}, {'"0"': 1}),
    ({"a/b": 1}, {"a": {"b": 1}}),
    ({"a~1b": 1}, {"a/b": 1}),
    ({"": 1}, {"": {"": 1}}),
    ({"a\nb": 1}, {"a\\nb": 1}),
    ([1, 2], "1, 2"),
    (10**30, str(10**30)),
]


@pytest.mark.parametrize("key", ["title", "description", "name", "inputSchema", "x"])
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_values_that_are_not_equal_are_never_shown_alike(one: object, other: object, key: str) -> None:
    for accepted, present in ((one, other), (other, one)):
        differences = compare_definitions({key: accepted}, {key: present})
        assert differences
        for diff in differences:
            assert side(diff, "removed") != side(diff, "added")
    assert shown(None, {key: one}) != shown(None, {key: other}) or "\n \n" in str(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a-b", "a\u2010b"), ("a/b", "a\u2215b"), ("a b: it's", "a b: it\u2019s"), ('a "b"', "a \u201cb\u201d")],
)
def test_punctuation_that_looks_alike_is_shown_in_ascii(one: str, other: str) -> None:
    for accepted, present in ((one, other), (other, one)):
        (diff,) = compare_definitions({"description": accepted}, {"description": present})
        assert [each.text for each in diff.parts] == [json.dumps(accepted), json.dumps(present)]


@pytest.mark.parametrize("other", ["\u0430", "\uff41", "\u0441\u043e\u0440\u0443", "e\u0301", "a\u2010b"])
def test_names_of_members_that_look_alike_are_shown_in_ascii(other: str) -> None:
    for definition in ({"properties": {other: 1}}, {"properties": {other: {"type": "string"}}}):
        for old, new in (({}, definition), (definition, {}), ({"properties": {"a": 1}}, definition)):
            assert any(json.dumps(other) in diff.where for diff in compare_definitions(old, new))
            assert all(diff.where.isascii() for diff in compare_definitions(old, new))


def side(diff: ValueDiff, change: str) -> str:
    """Return the text of one side of a difference, with compatible characters and those that look alike made equal."""
    text = "".join(part.text for part in diff.parts if part.change in ("kept", change))
    return unicodedata.normalize("NFKC", text).translate(look_alikes())


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.floats(allow_nan=False),
    st.sampled_from(["5", "true", "a", "", "{}"]),
)
KEYS = st.sampled_from(["title", "name", "description", "0", "1", "a", "required", "properties", "enum"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
DEFINITIONS = st.dictionaries(st.sampled_from(["name", "title", "inputSchema", "x"]), VALUES, max_size=3)


@settings(max_examples=examples(300), deadline=None)
@given(DEFINITIONS, DEFINITIONS)
def test_definitions_with_other_digests_have_differences_that_tell_them_apart(one: Any, other: Any) -> None:
    same = item_of("tool", "t", one).digest == item_of("tool", "t", other).digest
    assert (shown(one, other) == []) is same
    assert (shown(None, one) == shown(None, other)) is same
    for diff in compare_definitions(one, other):
        assert side(diff, "removed") != side(diff, "added")


def test_an_item_that_cannot_be_shown_has_no_differences_to_accept() -> None:
    item, stored = item_of("tool", "t", {"name": "t", "x": 1}), Item("tool", "t", None, "d" * 64)
    deep = Item("tool", "t", {"name": "t"}, "")
    for accepted, present in ((item, stored), (None, stored), (stored, stored), (item, deep)):
        assert differences_of(ItemReport("s", "tool", "t", "changed", True, accepted, present)) is None
    known = differences_of(ItemReport("s", "tool", "t", "changed", True, stored, item))
    assert known is not None
    assert [diff.where for diff in known] == ["/name", "/x"]
    assert differences_of(ItemReport("s", "tool", "t", "removed", False, stored, None)) == ()
