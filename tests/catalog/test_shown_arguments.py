"""The schema that programs see without the arguments of the configuration."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.settings import ToolOverride
from codemode_mcp.catalog.shown_arguments import shown_schema
from tests.properties import examples

A, B, C = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"})
FIXED = ToolOverride(fixed={"a": "x"})


def shown(schema: Any, override: ToolOverride = FIXED) -> Any:
    return shown_schema(schema, override).schema


def kind(value: str, **properties: Any) -> dict[str, Any]:
    return {"properties": {"kind": {"const": value}, **properties}, "required": ["kind", *properties]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": A, "b": B}, "required": ["a", "b"]}, {"properties": {"b": B}, "required": ["b"]}),
        ({"properties": {"a": A}, "required": ["a"]}, {"properties": {}}),
        ({"properties": {"b": B}}, {"properties": {"b": B}}),
        (
            {"properties": {"a": A, "b": B}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"properties": {"b": B}},
        ),
        (
            {"properties": {"a": A, "b": B, "c": C}, "oneOf": [{"required": ["a", "b"]}, {"required": ["c"]}]},
            {"properties": {"b": B, "c": C}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
        ),
        (
            {"allOf": [{"properties": {"a": A}, "required": ["a"]}, {"properties": {"b": B}}]},
            {"allOf": [{"properties": {}}, {"properties": {"b": B}}]},
        ),
        (
            {"$ref": "#/$defs/In", "$defs": {"In": {"properties": {"a": A, "b": {"$ref": "#/$defs/B"}}}, "B": B}},
            {"properties": {"b": {"$ref": "#/$defs/B"}}, "$defs": {"B": B}},
        ),
        (
            {"$ref": "#/$defs/In", "$defs": {"In": {"properties": {"b": B}}}},
            {"$ref": "#/$defs/In", "$defs": {"In": {"properties": {"b": B}}}},
        ),
        (
            {"dependentSchemas": {"a": {"maxProperties": 3}, "b": {"maxProperties": 3}}},
            {"dependentSchemas": {"b": {"maxProperties": 2}}, "allOf": [{"maxProperties": 2}]},
        ),
        (
            {"properties": {"a": A, "b": B}, "dependentRequired": {"a": ["b"], "b": ["a"]}},
            {"properties": {"b": B}, "dependentRequired": {"b": []}, "allOf": [{"required": ["b"]}]},
        ),
        ({"properties": {"a": A, "b": B}, "not": {"required": ["a", "b"]}}, {"properties": {"b": B}}),
        (
            {"properties": {"a": A}, "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {}},
            {"properties": {}},
        ),
        (
            {"properties": {"a": A}, "minProperties": 2, "maxProperties": 3},
            {"properties": {}, "minProperties": 1, "maxProperties": 2},
        ),
        ({"properties": {"a": A}, "examples": [{"a": "y"}], "default": {}}, {"properties": {}}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_fixed_argument_is_left_out_wherever_it_is_declared(schema: Any, expected: Any) -> None:
    before = json.dumps(schema)
    assert shown(schema) == expected
    assert json.dumps(schema) == before


def test_alternatives_of_another_kind_than_the_fixed_one_are_left_out() -> None:
    schema = {"type": "object", "oneOf": [kind("issue", b=B), kind("pull", c=C)]}
    assert shown(schema, ToolOverride(fixed={"kind": "pull"})) == {
        "type": "object",
        "anyOf": [{"properties": {"c": C}, "required": ["c"]}],
    }
    secret = ToolOverride(fixed={"kind": "pull"}, secret=frozenset({"kind"}))
    assert len(shown(schema, secret)["anyOf"]) == 2  # which one is left would reveal the value


def test_an_alternative_that_needs_a_hidden_argument_is_left_out() -> None:
    schema = {"properties": {"a": A, "b": B}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert shown(schema, ToolOverride(hidden=("a",))) == {"properties": {"b": B}, "anyOf": [{"required": ["b"]}]}


@pytest.mark.parametrize(
    ("schema", "override", "problem"),
    [
        ({"properties": {"a": {"const": "y"}}}, FIXED, "leaves no input that fits the schema of the tool"),
        (
            {"properties": {"a": A}, "anyOf": [{"required": ["a"]}]},
            ToolOverride(hidden=("a",)),
            "leaves no input that fits the schema of the tool",
        ),
        (
            {"$ref": "https://example.com/x", "properties": {"a": A}},
            FIXED,
            "is applied in part: the schema of the tool",
        ),
        ({"$dynamicRef": "#x", "properties": {"a": A}}, FIXED, "is applied in part"),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": A}, "required": ["a"]}}},
            ToolOverride(hidden=("a",)),
            'hides the argument "a", which the tool requires',
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_shown_is_a_problem(schema: Any, override: ToolOverride, problem: str) -> None:
    found = shown_schema(schema, override)
    assert problem in found.problems[0]
    assert "a" not in found.schema.get("properties", {})


def test_a_schema_that_grows_without_end_is_not_followed() -> None:
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/l0", "$defs": {**levels, "l40": {"properties": {"a": A}}}}
    found = shown_schema(schema, FIXED)
    assert "has too many references and alternatives" in found.problems[0]
    assert len(json.dumps(found.schema)) < 10_000


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"properties": {"a": A, "b": {"$ref": "#"}}, "allOf": [{"$ref": "#"}]}
    assert "a" not in shown(schema)["properties"]


# The property: a shown schema refuses no input that the tool accepts together with the arguments of the configuration.

NAMES = ("a", "b", "c")
VALUES = st.sampled_from(["x", "y", 1, True, None])
PART = st.one_of(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {}, True]),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
)
LEAF = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from(NAMES), PART),
        "required": st.lists(st.sampled_from(NAMES), unique=True),
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), unique=True)),
        "minProperties": st.integers(0, 3),
        "maxProperties": st.integers(0, 3),
        "additionalProperties": st.booleans(),
        "$ref": st.just("#/$defs/d"),
    },
)


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    more = st.fixed_dictionaries(
        {},
        optional={
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner),
        },
    )
    return st.builds(lambda one, other: {**one, **other}, LEAF, more)


SCHEMAS = st.builds(
    lambda schema, target: {**schema, "$defs": {"d": {k: v for k, v in target.items() if k != "$ref"}}},
    st.recursive(LEAF, _combined, max_leaves=5),
    LEAF,
)
INPUTS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@settings(max_examples=examples(400), deadline=None)
@given(SCHEMAS, INPUTS, st.sampled_from(["fixed", "default", "hidden"]), st.sampled_from(NAMES), VALUES, st.booleans())
def test_an_input_that_the_tool_accepts_is_not_refused(
    schema: dict[str, Any], given_: dict[str, Any], table: str, name: str, value: Any, secret: bool
) -> None:
    is_secret = frozenset({name}) if secret and table != "hidden" else frozenset()
    match table:
        case "fixed":
            override = ToolOverride(fixed={name: value}, secret=is_secret)
        case "default":
            override = ToolOverride(default={name: value}, secret=is_secret)
        case _:
            override = ToolOverride(hidden=(name,))
    given_ = {key: each for key, each in given_.items() if key not in override.reserved}
    complete = {**override.default, **given_, **override.fixed}
    if jsonschema_rs.validator_for(schema).is_valid(complete):
        assert jsonschema_rs.validator_for(shown(schema, override)).is_valid(given_)
