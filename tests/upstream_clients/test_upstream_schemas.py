"""Schemas of upstreams: which are used, what a check costs, and how a mismatch is described."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from upstream_clients.schema_expansion import SchemaExpansion
from upstream_clients.schemas import SchemaParts, UnusableSchema, compile_check, compile_schema

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
OBJECT = {"type": "object"}


def chain(levels: int, name: Callable[[int], str], **more: Callable[[int], str]) -> dict[str, Any]:
    """Definitions `a0`, `a1`, ... each of which refers to the next one twice: two to the power of `levels` visits."""
    return {
        f"a{n}": {
            **{keyword: text(n) for keyword, text in more.items()},
            **({"allOf": [{"$ref": name(n + 1)}, {"$ref": name(n + 1)}]} if n < levels else OBJECT),
        }
        for n in range(levels + 1)
    }


def by_pointer(n: int) -> str:
    return f"#/$defs/a{n}"


def anchors(levels: int) -> dict[str, Any]:
    definitions = chain(levels, "#a{}".format, **{"$anchor": "a{}".format})
    return {"$defs": definitions, "$ref": "#a0"}


def dynamic(levels: int) -> dict[str, Any]:
    definitions = chain(levels, by_pointer, **{"$dynamicAnchor": "a{}".format})
    for n in range(levels):
        definitions[f"a{n}"]["allOf"] = [{"$dynamicRef": f"#a{n + 1}"}, {"$dynamicRef": f"#a{n + 1}"}]
    return {"$defs": definitions, "$ref": "#/$defs/a0"}


def identities(levels: int, prefix: str = "urn:") -> dict[str, Any]:
    definitions = chain(levels, (prefix + "a{}").format, **{"$id": (prefix + "a{}").format})
    return {"$defs": definitions, "$ref": f"{prefix}a0"}


def in_array(levels: int) -> dict[str, Any]:
    steps: list[Any] = [{"allOf": [{"$ref": f"#/$defs/l/anyOf/{n + 1}"}] * 2} for n in range(levels)]
    return {"$defs": {"l": {"anyOf": [*steps, OBJECT]}}, "$ref": "#/$defs/l/anyOf/0"}


def back_and_forth(levels: int) -> dict[str, Any]:
    """Return a chain that is reached from its end, by references that lead back."""
    definitions: dict[str, Any] = {}
    for n in range(levels):
        back = {"zz": {"$ref": by_pointer(n - 1)}} if n else {}
        definitions[f"a{n}"] = {"properties": back, "allOf": [{"$ref": by_pointer(n + 1)}, {"$ref": by_pointer(n + 1)}]}
    definitions[f"a{levels}"] = {"properties": {"zz": {"$ref": by_pointer(levels - 1)}}}
    return {"$defs": definitions, "properties": {"q": {"$ref": by_pointer(levels)}}, "allOf": [{"$ref": by_pointer(0)}]}


DOUBLING: dict[str, Callable[[int], dict[str, Any]]] = {
    "pointer": lambda n: {"$defs": chain(n, by_pointer), "$ref": by_pointer(0)},
    "encoded pointer": lambda n: {"$defs": chain(n, "#/%24defs/a{}".format), "$ref": "#/%24defs/a0"},
    "anchor": anchors,
    "dynamicRef": dynamic,
    "identity": identities,
    "relative identity": lambda n: {"$id": "https://example.invalid/s", **identities(n, "")},
    "absolute for relative": lambda n: {
        "$id": "https://example.invalid/s",
        "$defs": chain(n, "https://example.invalid/a{}".format, **{"$id": "a{}".format}),
        "$ref": "a0",
    },
    "relative identity with a dot": lambda n: {
        "$id": "https://example.invalid/s",
        "$defs": chain(n, "./a{}".format, **{"$id": "a{}".format}),
        "$ref": "./a0",
    },
    "identity with a dot": lambda n: {
        "$id": "https://example.invalid/s",
        "$defs": chain(n, "a{}".format, **{"$id": "./a{}".format}),
        "$ref": "a0",
    },
    "anchor of an identity": lambda n: {
        "$defs": chain(n, "urn:x#a{}".format, **{"$anchor": "a{}".format}),
        "$id": "urn:x",
        "$ref": "urn:x#a0",
    },
    "inside an identity": lambda n: {"allOf": [{"$id": "urn:x", "$defs": chain(n, by_pointer), "$ref": by_pointer(0)}]},
    "array": in_array,
    "property named definitions": lambda n: {
        "$defs": chain(n, by_pointer),
        "properties": {"definitions": {"$ref": by_pointer(0)}},
    },
    "property named $defs": lambda n: {"$defs": chain(n, by_pointer), "properties": {"$defs": {"$ref": by_pointer(0)}}},
    "property named default": lambda n: {
        "$defs": chain(n, by_pointer),
        "properties": {"default": {"$ref": by_pointer(0)}},
    },
    "dependentSchemas named enum": lambda n: {
        "$defs": chain(n, by_pointer),
        "dependentSchemas": {"enum": {"$ref": by_pointer(0)}},
    },
    "back and forth": back_and_forth,
}


@pytest.mark.parametrize("way", DOUBLING)
def test_a_schema_that_doubles_at_every_level_is_not_used(way: str) -> None:
    began = time.thread_time()
    with pytest.raises(UnusableSchema):
        compile_schema(DOUBLING[way](60))
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_a_reference_that_begins_with_the_same_folder_is_followed(keyword: str) -> None:
    is_object = keyword == "unevaluatedProperties"
    rule = {"properties": {"bar": {"type": "string"}}} if is_object else {"prefixItems": [True, {"type": "string"}]}
    first = {"properties": {"foo": {"type": "string"}}} if is_object else {"prefixItems": [{"type": "string"}]}
    schema = {
        "$id": "https://example.invalid/derived",
        "$ref": "./baseSchema",
        "$defs": {
            "derived": {"$dynamicAnchor": "addons", **rule},
            "baseSchema": {
                "$id": "./baseSchema",
                keyword: False,
                **first,
                "$dynamicRef": "#addons",
                "$defs": {"defaultAddons": {"$dynamicAnchor": "addons"}},
            },
        },
    }
    validator = compile_schema(schema)
    assert validator.is_valid({"foo": "a", "bar": "b"} if is_object else ["a", "b"])
    assert not validator.is_valid({"foo": "a", "bar": "b", "baz": "c"} if is_object else ["a", "b", "c"])


@pytest.mark.parametrize("way", DOUBLING)
def test_the_same_schema_with_few_levels_is_used(way: str) -> None:
    validator = compile_schema(DOUBLING[way](3))
    assert validator.is_valid({"q": {}, "definitions": {}, "$defs": {}, "default": {}})
    assert SchemaExpansion(DOUBLING[way](5)).measure() > SchemaExpansion(DOUBLING[way](3)).measure() + 16


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"$ref": "#"}}},
        {"$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
        {"$dynamicAnchor": "node", "properties": {"x": {"$dynamicRef": "#node"}}},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"x": {"$recursiveRef": "#"}}},
        {"properties": {"x": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
        {"$schema": DRAFT_07, "properties": {"x": {"$ref": DRAFT_07}}},
        {"default": {"$ref": "#/nowhere"}, "examples": [{"$ref": "elsewhere.json"}], "enum": [{"$ref": "#x"}]},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "id": {"type": "string"}}},
        {
            "$defs": {
                "block": {"anyOf": [{"$ref": f"#/$defs/k{n}"} for n in range(40)]},
                **{
                    f"k{n}": {"properties": {"kind": {"const": n}, "inside": {"items": {"$ref": "#/$defs/block"}}}}
                    for n in range(40)
                },
            },
            "properties": {"x": {"items": {"$ref": "#/$defs/block"}}},
        },
    ],
    ids=["root", "tree", "dynamic", "recursive", "meta-schema", "old meta-schema", "data", "names", "document"],
)
def test_recursion_and_what_only_looks_like_a_reference_are_normal(schema: dict[str, Any]) -> None:
    assert compile_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "array", "items": {"enum": list(range(1_000_000))}}}},
        {"required": [f"n{n}" for n in range(1_000_000)]},
        {"dependentRequired": {"a": [f"n{n}" for n in range(1_000_000)]}},
        {"properties": {f"n{n}": True for n in range(300_000)}},
    ],
    ids=["enum", "required", "dependentRequired", "properties"],
)
def test_a_schema_with_endless_lists_is_not_used(schema: dict[str, Any]) -> None:
    with pytest.raises(UnusableSchema):
        compile_schema(schema)


def test_the_parts_of_a_schema_together_cost_no_more_than_the_largest_schema() -> None:
    fields: dict[str, Any] = {f"b{n}": {} for n in range(9_000)}
    schema = {
        "$defs": {"big": {"properties": fields}},
        "properties": {f"p{n}": {"$ref": "#/$defs/big"} for n in range(4)},
    }
    parts = SchemaParts(schema)
    assert [parts.is_valid(f"/properties/p{n}", {}) for n in range(4)] == [True] * 4
    assert parts.is_valid("", {}) is None
    assert parts.is_valid("/properties/p0", {})


# Descriptions of mismatches.


def test_a_complaint_names_the_place_and_the_keyword_and_no_value() -> None:
    schema = {
        "$defs": {"row": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}, "a\nb": {"enum": ["x"]}},
        "not": {"required": ["never"]},
    }
    check = compile_check(schema)
    assert check is not None
    assert check({"rows": [{"id": 1}, {"id": "secret"}]}) == "/rows/1/id: does not fit type"
    assert check({"rows": [{"secret": 1}]}) == "/rows/0: does not fit required"
    assert check({"a\nb": "secret"}) == "/a\ufffdb: does not fit enum"
    assert check({"never": "secret"}) == "the value: does not fit its schema"
    assert check({"rows": []}) is None


def test_an_output_that_takes_many_alternatives_at_every_level_is_refused_in_time() -> None:
    step = {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["z"]}
    check = compile_check({"$defs": {"a": {"anyOf": [step, step]}}, "$ref": "#/$defs/a"})
    assert check is not None
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"x": value}
    began = time.thread_time()
    assert check(value) == "the value: does not fit its schema"
    assert time.thread_time() - began < 5


def test_an_output_that_the_validator_cannot_read_is_complained_of() -> None:
    check = compile_check({"properties": {"a": {"pattern": "a"}}})
    assert check is not None
    assert check({"a": "\ud800"}) == "the value: cannot be checked"
