"""Changes to JSON that people write: all that is not changed stays as it was written."""

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.config.edit_json import with_members
from codemode_mcp.config.source import SourceError, parse, without_comments

KEYS = ("mcpServers",)
VALUE = {"command": "c", "args": ["a"]}
SHORT = {"a": 1}

ADDED = {
    "nothing": '{«→\n  "servers": {\n    "me": {\n      "a": 1\n    }\n  }\n»}\n',
    "one line": '{"servers": {"x": {}«→, "me": {"a": 1}»}}',
    "one line without blanks": '{"a":1«→,"servers":{"me":{"a":1}}»}',
    "tabs": '{\n\t"servers": {\n\t\t"x": {}«→,\n\t\t"me": {\n\t\t\t"a": 1\n\t\t}»\n\t}\n}',
    "four blanks, from what is around it": (
        '{\n    "servers": {«→\n        "me": {\n            "a": 1\n        }\n    »}\n}'
    ),
    "lines that end as on Windows": (
        '{\r\n  "a": 1«→,\r\n  "servers": {\r\n    "me": {\r\n      "a": 1\r\n    }\r\n  }»\r\n}\r\n'
    ),
    "comments stay with what they are about": (
        '{\n  "servers": {\n    "x": {}« // x→, // x\n    "me": {\n      "a": 1\n    }»\n    // end\n  }\n}'
    ),
    "a trailing comma": '{\n  "servers": {\n    "x": {}, // x\n  «→  "me": {\n      "a": 1\n    },\n  »},\n}',
    "only a comment": '{\n  "servers": { // none yet\n  «→  "me": {\n      "a": 1\n    }\n  »}\n}',
    "null": '{"servers": «null→{"me": {"a": 1}}», "a": 1}',
    "another value in its place": (
        '{\n  "servers": {\n    /* 1 */ "me": /* 2 */ «"x"→{"a": 1}» /* 3 */,\n    "y": 1\n  }\n}'
    ),
}
"""Texts with the changed part as `«BEFORE→AFTER»`."""


def before_and_after(text: str) -> tuple[str, str]:
    begin, change, end = re.split("[«»]", text)
    before, after = change.split("→")
    return begin + before + end, begin + after + end


@pytest.mark.parametrize(("before", "after"), [before_and_after(text) for text in ADDED.values()], ids=ADDED)
def test_what_is_added_looks_like_its_neighbours(before: str, after: str) -> None:
    assert with_members(before, ("servers",), {"me": SHORT}) == after


REMOVED = {
    "the only one": '{"mcpServers": {«"me": {}→»}}',
    "the first": '{"mcpServers": {"«me": {}, "→»x": 1}}',
    "the last": '{"mcpServers": {"x": 1«, "me": {}→»}}',
    "the last, with a trailing comma": '{"mcpServers": {"x": 1,« "me": {},→»}}',
    "one of several lines": '{"mcpServers": {\n  "x": 1, // x\n  // mine?\n  "«me": {\n  }, // me\n  "→»y": 2 // y\n}}',
    "the last of several lines": '{"mcpServers": {\n  "x": 1«, // x\n  "me": 2 // me→ // x»\n  // end\n}}',
    "two on one line": '{"mcpServers": {\n  "«me": 1, "→»y": 2\n}}',
    "the last on the line of the brackets": '{"mcpServers": {\n  "x": 1«,\n  "me": 2→» }}',
    "the last behind a comment, on the line of the brackets": (
        '{"mcpServers": {\n  "x": 1«, // x\n  "me": 2→ // x\n  » }}'
    ),
    "a key written with an escape": '{"mcpServers": {"«\\u006de": 1, "→»x": 2}}',
    "nothing": '{"mcpServers": {"x": 1}}«→»',
    "of nothing": "{}«→»",
}


@pytest.mark.parametrize(("before", "after"), [before_and_after(text) for text in REMOVED.values()], ids=REMOVED)
def test_what_is_removed_takes_its_comma_along_and_leaves_the_comments_of_others(before: str, after: str) -> None:
    assert with_members(before, KEYS, {}, ("me",)) == after


def test_what_is_there_already_changes_nothing() -> None:
    text = '{mcpServers: {me: {"args": [1,], // c\n}}}'
    assert with_members(text, KEYS, {"me": {"args": [1]}}) == text
    assert with_members(text, KEYS, {"me": {"args": [True]}}) != text


def test_several_changes_are_one() -> None:
    text = '{\n  "mcpServers": {\n    "a": 1,\n    "b": 2,\n    "c": 3\n  }\n}'
    assert with_members(text, KEYS, {"me": 4}, ("a", "b", "c")) == '{\n  "mcpServers": {\n    "me": 4\n  }\n}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "does not lead to an object"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', '"mcpServers" is given twice'),
        ('{"mcpServers": {"me": 1, "me": 2}}', '"me" is given twice'),
        ('{"mcpServers": {', "is not valid JSON: line 1, column 17"),
        ("", "is empty"),
    ],
    ids=["list", "inner list", "twice", "member twice", "broken", "empty"],
)
def test_what_cannot_be_changed_is_refused(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        with_members(text, KEYS, {"me": 1})
    with pytest.raises(SourceError, match=said):
        with_members(text, KEYS, {}, ("me",))


def test_half_a_character_is_written_so_that_a_file_can_hold_it() -> None:
    assert with_members('{"a":1}', (), {"b": "\ud800é"}).encode() == b'{"a":1,"b":"\\ud800\\u00e9"}'


# whatever the file

_names = st.sampled_from(["me", "a", "b", 'q"\\', "ü", "// no", "x y"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "/* */", "// no", "},{", "',\"", "\\", "\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)
_objects = st.dictionaries(_names, _values, max_size=4)
_files = st.fixed_dictionaries({"mcpServers": _objects}, optional={"first": _values, "a": _objects})


@st.composite
def _texts(draw: st.DrawFn, value: Any, names: bool) -> str:
    """JSON as a person may write it: comments anywhere, trailing commas, each object in a style of its own."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    unit = draw(st.sampled_from(["  ", "    ", "\t"]))
    blanks = st.sampled_from(["", "", "", " ", "/* ]}, */", f' // "{{[{newline}', newline])

    def write(value: object, depth: int) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        is_object = isinstance(value, dict)
        parts = [
            f"{name(key)}{draw(blanks)}:{draw(blanks)}{write(item, depth + 1)}{draw(blanks)}"
            for key, item in value.items()
        ] if isinstance(value, dict) else [write(item, depth + 1) + draw(blanks) for item in value]  # fmt: skip
        between = newline + unit * depth if draw(st.booleans()) else ""
        text = ",".join(draw(blanks) + between + part for part in parts)
        text += "," if parts and draw(st.booleans()) else ""
        return "{["[not is_object] + text + draw(blanks) + "}]"[not is_object]

    def name(key: str) -> str:
        return key if names and key.isidentifier() and key.isascii() else json.dumps(key)

    return draw(blanks) + write(value, 1) + draw(blanks)


@settings(max_examples=60, deadline=None)
@given(st.data(), _files, _names, _values, st.sampled_from([KEYS, ("a",), ("new",), ("new", "deep"), ()]))
def test_any_file_means_the_same_but_for_the_change(
    data: st.DataObject, value: dict[str, Any], name: str, new: Any, keys: Sequence[str]
) -> None:
    text = data.draw(_texts(value, names=data.draw(st.booleans())))
    if keys == () and name == "a" and not isinstance(new, dict):
        new = {}
    added = with_members(text, keys, {name: new})
    expected: Any = parse(text)
    target = expected
    for key in keys:
        target = target.setdefault(key, {})
    there = name in target
    target[name] = new
    assert parse(added) == expected
    assert _comments(text) == _comments(added) or there
    removed = with_members(added, keys, {}, (name,))
    del target[name]
    assert parse(removed) == expected
    if not there and parse(text) == expected and len(target) > 0:
        assert removed == text


@settings(max_examples=100, deadline=None)
@given(st.data(), _files)
def test_any_member_can_be_removed_and_the_rest_stays(data: st.DataObject, value: dict[str, Any]) -> None:
    text = data.draw(_texts(value, names=False))
    names = data.draw(st.lists(st.sampled_from([*value["mcpServers"], "gone"]), unique=True))
    removed = with_members(text, KEYS, {}, names)
    expected = parse(text)
    for name in names:
        expected["mcpServers"].pop(name, None)
    assert parse(removed) == expected
    # Nothing is new, and everything in its order.
    rest = iter(text)
    assert all(character in rest for character in removed)


@settings(max_examples=60, deadline=None)
@given(st.data(), _files)
def test_the_fast_reader_reads_what_the_thorough_one_does(data: st.DataObject, value: dict[str, Any]) -> None:
    text = data.draw(_texts(value, names=False))
    assert len(without_comments(text)) == len(text)
    assert json.loads(without_comments(text)) == value == parse(text)


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", '{"a":,}', "{} /* open", "[1,2", "[/*/]"])
def test_the_fast_reader_takes_nothing_that_is_wrong(text: str) -> None:
    with pytest.raises(SourceError):
        parse(text)


def _comments(text: str) -> list[str]:
    return sorted(
        "".join(a for a, b in zip(text, without_comments(text), strict=True) if a != b and a not in ",\r\n").split("//")
    )


def test_a_text_that_does_not_mean_what_was_asked_for_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ('{"mcpServers": {}}', '{"mcpServers": {"me": {"command": "c", "args": ["a"]}}, "more": 1}', "{"):
        monkeypatch.setattr("codemode_mcp.config.edit_json._changed", lambda *_, wrong=wrong, **__: wrong)
        with pytest.raises(SourceError, match="change it by hand"):
            with_members("{}", KEYS, {"me": VALUE})


def test_large_files_take_time_in_proportion() -> None:
    entry = {"history": ['said "x" // y', "{[" * 20] * 20, "mcpServers": {}}
    value = {"projects": {f"/p/{number}": entry for number in range(1500)}, "mcpServers": {"x": {}}}
    text = "// mine\n" + json.dumps(value, indent=2)
    assert len(text) > 2_000_000
    began = time.thread_time()
    added = with_members(text, ("projects", "/p/1499", "mcpServers"), {"me": VALUE})
    assert time.thread_time() - began < 20, "about one second"
    assert with_members(added, ("projects", "/p/1499", "mcpServers"), {}, ("me",)) == text


def test_a_large_file_that_is_broken_is_reported_by_line_and_not_read_for_minutes() -> None:
    text = "{\n" + '  "a": [1, 2],\n' * 30_000 + "  'b': 1\n}"
    with pytest.raises(SourceError, match="is not valid JSON: line 30002, column 3"):
        with_members(text, KEYS, {"me": VALUE})


def test_hostile_text_takes_no_longer() -> None:
    began = time.thread_time()
    for text in ('"\\' * 200_000, "/*" * 200_000, "[" + " ," * 200_000, '{"a": ' * 50_000):
        with pytest.raises(SourceError):
            parse(text + " " * 300_000)
    assert time.thread_time() - began < 20


def test_hundreds_of_members_are_moved_in_one_go() -> None:
    """One after the other they would take minutes: the object was read again for each."""
    members = {f"s{number}": {"command": "x", "args": [str(number)]} for number in range(1500)}
    began = time.process_time()
    text = with_members('{"mcpServers":{}}', ("mcpServers",), members)
    assert parse(text) == {"mcpServers": members}
    assert with_members(text, ("mcpServers",), {"one": 1}, list(members)) == '{"mcpServers":{"one":1}}'
    assert time.process_time() - began < 10
