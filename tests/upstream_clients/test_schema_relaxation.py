"""Schemas that contradict themselves, or that the validator refuses: what is enforced of them."""

import json
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codemode_mcp.rules.trust.items import tool_item
from tests.declarations.schemas_and_values import CONSTANTS, NAMES, documents, meets_itself, values
from tests.properties import examples
from tests.values import replace
from upstream_clients.list_repair import read_tools
from upstream_clients.listing import ListingCache
from upstream_clients.schema_relaxation import _by_rule, relax
from upstream_clients.schema_repair import MAX_REASONS, repair
from upstream_clients.schemas import usable
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Tool, UpstreamView

DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
A = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}
B = {"type": "object", "properties": {"b": TEXT}, "required": ["b"], "additionalProperties": False}
NO_X = {"type": "object", "properties": {"x": False, "y": TEXT}}


def plain_validator(schema: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def around(part: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a tool with one argument."""
    return {"type": "object", "properties": {"v": part}, "$defs": {"Text": TEXT, "A": A, "NoX": NO_X}, **more}


def accepted(part: Any, candidates: list[Any], **more: Any) -> list[Any]:
    """Return the candidates that a call may have as its argument."""
    validator = usable(around(part, **more)).validator
    assert validator is not None
    return [each for each in candidates if validator.is_valid({"v": each})]


def parts_in(name: str) -> list[Any]:
    """Return the values of a file, which has one a line, and comments."""
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if not line.startswith("#")]


def unsatisfiable_schemas() -> list[list[Any]]:
    """Return schemas, each with the values that are taken, and those that are refused."""
    parts = parts_in("unsatisfiable_schemas.txt")
    return [parts[at : at + 3] for at in range(0, len(parts), 3)]


@pytest.mark.parametrize(("part", "taken", "refused"), unsatisfiable_schemas(), ids=repr)
def test_what_nothing_can_satisfy_is_not_enforced_and_the_rest_is(
    part: Any, taken: list[Any], refused: list[Any]
) -> None:
    assert accepted(part, taken + refused) == taken
    # Beside it, the schema is enforced as before.
    schema = around(part)
    schema["properties"]["w"] = {"type": "integer", "minimum": 2}
    validator = usable(schema).validator
    assert validator is not None
    assert validator.is_valid({"w": 2})
    assert not validator.is_valid({"w": 1})


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        (around({"$ref": "#/definitions/T", "type": "number"}) | {"$schema": DRAFT_07}, ["a"], [5]),
        (around({"$ref": "#/definitions/Missing", "type": "number"}) | {"$schema": DRAFT_07}, ["a", 5], []),
        (around({"type": "number", "minimum": 5, "exclusiveMinimum": True}) | {"$schema": DRAFT_07}, [6], [5]),
        (around({"type": "number", "exclusiveMinimum": 5}) | {"$schema": DRAFT_04}, [6], [5]),
        (around({"type": "object", "required": []}) | {"$schema": DRAFT_04}, [{}], [5]),
        (around({"type": "array", "items": [TEXT], "additionalItems": False}) | {"$schema": DRAFT_07}, [["a"]], [[1]]),
        (around({"type": "string", "nullable": True}) | {"$schema": DRAFT_07}, ["a", None], [5]),
        (around({"$ref": "#/definitions/T", "nullable": True}) | {"$schema": DRAFT_07}, ["a", None], [5]),
    ],
)
def test_schemas_of_older_drafts_are_read_by_their_own_rules(
    schema: dict[str, Any], taken: list[Any], refused: list[Any]
) -> None:
    schema["definitions"] = {"T": TEXT}
    validator = usable(schema).validator
    assert validator is not None
    assert [each for each in taken + refused if validator.is_valid({"v": each})] == taken


@pytest.mark.parametrize("part", parts_in("satisfiable_schemas.txt"), ids=repr)
def test_what_can_be_satisfied_and_what_an_author_forbids_is_unchanged(part: Any) -> None:
    schema = around(part)
    assert relax(schema) == (schema, ())
    assert relax(schema).schema is schema


# Properties: by construction, each part of these schemas is satisfied by a value.


@st.composite
def satisfied(draw: Any, value: Any, depth: int = 3) -> Any:
    """Draw a schema that a value satisfies, with parts that other values satisfy."""
    if depth == 0:
        return draw(st.sampled_from([True, {}]))
    schema: dict[str, Any] = {}
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    kind = names.get(type(value), "null")
    if draw(st.booleans()):
        more = draw(st.lists(st.sampled_from(["string", "null", "object"]), max_size=1))
        schema["type"] = draw(st.sampled_from([kind, list(dict.fromkeys([kind, *more]))]))
    if draw(st.integers(0, 3)) == 0:
        schema["enum"] = [*draw(st.lists(st.sampled_from(CONSTANTS), max_size=2)), value]
    if isinstance(value, str):
        schema |= draw(st.sampled_from([{}, {"minLength": len(value)}, {"maxLength": len(value), "minLength": 0}]))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        schema |= draw(st.sampled_from([{}, {"minimum": value - low, "maximum": value + high}, {"maximum": value}]))
    elif isinstance(value, list):
        schema |= {"minItems": max(0, len(value) - 1), "maxItems": len(value)} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            schema["prefixItems"] = [draw(satisfied(each, depth - 1)) for each in value] or [True]
            schema |= draw(st.sampled_from([{}, {"items": False}, {"items": {"not": {}}}]))
            if schema.get("items") is not None and "minItems" in schema:
                schema["minItems"] = min(schema["minItems"], len(schema["prefixItems"]))
    elif isinstance(value, dict):
        schema["properties"] = {name: draw(satisfied(each, depth - 1)) for name, each in value.items()}
        schema["properties"] |= draw(st.sampled_from([{}, {"other": False}, {"other": {"not": {}}}]))
        schema["required"] = draw(st.lists(st.sampled_from([*value] or ["a"]), unique=True)) if value else []
        schema |= draw(st.sampled_from([{}, {"additionalProperties": False}, {"maxProperties": len(value) + 1}]))
    for keyword in draw(st.lists(st.sampled_from(["allOf", "anyOf", "oneOf", "not", "if"]), max_size=1)):
        other = draw(st.sampled_from(CONSTANTS))
        mine = draw(satisfied(value, depth - 1))
        if keyword == "allOf":
            schema["allOf"] = [mine, draw(st.sampled_from([True, {}, {"description": "more"}]))]
        elif keyword in ("anyOf", "oneOf"):
            alternatives = [mine, draw(satisfied(other, depth - 1))]
            schema[keyword if len(_by_rule(alternatives)) > 1 else "anyOf"] = alternatives
        elif keyword == "not":
            schema["not"] = {"const": "another value", "type": "number"}
        else:
            schema |= {"if": draw(satisfied(other, depth - 1)), "then": True}
    return schema


@st.composite
def satisfied_documents(draw: Any) -> Any:
    value = draw(st.sampled_from(CONSTANTS) | st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CONSTANTS)))
    return draw(satisfied(value))


SETTINGS = settings(
    max_examples=examples(60), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@SETTINGS
@given(satisfied_documents())
def test_a_schema_of_which_each_part_can_be_satisfied_is_unchanged(schema: Any) -> None:
    schema = {"properties": {"v": schema}}
    assert relax(schema).schema is schema, relax(schema).reasons


@st.composite
def schemas_with_values(draw: Any) -> tuple[Any, list[Any]]:
    document = draw(documents())
    return document, [draw(values(document)) for _ in range(8)]


@SETTINGS
@given(schemas_with_values())
def test_a_relaxed_schema_accepts_all_that_its_schema_accepts(case: tuple[Any, list[Any]]) -> None:
    document, candidates = case
    if meets_itself(document) or not isinstance(document, dict):
        return
    # Under a property, since the argument of a call is always an object.
    schema = {"type": "object", "properties": {"v": {"$id": "urn:example:document", **document}}}
    relaxed = relax(schema).schema
    try:
        before, after = plain_validator(schema), plain_validator(relaxed)
    except (ValueError, jsonschema_rs.ReferencingError):
        return
    for each in candidates:
        assert not before.is_valid({"v": each}) or after.is_valid({"v": each}), (each, relax(schema).reasons)
    assert relax(relaxed).schema is relaxed


# Hostile schemas, and what pins and the cache see.


def doubling(keyword: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    return around({"$ref": "#/$defs/a0", "type": "number"}) | {"$defs": definitions | {"a60": TEXT}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "enum": [1]}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema


MANY = [f"option{n}" for n in range(20_000)]


@pytest.mark.parametrize(
    "schema",
    [
        *map(doubling, ("allOf", "anyOf", "oneOf")),
        deep(120),
        deep(3_000),
        {"properties": {f"p{n}": {"type": "integer", "enum": MANY} for n in range(20)}},
        {"required": MANY, "additionalProperties": False, "allOf": [{"required": MANY, "properties": {}}] * 50},
        {"propertyNames": {"enum": MANY}, "required": [f"x{n}" for n in range(20_000)]},
        {"properties": {f"p{n}": {"type": "string", "enum": [1], "pattern": "^a{1,9}" * n} for n in range(300)}},
        {"patternProperties": {f"(\\w{{9}}){{9}}{n}": {} for n in range(300)}, "additionalProperties": False}
        | {"required": MANY},
        {"properties": {f"p{n}": {"$ref": "#" + "/a" * 2_000, "type": "string"} for n in range(200)}},
        {"properties": {"v": {"$ref": "#/properties/v", "type": "string", "enum": [1]}}},
        {"properties": {"v": {"type": "integer", "minimum": 10**400, "maximum": 1.5}}},
        {"properties": {"v": {"type": "number", "minimum": float("nan"), "maximum": float("inf")}}},
        {"required": [{}, []], "properties": {"a": {"type": [{}], "enum": {}, "required": {}, "allOf": [1, None]}}},
        {"properties": {f"p{n}": {"type": "string", "enum": [n]} for n in range(2_000)}},
    ],
)
def test_a_hostile_schema_takes_bounded_time_and_gives_few_reasons(schema: dict[str, Any]) -> None:
    began = time.thread_time()
    for function in (relax, repair):
        assert len(function({"type": "object", **schema}).reasons) <= 4 * MAX_REASONS
    assert time.thread_time() - began < 5


def test_pins_and_the_cache_keep_what_the_server_has_sent(tmp_path: Any) -> None:
    schema = around({"type": "string", "enum": [1]})
    item = {"name": "t", "inputSchema": schema, "outputSchema": around({"type": "string", "nullable": True})}
    (tool,), problems = read_tools([item])
    assert problems == ()
    assert tool.input_schema["properties"]["v"] == {"anyOf": [{"type": "string"}, {"enum": [1]}]}
    assert tool.output_schema is not None
    assert tool.output_schema["properties"]["v"] == {"type": ["string", "null"]}
    sent = Tool("t", input_schema=schema, output_schema=item["outputSchema"])
    assert tool.as_sent == sent
    assert tool_item(tool) == tool_item(sent)
    changed = replace(sent, input_schema=around({"type": "string", "enum": [2]}))
    assert tool_item(tool).digest != tool_item(changed).digest
    cache, spec = ListingCache(tmp_path), UpstreamSpec("s", command="x")
    cache.save(spec, UpstreamView("s", "ready", tools=(tool,), era="modern"))
    saved = cache.load(spec)
    assert saved is not None
    assert saved.view.tools == (tool,)


def test_a_schema_without_contradictions_stays_the_same_object() -> None:
    schema = around({"type": "string", "enum": ["a"], "minLength": 1, "maxLength": 5})
    (tool,), _ = read_tools([{"name": "t", "inputSchema": schema}])
    assert tool.input_schema is schema
    assert tool.sent is None
