"""Schemas of OpenAPI as JSON Schema: their form, what they allow, and their size."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_documents import api_of, tools

from tests.properties import examples
from upstream_clients.openapi.document import Document, UnsupportedError
from upstream_clients.openapi.schemas import CUT, Bounds, Schemas
from upstream_clients.schemas import compile_schema

TEXT = {"type": "string"}


def body_of(schema: Any, **more: Any) -> Any:
    """Return the schema of an argument `body`."""
    operation = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "array", "items": schema}}},
        }
    }
    found = tools(api_of(operation, method="post", **more))["call"]["inputSchema"]
    compile_schema(found)
    return found["properties"]["body"]["items"]


def value_of(schema: Any, **more: Any) -> Any:
    """Return the schema of a value."""
    responses = {"200": {"content": {"application/json": {"schema": schema}}}}
    found = tools(api_of({"responses": responses}, **more))["call"]["outputSchema"]
    compile_schema(found)
    return found


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"nullable": True, "allOf": [TEXT]}, {"anyOf": [{"allOf": [TEXT]}, {"type": "null"}]}),
        ({"oneOf": [{"type": "string"}], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "string", "example": "x", "x-more": 1, "xml": {}}, {"type": "string", "examples": ["x"]}),
        ({"type": "file", "format": 3, "enum": [], "required": True}, {"type": "string"}),
        ({"type": "any", "minLength": "1", "maxLength": 2.0, "items": []}, {"maxLength": 2}),
        ({"pattern": "(?=a)b"}, {}),
        ({"pattern": r"(\w{200}){99}"}, {}),  # takes long to compile
        ({"pattern": "^a+$", "format": "x"}, {"pattern": "^a+$", "format": "x"}),
        ({"description": "<p>A <a href='x'>link</a> &amp; <id></p>\x00"}, {"description": "A link & <id>"}),
        (
            {"properties": {"a": {"readOnly": True}, "b": {}}, "required": ["a", "b", "b", 1]},
            {"properties": {"b": {}}, "required": ["b"]},
        ),
        ({"not": {"type": "string"}, "if": {}, "then": False, "type": "string"}, {"type": "string"}),
        ({"patternProperties": {"(": {}}, "additionalProperties": False}, {"patternProperties": {}}),
    ],
)
def test_a_schema_of_version_3_0_becomes_json_schema(schema: Any, expected: Any) -> None:
    assert body_of(schema) == expected


def test_a_schema_of_version_3_1_keeps_what_is_json_schema() -> None:
    schema = {"type": ["string", "null"], "const": "a", "examples": ["a", "b", "c"], "exclusiveMinimum": 1}
    assert body_of(schema, openapi="3.1.0") == {**schema, "examples": ["a", "b"]}
    referring = {"$ref": "#/components/schemas/A", "description": "Mine"}
    components = {"schemas": {"A": {"type": "string"}}}
    assert body_of(referring, openapi="3.1.0", components=components) == {"$ref": "#/$defs/A", "description": "Mine"}


@pytest.mark.parametrize(
    ("declared", "written", "read"),
    [
        ("string", [2024, 2025], ["2024", "2025"]),
        ("string", [1.0, 1.5, True, False, None, "a"], ["1.0", "1.5", "true", "false", None, "a"]),
        ("string", [2024, "2024"], ["2024"]),
        ("boolean", ["true", "False", True, "maybe"], [True, False, "maybe"]),
        ("integer", ["1", "-2", 3, "01", "1e3", "x"], [1, -2, 3, "01", "1e3", "x"]),
        ("number", ["1.5", "2", 3], [1.5, 2, 3]),
        (["string", "null"], [1, None], ["1", None]),
        (["string", "integer"], [1, 1.5, "1", True], [1, 1.5, "1", "true"]),
        (["integer", "null"], ["1", None], [1, None]),
        ("array", ["a"], ["a"]),
        (None, [1, "1", True], [1, "1", True]),
    ],
    ids=repr,
)
def test_listed_values_are_read_in_the_declared_type(declared: Any, written: list[Any], read: list[Any]) -> None:
    stated = {} if declared is None else {"type": declared}
    for version in ("3.0.3", "3.1.0"):
        found = body_of({**stated, "enum": written}, openapi=version)["enum"]
        assert [(type(each), each) for each in found] == [(type(each), each) for each in read]
        parameter = {"name": "v", "in": "query", "schema": {**stated, "enum": written}}
        listed = tools(api_of({"parameters": [parameter]}, openapi=version))["call"]["inputSchema"]
        assert listed["properties"]["v"]["enum"] == found
    assert json.dumps(value_of({**stated, "const": written[0]}, openapi="3.1.0")["const"]) == json.dumps(read[0])


def test_a_document_of_version_3_1_may_still_say_nullable() -> None:
    components = {"schemas": {"A": TEXT}}
    assert body_of({"type": "string", "nullable": True}, openapi="3.1.0") == {"type": ["string", "null"]}
    assert body_of({"$ref": "#/components/schemas/A", "nullable": True}, openapi="3.1.0", components=components) == {
        "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]
    }
    assert body_of({"type": ["string", "null"], "nullable": False}, openapi="3.1.0") == {"type": ["string", "null"]}


def test_an_answer_has_no_member_that_is_only_for_requests() -> None:
    schema = {
        "type": "object",
        "properties": {"password": {"writeOnly": True}, "id": {"readOnly": True, "minLength": 2}},
    }
    assert value_of(schema) == {"type": "object", "properties": {"id": {}}}


def test_a_reference_that_leads_nowhere_allows_anything_and_says_so() -> None:
    schema = value_of({"type": "array", "items": {"$ref": "https://example.com/pet.json"}})
    assert schema["items"] == {
        "description": "Anything: it refers to another document, 'https://example.com/pet.json'."
    }


def test_references_with_one_last_segment_have_different_names() -> None:
    more = {"components": {"schemas": {"A": {"type": "string"}}, "x": {"A": {"type": "number"}}}}
    schema = value_of({"anyOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/x/A"}]}, **more)
    assert [each["$ref"] in ("#/$defs/A",) for each in schema["anyOf"]] == [True, False]
    assert sorted(each["type"] for each in schema["$defs"].values()) == ["number", "string"]


def test_the_values_of_all_successful_answers_are_described() -> None:
    def answer(schema: Any, media_type: str = "application/json") -> Any:
        return {"content": {media_type: {"schema": schema}}}

    def described(**responses: Any) -> Any:
        return tools(api_of({"responses": {key[1:]: each for key, each in responses.items()}}))["call"].get(
            "outputSchema"
        )

    text, number = {"type": "string"}, {"type": "number"}
    assert described(_200=answer(text), _201=answer(number), _404=answer({})) == {"anyOf": [text, number]}
    assert described(_2XX=answer(text), _204={}) == {"anyOf": [text, {"type": "null"}]}
    assert described(_default=answer(text)) == text
    assert described(_200=answer(text, "text/plain")) is None
    assert described(_200=answer(text), _202=answer(text, "text/csv")) is None
    assert described(_200={"content": {"text/xml": {}, "application/vnd.a+json": {"schema": number}}}) == number
    assert described(_200={"$ref": "other.json"}) is None
    assert described(_204={}) is None


WIDE = {
    f"T{n}": {
        "description": f"Type {n}. " + "word " * 150,
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "description": "The id. " + "word " * 100},
            **{f"m{k}": {"$ref": f"#/components/schemas/T{(7 * n + k) % 200}"} for k in range(10)},
        },
    }
    for n in range(200)
}


def test_a_schema_that_leads_to_the_whole_document_is_cut_to_a_size() -> None:
    components = {"components": {"schemas": WIDE}}
    found = value_of({"$ref": "#/components/schemas/T1"}, **components)
    assert len(json.dumps(found)) < 20_000
    assert set(found["$defs"]["T1"]["properties"]) == {"id", *[f"m{k}" for k in range(10)]}
    assert found["$defs"]["T1"]["required"] == ["id"]
    near, far = found["$defs"]["T7"], [each for each in found["$defs"].values() if each.get("description") == CUT]
    assert near["properties"]["id"]["type"] == "string"
    assert far[0] == {"type": "object", "description": CUT}
    same = value_of({"$ref": "#/components/schemas/T1"}, components={"schemas": dict(reversed(WIDE.items()))})
    assert found == same, "the order of the document does not change a definition"


def test_one_schema_with_many_parts_is_cut_by_whole_parts() -> None:
    part = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "word " * 30} for n in range(30)},
    }
    schema = {"type": "object", "properties": {f"m{n}": {**part, "type": ["object", "null"]} for n in range(40)}}
    found = value_of(schema, openapi="3.1.0")
    assert len(json.dumps(found)) < 20_000
    assert list(found["properties"]) == list(schema["properties"])
    cut = [each for each in found["properties"].values() if each.get("description") == CUT]
    assert 0 < len(cut) < 40
    assert cut[0]["type"] == ["null", "object"]


def test_a_schema_that_is_too_deep_or_refers_to_itself_is_bounded() -> None:
    deep: Any = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    assert len(json.dumps(value_of(deep))) < 5_000
    loop = {
        "components": {"schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}}
    }
    assert value_of({"$ref": "#/components/schemas/A"}, **loop)["$ref"] == "#/$defs/A"


KEYS = st.sampled_from(["a", "b", "x-1"])
SCALARS = st.sampled_from([None, True, 0, 1, 2.5, "", "a", "bb"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2))
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def keywords(inner: Any) -> Any:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
            "const": VALUES,
            "minimum": st.integers(0, 2),
            "exclusiveMaximum": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^a", "(?=a)"]),
            "description": st.just("word " * 30),
            "properties": st.dictionaries(KEYS, inner, max_size=2),
            "required": st.lists(KEYS, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^x", "(?=x)"]), inner, max_size=1),
            "unevaluatedProperties": st.just(False),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "maxItems": st.integers(0, 2),
            "contains": inner,
            "not": inner,
            "if": inner,
            "then": inner,
            "$ref": st.sampled_from(["#/components/schemas/A", "#/components/schemas/B"]),
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), st.lists(inner, min_size=1, max_size=2)),
        },
    )


SCHEMAS = st.recursive(st.booleans() | keywords(st.just({})), keywords, max_leaves=6)


@settings(max_examples=examples(40), deadline=None)
@given(SCHEMAS, SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=4, max_size=8), st.sampled_from(["input", "output"]))
def test_a_converted_and_cut_schema_allows_what_the_document_allows(
    schema: Any, a: Any, b: Any, values: Any, use: Any
) -> None:
    components = {"schemas": {"A": a, "B": b}}
    root = {"allOf": [schema], "components": components}
    try:
        original = jsonschema_rs.validator_for(root, offline=True)
    except ValueError:
        return  # references in a circle, which validators refuse
    schemas = Schemas(Document(root, is_legacy=False))
    converted = schemas.convert({"allOf": [schema]}, use)
    for limit in (40, 200, 10_000):
        try:
            found, _ = Bounds(schemas).bounded(converted, use, limit)
        except UnsupportedError:
            continue
        validator = jsonschema_rs.validator_for(found, offline=True)
        for value in values:
            assert validator.is_valid(value) or not original.is_valid(value), (found, value)
