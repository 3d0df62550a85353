"""Declaration files, signatures, and the comments in them."""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import declarations
from declarations import ServerSummary, identifiers, render_index, render_server, signature
from declarations.functions import MAX_SIGNATURE, MAX_UNFOLDED, render_programs, value_text
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE, RESERVED_WORDS
from declarations.render import (
    HEADER_TYPE,
    MAX_OVERVIEW,
    MAX_SHOWN,
    OPTIONS_TYPE,
    RESULT_TYPE,
    ServerFile,
    render_tools,
    short_list,
)

GUEST = (Path(declarations.__file__).parent / "guest.d.ts").read_text()


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: Mapping[str, Any] | None = None


CREATE_ISSUE = Tool(
    "create_issue",
    "Create a GitHub issue.",
    {
        "type": "object",
        "properties": {
            "owner": {"type": "string", "description": "Repository owner"},
            "title": {"type": "string", "minLength": 1},
            "labels": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["owner", "title"],
    },
    {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "url": {"type": "string"}},
        "required": ["number"],
    },
)
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {"Node": {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}},
}


def test_a_server_file_reads_like_this() -> None:
    text = render_server("github", [("createIssue", CREATE_ISSUE), ("ping", Tool("ping"))], description="Code.")
    assert text == (
        '/** 2 tools of MCP server "github". await MCP.github.<tool>({ ... }); unwrap(result) is its value. Code. */\n'
        f"{RESULT_TYPE}\n"
        "interface McpCall { timeoutMs?: number }\n"
        f"{HEADER_TYPE}\n"
        "declare namespace MCP.github {\n"
        "  /** Return the signature of a tool, or all tools, as data; `schema: true` adds the JSON Schemas. */\n"
        "  function $api(tool?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n"
        "  /**\n"
        "   * Create a GitHub issue.\n"
        "   * @param owner Repository owner\n"
        "   * @param title @minLength 1\n"
        "   * @param labels @default []\n"
        "   */\n"
        "  function createIssue(input: { owner: string; title: string; labels?: string[] }, o?: McpCall): "
        "Promise<McpToolResult<{ number: number; url?: string }>>;\n"
        "  function ping(input?: { [key: string]: unknown }, o?: McpCall): Promise<McpToolResult>;\n"
        "}\n"
    )


def test_the_head_names_the_server_and_what_is_wrong_with_it() -> None:
    text = render_server("chromeDevtools", [], server_name="chrome-devtools", notes=["Down: refused */ connection"])
    assert '0 tools of MCP server "chrome-devtools".' in text
    assert "Down: refused *\\/ connection" in text


def test_an_argument_is_optional_when_an_empty_object_is_accepted() -> None:
    def parameter(schema: Mapping[str, Any]) -> str:
        return signature("f", Tool("f", input_schema=schema)).split(":")[0]

    assert parameter({"type": "object", "properties": {"a": {}}}) == "f(input?"
    assert parameter({"type": "object", "properties": {"a": {}}, "required": ["a"]}) == "f(input"
    assert parameter({"anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]}) == "f(input?"
    assert parameter({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}}}}) == "f(input?"
    assert parameter({}) == "f(input?"


def test_named_types_are_shared_by_tools_that_mean_the_same() -> None:
    other = {**TREE, "$defs": {"Node": {"properties": {"leaf": {"$ref": "#/$defs/Node"}}}}}
    tools = [
        ("a", Tool("a", input_schema=TREE)),
        ("b", Tool("b", output_schema=TREE)),
        ("c", Tool("c", input_schema=other)),
    ]
    text = render_server("s", tools)
    assert text.count("type Node = { children?: Node[] };") == 1
    assert "type Node_2 = { leaf?: Node_2 };" in text
    assert (
        "function b(input?: { [key: string]: unknown }, o?: McpCall): Promise<McpToolResult<{ root?: Node }>>;" in text
    )
    assert "function c(input?: { root?: Node_2 }, o?: McpCall): Promise<McpToolResult>;" in text


def test_named_types_keep_clear_of_those_that_the_file_uses() -> None:
    schema = json.loads(json.dumps(TREE).replace("Node", "Promise"))
    assert "type Promise_2 = { children?: Promise_2[] };" in render_server("s", [("a", Tool("a", input_schema=schema))])


def test_a_parameter_that_many_tools_describe_alike_is_described_once() -> None:
    def tool(name: str, **property_: str) -> tuple[str, Tool]:
        return name, Tool(name, input_schema={"properties": {"user": {"type": "string", **property_}}})

    many = [tool(f"f{n}", description="Who asks") for n in range(5)]
    text = render_server("s", [*many, tool("other", description="Who answers"), tool("silent")])
    assert text.count("Who asks") == 1
    assert re.findall(r"@param .*", text) == ["@param user Who asks", "@param user Who answers */", "@param user */"]


def test_an_observed_result_is_marked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    text = render_server("s", [("f", Tool("f")), ("g", CREATE_ISSUE)], observed={"f": schema, "create_issue": schema})
    assert text.count("observed") == 1
    assert "Promise<McpToolResult<{ n?: number }>>" in text
    assert signature("f", Tool("f"), schema).endswith("Promise<McpToolResult</* observed */ { n?: number }>>")
    assert signature("f", CREATE_ISSUE, schema) == signature("f", CREATE_ISSUE)
    assert signature("f", Tool("f"), {}) == signature("f", Tool("f"))


def test_every_form_of_a_file_names_the_kind_of_an_observed_text() -> None:
    file, seen = ServerFile("s", [("f", Tool("f"))]), {"f": {"type": "string", "description": "text, not JSON: CSV"}}
    said = "@returns Shape observed in earlier results (text, not JSON: CSV); the server declares none."
    assert all(said in text for text in (file.whole(seen), file.shown(seen), file.excerpt(["f"], seen)))
    assert file.overview(seen).splitlines()[1].endswith("): /* observed: text, not JSON: CSV */ string")


def test_an_unfolded_signature_may_have_the_value_alone_as_its_result() -> None:
    style = {"properties": {f"option_{n}": {"enum": ["on", "off"]} for n in range(18)}}
    tool = Tool("f", input_schema={"properties": {"style": style}}, output_schema={"type": "number"})
    text = signature("f", tool, unfolds=True, returned=value_text)
    assert "option_17" in text
    assert text.endswith("): number")


def test_a_new_observation_changes_one_function() -> None:
    file = ServerFile("s", [(name, Tool(name)) for name in "fgh"])
    number = {"type": "number"}
    texts = [file.whole(seen) for seen in ({}, {"g": number}, {"g": {"type": "string"}}, {"g": number}, {})]
    assert texts[0] == texts[4] == render_server("s", [(name, Tool(name)) for name in "fgh"])
    assert texts[1] == texts[3] != texts[2]
    plain = texts[0].splitlines()
    assert [line for line in texts[1].splitlines() if line not in plain] == [
        "  /** @returns Shape observed in earlier results; the server declares none. */",
        "  function g(input?: { [key: string]: unknown }, o?: McpCall): Promise<McpToolResult<number>>;",
    ]


@pytest.mark.parametrize(
    ("name", "identifier", "shown"),
    [
        ("create_issue", "createIssue", False),
        ("HTTP-get", "hTTPGet", False),
        ("get", "get_2", True),
        ("delete", "delete_", True),
    ],
)
def test_the_name_of_a_tool_is_shown_if_its_identifier_does_not_suggest_it(
    name: str, identifier: str, shown: bool
) -> None:
    assert (f"@name {name}" in render_server("s", [(identifier, Tool(name))])) == shown


def test_a_part_of_a_file_has_these_members_and_their_types_alone(type_check: Callable[..., Any]) -> None:
    def tool(name: str) -> tuple[str, Tool]:
        properties = {"user": {"type": "string", "description": "Who asks"}, "tree": {"$ref": "#/$defs/Node"}}
        return name, Tool(name, input_schema={"properties": properties, "$defs": TREE["$defs"]})

    file = ServerFile(
        "s",
        [*(tool(f"f{n}") for n in range(5)), ("plain", Tool("plain"))],
        server_name="S",
        description="Many things.",
        notes=["This server is down: no answer"],
        effects={"f3": "read-only"},
        resources=["list", "read"],
        prompts=["get"],
    )
    assert "@param user Who asks" not in file.whole().partition("namespace")[2]
    assert file.excerpt(["f3"]) == (
        "/** This server is down: no answer */\n"
        "declare namespace MCP.s {\n"
        "  type Node = { children?: Node[] };\n"
        "  /** [read-only] @param user Who asks */\n"
        "  function f3(input?: { user?: string; tree?: Node }): Promise<McpToolResult>;\n"
        "}\n"
    )
    number = {"type": "number"}
    parts = {
        "one.d.ts": file.excerpt(["plain"], {"plain": number}),
        "two.d.ts": file.excerpt(["f1", "f2", "f1"]),
        "group.d.ts": file.excerpt(["resources"]),
        "operation.d.ts": file.excerpt(["resources.read", "plain", "prompts.get"]),
        "all.d.ts": file.shown(),
    }
    for name, text in parts.items():
        assert type_check({name: text, "guest.d.ts": GUEST}, together=True) == {name: [], "guest.d.ts": []}
    assert "Promise<McpToolResult<number>>" in parts["one.d.ts"]
    assert parts["two.d.ts"].count("type Node") == 1
    assert parts["two.d.ts"].count("  function ") == 2
    assert re.findall(r"function (\w+)", parts["group.d.ts"]) == ["list", "read"]
    assert re.findall(r"function (\w+)", parts["operation.d.ts"]) == ["plain", "read", "get"]
    for name in ("f9", "", "resources.templates", "prompts.list", "resources.f1", "$api", "f1,f2"):
        with pytest.raises(KeyError):
            file.excerpt([name])


def test_resources_and_prompts_are_one_line_each_of_a_file_that_a_model_reads_if_there_are_some() -> None:
    file = ServerFile("s", [("f", Tool("f"))], resources=["list", "read"], prompts=["get"])
    for text in (file.shown(), file.overview()):
        assert '// resources: list, read; types: "mcp/s.d.ts#resources"\n' in text
        assert '// prompts: get; types: "mcp/s.d.ts#prompts"\n' in text
        assert "namespace resources" not in text
    for text in (ServerFile("s", [("f", Tool("f"))]).shown(), ServerFile("s", [("f", Tool("f"))]).overview()):
        assert "resources" not in text
        assert "prompts" not in text


def test_a_file_for_a_model_has_no_types_that_all_files_share() -> None:
    text = ServerFile("github", [("createIssue", CREATE_ISSUE)], effects={"createIssue": "writes"}).shown()
    assert text == (
        '/** 1 tool of MCP server "github". await MCP.github.<tool>({ ... }); unwrap(result) is its value. */\n'
        "declare namespace MCP.github {\n"
        "  /** [writes] Create a GitHub issue. @param owner Repository owner @param title @minLength 1 "
        "@param labels @default [] */\n"
        "  function createIssue(input: { owner: string; title: string; labels?: string[] }): "
        "Promise<McpToolResult<{ number: number; url?: string }>>;\n"
        "}\n"
    )


def test_an_object_type_that_occurs_twice_has_a_name(type_check: Callable[..., Any]) -> None:
    def entity(**further: Any) -> dict[str, Any]:
        names = {"id": {"type": "string"}, "displayName": {"type": "string"}, "createdAt": {"type": "string"}}
        return {"type": "object", "properties": names | further, "required": list(names)}

    style = {"type": "object", "properties": {"font": entity(), "bold": {"type": "boolean", "description": "Heavy"}}}
    tools = [
        ("listUsers", Tool("listUsers", output_schema={"properties": {"users": {"type": "array", "items": entity()}}})),
        ("getUser", Tool("getUser", output_schema=entity())),
        ("setStyle", Tool("setStyle", input_schema={"properties": {"style": style, "small": {"properties": {}}}})),
        ("addStyle", Tool("addStyle", input_schema={"properties": {"style": style}, "required": ["style"]})),
        ("once", Tool("once", output_schema=entity(other={"type": "number"}))),
        (
            "walk",
            Tool(
                "walk",
                input_schema=TREE,
                output_schema={
                    "properties": {"users": {"$ref": "#/$defs/User"}},
                    "$defs": {"User": {"properties": {"self": {"$ref": "#/$defs/User"}}}},
                },
            ),
        ),
    ]
    file = ServerFile("s", tools)
    text = file.shown()
    fields = "id: string; displayName: string; createdAt: string"
    assert text.count(fields) == 2
    assert f"  type User = {{ {fields} }};\n" in text
    assert "function listUsers(input?: { [key: string]: unknown }): Promise<McpToolResult<{ users?: User[] }>>" in text
    assert "function getUser(input?: { [key: string]: unknown }): Promise<McpToolResult<User>>" in text
    assert "  type Style = {\n    font?: User;\n    /** Heavy */ bold?: boolean;\n  };\n" in text
    assert "function addStyle(input: { style: Style })" in text
    assert "type User_2 = { self?: User_2 };" in text
    assert "type " not in file.excerpt(["getUser"])
    assert "type User =" in file.excerpt(["listUsers", "getUser"])
    files = {"guest.d.ts": GUEST, "s.d.ts": text, "whole.d.ts": ServerFile("w", tools).whole()}
    program = """
        async function program() {
            const user = unwrap(await MCP.s.getUser());
            await MCP.s.addStyle({ style: { font: user } });
            // @ts-expect-error no such property
            await MCP.s.addStyle({ style: { fount: user } });
        }
    """
    found = type_check({**files, "program.ts": program}, together=True)
    assert found == {name: [] for name in found}


def many(count: int, text: str = "What this one does, at some length. " * 3, **details: Any) -> ServerFile:
    names = ["addLabel", "create", *[f"create{n}" for n in "ABC"], *[f"get{n}" for n in range(count)], "URLOf", "x"]
    schema = {"properties": {"owner": {"type": "string"}}, "required": ["owner"]}
    return ServerFile("s", [(name, Tool(name, text, schema, schema)) for name in names], **details)


def test_an_overview_has_one_line_for_each_tool_below_what_the_tools_do() -> None:
    effects = {"addLabel": "writes", "create": "destructive, asks the user first", "createA": "read-only"}
    file = many(
        0, effects={**dict.fromkeys(["createB", "createC", "URLOf", "x"], "read-only"), **effects}, notes=["Held."]
    )
    signed = "(input: { owner: string }): { owner: string }"
    said = "What this one does, at some length. What this one does, at some length. What…"
    assert file.overview().splitlines() == [
        '/** 7 tools of MCP server "s", each as MCP.s.<tool>(argument): type of unwrap(result). Held. */',
        "// writes:",
        f"addLabel{signed} // {said}",
        "// destructive, asks the user first:",
        f"create{signed} // {said}",
        "// read-only:",
        *(f"{name}{signed} // {said}" for name in ("createA", "createB", "createC", "URLOf", "x")),
    ]


def test_an_overview_of_many_tools_leaves_out_descriptions_and_then_all_but_names() -> None:
    def tail(count: int) -> str:
        text = many(count).overview()
        assert len(text.encode()) <= MAX_OVERVIEW
        return text.splitlines()[-1]

    assert tail(20).startswith("x(input: { owner: string }): { owner: string } // What this")
    assert tail(60) == "x(input: { owner: string }): { owner: string }"
    numbers = ",".join(str(n) for n in range(900))
    assert tail(900) == f"addLabel, create, create{{A,B,C}}, get{{{numbers}}}, URLOf, x"
    assert MAX_SHOWN < MAX_OVERVIEW


def test_an_overview_keeps_more_of_the_description_of_a_tool_without_a_type_of_its_result() -> None:
    said = "Searches tickets, oldest first, and returns {items, total}; an item has id, subject, state and priority."
    text = ServerFile(
        "s", [("a", Tool("a", said)), ("b", Tool("b", said, output_schema={"type": "number"}))]
    ).overview()
    assert f": unknown // {said}\n" in text
    assert ": number // Searches tickets, oldest first, and returns {items, total}; an item has id,…\n" in text


def test_the_lines_of_an_overview_are_written_once_and_only_as_many_as_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []

    def counted(path: str, *given: Any, **options: Any) -> str:
        written.append(path)
        return signature(path, *given, **options)

    monkeypatch.setattr("declarations.render.signature", counted)
    few = ServerFile("few", [(f"getThing{n}", Tool(f"get_thing_{n}")) for n in range(30)])
    assert few.overview() == few.overview()
    assert len(written) == 30
    written.clear()
    many = ServerFile("many", [(f"getThing{n}", Tool(f"get_thing_{n}")) for n in range(2_000)])
    assert "get{Thing0,Thing1," in many.overview()
    assert len(written) < 400


def test_an_overview_among_several_is_as_short_as_its_names_if_its_lines_take_too_much() -> None:
    schema = {"type": "object", "properties": {f"a_long_name_{n}": {"type": "string"} for n in range(12)}}
    file = ServerFile("s", [(f"getThing{n}", Tool(f"get_thing_{n}", input_schema=schema)) for n in range(40)])
    assert len(file.overview()) > 6_000
    assert len(file.overview(room=1024)) < 1024


def test_names_of_very_many_tools_are_counted_by_their_first_word() -> None:
    assert short_list(["getA", "getB", "getC", "x"], 4) == ["getA", "getB", "getC", "x"]
    assert short_list([*[f"get{n}" for n in range(200)], "x", *[f"set{n}" for n in range(3)]], 100) == [
        "get... (200)",
        "x",
        "set... (3)",
    ]
    odd = short_list([f"a{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)], 100)
    assert len(odd) == 101
    assert odd[-1] == "and 400 more"


def test_properties_carry_their_comments_where_a_compiler_looks_for_them() -> None:
    inner = {
        "properties": {
            "n": {"type": "integer", "description": "How\nmany", "default": 30, "minimum": 1, "maximum": 2**53 - 1},
            "when": {"type": "string", "format": "date-time", "deprecated": True, "examples": ["now", "then", "never"]},
            "q": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None, "title": "Q"},
            "level": {"oneOf": [{"const": "low", "description": "cheap"}, {"const": "high", "title": "dear"}]},
            "plain": {"type": "string"},
        }
    }
    assert declarations.render_schema(inner).splitlines() == [
        "{",
        "  /** How many @default 30 @minimum 1 */ n?: number;",
        '  /** @deprecated @format date-time @example "now" @example "then" */ when?: string;',
        "  /** @maxLength 9 */ q?: string | null;",
        '  /** "low": cheap; "high": dear */ level?: "low" | "high";',
        "  plain?: string;",
        "}",
    ]


HOSTILE_TEXT = "*/ declare const PWNED: 1; /*\u2028declare const PWNED: 2;\r*\u200b/ \u202e\x00\ud800 x"


def test_hostile_text_cannot_leave_its_comment(type_check: Callable[..., Any]) -> None:
    schema = {
        "type": "object",
        "properties": {
            HOSTILE_TEXT: {"description": HOSTILE_TEXT, "default": HOSTILE_TEXT, "examples": [HOSTILE_TEXT]},
            "a": {"properties": {"b": {"description": HOSTILE_TEXT, "pattern": HOSTILE_TEXT, "format": HOSTILE_TEXT}}},
            "c": {"const": HOSTILE_TEXT},
            "d": {"oneOf": [{"const": HOSTILE_TEXT, "description": HOSTILE_TEXT}, {"const": 2, "title": HOSTILE_TEXT}]},
        },
        "$defs": {HOSTILE_TEXT: {"type": "string"}},
    }
    tool = Tool("t " + HOSTILE_TEXT, HOSTILE_TEXT, schema, schema)
    server = render_server("s", [("t", tool)], server_name=HOSTILE_TEXT, description=HOSTILE_TEXT, notes=[HOSTILE_TEXT])
    index = render_index([ServerSummary("s", HOSTILE_TEXT, 1, HOSTILE_TEXT, HOSTILE_TEXT)])
    files = {"s.d.ts": server, "index.d.ts": index, "use.ts": "PWNED;"}
    found = type_check(files, together=True)
    assert [message for _, message in found.pop("use.ts")] == ["Cannot find name 'PWNED'."]
    assert found == {"s.d.ts": [], "index.d.ts": []}
    for text in (server, index, signature("MCP.s.t", tool)):
        assert not set(text) & {"\u2028", "\u202e", "\u200b", "\x00", "\r", "\ud800"}


@given(st.text(alphabet="*/\\ \n\u2028\u200bab…", max_size=30))
def test_no_text_ends_a_comment(text: str) -> None:
    file = render_server("s", [("t", Tool(text, text, {"properties": {"a": {"description": text, "default": text}}}))])
    head, _, body = file.partition("namespace MCP.s {\n")
    assert head.count("*/") == 1
    assert body.count("*/") == 2
    code = re.sub(r"/\*\*.*?\*/", "", body, flags=re.DOTALL)
    assert " ".join(code.split()) == (
        "function $api(tool?: string, options?: { schema?: boolean }): Promise<McpApiHeader>; "
        "function t(input?: { a?: unknown }, o?: McpCall): Promise<McpToolResult>; }"
    )


def test_long_text_is_cut_with_a_mark() -> None:
    file = render_server(
        "s", [("t", Tool("t", "word " * 5000, {"properties": {"a": {"description": "word " * 5000}}}))]
    )
    assert len(file) < 2500
    assert file.count("word…") == 2


HIDING = "\xad\u034f\u061c\u115f\u180e\u200d\u202e\u2066\u3164\ufe0f\uffa0\U000e0041\U000e0101"


def test_files_have_no_invisible_or_bidirectional_characters() -> None:
    hidden = HIDING.join("secret words")
    schema = {"properties": {hidden: {"description": hidden, "enum": [hidden], "pattern": hidden}}}
    tool = Tool("t", hidden, schema, {"properties": {hidden: {"const": hidden}}})
    for text in (render_server("s", [("t", tool)], description=hidden, notes=[hidden]), signature("MCP.s.t", tool)):
        assert not set(text) & set(HIDING)
    assert set(identifiers([f"create{HIDING}Issue", "createIssue"]).values()) == {"createIssue", "createIssue_2"}


def test_many_types_of_one_name_do_not_take_quadratic_time() -> None:
    def tool(number: int) -> Tool:
        names = ["Item" + "_" * each for each in range(10)]
        definitions = {
            name: {"properties": {f"v{number}": {}, "next": {"$ref": f"#/$defs/{name}"}}, "type": "object"}
            for name in names
        }
        return Tool(
            "t", "", {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}, "$defs": definitions}
        )

    began = time.process_time()
    text = render_server("s", [(f"t{number}", tool(number)) for number in range(1000)])
    assert time.process_time() - began < 3
    assert "type Item_10000 = " in text


def test_a_signature_is_one_line() -> None:
    assert signature("MCP.github.createIssue", CREATE_ISSUE) == (
        "MCP.github.createIssue(input: { owner: string; title: string; labels?: string[] }): "
        "Promise<McpToolResult<{ number: number; url?: string }>>"
    )
    assert signature("MCP.s.t", Tool("t", input_schema=TREE)) == (
        "MCP.s.t(input?: { root?: { ... } }): Promise<McpToolResult>"
    )


STYLE = {"type": "object", "properties": {f"option_{n}": {"enum": ["on", "off"]} for n in range(12)}}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"properties": {"style": STYLE}}, 'style?: { option_0?: "on" | "off"; option_1?'),
        (
            {"properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#/$defs/s"}}, "$defs": {"s": STYLE}},
            "a?: { ... }; b?: { ... }",  # a named type is longer than its limit
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"type": "array", "items": {"$ref": "#/$defs/s"}}},
                "$defs": {"s": {"type": "object", "properties": {"x": {"enum": ["left", "right"]}}}},
            },
            'a?: { x?: "left" | "right" }; b?: { x?: "left" | "right" }[]',
        ),
        (
            {
                "properties": {
                    "a": {"type": "array", "items": {"$ref": "#/$defs/s"}},
                    "b": {"type": "array", "items": {"$ref": "#/$defs/s"}},
                },
                "$defs": {"s": {"anyOf": [{"enum": ["left"]}, {"type": "number"}]}},
            },
            'a?: ("left" | number)[]; b?: ("left" | number)[]',
        ),
    ],
)
def test_an_unfolded_signature_has_the_inner_objects_of_the_argument(schema: dict[str, Any], shown: str) -> None:
    tool = Tool("t", input_schema={"type": "object", **schema}, output_schema={"type": "object"})
    line = signature("MCP.s.t", tool, unfolds=True)
    assert shown in line
    assert len(line) <= MAX_UNFOLDED


def test_an_unfolded_signature_is_bounded_and_made_in_little_time_for_any_schema() -> None:
    every = {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(60)}
    many = {f"d{n}": {"type": "object", "properties": every} for n in range(60)}
    wide = {"type": "object", "properties": {f"p{n}": STYLE for n in range(2_000)}}
    for schema in (
        {**many["d0"], "$defs": many},
        wide,
        {"type": "object", "required": ["a"], "properties": {"a": wide}},
    ):
        began = time.process_time()
        line = signature("MCP.s.t", Tool("t", input_schema=schema), unfolds=True)
        assert time.process_time() - began < 2
        assert len(line) <= MAX_UNFOLDED


@pytest.mark.parametrize("count", [5, 30, 300, 3000])
def test_a_long_signature_hides_inner_detail_first(count: int) -> None:
    inner = {"properties": {f"inner{n}": {"type": "string"} for n in range(count)}}
    tool = Tool("t", input_schema={"properties": {"a": inner, "b": {"type": "string"}}}, output_schema=inner)
    line = signature("MCP.s.t", tool)
    assert len(line) <= MAX_SIGNATURE
    assert line.startswith("MCP.s.t(input?: { a?: { ")
    assert "b?: string" in line
    assert signature("f", Tool("f", input_schema=inner)).startswith("f(input?: {")
    assert len(signature("f", Tool("f", input_schema=inner, output_schema={"enum": list(range(500))}))) <= MAX_SIGNATURE


def test_integers_that_may_be_bigints_have_a_short_name(type_check: Callable[..., Any]) -> None:
    int64 = {"type": "object", "properties": {"id": {"type": "integer", "format": "int64"}}, "required": ["id"]}
    chat = {
        "type": "object",
        "properties": {"chat_id": {"type": "integer"}, "ids": {"type": "array", "items": {"type": "integer"}}},
    }
    tools = [
        ("listAds", Tool("listAds", output_schema=int64)),
        ("sendTo", Tool("sendTo", input_schema=chat)),
        ("int", Tool("int")),
    ]
    text = render_server("ads", tools)
    assert "  type int = number | bigint; // bigint beyond 2^53\n" in text
    assert "sendTo(input?: { chat_id?: int; ids?: int[] }" in text
    assert signature("f", tools[1][1]) == "f(input?: { chat_id?: int; ids?: int[] }): Promise<McpToolResult>"
    assert "type int" not in render_server("plain", [("walk", Tool("walk", input_schema=TREE))])
    part = ServerFile("ads", tools).excerpt(["listAds"])
    files = {
        "guest.d.ts": GUEST,
        "ads.d.ts": text,
        "other.d.ts": render_server("other", tools),
        "tools.d.ts": render_tools([("plugin:p:sendTo", "sendTo", tools[1][1])]),
        "programs.d.ts": render_programs(tools),
    }
    program = """
        async function program() {
            const { id } = unwrap(await MCP.ads.listAds());
            await MCP.ads.sendTo({ chat_id: id, ids: [1, 2n] });
            await MCP.other.sendTo({ chat_id: 725653563933458433n });
            await tools.sendTo({ chat_id: id });
            await programs.sendTo({ chat_id: id });
            // @ts-expect-error it may be a bigint
            const sum: number = id + 1;
        }
    """
    found = type_check({**files, "program.ts": program}, together=True)
    assert found == {name: [] for name in found}
    assert type_check({"part.d.ts": part, "guest.d.ts": GUEST}, together=True) == {"part.d.ts": [], "guest.d.ts": []}


def test_files_compile_alone_and_together(type_check: Callable[..., Any]) -> None:
    tools = [("createIssue", CREATE_ISSUE), ("walk", Tool("walk", input_schema=TREE, output_schema=TREE))]
    files = {
        "guest.d.ts": GUEST,
        "index.d.ts": render_index([ServerSummary("github", "github", 2), ServerSummary("b", "B", 1, "down", "Other")]),
        "github.d.ts": render_server(
            "github", tools, resources=["list", "read", "templates", "complete"], prompts=["list", "get", "complete"]
        ),
        "b.d.ts": render_server("b", tools),
    }
    for name, text in files.items():
        assert type_check({name: text}, together=True) == {name: []}
    program = """
        async function program() {
            const issue = await MCP.github.createIssue({ owner: "o", title: "t" });
            const number: number = unwrap(issue).number;
            const header = await MCP.$api();
            text(header.servers?.map((server) => server.identifier).join() ?? header.header);
            for (const hit of await API.search("issue")) json([hit.call, number]);
            const page = await MCP.github.resources.list();
            console.log(page.resources[0]?.uri, await MCP.github.prompts.get({ name: "p" }), issue._meta);
            const { contents } = await MCP.github.resources.read({ uri: "x:1" }, { timeoutMs: 5000 });
            for (const part of contents) {
                const known: string = part.text !== undefined ? part.text : atob(part.blob);
                image(part.blob === undefined ? { text: part.text + known } : part);
            }
            for (const { role, content } of (await MCP.github.prompts.get({ name: "p" })).messages) {
                const who: "user" | "assistant" = role;
                if (content.type === "resource_link") text(who + content.uri);
                else if (content.type === "resource") image(content.resource.blob);
                else text(content.type === "text" ? content.text : content.data);
            }
            const argument = { name: "a", value: "b" };
            const values: string[] = (await MCP.github.prompts.complete({ name: "p", argument })).completion.values;
            const context = { arguments: { a: values.join() } };
            await MCP.github.resources.complete({ uri: "x:{a}", argument, context });
            // @ts-expect-error an option that there is not
            await MCP.github.createIssue({ owner: "o", title: "t" }, { timeout: 5 });
            setTimeout((word: string) => text(word), 10, "later");
            store("k", new TextEncoder().encode(new URL("https://example.com/?q=1").searchParams.get("q") ?? ""));
            // @ts-expect-error a misspelt parameter
            await MCP.github.createIssue({ ownr: "o", title: "t" });
            return load("k");
        }
    """
    found = type_check({**files, "program.ts": program}, together=True)
    assert found == {name: [] for name in found}


def test_every_reserved_name_compiles_as_a_tool_and_as_a_server(type_check: Callable[..., Any]) -> None:
    names = [
        *RESERVED_WORDS,
        *OBJECT_PROTOTYPE,
        *HOST_GLOBALS,
        *LANGUAGE_GLOBALS,
        "any",
        "string",
        "type",
        "module",
        "global",
        "declare",
    ]
    names += [
        "async",
        "of",
        "get",
        "object",
        "symbol",
        "日本語",
        "größe",
        "3d",
        "",
        "then",
        "$api",
        "require",
        "exports",
    ]
    tools = identifiers(names)
    files = {
        f"{identifier}.d.ts": render_server(identifier, [("f", Tool("f"))])
        for identifier in identifiers(names, kind="server").values()
    }
    files["all.d.ts"] = render_server("all", [(tools[name], Tool(name)) for name in tools])
    files["guest.d.ts"] = GUEST
    found = type_check(files, together=True)
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_the_guest_declarations_repeat_the_shared_types_word_for_word() -> None:
    assert RESULT_TYPE in GUEST
    assert OPTIONS_TYPE in GUEST
    assert HEADER_TYPE in GUEST


def test_the_guest_declarations_know_every_global_of_ours() -> None:
    declared = set(re.findall(r"^declare (?:const|function|class|namespace) (\w+)", GUEST, re.MULTILINE))
    assert declared == HOST_GLOBALS


def test_recorded_tool_lists_compile_and_are_much_smaller_than_their_json(
    corpus: Path, type_check: Callable[..., Any]
) -> None:
    files, before, after, count = {"guest.d.ts": GUEST}, 0, 0, 0
    for path in sorted((corpus / "toollists").glob("*.json")):
        recorded = json.loads(path.read_text())
        tools = [
            Tool(t["name"], t.get("description") or "", t["inputSchema"], t.get("outputSchema"))
            for t in recorded["tools"]
        ]
        server = identifiers([path.stem], kind="server")[path.stem]
        names = identifiers(tool.name for tool in tools)
        text = render_server(server, [(names[tool.name], tool) for tool in tools], server_name=path.stem)
        files[f"{server}.d.ts"] = text
        for number, tool in enumerate(tools):
            alone = ServerFile(f"{server}_{number}", [(names[tool.name], tool)])
            files[f"{server}_{number}.d.ts"] = alone.excerpt([names[tool.name]])
        before += len(json.dumps(recorded["tools"], ensure_ascii=False, separators=(",", ":")).encode())
        after += len(text.encode())
        count += len(tools)
        for tool in tools:
            assert len(signature(f"MCP.{server}.{names[tool.name]}", tool)) <= MAX_SIGNATURE
    assert count >= 780
    assert after <= 0.6 * before
    found = type_check(files, together=True)
    assert {name: problems for name, problems in found.items() if problems} == {}
