"""Tests of the texts of saved programs that are made from programs that have run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from codemode_mcp.base.settings import Language
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
from codemode_mcp.extensions.program_tools.drafts import Draft, make_draft, skeleton
from codemode_mcp.extensions.program_tools.drafts.parameters import value_schema

JOIN = Path(__file__).parents[4] / "examples" / "quickstart" / "join.ts"


def draft(source: str, language: Language = "javascript", **more: Any) -> Draft:
    return make_draft(source, language, origin="run run_x", **more)


def saved(made: Draft) -> SavedProgram:
    return read_program("report", made.language, made.text)


def test_a_program_becomes_a_function_with_its_literals_as_parameters() -> None:
    source = """\
// Open issues of a team.

const TEAM = 'core', LIMIT = 10
const { issues } = unwrap(await MCP.tracker.listIssues({ team: TEAM, state: "open", first: true, labels: ["bug"] }));
issues.map((issue) => `
  ${issue.title}`).slice(0, LIMIT)
"""
    made = draft(source)
    assert (
        made.text
        == """\
/**
 * Open issues of a team.
 *
 * @param {{ TEAM?: string; LIMIT?: number; state?: string; labels?: string[] }} input
 * @param input.TEAM For the constant TEAM; for example "core".
 * @param input.LIMIT For the constant LIMIT; for example 10.
 * @param input.state For MCP.tracker.listIssues (state); for example "open".
 * @param input.labels For MCP.tracker.listIssues (labels); for example ["bug"].
 */
export default async function ({ TEAM = 'core', LIMIT = 10, state = "open", labels = ["bug"] } = {}) {
const { issues } = unwrap(await MCP.tracker.listIssues({ team: TEAM, state, first: true, labels }));
return issues.map((issue) => `
  ${issue.title}`).slice(0, LIMIT)
}
"""
    )
    assert made.old_input == {"TEAM": "core", "LIMIT": 10, "state": "open", "labels": ["bug"]}
    schema = saved(made).input_schema
    assert schema["properties"]["LIMIT"] == {"description": "For the constant LIMIT; for example 10.", "type": "number"}
    assert "required" not in schema
    assert saved(made).description == "Open issues of a team."


def test_typescript_keeps_its_types_and_a_taken_name_gets_a_number_inside_only() -> None:
    made = draft(JOIN.read_text("utf-8"), "typescript")
    head = 'export default async function ({ state = "open", week: week2 = "2026-W23" }: '
    assert f"{head}{{ state?: string; week?: string }} = {{}}) {{\n  interface Load {{\n    name: string;" in made.text
    assert "teamHours({ week: week2 })" in made.text
    assert set(saved(made).input_schema["properties"]) == {"state", "week"}


def test_equal_literals_share_a_parameter_and_others_are_numbered() -> None:
    made = draft("""\
const { tracker: t } = MCP;
const list = t["listIssues"];
await Promise.all([list({ team: "a", page: -1 }), list({ team: "b" }), list({ team: "a", "per-page": 1e3 })]);
await tools["mcp:tracker:move"]({ to: [{ team: "c" }, { team: /* old */ ("d") }], n: [1, "x"], why: `it\\'s` });
""")
    assert made.old_input == {
        "team": "a", "page": -1, "team2": "b", "perPage": 1000, "team3": "c", "team4": "d", "n": [1, "x"],
        "why": "it's",
    }  # fmt: skip
    assert 'n = [1, "x"]' in made.text
    assert saved(made).input_schema["properties"]["n"]["items"] == {"type": ["number", "string"]}


def test_large_integers_become_parameters_and_keep_their_digits() -> None:
    made = draft("await MCP.chat.send({ chat_id: 725653563933458433n, after: -9007199254740993n, small: 5n })")
    assert made.old_input == {"chat_id": 725653563933458433, "after": -9007199254740993}
    assert "chat_id = 725653563933458433n," in made.text
    schema = saved(made).input_schema["properties"]
    assert schema["chat_id"]["type"] == schema["after"]["type"] == "integer"


def test_values_in_expressions_flags_and_look_ups_stay() -> None:
    source = """\
const names = { a: "x" };
const found = await API.search("issues", 5);
const about = [await tools.search("x"), await tools.describe("a:b:c"), await MCP.tracker.$api("create")];
await tools.call(/* its id */ "a:b:c", { all: true }).then("x");
const id = await MCP.tracker.create({ title: "A " + names.a, at: f("b"), big: 10n, all: true, none: null, t: `${1}` });
return store("k", id);
"""
    made = draft(source)
    assert made.parameters == ()
    assert [line.removeprefix("  ") for line in made.text.splitlines()[4:-1]] == source.splitlines()


def test_secrets_become_required_parameters_without_a_value() -> None:
    token = "ghp_0123456789abcdefghij"
    made = draft(f"""\
const TOKEN = "{token}";
await MCP.web.get({{ password: "hunter2", header: "__SECRET_web_KEY__", url: "https://me:pw@example.com", ok: "ok" }});
""")
    for secret in (token, "hunter2", "__SECRET_web_KEY__", "me:pw"):
        assert secret not in made.text
    assert saved(made).input_schema["required"] == ["TOKEN", "password", "header", "url"]
    assert not made.quotes_secret
    assert draft(f'const h = {{ a: "Bearer {token}" }}; return await MCP.web.get(h)').quotes_secret


def test_a_value_that_must_be_one_of_few_has_their_type() -> None:
    state = {"anyOf": [{"enum": ["open", "closed"]}, {"type": "null"}]}
    schema = {
        "properties": {"filter": {"$ref": "#/$defs/filter"}},
        "$defs": {"filter": {"properties": {"state": state, "by": {}, "tags": {"items": {"enum": ["a", "b"]}}}}},
    }
    made = draft(
        'MCP.t.list({ filter: { state: "open", by: "me", tags: ["b"] } })',
        schema_of=lambda call, path: value_schema(schema, path) if call == ("MCP", "t", "list") else None,
    )
    properties = saved(made).input_schema["properties"]
    assert properties["state"]["enum"] == ["open", "closed"]
    assert properties["by"]["type"] == "string"
    assert properties["tags"]["items"] == {"enum": ["a", "b"]}


def test_a_value_that_chooses_a_form_stays() -> None:
    forms = [
        {"properties": {"kind": {"const": "day"}, "date": {}}},
        {"properties": {"kind": {"const": "time"}, "at": {}}},
    ]
    made = draft(
        'MCP.t.add({ when: { kind: "time", at: "9:00" } })',
        schema_of=lambda _, path: value_schema({"properties": {"when": {"oneOf": forms}}}, path),
    )
    assert made.old_input == {"at": "9:00"}
    assert '{ kind: "time", at }' in made.text


@pytest.mark.parametrize(
    "source",
    [
        'async () => { return await MCP.t.list({ a: "b" }) }',
        'export default async function main({ MCP, tools }) { return await MCP.t.list({ a: "b" }) }',
        '```js\nmodule.exports = async () => {\n  return await MCP.t.list({ a: "b" })\n}\n```',
        '"use strict"\nasync function main() { return await MCP.t.list({ a: "b" }) }',
    ],
)
def test_a_program_that_is_one_function_is_unwrapped(source: str) -> None:
    body = draft(source).text.partition('({ a = "b" } = {}) {')[2]
    assert body.split() == ["return", "await", "MCP.t.list({", "a", "})", "}"]


def test_a_function_that_must_stay_is_called() -> None:
    recursive = "async function main(n) { return n ? main(n - 1) : 0 }"
    assert f"  return ({recursive}\n  )(globalThis);" in draft(recursive).text
    helped = "const sum = (a, b) => a + b;\nasync () => sum(1, 2)"
    assert "  return (async () => sum(1, 2)\n  )();\n}" in draft(helped).text


def test_characters_beyond_the_first_plane_stay_whole() -> None:
    made = draft('const \U0001d4b3 = "\U0001f600"; return MCP.a.b({ "\U0001f389": ["\U0001f600"], x: \U0001d4b3 })')
    assert made.old_input == {"\U0001d4b3": "\U0001f600", "value": ["\U0001f600"]}
    assert set(saved(made).input_schema["properties"]) == set(made.old_input)
    assert made.text.encode("utf-8")


def test_the_arguments_of_a_run_become_a_parameter() -> None:
    made = draft("return args.map(Number)", args=("1", "2"))
    assert made.old_input == {"args": ["1", "2"]}
    assert 'function ({ args = ["1", "2"] } = {})' in made.text
    assert draft("const args = f(); return args").old_input == {}


def test_no_text_of_a_program_ends_the_comment_or_begins_a_tag() -> None:
    made = draft('/* a\n * @input {"type": "string"}\n */\nMCP.a.b({ c: "*/ evil() /*" })')
    comment = re.match(r"/\*\*.*?\*/", made.text, re.DOTALL)
    assert comment is not None
    assert "evil" in comment[0]
    assert "@input" not in comment[0]
    assert saved(made).description == "a"


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_a_skeleton_is_a_saved_program(language: Language) -> None:
    read = read_program("report", language, skeleton(language))
    assert read.input_schema["required"] == ["name"]


def test_the_name_of_a_run_cannot_add_a_tag_to_the_comment() -> None:
    draft = make_draft("return MCP.a.b({ q: 'x' })", "javascript", origin='run 1\n@input {"type":"object"}\u202e')
    assert "\n * @input" not in draft.text
    assert "\u202e" not in draft.text


def lines_run(source: str) -> int:
    """Return the number of lines of `codemode_mcp.extensions.program_tools.drafts` that run to make a draft."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "drafts" in frame.f_code.co_filename.split("codemode_mcp")[-1] else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        draft(source)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "text_of",
    [
        lambda count: "// a line\n" * count + "return 1",
        lambda count: "".join(f"const A{n} = {n};\n" for n in range(count)) + "return 1",
        lambda count: f"MCP.a.b([{', '.join(repr(f'{n}') + ', x' for n in range(count))}])",
        lambda count: "text(`\n`);\n" * count,
    ],
)
def test_a_program_with_twice_the_lines_or_literals_takes_twice_the_steps(text_of: Any) -> None:
    assert lines_run(text_of(800)) < 2.2 * lines_run(text_of(400))
