"""The shapes of earlier results: their content, secrets that they never contain, and their bounds."""

import json
import string
from collections.abc import Callable
from functools import reduce
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declarations import render_schema
from declarations.observed import (
    MANY_ALIKE,
    MAX_DEPTH,
    MAX_NODES,
    MAX_PROPERTIES,
    NOTHING,
    Shape,
    Text,
    merge,
    text_kind,
    to_schema,
    unite,
)


def seen(*values: object) -> Shape:
    return reduce(merge, values, NOTHING)


def typed(*values: object) -> str:
    return " ".join(render_schema(to_schema(seen(*values))).split())


EXAMPLES: list[tuple[str, list[object], str]] = [
    ("a text", ["x"], "string"),
    ("whole numbers and others", [1, 2.5], "number"),
    ("integers beyond 2^53", [9007199254740991, -9007199254740992], "number | bigint"),
    ("integers beyond 2^53 and others", [["x", None, 2**64]], "(string | number | bigint | null)[]"),
    ("kinds", ["x", None, True, 1], "string | number | boolean | null"),
    ("only null", [None], "unknown"),
    ("no items", [[]], "unknown[]"),
    ("items of two kinds", [[1, "x"]], "(string | number)[]"),
    ("items of several results", [[], [1], ["x"]], "(string | number)[]"),
    ("an object", [{"id": 1, "title": "x"}], "{ id: number; title: string }"),
    ("a property that is not always there", [{"a": 1, "b": 1}, {"a": 2}], "{ a: number; b?: number }"),
    ("a property that came later", [{"a": 1}, {"a": 2, "b": None}], "{ a: number; b?: unknown }"),
    ("a property that may be null", [{"a": None}, {"a": "x"}], "{ a: string | null }"),
    ("what is no number in JSON", [[float("nan"), float("inf"), -float("inf"), "x"]], "(string | null)[]"),
    ("objects in a list", [[{"a": 1}, {"a": 2, "b": [True]}]], "{ a: number; b?: boolean[] }[]"),
    ("an object or a text", [{"a": 1}, "none"], "{ a: number } | string"),
    ("errors in place of data", [{"data": [1]}, {"error": "x"}], "{ data?: number[]; error?: string }"),
]


@pytest.mark.parametrize(("values", "expected"), [row[1:] for row in EXAMPLES], ids=[row[0] for row in EXAMPLES])
def test_a_shape_has_the_kinds_of_values_and_required_properties(values: list[object], expected: str) -> None:
    assert typed(*values) == expected


DATA: list[str] = [
    "jane@example.com",
    "550e8400-e29b-41d4-a716-446655440000",
    "2026-03-01",
    "12345",
    "7",
    "/etc/passwd",
    "src/main.py",
    "Jane Doe",
    "user12345",
    "a1b2c3d4",
    "sk_live_abcdefghijklm",
    "ghp_abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI",
    "ABCDEFGHIJKLMNOPQRS",
    "qwertyuiopasdfghjklzxcvbnm",
    "U024BE7LH",
    "cus_9s6XKzkNRiz8i3",
    "größe",
    "",
    "x" * 41,
    "https://example.com/?q=1",
    "__proto__ ",
]


@pytest.mark.parametrize("key", DATA)
def test_an_object_with_data_for_keys_is_a_map(key: str) -> None:
    for value in ({key: 1}, {"id": 1, key: 2}):
        assert to_schema(seen(value)) == {"type": "object", "additionalProperties": {"type": "number"}}
    assert to_schema(seen({"id": 1}, {key: "x"})) == {
        "type": "object",
        "additionalProperties": {"type": ["string", "number"]},
    }


@pytest.mark.parametrize(
    "name",
    ["id", "created_at", "htmlUrl", "_links", "$schema", "sha256", "address1", "x2y2", "URL", "MD5", "__proto__"],
)
def test_names_as_programmers_write_them_are_kept(name: str) -> None:
    assert to_schema(seen({name: 1}))["required"] == [name]


def test_an_object_with_many_keys_is_a_map() -> None:
    alphabet = [first + second for first in string.ascii_lowercase for second in string.ascii_lowercase]
    few, many = alphabet[:MAX_PROPERTIES], alphabet[: MAX_PROPERTIES + 1]
    assert len(to_schema(seen(dict.fromkeys(few, 1)))["properties"]) == MAX_PROPERTIES
    assert typed(dict.fromkeys(many, 1)) == "{ [key: string]: number }"
    assert typed({"id": 1, **dict.fromkeys(few[:40], 1)}, {"id": 1, **dict.fromkeys(few[30:], "x")}) == (
        "{ [key: string]: string | number }"
    )


def test_objects_with_other_keys_each_time_are_a_map() -> None:
    assert typed([{"alice": 1}, {"bob": 2}, {"carol": 3}]) == "{ [key: string]: number }[]"
    assert typed({"alice": {"n": 1}}, {"bob": {"n": 2}}, {"carol": {"n": None}}) == (
        "{ [key: string]: { n: number | null } }"
    )


def test_many_objects_of_one_shape_side_by_side_are_a_map() -> None:
    names = string.ascii_lowercase[:MANY_ALIKE]
    assert typed({name: {"stars": 1, "forks": 2} for name in names}) == (
        "{ [key: string]: { stars: number; forks: number } }"
    )
    assert "a: { stars" in typed({name: {"stars": 1, "forks": 2} for name in names[1:]} | {"a": {"stars": 1}})


def test_a_map_stays_a_map() -> None:
    assert typed({"12": {"a": 1}}, {"a": {"b": "x"}}) == "{ [key: string]: { a?: number; b?: string } }"


# bounds

_NAMES = st.sampled_from(["id", "name", "items", "owner", "ab", "cd", "ef", "gh"])
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
# Not `st.emails()`, which takes up to a second for one example on a busy machine.
_KEYS = _NAMES | st.text(max_size=8) | st.from_regex(r"[a-z0-9.]{1,8}@[a-z]{1,8}\.com", fullmatch=True)
VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_KEYS, inner, max_size=6), max_leaves=20
)
# Values without maps, for which the order of merging does not matter.
RECORDS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_NAMES, inner, max_size=4).map(lambda members: {**members, "id": 1})
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_every_value_that_was_merged_is_valid(values: list[Any]) -> None:
    schema = to_schema(seen(*values))
    validator = jsonschema_rs.validator_for(schema)
    for value in values:
        assert validator.is_valid(value), (schema, value)


@settings(max_examples=40)
@given(st.lists(VALUES, max_size=5), VALUES)
def test_merging_the_same_value_again_changes_nothing(values: list[Any], value: Any) -> None:
    once = merge(seen(*values), value)
    assert merge(once, value) == once


@settings(max_examples=40)
@given(VALUES, VALUES)
def test_the_order_of_two_values_does_not_matter(one: Any, other: Any) -> None:
    assert unite(seen(one), seen(other)) == unite(seen(other), seen(one))
    assert seen(one, other) == seen(other, one)


@settings(max_examples=40)
@given(RECORDS, RECORDS, RECORDS)
def test_the_order_of_records_does_not_matter(one: Any, two: Any, three: Any) -> None:
    assert unite(unite(seen(one), seen(two)), seen(three)) == unite(seen(one), unite(seen(two), seen(three)))
    assert seen(one, two, three) == seen(three, one, two)


_SECRET = "Sesame-4711 "


@settings(max_examples=40)
@given(st.lists(VALUES.map(lambda value: _marked(value)), min_size=1, max_size=5))
def test_a_schema_has_no_value_and_no_key_that_is_data(values: list[Any]) -> None:
    schema = to_schema(seen(*values))
    text = json.dumps(schema)
    assert "Sesame" not in text
    assert "4711" not in text
    assert set(_keywords(schema)) <= {"type", "properties", "required", "items", "anyOf", "additionalProperties"}
    assert set(_keywords(schema, names=True)) <= {"id", "name", "items", "owner", "ab", "cd", "ef", "gh"}


def _marked(value: Any) -> Any:
    """Return a value with a secret in every text and number, and in every key but a few names."""
    match value:
        case str():
            return _SECRET + value
        case bool() | None:
            return value
        case int() | float():
            return 4711_4711
        case list():
            return [_marked(item) for item in value]
    known = {"id", "name", "items", "owner", "ab", "cd", "ef", "gh"}
    return {key if key in known else _SECRET + key: _marked(member) for key, member in value.items()}


def _keywords(schema: Any, *, names: bool = False) -> list[str]:
    found: list[str] = []
    if isinstance(schema, list):
        return [word for each in schema for word in _keywords(each, names=names)]
    if not isinstance(schema, dict):
        return []
    for keyword, rule in schema.items():
        if not names:
            found.append(keyword)
        if keyword == "properties":
            found.extend(rule if names else [])
            found.extend(_keywords(list(rule.values()), names=names))
        elif keyword in ("items", "anyOf", "additionalProperties"):
            found.extend(_keywords(rule, names=names))
    return found


def _wide(depth: int) -> Any:
    return "x" if depth == 0 else {name: _wide(depth - 1) for name in "abcdefgh"} | {"list": [_wide(depth - 1)]}


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


_TAGS = ["x"] * 1_000
HUGE: list[tuple[str, Callable[[], Any]]] = [
    ("many objects in many objects", lambda: _wide(5)),
    ("deep arrays", lambda: _deep(5_000)),
    ("a long array", lambda: [{"n": n, "tags": _TAGS} for n in range(100_000)]),
    ("many keys", lambda: {f"k{n}": {"n": n} for n in range(100_000)}),
    ("a long text", lambda: "x" * 10_000_000),
    ("many names", lambda: [{"id": 1, a + b: 1} for a in string.ascii_letters for b in string.ascii_letters]),
]


@pytest.mark.parametrize("make", [row[1] for row in HUGE], ids=[row[0] for row in HUGE])
def test_a_shape_is_small_whatever_is_merged(make: Callable[[], Any]) -> None:
    value = make()
    shape = merge(seen({"id": 1}), value)
    assert len(json.dumps(to_schema(shape))) < 100 * MAX_NODES
    assert merge(shape, value) == shape


def test_the_deepest_levels_are_forgotten_first() -> None:
    text = typed(_wide(5))
    assert text.startswith("{ a: { a: ")
    assert "unknown" in text
    assert typed(_deep(MAX_DEPTH + 1)) == "unknown" + "[]" * MAX_DEPTH


def test_a_long_array_is_known_from_both_ends() -> None:
    assert typed(["x", *[1] * 10_000, None]) == "(string | number | null)[]"


def test_a_shape_that_covers_a_value_stays_the_same_object() -> None:
    shape = seen({"a": [1, "x"], "b": None}, {"a": []})
    assert merge(shape, {"a": ["y"]}) is shape
    assert merge(shape, {"a": [True]}) is not shape


KINDS = [
    ("one line", "3 issues found"),
    ("one line", "Successfully wrote to /a.txt"),
    ("one line", "Error: x"),
    ("one line", ""),
    ("one line", "a,b"),
    ("one line", "x"),
    ("Python literal", "[{'name': 'users'}, {'name': 'orders'}]"),
    ("Python literal", "[(1, 'a'), (2, None)]"),
    ("Python literal", "{'a': 1}"),
    ("Python literal", "(1, 'x')"),
    ("Python literal", "{'ok': True}"),
    ("Python literal", "[datetime.date(2026, 1, 1)]"),
    ("Python literal", "[{'id': 1, 'n': 'it''s'}]"),
    ("CSV", "id,name\n1,a\n2,b"),
    ("CSV", "id;name\n1;a"),
    ("CSV", "id\tname\n1\tb"),
    ("CSV", 'name,"a, b"\nx,"c, d"'),
    ("CSV", "a,b,c\n1,2,3\n"),
    ("Markdown", "# Title\n\ntext"),
    ("Markdown", "## Issues\n- a\n- b"),
    ("Markdown", "text\n```js\nx\n```"),
    ("Markdown", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ("Markdown", "see [x](https://x.y)"),
    ("Markdown", "**Bold** text\nmore"),
    ("Markdown", "- [a](b)\n- [c](d)"),
    ("key: value", "Commit: abc\nAuthor: me\nDate: now"),
    ("key: value", "a: 1\nb: 2\n"),
    ("key: value", "- Name: x\n- Size: 3"),
    ("key: value", "size: 10\ncreated: now\nisDirectory: false"),
    ("key: value", "title=x\nlevel=3"),
    ("lines", "[FILE] a.txt\n[DIR] b"),
    ("lines", "a\nb\nc"),
    ("lines", "Dear Ann,\nthank you for all, and more.\nYours"),
    ("lines", "/a/b\n/a/c"),
    ("lines", "Hello, world.\nThis is text, really."),
    ("lines", "total 8\ndrwx a\n-rw b"),
    ("lines", "commit abc\n    message\n\ncommit def\n    other"),
    ("lines", "import os\n\ndef f(a, b):\n    return a"),
]


@pytest.mark.parametrize(("kind", "text"), KINDS)
def test_the_kind_of_a_text_is_known(kind: str, text: str) -> None:
    assert text_kind(text) == kind
    assert text_kind(f"\n{text}\n") == kind
    assert seen(Text(text)) == Shape(frozenset({f"text: {kind}"}))


@given(st.text("a,;\t\n\r\"'\x00:#[](){}| -*`é", max_size=200))
def test_any_text_has_a_kind(text: str) -> None:
    schema = to_schema(seen(Text(text)))
    assert schema == {"type": "string", "description": f"text, not JSON: {text_kind(text)}"}


def test_a_long_text_is_known_from_its_beginning() -> None:
    assert text_kind("id,name\n" * 100_000) == "CSV"
    assert text_kind("[" + "{'a': 1}, " * 100_000 + "]") == "Python literal"
    assert text_kind("x" * 100_000) == "one line"
