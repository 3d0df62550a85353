"""Tests for reading one saved program."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.catalog.saved_programs.compiling import function_body
from codemode_mcp.catalog.saved_programs.program_file import NO_INPUT, read_program, unknown_members
from codemode_mcp.catalog.saved_programs.saved_program import ProgramFileError, name_problem
from codemode_mcp.program.syntax import line_count

TEXT = {"type": "string"}


def input_of(parameter: str, before: str = "") -> Any:
    source = f"{before}\nexport default async function report({parameter}) {{ return 1; }}"
    return read_program("report", "typescript", source).input_schema


def problem_of(source: str, language: Any = "typescript") -> ProgramFileError:
    with pytest.raises(ProgramFileError) as caught:
        read_program("report", language, source)
    return caught.value


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("string", TEXT),
        ("unknown", {}),
        ("'a' | \"b\"", {"enum": ["a", "b"]}),
        ("-1.5", {"const": -1.5}),
        ("string | null", {"type": ["string", "null"]}),
        ("string[] | null", {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}]}),
        ("readonly (string | number)[]", {"type": "array", "items": {"type": ["string", "number"]}}),
        ("Array<string>", {"type": "array", "items": TEXT}),
        ("[string, string?]", {"type": "array", "prefixItems": [TEXT, TEXT], "minItems": 1, "maxItems": 2}),
        ("[a: string, ...b: string[]]", {"type": "array", "prefixItems": [TEXT], "items": TEXT, "minItems": 1}),
        ("Record<string, string>", {"type": "object", "additionalProperties": TEXT}),
        (
            "Record<'a', string>",
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False},
        ),
        ("{ [key: string]: string }", {"type": "object", "properties": {}, "additionalProperties": TEXT}),
    ],
)  # fmt: skip
def test_a_type_becomes_the_json_schema_of_its_values(written: str, schema: Any) -> None:
    assert input_of(f"input: {{ value: {written} }}")["properties"]["value"] == schema


def test_members_are_required_unless_they_are_optional_or_may_be_undefined() -> None:
    schema = input_of("{ a, b = 2, c }: { a: string; b?: number; c: string | undefined }")
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["c"] == TEXT


def test_types_of_the_same_file_are_definitions_and_may_contain_themselves() -> None:
    schema = input_of(
        "input: Query", "interface Query { tree: Node }\nexport type Node = { name: string; inner?: Node[] };"
    )
    assert schema["properties"] == {"tree": {"$ref": "#/$defs/Node"}}
    assert schema["$defs"]["Node"]["properties"]["inner"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}


def test_a_doc_comment_describes_the_program_and_its_input() -> None:
    program = read_program(
        "report",
        "typescript",
        """/**
 * Report the weather.
 *
 * In one line.
 * @param input where to look
 * @param input.city the town
 */
export default async ({ city, days }: {
  city: string;
  /** How many
   *  days. */
  days?: number;
}): Promise<{ text: string }> => ({ text: city });""",
    )
    assert program.description == "Report the weather.\n\nIn one line."
    assert program.input_schema["description"] == "where to look"
    assert program.input_schema["properties"]["city"]["description"] == "the town"
    assert program.input_schema["properties"]["days"]["description"] == "How many days."
    assert program.output_schema == {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}


@pytest.mark.parametrize(
    "comment",
    [
        "@param {{ city: string, days?: number }} input",
        "@param {object} input\n * @param {string} input.city\n * @param {number} [input.days=5]",
        '@input {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}},\n'
        ' * "required": ["city"], "additionalProperties": false}',
    ],
)
def test_javascript_declares_its_input_in_the_doc_comment(comment: str) -> None:
    source = f"/**\n * {comment}\n * @returns {{Promise<string>}}\n */\nexport default function report(input) {{}}"
    program = read_program("report", "javascript", source)
    assert program.input_schema == {
        "type": "object",
        "properties": {"city": TEXT, "days": {"type": "number"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert program.output_schema == TEXT


def test_a_function_without_a_parameter_takes_no_input() -> None:
    program = read_program("report", "javascript", "const run = () => 1;\nexport default run;")
    assert (program.input_schema, program.takes_input) == (NO_INPUT, False)


def test_a_result_type_that_json_has_not_is_unknown() -> None:
    assert (
        read_program("a", "typescript", "export default function a(): Date { return new Date() }").output_schema is None
    )


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("const a = 1;\n", 2, "no export default"),
        ("export const a = 1;", 1, "one export"),
        ("export default 4;", 1, "is no function"),
        ("import fs from 'fs';\nexport default () => 1", 1, "cannot import"),
        ("export default () => 1;\nexport default () => 2;", 2, "two export default"),
        ("export default function f(a: {}, b: {}) {}", 1, "2 parameters"),
        ("export default function f(a) {}", 1, "has no type"),
        ("export default function f(a: string) {}", 1, "must be an object"),
        ("export default function f(a?: { b: string }) {}", 1, "members optional instead"),
        ("export default function f<T>(a: T) {}", 1, "type parameters"),
        ("export default function f(a: {\n  when: Date }) {}", 2, "Date is not declared in this file"),
        ("export default function f(a: { b: Partial<{}> }) {}", 1, "Partial<{}> has no JSON Schema"),
        ("export default function f(a: { run(): void }) {}", 1, "run(): void has no JSON Schema"),
        ("export default ({ a }: const) => 1", 1, "cannot be read"),
        ("export default function f(\n  input {\n  return 1;\n}", 2, "parameters of the function have a syntax error"),
        ("export default ({ a, b ) => 1", 1, "parameters of the function have a syntax error"),
        ("export default (a: { b: str ing }) => 1", 1, "parameters of the function have a syntax error"),
        ("/** @input {} x */\nexport default function f(a) {}", 1, "is no JSON"),
        ('/**\n * @input {"type": "text"} */\nexport default function f(a) {}', 2, "is no JSON Schema"),
        (f"export default function f(a: {{ b: {'(' * 60}1{')' * 60} }}) {{}}", 1, "too large or too deep"),
    ],
)
def test_another_text_is_refused_with_its_line(source: str, line: int, words: str) -> None:
    problem = problem_of(source)
    assert problem.line == line
    assert words in problem.text


def test_a_description_of_an_unknown_member_is_named_with_its_line() -> None:
    comment = "/**\n * @param input the query\n * @param input.days how many\n * @param input.{}\n */\n"
    source = comment + "export default (input: {{ days: number; items: string[]{} }}) => 1"

    def found(member: str, rest: str = "") -> list[str]:
        return [str(each) for each in unknown_members(read_program("f", "typescript", source.format(member, rest)))]

    problem = "programs/f.ts:4: @param input.dayz names no member of the input; use one of days"
    assert found("dayz how many") == [problem]
    assert found("items[].name the names") == []
    assert found("first-name the name", "; 'first-name': string") == []
    assert found("dayz how many", "; [name: string]: unknown") == []


@pytest.mark.parametrize(
    "name",
    ["", "a" * 65, "__proto__", "then", "class", "index", "my-report", "1st", "a\u200bb", "cafe\u0301", "CON", "lpt1"],
)
def test_a_name_that_is_no_own_identifier_is_refused(name: str) -> None:
    assert name_problem(name) is not None
    assert name_problem("weeklyReport") is None


def test_characters_beyond_the_first_plane_are_whole_in_descriptions_and_schemas() -> None:
    source = """/** Report 😀
     * @output {"title": "😁"} */
    export default async (input: { /** mood 😂 */ '😃': '😄' }) => 1;"""
    found = read_program("report", "typescript", source)
    assert found.description == "Report 😀"
    assert found.output_schema == {"title": "😁"}
    assert found.input_schema["properties"] == {"😃": {"description": "mood 😂", "const": "😄"}}


def test_a_type_whose_value_json_does_not_have_is_refused() -> None:
    assert "a number that is too large" in problem_of("export default (input: { a: 1e999 }) => 1;").text


def test_a_schema_with_nan_is_refused() -> None:
    source = '/** @input {"type": "object", "default": NaN} */ export default (input: object) => 1;'
    assert "is no JSON: NaN" in problem_of(source).text


@pytest.mark.parametrize("before", ["//\n" * 60_000, "export default " + "(" * 20_000])
def test_a_file_of_comments_or_of_parentheses_is_read_in_linear_time(before: str) -> None:
    end = "function () { return 1; }" + ")" * before.count("(")
    began = time.process_time()
    read_program("report", "javascript", f"{before}{'' if '(' in before else 'export default '}{end}")
    assert time.process_time() - began < 5  # it took 30 s or more when it was quadratic


@pytest.mark.parametrize("member", ["$schema", "$ref"])
def test_no_document_that_a_schema_names_is_fetched(tmp_path: Path, member: str) -> None:
    document = tmp_path / "document.json"
    document.write_text('{"type": "object", "required": ["private-word"]}')
    schema = json.dumps({"type": "object", member: document.as_uri()})
    problem = problem_of(f"/** @input {schema} */ export default (input: object) => 1;")
    assert "is no JSON Schema" in problem.text
    assert "private-word" not in problem.text


WHOLE = """/**
 * Reports.
 * @param {{ a: string }} input.b text
 */
export default async function f({ a, b = 5 }: { a: Part; b?: -5 | 'x' | null; c: [string, ...boolean[]] }) { return 1 }
interface Part { next?: Part; [key: string]: unknown }
export type Query = readonly string[] | (Part & Part);
"""
PIECES = [
    *("{", "}", "(", ")", "<", "[", "|", "&", "?", ":", "export ", "default ", "type X = X;", "...", "Record<X>"),
    *("`", "'", "/**", "*/", "@input ", '{"a": 1}', "\u2028", "\U0001d4b3", "\\u{110000}", "5e400"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9), st.sampled_from(PIECES)), max_size=8))
def test_a_text_is_a_saved_program_or_is_refused_with_a_line(edits: list[tuple[int, int, str]]) -> None:
    source = WHOLE
    for at, removed, piece in edits:
        source = source[:at] + piece + source[at + removed :]
    refused: ProgramFileError | None = None
    try:
        program = read_program("report", "typescript", source)
    except ProgramFileError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.line <= line_count(source)
        return
    assert function_body(program).splitlines()[-1].startswith("return ")
    jsonschema_rs.meta.validate(program.input_schema)
