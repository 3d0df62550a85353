"""Checks of arguments by the tool's own schema, before anything is sent."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.runs.calls import arguments
from codemode_mcp.runs.calls.arguments import MAX_DEPTH, ArgumentChecker
from codemode_mcp.runs.calls.schema_errors import SchemaErrors, _Search
from codemode_mcp.runs.calls.schema_phrases import path_text, shown_name
from codemode_mcp.sandbox.messages import ToolCall
from tests.properties import examples
from upstream_clients.schemas import UnusableSchema, compile_schema

SIGNATURE = "MCP.s.take(input: {...}): Promise<McpToolResult>"
OPEN: dict[str, Any] = {"type": "object"}


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
TITLE = {"type": "string", "description": "Issue title"}
STATE = {"enum": ["open", "closed", "all"]}
STRINGS = {"type": "array", "items": STRING}
CIRCLE = {"properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]}
SQUARE = {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]}
SHAPE = {"oneOf": [{"type": "object", **CIRCLE}, {"type": "object", **SQUARE}]}
TREE = {"anyOf": [STRING, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def only(schema: object) -> dict[str, Any]:
    """Return the schema of a tool with one argument, `x`."""
    return {"type": "object", "properties": {"x": schema}}


def closed(*required: str, **properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def left_open(*required: str, **properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def prepare(schema: dict[str, Any], text: str | None, *, count: int = 1) -> dict[str, Any]:
    """Return the arguments sent for a call whose first argument is this JSON text; None: it has no argument."""
    call = ToolCall(1, "mcp:s:take", text, count)
    return ArgumentChecker().prepare(call, "MCP.s.take", schema, lambda: SIGNATURE)


def complaint(schema: dict[str, Any], text: str | None, *, count: int = 1) -> list[str]:
    """Return the problems of a refused call."""
    with pytest.raises(ProgramError) as refused:
        prepare(schema, text, count=count)
    assert refused.value.code == "nested_tool_failed"
    first, *problems, last = refused.value.message.split("\n")
    assert (first, last) == ("MCP.s.take: invalid arguments, nothing was sent.", f"Signature: {SIGNATURE}")
    return problems


ISSUE = closed(
    "owner",
    owner=STRING,
    labels=STRINGS | {"default": []},
    state={"enum": ["open", "closed"], "default": "open"},
    nested=left_open(deep=INTEGER | {"default": 1}),
)


@pytest.mark.parametrize("given_", [{}, {"nested": {}}, {"state": "closed"}, {"labels": []}], ids=str)
def test_what_a_program_gives_is_sent_without_the_defaults_of_the_schema(given_: dict[str, Any]) -> None:
    assert prepare(ISSUE, json.dumps({"owner": "me", **given_})) == {"owner": "me", **given_}


def test_arguments_may_be_omitted_if_none_is_required() -> None:
    assert prepare(OPEN, None, count=0) == {}
    assert prepare(OPEN, None) == {}
    assert complaint(ISSUE, None, count=0) == ["- input.owner: missing (string)"]


KINDS = {"null": "null", "[1]": "array [1]", "true": "boolean true", "7": "number 7", "1.5": "number 1.5"}


@pytest.mark.parametrize("text", [*KINDS, '"text"'])
def test_an_argument_that_is_no_object_is_named_by_kind(text: str) -> None:
    assert complaint(OPEN, text) == [f"- takes one plain object, got {KINDS.get(text, 'string ' + text)}"]


def test_a_long_argument_is_not_repeated_whole() -> None:
    [problem] = complaint(OPEN, json.dumps("x" * 10_000))
    assert len(problem) < 200


@pytest.mark.parametrize("count", [3, 100])
def test_more_than_one_argument_and_options_are_refused(count: int) -> None:
    assert complaint(OPEN, "{}", count=count) == [f"- takes one object and options, got {count} arguments"]


def test_every_problem_is_listed_by_its_path() -> None:
    schema = closed(a={"type": "array", "items": left_open(b=INTEGER)}, c={"type": "string", "maxLength": 3})
    problems = complaint(schema, '{"a": [{"b": 1}, {"b": "x"}], "c": "long text", "d": 1}')
    assert {problem.split(":")[0] for problem in problems} == {"- input.a[1].b", "- input.c", "- input.d"}


def test_a_long_list_of_problems_is_cut() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    problems = complaint(schema, json.dumps({f"k{n}": "x" for n in range(1000)}))
    assert (problems[-1], len(problems)) == ("- … and more", 21)
    assert complaint(schema, json.dumps({f"k{n}": "x" for n in range(100)}))[-1] == "- … and 80 more"


UNREADABLE = {
    "type": {"type": "no such type"},
    "remote": {"$ref": "https://example.invalid/schema.json"},
    "missing": {"$ref": "#/$defs/missing"},
    "look-ahead": {"pattern": "(?=look)ahead"},
    "pattern": {"pattern": "([a-z"},
}


@pytest.mark.parametrize("part", UNREADABLE.values(), ids=UNREADABLE)
def test_a_part_of_a_schema_that_cannot_be_read_admits_everything_and_the_rest_is_checked(part: object) -> None:
    schema = left_open(a=part)
    assert prepare(schema, '{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    schema["properties"]["c"] = STRING
    assert complaint(schema, '{"a": [1], "c": 5}') == ["- input.c: expected string, got number 5"]


def test_a_pattern_takes_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    began = time.thread_time()
    assert complaint(schema, json.dumps({"a": "a" * 50_000 + "!"}))
    assert time.thread_time() - began < 2


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_arguments_nested_up_to_the_limit_are_sent() -> None:
    assert prepare(OPEN, nested(MAX_DEPTH))
    assert prepare(ISSUE | {"additionalProperties": True}, '{"owner": "me", "x": ' + nested(MAX_DEPTH - 1) + "}")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 300, 5_000, 200_000])
def test_arguments_nested_deeper_are_refused(depth: int) -> None:
    [problem] = complaint(OPEN, nested(depth))
    assert f"deeper than {MAX_DEPTH} levels" in problem


@pytest.mark.parametrize("text", ["{", "", '{"a": 1' + "0" * 5000 + "}"])
def test_unreadable_arguments_are_refused(text: str) -> None:
    assert len(complaint(OPEN, text)) == 1


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    assert prepare(OPEN, '{"a": "\\ud83d"}') == {"a": "\N{REPLACEMENT CHARACTER}"}


def test_large_numbers_are_sent_unchanged() -> None:
    assert prepare(ISSUE | {"additionalProperties": True}, '{"owner": "me", "n": 123456789012345680000}')["n"] == (
        123456789012345680000
    )


def unfit(keywords: dict[str, Any], value: object, **others: object) -> tuple[Any, Any, str]:
    """Return a row for a value that does not fit these keywords of a schema, which are shown as they are."""
    kind = {dict: "object", list: "array", str: "string", int: "number"}[type(value)]
    said = f"does not fit {json.dumps(keywords)[1:-1]}, got {kind} {json.dumps(value)}"
    return keywords | others, value, said


OF_X: list[tuple[Any, Any, str]] = [
    (STRING, 3, "expected string, got number 3"),
    (STRING, None, "expected string, got null; leave it out"),
    (STATE, None, 'expected "open" | "closed" | "all", got null; leave it out'),
    (only(STRING), {"x": None}, ".x: expected string, got null"),
    ({"type": "boolean"}, "true", 'expected boolean, got string "true"'),
    (INTEGER, 1.5, "expected integer, got number 1.5"),
    ({"type": "number"}, "3", 'expected number, got string "3"'),
    (INTEGER, True, "expected integer, got boolean true"),
    ({"type": ["string", "null"]}, 3, "expected string | null, got number 3"),
    (STRINGS, {"a": 1}, 'expected array of string, got object {"a": 1}'),
    (STRINGS, "bug", 'expected array of string, got string "bug"'),
    (STRINGS, ["a", 3], "[1]: expected string, got number 3"),
    (closed("a", a=STRING), [], "expected object { a }, got array []"),
    (STRING, list(range(50)), "expected string, got array of 50 items"),
    (STRING, {f"k{n}": n for n in range(9)}, "expected string, got object of 9 members"),
    ({"type": "string", "format": "date"}, 3, "expected string (date), got number 3"),
    (INTEGER, "y" * 500, f'expected integer, got string "{"y" * 57}…" (500 characters)'),
    (closed(a=closed(b=INTEGER)), {"a": {"b": "1"}}, '.a.b: expected integer, got string "1"'),
    (False, 1, "not allowed, got number 1"),
    (STATE, "opened", 'expected "open" | "closed" | "all", got "opened"; nearest: "open"'),
    (STATE, "CLOSED", 'expected "open" | "closed" | "all", got "CLOSED"; nearest: "closed"'),
    (STATE, 3, 'expected "open" | "closed" | "all", got 3'),
    (STATE, "zzz", 'expected "open" | "closed" | "all", got "zzz"'),
    ({"enum": [1, 2]}, "2", 'expected 1 | 2, got "2"; nearest: 2'),
    ({"type": "integer", "enum": [1, 2, "5"]}, "5", 'expected 1 | 2, got "5"'),
    ({"type": "string", "enum": ["a", "b", 5]}, 5, 'expected "a" | "b", got 5'),
    ({"enum": ["a", None]}, "b", 'expected "a" | null, got "b"'),
    ({"const": "v1"}, "v2", 'expected "v1", got "v2"'),
    ({"const": 1}, True, "expected 1, got true"),
    (
        {"anyOf": [STRING | STATE, {"type": "null"}], "default": None},
        "opened",
        'expected "open" | "closed" | "all" | null, got "opened"; nearest: "open"',
    ),
    ({"const": {"a": 1}}, {"a": 2}, 'expected {"a": 1}, got {"a": 2}'),
    ({"minimum": 1}, 0, "expected at least 1, got 0"),
    ({"maximum": 100}, 101, "expected at most 100, got 101"),
    ({"exclusiveMinimum": 0}, 0, "expected more than 0, got 0"),
    ({"exclusiveMaximum": 1.5}, 1.5, "expected less than 1.5, got 1.5"),
    ({"multipleOf": 5}, 7, "expected a multiple of 5, got 7"),
    ({"minLength": 3}, "ab", 'expected at least 3 characters, got 2: "ab"'),
    ({"minLength": 1}, "", "expected at least 1 character, got none"),
    ({"maxLength": 2}, "abc", 'expected at most 2 characters, got 3: "abc"'),
    ({"maxLength": 1}, "😀😀", 'expected at most 1 character, got 2: "😀😀"'),
    ({"pattern": r"^\d+$"}, "a", r'expected a match of /^\d+$/, got "a"'),
    ({"minItems": 1}, [], "expected at least 1 item, got 0"),
    ({"maxItems": 1}, [1, 2], "expected at most 1 item, got 2"),
    ({"uniqueItems": True}, ["a", "b", "a"], 'expected no two equal items, got array ["a", "b", "a"]'),
    ({"minProperties": 2}, {"a": 1}, "expected at least 2 members, got 1"),
    ({"maxProperties": 0}, {"a": 1}, "expected at most 0 members, got 1"),
    unfit({"contains": INTEGER}, ["a"]),
    unfit({"contains": INTEGER, "maxContains": 1}, [1, 2]),
    unfit({"unevaluatedItems": False}, [1, 2], allOf=[{"prefixItems": [{}]}]),
    unfit({"unevaluatedProperties": False}, {"titel": "x"}, allOf=[left_open(title=TITLE)]),
    unfit({"propertyNames": {"pattern": "^[a-z]+$"}}, {"A": 1}),
    unfit({"dependentRequired": {"a": ["b"]}}, {"a": ""}, **left_open(a=STRING, b=INTEGER)),
    unfit({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": ""}),
    unfit({"not": {"required": ["a", "b"]}}, {"a": 1, "b": 2}),
    unfit({"not": STRING}, "s"),
    unfit({"not": {}}, 1),
    unfit(
        {"if": {"properties": {"a": {"const": "all"}}}, "then": {"required": ["b"]}}, {"a": "all"}, **left_open(a=STATE)
    ),
    unfit({"if": {"required": ["a"]}, "else": {"required": ["b"]}}, {}),
    ({"prefixItems": [STRING, INTEGER]}, ["a", "b"], '[1]: expected integer, got string "b"'),
    ({"prefixItems": [{}], "items": False}, [1, 2], "[1]: not allowed, got number 2"),
    (left_open("id", id=INTEGER), {}, ".id: missing (integer)"),
    (closed(name=STRING), {"nmae": "a"}, ".nmae: no such property; did you mean name?"),
    (
        left_open("max_size", max_size=INTEGER),
        {"maxSize": 1},
        ".maxSize: no such property; did you mean max_size (missing, integer)?",
    ),
    ({"patternProperties": {"^n": INTEGER}}, {"n1": "a"}, '.n1: expected integer, got string "a"'),
    ({"additionalProperties": INTEGER}, {"k": "a"}, '.k: expected integer, got string "a"'),
    ({"anyOf": [STRING, {"type": "null"}]}, 3, "expected string | null, got number 3"),
    (
        {"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]},
        "a",
        'expected at least 3 characters, got 1: "a" (or null)',
    ),
    ({"anyOf": [STRINGS, STRING]}, ["a", 1], "[1]: expected string, got number 1 (or input.x: string)"),
    ({"anyOf": [{"const": "asc"}, {"const": "desc"}]}, "dsc", 'expected "asc" | "desc", got "dsc"; nearest: "desc"'),
    (SHAPE, {"kind": "circle", "r": "1"}, '.r: expected number, got string "1"'),
    (SHAPE, {"kind": "squar"}, '.kind: expected "circle" | "square", got "squar"; nearest: "square"'),
    (SHAPE, {"r": 1}, '.kind: missing ("circle" | "square")'),
    (SHAPE, 3, "expected object { kind, r } | object { kind, side }, got number 3"),
    (
        {"anyOf": [closed("a", "b", a=INTEGER, b=INTEGER), closed("c", c=INTEGER)]},
        {"a": 1, "b": "2"},
        '.b: expected integer, got string "2" (or input.x: object { c })',
    ),
    ({"allOf": [STRING, {"maxLength": 1}]}, "ab", 'expected at most 1 character, got 2: "ab"'),
    (INTEGER, "\n- input.b: bad", r'expected integer, got string "\n- input.b: bad"'),
    ({"pattern": "^a\nb$"}, "", 'expected a match of /^a b$/, got ""'),
]
"""Schemas of an argument `x`, its value, and what is said of it."""
PROBLEMS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (left_open("x", x=STRING), {"x": None}, "x: expected string, got null"),
    ({"allOf": [{"required": ["x"]}], **only(STRING)}, {"x": None}, "x: expected string, got null"),
    ({"properties": {"a b": STRING}}, {"a b": 1}, '["a b"]: expected string, got number 1'),
    (left_open("x", x={"type": "boolean", "enum": [True, "true"]}), {}, "x: missing (true)"),
    (
        {"$defs": {"state": STATE}, **only({"anyOf": [{"$ref": "#/$defs/state"}, {"type": "null"}]})},
        {"x": "CLOSED"},
        'x: expected "open" | "closed" | "all" | null, got "CLOSED"; nearest: "closed"',
    ),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", **only({"minimum": 1, "exclusiveMinimum": True})},
        {"x": 1},
        "x: expected more than 1, got 1",
    ),
    (
        {"$schema": DRAFT_07, **only({"items": [STRING], "additionalItems": INTEGER})},
        {"x": ["a", "b"]},
        'x[1]: expected integer, got string "b"',
    ),
    (left_open("title", title=TITLE), {}, "title: missing (string: Issue title)"),
    ({"$defs": {"t": TITLE}, **left_open("x", x={"$ref": "#/$defs/t"})}, {}, "x: missing (string: Issue title)"),
    (left_open("x", x=STATE), {}, 'x: missing ("open" | "closed" | "all")'),
    ({"required": ["x"]}, {}, "x: missing"),
    (closed(title=TITLE, body=STRING), {"zzz": 1}, "zzz: no such argument; there are title, body"),
    (
        closed(title=TITLE, sheet_names=STRINGS),
        {"name": "x"},
        "name: no such argument; nearest: sheet_names; there are title, sheet_names",
    ),
    (
        closed("sheet_names", title=TITLE, sheet_names=STRINGS),
        {"name": "x"},
        "name: no such argument; did you mean sheet_names (missing, array of string)?",
    ),
    (
        closed(**{f"argument_with_a_long_name_{n}": {} for n in range(10, 40)}),
        {"zzz": 1},
        "zzz: no such argument; there are "
        + ", ".join(f"argument_with_a_long_name_{n}" for n in range(10, 22))
        + " and 18 more",
    ),
    (closed(), {"a": 1}, "a: no such argument; there are none"),
    (closed(title=TITLE), {"titel": "x"}, "titel: no such argument; did you mean title?"),
    (closed("title", title=TITLE), {"tittle": "x"}, "tittle: no such argument; did you mean title (missing, string)?"),
    (
        left_open("title", title=TITLE),
        {"tittle": "x"},
        "tittle: no such argument; did you mean title (missing, string)?",
    ),
    (
        left_open("title", title=TITLE) | {"additionalProperties": True},
        {"tittle": "x"},
        "title: missing (string: Issue title)",
    ),
    (
        {"$schema": DRAFT_07, "dependencies": {"a": ["b"]}},
        {"a": ""},
        ': does not fit "dependencies": {"a": ["b"]}, got object {"a": ""}',
    ),
    (
        left_open(a=STRING, b=STRING) | {"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]},
        {},
        ": missing a, or b and c",
    ),
    (
        left_open(a=STRING, b=STRING) | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": "", "b": ""},
        ": fits object { a } (number 1) and object { b } (number 2), but must fit exactly one of 2 alternatives",
    ),
    ({"$defs": {"n": INTEGER}, **only({"$ref": "#/$defs/n"})}, {"x": "1"}, 'x: expected integer, got string "1"'),
    (
        {"$defs": {"n": {"$anchor": "n", "type": "integer"}}, **only({"$ref": "#n"})},
        {"x": "1"},
        'x: expected integer, got string "1"',
    ),
    (
        {"$defs": {"tree": TREE}, **only({"$ref": "#/$defs/tree"})},
        {"x": ["a", [3]]},
        "x[1][0]: expected string | array of (string | array), got number 3 (or input.x[1]: string)",
    ),
    ({"properties": {"a\n- input.b": STRING}}, {"a\n- input.b": 1}, r'["a\n- input.b"]: expected string, got number 1'),
    (
        left_open("x", x={"type": "string", "description": "a\n- input.b: bad\x1b[0m\u202e"}),
        {},
        "x: missing (string: a - input.b: bad\ufffd[0m\ufffd)",
    ),
    ({"required": ["n" * 5000]}, {}, f'["{"n" * 57}…"]: missing'),
    *((only(schema), {"x": value}, f"x{said}" if said[0] in ".[" else f"x: {said}") for schema, value, said in OF_X),
]


@pytest.mark.parametrize(("schema", "value", "problem"), PROBLEMS, ids=[problem for *_, problem in PROBLEMS])
def test_a_problem_has_its_path_and_both_values(schema: dict[str, Any], value: dict[str, Any], problem: str) -> None:
    place = "input" if problem.startswith((":", "[")) else "input."
    assert complaint(schema, json.dumps(value, ensure_ascii=False)) == [f"- {place}{problem}"]


def test_declared_names_are_listed_once() -> None:
    schema = closed(title=TITLE, sheet_names=STRINGS, x=closed(a={}, b={}))
    assert complaint(schema, '{"zz": 1, "name": 1, "titel": 1, "x": {"y": 1, "z": 1}}') == [
        "- input.x.y: no such property; there are a, b",
        "- input.x.z: no such property",
        "- input.zz: no such argument; there are title, sheet_names, x",
        "- input.name: no such argument; nearest: sheet_names",
        "- input.titel: no such argument; did you mean title?",
    ]


def test_problems_are_in_the_order_of_the_schema() -> None:
    schema = closed("a", "b", a=STRING, b=STRING, c=INTEGER, d=STATE)
    problems = complaint(schema, '{"zz": 1, "d": 1, "c": "x", "b": 2}')
    assert [problem.split(":")[0] for problem in problems] == [f"- input.{name}" for name in ("a", "b", "c", "d", "zz")]


def test_items_of_one_array_with_the_same_problem_are_counted() -> None:
    schema = left_open("b", a=STRINGS, b=STRING)
    assert complaint(schema, json.dumps({"a": list(range(30))})) == [
        *(f"- input.a[{n}]: expected string, got number {n}" for n in range(3)),
        "- input.a: 27 more like the last",
        "- input.b: missing (string)",
    ]


def test_one_wrong_row_among_thousands_is_found() -> None:
    rows = [{"id": n, "tags": ["a", "b"]} for n in range(5000)]
    rows[4321] = {"id": "4321", "tags": ["a"]}
    schema = left_open(rows={"type": "array", "items": closed("id", id=INTEGER, tags=STRINGS)})
    assert complaint(schema, json.dumps({"rows": rows})) == [
        '- input.rows[4321].id: expected integer, got string "4321"'
    ]


# undeclared arguments of a schema that leaves open whether there are any


def pairs(text: str) -> list[list[str]]:
    return [pair.split(":") for pair in text.split()]


SPELT = "page_size:pageSize pageSize:page_size perPage:perpage dry-run:dryRun labels:Labels line1:line_1 id:ID"


@pytest.mark.parametrize(("declared", "written"), pairs(SPELT))
def test_an_optional_argument_with_other_case_and_punctuation_is_refused(declared: str, written: str) -> None:
    schema = left_open(**{declared: {}, "other": {}})
    assert complaint(schema, json.dumps({written: 1})) == [
        f"- {path_text((written,))}: no such argument; did you mean {shown_name(declared)}?"
    ]


MISSPELT = pairs(
    "labels:labesl title:tittle color:colour repository:repositry description:discription "
    "include_archived:include_archvied"
)


@pytest.mark.parametrize(("declared", "written"), MISSPELT)
def test_a_misspelt_optional_argument_is_refused_with_the_way_to_send_it(declared: str, written: str) -> None:
    schema = left_open(**{declared: {}, "other": {}})
    assert complaint(schema, json.dumps({written: 1})) == [
        f"- input.{written}: no such argument; did you mean {declared}? If not, give {declared} as well"
    ]
    assert prepare(schema, json.dumps({written: 1, declared: 2})) == {written: 1, declared: 2}


DIFFERENT = pairs(
    "page:pages id:ids create:created order:reorder from:form min_distance:max_distance line1:line2 v1_2:v12 "
    "content:context source:target includeArchived:excludeArchived start_date:end_date user:username "
    "active:inactive latitude:longitude altitude:attitude interval:internal collection_id:connection_id "
    "country:county contract_id:contact_id contracts:contacts trial:trail board:broad x:y id:_id filter:$filter "
    f"type:@type ___:$$$ ___:--- -: {'p' * 80}a:{'p' * 80}b"
)


@pytest.mark.parametrize(("declared", "written"), DIFFERENT)
def test_a_different_name_is_sent(declared: str, written: str) -> None:
    assert prepare(left_open(**{declared: {}}), json.dumps({written: 1})) == {written: 1}


LOGS = left_open("name", name=STRING, namespace=STRING, tail=INTEGER)


def test_a_refused_call_names_arguments_that_an_open_schema_does_not_declare() -> None:
    assert complaint(LOGS, '{"pod": "a", "tailLines": 3, "namespace": 7}') == [
        "- input.name: missing (string)",
        "- input.namespace: expected string, got number 7",
        "- input: not declared: pod, tailLines; there are name, namespace, tail",
    ]
    assert complaint(LOGS, '{"name": "a", "nmaespace": "b", "pod": "c"}') == [
        "- input.nmaespace: no such argument; did you mean namespace? If not, give namespace as well",
        "- input: not declared: pod; there are name, namespace, tail",
    ]
    assert prepare(LOGS, '{"name": "a", "pod": "b"}') == {"name": "a", "pod": "b"}


def test_a_refused_call_does_not_name_arguments_that_a_schema_admits() -> None:
    assert complaint(LOGS | {"additionalProperties": True}, '{"pod": "a"}') == ["- input.name: missing (string)"]


def test_of_many_undeclared_arguments_a_refused_call_names_a_few() -> None:
    [_, problem] = complaint(LOGS, json.dumps({f"undeclared{n}": 1 for n in range(1000, 2000)}))
    listed = ", ".join(f"undeclared{n}" for n in range(1000, 1007))
    assert problem == f"- input: not declared: {listed} and 993 more; there are name, namespace, tail"


def noted(schema: dict[str, Any], text: str) -> list[str]:
    """Return the notes about a call that is sent."""
    notes: list[str] = []
    call = ToolCall(1, "mcp:s:take", text)
    assert ArgumentChecker().prepare(call, "MCP.s.take", schema, lambda: SIGNATURE, None, notes.append) == json.loads(
        text
    )
    return notes


FORECAST = left_open(city=STRING, days=INTEGER, units=STATE)


@pytest.mark.parametrize(
    ("given_", "note"),
    [
        ({"dayz": 2}, "dayz; did you mean days?"),
        ({"day": 2, "days": 3}, "day; there are city, days, units"),
        ({"wind": True}, "wind; there are city, days, units"),
        ({"dayz": 2, "citty ": "x", "wind": 1}, '"citty ", dayz, wind; did you mean city, days?'),
        ({"city": "x", "days": 2, "units": "all", "zip": 1}, "zip; there are city, days, units"),
        ({"__proto__": 1}, "__proto__; there are city, days, units"),
        ({f"n{n}": n for n in range(1_000)}, ", ".join(f"n{n}" for n in range(26)) + " and 974 more; there are"),
        ({"\u202e" * 500: 1}, '"\\u202e'),
    ],
    ids=["near", "beside it", "none near", "several", "all given", "prototype", "many", "long"],
)
def test_arguments_that_an_open_schema_does_not_declare_are_sent_and_noted(given_: dict[str, Any], note: str) -> None:
    [found] = noted(FORECAST, json.dumps(dict(sorted(given_.items()))) if len(given_) < 99 else json.dumps(given_))
    assert found.startswith(note)
    assert len(found) < 600
    assert len(given_) > 99 or "\\u" in note or found == note


@pytest.mark.parametrize(
    "schema",
    [
        OPEN,
        left_open(),
        FORECAST | {"additionalProperties": True},
        FORECAST | {"additionalProperties": STRING},
        FORECAST | {"patternProperties": {"^x": {}}},
        FORECAST | {"allOf": [{"properties": {"other": {}}}]},
        FORECAST | {"required": ["wind"]},
    ],
    ids=["any object", "no properties", "true", "schema", "pattern", "allOf", "required"],
)
def test_nothing_is_noted_if_the_schema_may_mean_the_argument(schema: dict[str, Any]) -> None:
    assert noted(schema, '{"wind": "1"}') == []
    assert noted(FORECAST, '{"city": "x", "days": 2}') == []


def test_the_error_about_a_schema_that_contradicts_itself_names_what_is_accepted() -> None:
    schema = closed(year={"type": "string", "enum": [2024, 2025]}, tag={"type": "string", "nullable": True})
    assert prepare(schema, '{"year": 2024, "tag": null}') == {"year": 2024, "tag": None}
    assert prepare(schema, '{"year": "2024"}') == {"year": "2024"}
    assert complaint(schema, '{"year": true}') == ["- input.year: expected string | 2024 | 2025, got boolean true"]
    assert complaint(schema, '{"tag": 5}') == ["- input.tag: expected string | null, got number 5"]


NEAR = {"page_size": INTEGER}
MAY_BE_MEANT: dict[str, dict[str, Any]] = {
    "true": {"additionalProperties": True},
    "any": {"additionalProperties": {}},
    "schema": {"additionalProperties": INTEGER},
    "unevaluated": {"unevaluatedProperties": True},
    "pattern": {"patternProperties": {"^p": {}}},
    "names": {"propertyNames": {"minLength": 1}},
    "allOf": {"allOf": [{"additionalProperties": True}]},
    "ref": {"$defs": {"a": {"additionalProperties": True}}, "$ref": "#/$defs/a"},
    "anyOf": {"anyOf": [{"properties": {"pageSize": {}}}]},
    "dependent": {"dependentSchemas": {"a": {"properties": {"pageSize": {}}}}},
    "unusable": left_open(**NEAR, bad={"$ref": "#/$defs/a0"})
    | {"$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": {}}},
    "required": left_open("pageSize", **NEAR),
    "required-in-anyOf": {"anyOf": [{"required": ["pageSize"]}, {"required": ["other"]}]},
    "dependentRequired-of-it": {"dependentRequired": {"pageSize": []}},
    "dependentRequired": {"dependentRequired": {"other": ["pageSize"]}},
    "dependentSchemas-of-it": {"dependentSchemas": {"pageSize": {}}},
    "dependencies-of-it": {"$schema": DRAFT_07, "dependencies": {"pageSize": []}},
    "excluded-by-another": {"dependentSchemas": {"page_size": {"not": {"required": ["pageSize"]}}}},
    "not": {"not": {"properties": {"pageSize": {"const": 1}}, "required": ["other"]}},
    "many-dependents": {"dependentSchemas": {f"a{n}": {} for n in range(9)}},
}


@pytest.mark.parametrize("case", MAY_BE_MEANT)
def test_a_near_name_is_sent_if_the_schema_may_take_undeclared_names(case: str) -> None:
    assert prepare(left_open(**NEAR) | MAY_BE_MEANT[case], '{"pageSize": 3}') == {"pageSize": 3}


def test_a_near_name_is_sent_beside_the_declared_one() -> None:
    assert prepare(left_open(**NEAR), '{"pageSize": 3, "page_size": 4}') == {"pageSize": 3, "page_size": 4}


def test_a_misspelt_name_is_refused_even_if_the_argument_has_a_default() -> None:
    schema = left_open(page_size=INTEGER | {"default": 10})
    assert complaint(schema, '{"pageSize": 3}') == ["- input.pageSize: no such argument; did you mean page_size?"]


@pytest.mark.parametrize("required", [[], ["body_format"]], ids=["optional", "required"])
@pytest.mark.parametrize("written", ["bodyFormat", "body_fromat"])
def test_a_closed_schema_names_the_meant_argument_even_if_it_has_a_default(written: str, required: list[str]) -> None:
    schema = closed("id", *required, id=STRING, body_format=STATE | {"default": "all"}, other=STRING | {"default": ""})
    assert complaint(schema, json.dumps({"id": "m", written: "all"})) == [
        f"- input.{written}: no such argument; did you mean body_format?"
    ]
    assert prepare(schema, '{"id": "m"}') == {"id": "m"}


def test_a_default_that_fits_nothing_else_is_no_problem_of_the_call() -> None:
    schema = closed("id", id=STRING, a=STRING | {"default": ""}, b=STRING) | {"not": {"required": ["a", "b"]}}
    assert complaint(schema, '{"id": 1, "b": ""}') == ["- input.id: expected string, got number 1"]


# defaults


@pytest.mark.parametrize(
    ("schema", "given_"),
    [
        (left_open(a=STRING | {"default": None}, b=INTEGER | {"default": 3}), {}),
        (closed("a", a=INTEGER, b=STATE | {"default": "opened"}), {"a": 1}),
        (left_open(a={"default": 1}, b={"default": 2}) | {"not": {"required": ["a", "b"]}}, {}),
        (left_open(a={"default": 1}, b={}) | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 2}),
        (left_open(a={"default": 1}, b={}) | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}),
        (left_open("a", a={"default": 1}), {}),
        (left_open("a", a=STRING | {"default": 1}), {}),
        (left_open("a", a=STRING | {"default": None}, b={}), {"b": 1}),
        (left_open(a={"default": 1}) | {"allOf": [{"required": ["a"]}]}, {}),
        (left_open(a={"default": 1}, b={}) | {"dependentRequired": {"b": ["a"]}}, {"b": 1}),
    ],
    ids=[
        *("null", "not in the enum", "two that exclude each other", "one that excludes what was given"),
        *("one of two", "required", "required, of another type", "required, null", "required by allOf", "needed by b"),
    ],
)
def test_an_argument_with_a_default_may_be_left_out(schema: dict[str, Any], given_: dict[str, Any]) -> None:
    assert prepare(schema, json.dumps(given_)) == given_


# hostile schemas and values


def doubling(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = STRING
    for _ in range(depth):
        schema = {"anyOf": [{"items": schema}, {"items": schema}]}
    return schema


def deep(value: object, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


OPTIONS = [f"option{n}" for n in range(20_000)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (only({"type": "array", "items": {"enum": OPTIONS}}), {"x": ["y"] * 2_000}),
        (only(doubling(11)), {"x": deep(1, 11)}),
        (
            {"$defs": {"tree": TREE}, **only({"$ref": "#/$defs/tree"})},
            {"x": [deep([1] * 9, n % 90) for n in range(900)]},
        ),
        (closed(*OPTIONS[:1000], **dict.fromkeys(OPTIONS[:1000], TITLE)), {f"{name}x": 1 for name in OPTIONS}),
        (left_open(**{f"property_{n}": {} for n in range(1000)}), {f"propertyy_{n}": 1 for n in range(1000)}),
        (only({"uniqueItems": True}), {"x": [*range(100_000), 1]}),
        (only({"oneOf": [STRING | {"minLength": n} for n in range(500)]}), {"x": "y" * 100}),
        (closed(), {"n" * 10_000 + str(n): "v" * 10_000 for n in range(100)}),
        (only({"$ref": "#"}) | {"not": {"$ref": "#"}}, {"x": {"x": {}}}),
        (only({"const": OPTIONS}), {"x": "y"}),
        (only({"pattern": "^(a+)+$" * 100, "description": "d" * 100_000}), {"x": "a" * 10_000 + "!"}),
        ({"required": ["\U0001f600" * 60 + str(n) for n in range(100)]}, {}),
    ],
    ids=["enum", "doubling", "tree", "closed", "open", "unique", "oneOf", "names", "self", "const", "pattern", "wide"],
)
def test_hostile_schemas_and_values_give_short_messages_soon(schema: dict[str, Any], value: dict[str, Any]) -> None:
    text = json.dumps(value)
    began = time.thread_time()
    problems = []
    with suppress(ProgramError):
        prepare(schema, text)
        assert schema.get("not"), "only the schema that contradicts itself may let it through"
    if not schema.get("not"):
        problems = complaint(schema, text)
        assert problems
    assert time.thread_time() - began < 5
    assert len(problems) <= 21
    assert len("\n".join(problems).encode()) < 4_096


def test_thousands_of_defaults_are_checked_in_bounded_time() -> None:
    rows = {"type": "array", "items": {"anyOf": [left_open("a", a={"const": n}) for n in range(5)]}}
    default = [{"a": 4, "b": n} for n in range(40)]
    names = [f"p{n}" for n in range(2_000)]
    schema = left_open(**{name: {"$ref": "#/$defs/rows", "default": default} for name in names}) | {
        "$defs": {"rows": rows}
    }
    began = time.thread_time()
    assert prepare(schema | {"required": names[:1_000], "minProperties": 1}, "{}") == {}
    assert time.thread_time() - began < 3


def test_only_as_many_missing_names_are_read_as_can_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"required": [f"n{n}" for n in range(100_000)]}
    made = 0
    original = _Search._missing

    def counting(*args: Any) -> Any:
        nonlocal made
        made += 1
        return original(*args)

    monkeypatch.setattr(_Search, "_missing", counting)
    problems, complete = SchemaErrors(schema).problems({"a": 1})
    assert not complete
    assert 20 < len(problems) <= 501
    assert made <= 501
    assert complaint(schema, '{"a": 1}')[-1] == "- … and more"


def test_compiled_schemas_out_of_use_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_MAX_WEIGHT", 1_000)
    checker = ArgumentChecker()

    def prepared(schema: dict[str, Any]) -> None:
        checker.prepare(ToolCall(1, "mcp:s:take", "{}", 1), "MCP.s.take", schema, lambda: SIGNATURE)

    used: dict[str, Any] = {"properties": {"x": {}}}
    prepared(used)
    first = checker._checks[id(used)]
    for turn in range(15):
        prepared({"properties": {f"p{turn}_{n}": STRING for n in range(80)}})
        prepared(used)
    assert checker._checks[id(used)] is first
    assert len(checker._checks) < 10


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


@settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
@given(schema=schemas, given_=plain)
def test_any_schema_and_argument_give_an_object_or_a_refusal(schema: dict[str, Any], given_: Any) -> None:
    sent = None
    with suppress(ProgramError):
        # As the guest writes it: pairs of surrogates as they are.
        sent = prepare(schema, json.dumps(given_, ensure_ascii=False))
    if sent is not None:
        assert isinstance(given_, dict)
        assert all(sent[name] == value for name, value in given_.items())


@settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
@given(schema=schemas, given_=st.dictionaries(st.sampled_from("abcde"), plain, max_size=4))
def test_every_problem_is_a_short_line_on_one_value(schema: dict[str, Any], given_: dict[str, Any]) -> None:
    try:
        compile_schema(schema)
    except UnusableSchema:
        return
    problems, _ = SchemaErrors(schema).problems(given_)
    for problem in problems:
        here: Any = given_
        for n, part in enumerate(problem.path):
            if isinstance(here, dict) and part not in here:
                assert (problem.kind, n) == ("missing", len(problem.path) - 1)
            else:
                here = here[part]
        assert problem.text.isprintable()
        assert len(problem.text) < 500


@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
@given(schema=schemas, given_=plain)
def test_a_value_has_problems_exactly_when_it_does_not_fit(schema: dict[str, Any], given_: Any) -> None:
    try:
        validator = compile_schema(schema)
    except UnusableSchema:
        return
    problems, complete = SchemaErrors(schema).problems(given_)
    if complete and "$ref" not in json.dumps(schema):  # a schema that denies itself is true or false as one likes
        assert (not problems) == validator.is_valid(given_), problems


def timeout(options: str | None) -> float | None:
    call = ToolCall(1, "mcp:s:take", "{}", 2, options=options)
    return ArgumentChecker.timeout(call, "MCP.s.take", lambda: SIGNATURE)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (None, None),
        ("null", None),
        ("{}", None),
        ('{"timeoutMs": null}', None),
        ('{"timeoutMs": 1}', 0.001),
        ('{"timeoutMs": 1500.5}', 1.5005),
        ('{"timeoutMs": 600000}', 600),
    ],
)
def test_a_call_may_set_its_timeout(options: str | None, seconds: float | None) -> None:
    assert timeout(options) == seconds


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("3", "takes one object, and options such as { timeoutMs: 5000 } after it, got number 3"),
        ("[]", "got array"),
        ('{"timeoutMs": 0.5}', "timeoutMs is a number of milliseconds from 1 to 600000, not number 0.5"),
        ('{"timeoutMs": 600001}', "from 1 to 600000"),
        ('{"timeoutMs": true}', "not boolean true"),
        ('{"timeoutMs": "5"}', 'not string "5"'),
        ('{"timeoutMs": 1e999}', "takes one object, and options"),
        ('{"timeout": 5}', "there is no option timeout; did you mean timeoutMs?"),
        ('{"owner": "me"}', "there is no option owner; there is timeoutMs. Arguments of the tool"),
        ("[" * 100_000, "takes one object, and options"),
    ],
)
def test_other_options_are_refused_before_anything_is_sent(options: str, problem: str) -> None:
    with pytest.raises(ProgramError) as refused:
        timeout(options)
    assert problem in refused.value.message
    assert "nothing was sent" in refused.value.message
    assert len(refused.value.message) < 1_000


# integers beyond 2^53

CHAT = left_open(
    chat_id=INTEGER,
    large=INTEGER | {"minimum": 0, "maximum": 2**64 - 1},
    ids={"type": "array", "items": INTEGER},
    either={"anyOf": [INTEGER, STRING]},
    ratio={"type": "number", "maximum": 1e19},
    any={},
    maybe={"anyOf": [INTEGER, {"type": "number"}]},
    choice={"enum": [1e300, 9007199254740992]},
    name=STRING,
)
ROUNDED = "beyond 2^53, a Number loses its last digits; pass the bigint that the result gave (unwrap keeps it"


@pytest.mark.parametrize("integer", [2**53 - 1, 2**53, -(2**53) - 1, 725653563933458433, 2**63, 2**64 - 1, 10**30])
@pytest.mark.parametrize("name", ["chat_id", "either", "any", "maybe"])
def test_the_digits_of_a_bigint_are_sent(integer: int, name: str) -> None:
    sent = prepare(CHAT, f'{{"{name}": {integer}, "ids": [{integer}]}}')
    assert sent == {name: integer, "ids": [integer]}
    assert type(sent[name]) is int


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ('{"chat_id": 725653563933458400E0}', "chat_id", "725653563933458400"),
        ('{"chat_id": -9007199254740992E0}', "chat_id", "-9007199254740992"),
        ('{"chat_id": 1E+21}', "chat_id", "1e+21"),
        ('{"large": 18000000000000000000E0}', "large", "18000000000000000000"),
        ('{"ids": [1, 725653563933458433, 9007199254740994E0]}', "ids[2]", "9007199254740994"),
        ('{"either": 9007199254740994E0}', "either", "9007199254740994"),
        ('{"choice": 9007199254740992E0}', "choice", "9007199254740992"),
    ],
)
def test_a_number_beyond_2_53_is_refused_in_the_place_of_an_integer(text: str, path: str, shown: str) -> None:
    [problem] = complaint(CHAT, text)
    assert problem.startswith(f"- input.{path}: expected an integer, got the Number {shown}: {ROUNDED}")


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('{"ratio": 725653563933458400E0}', {"ratio": 725653563933458400}),
        ('{"ratio": 9007199254740992E0, "any": [1E+30]}', {"ratio": 2**53, "any": [1e30]}),
        ('{"any": {"deep": [-1758000000000000000E0]}}', {"any": {"deep": [-1758000000000000000]}}),
        ('{"maybe": 9007199254740994E0}', {"maybe": 9007199254740994}),
        ('{"choice": 1E+300}', {"choice": 1e300}),
        ('{"name": "5E0", "chat_id": 5}', {"name": "5E0", "chat_id": 5}),
        ('{"ratio": 1e18, "chat_id": 1e18}', {"ratio": 1e18, "chat_id": 1e18}),  # not by a program
    ],
)
def test_anywhere_else_a_number_beyond_2_53_is_sent_as_javascript_writes_it(text: str, sent: dict[str, Any]) -> None:
    assert json.dumps(prepare(CHAT, text)) == json.dumps(sent)


def test_of_many_numbers_beyond_2_53_a_few_are_named_quickly() -> None:
    text = json.dumps({"any": [0] * 2_000, "ids": [0] * 2_000}).replace("0", "9007199254740994E0")
    began = time.process_time()
    problems = complaint(CHAT, text)
    assert time.process_time() - began < 20
    assert [problem.partition(":")[0] for problem in problems] == ["- input"]
    text = json.dumps({"ids": [0] * 2_000}).replace("0", "9007199254740994E0")
    assert [each.partition(":")[0] for each in complaint(CHAT, text)] == [f"- input.ids[{n}]" for n in range(3)]


def test_a_bigint_where_a_string_belongs_is_named_with_what_to_pass() -> None:
    assert complaint(CHAT, '{"name": 725653563933458433}') == [
        "- input.name: expected string, got bigint 725653563933458433n; pass String(n)"
    ]
    assert complaint(CHAT | {"required": ["chat_id"]}, '{"chat_id": "7", "large": 18446744073709551616}') == [
        '- input.chat_id: expected integer, got string "7"',
        "- input.large: expected at most 18446744073709551615n, got 18446744073709551616n",
    ]
    [problem] = complaint(CHAT, '{"choice": 9007199254740993}')
    assert "9007199254740992n" in problem
    assert "9007199254740993n" in problem
