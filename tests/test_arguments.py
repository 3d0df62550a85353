"""Arguments are checked by the tool's own schema before anything is sent."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.arguments import MAX_DEPTH, ArgumentChecker
from codemode_mcp.bridge import ABSENT, ToolCall
from codemode_mcp.errors import ProgramError

SIGNATURE = "MCP.s.take(input: {...}): Promise<McpToolResult>"
OPEN: dict[str, Any] = {"type": "object"}


def prepare(schema: dict[str, Any], text: str | None, *, count: int = 1) -> dict[str, Any]:
    """What is sent for a call whose first argument is this JSON text; None for no argument."""
    call = ToolCall(1, "mcp:s:take", ABSENT if text is None else text, count)
    return ArgumentChecker().prepare(call, "MCP.s.take", schema, lambda: SIGNATURE)


def complaint(schema: dict[str, Any], text: str | None, *, count: int = 1) -> list[str]:
    """The problems that a call is refused for."""
    with pytest.raises(ProgramError) as refused:
        prepare(schema, text, count=count)
    assert refused.value.code == "nested_tool_failed"
    first, *problems, last = refused.value.message.split("\n")
    assert first == "MCP.s.take: invalid arguments, nothing was sent."
    assert last == f"Signature: {SIGNATURE}"
    return problems


ISSUE = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}, "default": []},
        "state": {"enum": ["open", "closed"], "default": "open"},
        "nested": {"type": "object", "properties": {"deep": {"type": "integer", "default": 1}}},
    },
    "required": ["owner"],
    "additionalProperties": False,
}


def test_what_fits_is_sent_with_the_top_level_defaults_filled_in() -> None:
    assert prepare(ISSUE, '{"owner": "me", "nested": {}}') == {
        "owner": "me",
        "nested": {},
        "labels": [],
        "state": "open",
    }


def test_what_was_given_wins_over_a_default() -> None:
    assert prepare(ISSUE, '{"owner": "me", "state": "closed"}')["state"] == "closed"


def test_nothing_may_be_given_when_nothing_is_required() -> None:
    assert prepare(OPEN, None, count=0) == {}
    assert prepare(OPEN, None) == {}
    assert complaint(ISSUE, None, count=0) == ['- input: "owner" is a required property']


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", "null"),
        ("[1]", "an array"),
        ("true", "the boolean true"),
        ('"text"', 'the string "text"'),
        ("7", "the number 7"),
        ("1.5", "the number 1.5"),
    ],
)
def test_what_is_no_object_is_named(text: str, kind: str) -> None:
    assert complaint(OPEN, text) == [f"- takes one plain object, but was given {kind}"]


def test_a_long_argument_is_not_repeated_whole() -> None:
    [problem] = complaint(OPEN, json.dumps("x" * 10_000))
    assert len(problem) < 200


@pytest.mark.parametrize("count", [2, 3, 100])
def test_more_than_one_argument_is_refused(count: int) -> None:
    assert complaint(OPEN, "{}", count=count) == [f"- takes one object, but was given {count} arguments"]


def test_every_problem_is_listed_by_its_path() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}}}},
            "c": {"type": "string", "maxLength": 3},
        },
        "additionalProperties": False,
    }
    problems = complaint(schema, '{"a": [{"b": 1}, {"b": "x"}], "c": "long text", "d": 1}')
    assert {problem.split(":")[0] for problem in problems} == {"- input.a[1].b", "- input.c", "- input"}


def test_endless_problems_are_cut() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    problems = complaint(schema, json.dumps({f"k{n}": "x" for n in range(1000)}))
    assert problems[-1] == "- … and more"
    assert len(problems) == 21


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?=look)ahead"}}},
        {"type": "object", "properties": {"a": {"pattern": "([a-z"}}},
    ],
    ids=["type", "remote", "missing", "look-ahead", "pattern"],
)
def test_a_schema_that_cannot_be_used_lets_everything_through(schema: dict[str, Any]) -> None:
    assert prepare(schema, '{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


def test_a_schema_that_cannot_be_used_still_gives_its_defaults() -> None:
    schema = {"type": "object", "properties": {"a": {"default": 1}, "b": {"type": "no such type"}}}
    assert prepare(schema, "{}") == {"a": 1}


def test_a_pattern_takes_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    began = time.monotonic()
    assert complaint(schema, json.dumps({"a": "a" * 50_000 + "!"}))
    assert time.monotonic() - began < 2


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_what_is_nested_up_to_the_limit_is_sent() -> None:
    assert prepare(OPEN, nested(MAX_DEPTH))
    assert prepare(ISSUE | {"additionalProperties": True}, '{"owner": "me", "x": ' + nested(MAX_DEPTH - 1) + "}")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 300, 5_000, 200_000])
def test_what_is_nested_deeper_is_refused(depth: int) -> None:
    [problem] = complaint(OPEN, nested(depth))
    assert f"deeper than {MAX_DEPTH} levels" in problem


@pytest.mark.parametrize("text", ["{", "", '{"a": 1' + "0" * 5000 + "}"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    assert len(complaint(OPEN, text)) == 1


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    assert prepare(OPEN, '{"a": "\\ud83d"}') == {"a": "\N{REPLACEMENT CHARACTER}"}


def test_large_numbers_go_through_as_they_are() -> None:
    assert prepare(ISSUE | {"additionalProperties": True}, '{"owner": "me", "n": 123456789012345680000}')["n"] == (
        123456789012345680000
    )


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = [
    "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs",
    "default", "minimum", "maxLength", "pattern", "format", "additionalProperties", "prefixItems", "if", "then",
    "$schema", "$id", "dependentRequired", "uniqueItems", "multipleOf", "patternProperties", "contains",
]  # fmt: skip
schemas = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), plain, max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS), inner | st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
        max_size=4,
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(schema=schemas, given_=plain)
def test_no_schema_and_no_argument_give_anything_but_an_object_or_a_refusal(
    schema: dict[str, Any], given_: Any
) -> None:
    sent = None
    with suppress(ProgramError):
        # As the guest writes it: pairs of surrogates as they are.
        sent = prepare(schema, json.dumps(given_, ensure_ascii=False))
    if sent is not None:
        assert isinstance(given_, dict)
        assert all(sent[name] == value for name, value in given_.items())
