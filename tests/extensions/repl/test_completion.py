"""Tests of what Tab offers, at every place of a program."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.extensions.repl.completion import MAX_OFFERED, MAX_READ, Completion, complete
from codemode_mcp.extensions.repl.vocabulary import Vocabulary
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.tools import Tool, UpstreamView

ISSUE = {
    "type": "object",
    "properties": {
        "owner": {"type": "string", "description": "Whose it is. Not a team."},
        "title": {"type": "string"},
        "state": {"enum": ["open", "closed", "it's"]},
        "draft": {"type": "boolean"},
        "labels": {"type": "array", "items": {"enum": ["bug", "docs"]}},
        "meta": {"$ref": "#/$defs/meta"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"size": {"enum": [1, 2]}}}},
        "either": {"anyOf": [{"type": "object", "properties": {"left": {}}}, {"type": "null"}]},
    },
    "required": ["title"],
    "$defs": {"meta": {"type": "object", "properties": {"kind": {"const": "x"}, "odd-name": {"$ref": "#/$defs/meta"}}}},
}
GITHUB = UpstreamView(
    "github",
    "ready",
    description="Issues and more. Truly.",
    tools=(Tool("create_issue", "Create an issue. With care.", input_schema=ISSUE), Tool("list_repos", "List")),
    resources=True,
    prompts=True,
)
DOWN = UpstreamView("my-docs", "down", error="server 'my-docs' did not start")
RULES = Policy(PolicyRules())
TOOLSET = select_tools(
    [
        OfferedTool("plugin", "team", Tool("lookup", "Look up a person", input_schema=ISSUE)),
        OfferedTool("core", "kv", Tool("a-b")),
    ],
    [OfferedNamespace("db", "team", "DB", "The database.", ("lookup",))],
    RULES,
)
WORDS = Vocabulary(
    build([GITHUB, DOWN], RULES).with_tools(TOOLSET),
    {"issues": [{"title": "a", "odd-key": 2}], "one": {"deep": {"x": 1}}, "word": "a"},
    {"double": "a function of this session"},
)


def offered(text: str) -> list[str]:
    """Return what is written instead of the text from where it starts, `|` or the end being the place."""
    before, _, after = text.partition("|")
    return [each.text for each in complete(before + after, len(before), WORDS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MCP.", ["github", "myDocs", "$api"]),
        ("MCP.gi", ["github"]),
        ("MCP?.gi", ["github"]),
        ("MCP['gi", ["github"]),
        ("await MCP.github.", ["createIssue", "listRepos", "resources", "prompts", "$api"]),
        ("MCP.github.REPO", ["listRepos"]),
        ("MCP.github\n  .cr", ["createIssue"]),
        ("MCP['github'].cr", ["createIssue"]),
        ("MCP.github.resources.", ["list", "read", "templates"]),
        ("MCP.github.prompts.g", ["get"]),
        ("MCP.nobody.", []),
        ("API.", ["list", "read", "search"]),
        ("tools.l", ["lookup"]),
        ("tools.call('core", ["core:kv:a-b"]),
        ("namespaces.", ["MCP", "DB"]),
        ("DB", ["DB"]),
        ("crypto.r", ["randomUUID"]),
        ("console.ta", ["table"]),
        ("JSON.p", ["parse"]),
        ("yield_", ["yield_control"]),
        ("API.read('mcp/g", ["mcp/github.d.ts"]),
        ("API.read('mcp/github.d.ts#c", ["mcp/github.d.ts#createIssue"]),
    ],
)
def test_names_are_completed(text: str, expected: list[str]) -> None:
    assert offered(text) == expected


ARGUMENTS = ["title: ", "owner: ", "state: ", "draft: ", "labels: ", "meta: ", "rows: ", "either: "]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MCP.github.createIssue({ ", ARGUMENTS),
        ("tools.lookup({", ARGUMENTS),
        ('tools.call("plugin:team:lookup", { ', ARGUMENTS),
        ("MCP.github.createIssue({ st", ["state: "]),
        ("MCP.github.createIssue({ title: 'a, b', state: f({ labels: 1 }), ", [*ARGUMENTS[1:2], *ARGUMENTS[3:]]),
        (
            "MCP.github.createIssue({ title, owner, |, draft: 1, meta: {} })",
            ["state: ", *ARGUMENTS[4:5], *ARGUMENTS[6:]],
        ),
        ("MCP.github.createIssue({ 'title': `${a}`, o", ["owner: "]),
        ("MCP.github.createIssue({ meta: { ", ["kind: ", '"odd-name": ']),
        ("MCP.github.createIssue({ meta: { 'odd-name': { k", ["kind: "]),
        ("MCP.github.createIssue({ rows: [{ size: 1 }, { ", ["size: "]),
        ("MCP.github.createIssue({ either: { ", ["left: "]),
        ("MCP.github.createIssue({}, { ", ["timeoutMs: "]),
        ("MCP.github.resources.read({ ", ["uri: "]),
        ("MCP.github.createIssue(", ["{ "]),
    ],
)
def test_arguments_that_are_not_there_yet_are_completed(text: str, expected: list[str]) -> None:
    assert offered(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MCP.github.createIssue({ state: ", ['"open"', '"closed"', '"it\'s"']),
        ('MCP.github.createIssue({ state: "o', ["open"]),
        ("MCP.github.createIssue({ state: 'it", ["it\\'s"]),
        ("MCP.github.createIssue({ draft: ", ["true", "false"]),
        ("MCP.github.createIssue({ draft: t", ["true"]),
        ('MCP.github.createIssue({ labels: ["bug", "', ["bug", "docs"]),
        ("MCP.github.createIssue({ labels: [", ['"bug"', '"docs"']),
        ("MCP.github.createIssue({ rows: [{ size: ", ["1", "2"]),
        ("MCP.github.createIssue({ meta: { kind: ", ['"x"']),
        ("MCP.github.createIssue({ either: ", ["null"]),
        ('MCP.github.createIssue({ title: "', []),
    ],
)
def test_values_that_can_be_listed_are_completed(text: str, expected: list[str]) -> None:
    assert offered(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("issues[0].", ["title", '["odd-key"]']),
        ("issues[0]?.", ["title", '?.["odd-key"]']),
        ("one.deep.", ["x"]),
        ("one['deep'].", ["x"]),
        ("issues.fi", ["filter", "find", "findIndex", "findLast"]),
        ("word.trimS", ["trimStart"]),
        ("dou", ["double"]),
        ("const local = 1; loc", ["local"]),
    ],
)
def test_what_the_session_has_is_completed(text: str, expected: list[str]) -> None:
    assert offered(text) == expected


def test_a_key_that_is_no_name_takes_the_place_of_the_dot() -> None:
    (found,) = complete("issues[0].od", 12, WORDS)
    assert (found.text, found.start) == ('["odd-key"]', len("issues[0]"))


@pytest.mark.parametrize(
    "text", ["// MCP.", "/* MCP.", "`MCP.", "'MCP.", "foo().", "(await x).", "const na", "12", "a.b."]
)
def test_where_nothing_is_known_nothing_is_offered(text: str) -> None:
    assert offered(text) == []


def test_parts_of_templates_are_programs() -> None:
    assert offered("`a ${MCP.gi") == ["github"]
    assert offered("`a ${b} c ${MCP.gi") == ["github"]


def test_commands_are_completed() -> None:
    assert offered(".s") == [".search ", ".save "]
    assert offered(".d gi") == ["github"]
    assert offered(".d github#cr") == ["createIssue"]


def test_it_is_said_what_is_offered() -> None:
    (tool,) = complete("MCP.github.cr", 13, WORDS)
    assert tool.meta.startswith("(input: { ")
    assert tool.meta.endswith("  Create an issue.")
    found = {each.label: each.meta for each in complete("MCP.github.createIssue({ ", 25, WORDS)}
    assert found["title"] == ": string"
    assert found["owner"] == "?: string  Whose it is."
    assert found["state"] == '?: "open" | "closed" | "it\'s"'
    (server, *_) = complete("MCP.", 4, WORDS)
    assert server.meta == "Issues and more."
    (signature,) = complete("MCP.github.createIssue(", 23, WORDS)
    assert signature.meta.startswith("(input: {")


def test_what_servers_say_cannot_move_the_cursor() -> None:
    schema = {"properties": {"a\x1b[2J": {"description": "b\x1b[2J", "enum": ["c\x1b[2J"]}}}
    view = UpstreamView("evil", "ready", description="d\x1b[2J", tools=(Tool("t", "e\x1b[2J", input_schema=schema),))
    words = Vocabulary(build([view], RULES), {"k": {"f\x1b[2J": 1}})
    for text in ("MCP.", "MCP.evil.", "MCP.evil.t(", "MCP.evil.t({ ", 'MCP.evil.t({ "a\\u001b[2J": "', "k."):
        found = complete(text, len(text), words)
        assert found, text
        assert all("\x1b" not in each.text + each.label + each.meta for each in found)


def test_of_very_many_names_some_are_offered() -> None:
    view = UpstreamView(
        "many", "ready", tools=tuple(Tool(f"tool_{number}", "Does it.") for number in range(2 * MAX_OFFERED))
    )
    found = complete("MCP.many.", 9, Vocabulary(build([view], RULES)))
    assert len(found) == MAX_OFFERED
    assert found[0].meta == "Does it."


PIECES = st.lists(
    st.sampled_from(
        [
            *"(){}[]`'\"/\\.,:;=?$!\n é🎈1a_",
            *(
                "MCP",
                ".github",
                ".createIssue",
                "({",
                "title",
                "state: ",
                "labels: [",
                "meta: { ",
                "${",
                "//",
                "const ",
            ),
            *("issues", "[0]", "tools.call(", '"plugin:team:lookup"', "API.read('", ".d ", "await ", "?.", "\u2028"),
        ]
    )
    | st.characters(),
    max_size=60,
).map("".join)


@given(PIECES, st.integers(-5, 400))
def test_any_place_in_any_text_can_be_completed(text: str, cursor: int) -> None:
    found = complete(text, cursor, WORDS)
    place = max(0, min(cursor, len(text)))
    assert all(isinstance(each, Completion) and 0 <= each.start <= place for each in found)


@pytest.mark.parametrize(
    "piece", ["MCP.", "({", "[", "/[", '"', "`${", "a:", "MCP.github.createIssue({ meta: {", "{,", "]"]
)
def test_long_text_costs_little_time(piece: str) -> None:
    text = piece * (5 * MAX_READ // len(piece))
    began = time.thread_time()
    complete(text, len(text), WORDS)
    complete(text, len(text) // 2, WORDS)
    assert time.thread_time() - began < 5
