"""Observed types: learned from results, for each owner, within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.observed_types import MAX_TEXT, MAX_TOOLS, MAX_TOOLS_OF_ALL, ONE_IN, SETTLED, ObservedTypes
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs.calls.dispatch import Dispatcher
from upstream_clients.tools import Tool, UpstreamView

ME, OTHER = "me", "another owner"
TOOL = "mcp:github:get"


def text(*parts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": part} for part in parts], **more}


def no_source(*_: Any) -> Any:
    raise KeyError


def observed(*results: dict[str, Any]) -> Any:
    """Return the schema after these results; None if nothing is known."""
    observed = ObservedTypes()
    for result in results:
        observed.learn(ME, TOOL, result)
    return observed.of(ME).get(TOOL)


NUMBER, STRING = {"type": "number"}, {"type": "string"}
BIGINT = {"type": "number", "format": "int64"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.csv", "text": "id,name\n1,Ann"}}
RESULTS: list[tuple[str, dict[str, Any], Any]] = [
    ("structured content", {"content": [], "structuredContent": [1]}, {"type": "array", "items": NUMBER}),
    ("structured content before text", text("x", structuredContent=[]), {"type": "array"}),
    ("JSON in the text", text('{"a": 1}'), {"type": "object", "properties": {"a": NUMBER}, "required": ["a"]}),
    ("JSON in two texts", text('{"a"', ":1}"), {"type": "object", "properties": {"a": NUMBER}, "required": ["a"]}),
    ("another text", text("3 issues found"), STRING | {"description": "text, not JSON: one line"}),
    ("two JSON texts", text("1", "2"), STRING | {"description": "text, not JSON: lines"}),
    ("NaN", text("NaN"), STRING | {"description": "text, not JSON: one line"}),
    ("JSON that is a text", text('"a,b"'), STRING),
    ("a file", {"content": [FILE]}, STRING | {"description": "text, not JSON: CSV"}),
    ("an integer that is a bigint", text("[1, 9007199254740992]"), {"type": "array", "items": BIGINT}),
    ("an integer within 2^53", text("-9007199254740991"), NUMBER),
    ("a number with many digits", text("1" * 10_000), {"type": "string"}),
    ("structured null", text("7", structuredContent=None), NUMBER),
    ("an error", text("7", isError=True), None),
    ("no text", {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}, None),
    ("no content", {"content": None}, None),
    ("odd blocks", {"content": [7, {"type": "text"}, {"type": "text", "text": 7}]}, None),
    ("too much text", text("[" + "1," * (MAX_TEXT // 2) + "1]"), None),
    ("too deep", text("[" * 100_000), None),
    ("null", text("null"), None),
]


@pytest.mark.parametrize(("result", "expected"), [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS])
def test_types_are_learned_from_the_value_that_unwrap_returns(result: dict[str, Any], expected: Any) -> None:
    assert observed(result) == expected


def test_results_are_merged_and_errors_are_ignored() -> None:
    assert observed(text('{"a": 1, "b": "x"}'), text("no", isError=True), text('{"a": null}')) == {
        "type": "object",
        "properties": {"a": {"type": ["number", "null"]}, "b": {"type": "string"}},
        "required": ["a"],
    }


def test_texts_of_several_kinds_are_described_together_and_beside_other_types() -> None:
    csv, pairs, line = text("id,name\n1,Ann"), text("id: 1\nname: Ann"), text("nothing found")
    assert observed(csv, pairs)["description"] == "text, not JSON: CSV or key: value"
    assert observed(csv, line)["description"] == "text, not JSON: CSV"
    assert observed(csv, pairs, text("# Title"))["description"] == "text, not JSON"
    mixed = observed(csv, text("[1]"), text("7"))
    assert mixed == {
        "anyOf": [{"type": "array", "items": NUMBER}, {"type": ["string", "number"]}],
        "description": "or text, not JSON: CSV",
    }


def test_observed_types_are_not_shared_between_owners() -> None:
    observed = ObservedTypes()
    observed.learn(ME, TOOL, text("1"))
    assert observed.of(OTHER) == {}
    observed.learn(OTHER, TOOL, text("true"))
    assert observed.of(ME) == {TOOL: NUMBER}
    assert observed.of(OTHER) == {TOOL: {"type": "boolean"}}


def test_returned_schemas_do_not_change_and_unchanged_ones_stay_the_same_object() -> None:
    observed = ObservedTypes()
    observed.learn(ME, "one", text("1"))
    observed.learn(ME, "two", text("[1]"))
    before = observed.of(ME)
    assert observed.of(ME) is before
    observed.learn(ME, "one", text("2"))
    assert observed.of(ME) is before
    observed.learn(ME, "one", text("true"))
    after = observed.of(ME)
    assert before["one"] == NUMBER
    assert after["one"] == {"type": ["number", "boolean"]}
    assert after["two"] is before["two"]


def test_only_some_results_are_read_after_the_type_has_settled() -> None:
    observed = ObservedTypes()
    for _ in range(SETTLED + 1):
        observed.learn(ME, TOOL, text("1"))
    for _ in range(ONE_IN - 1):
        observed.learn(ME, TOOL, text("true"))
    assert observed.of(ME) == {TOOL: NUMBER}
    observed.learn(ME, TOOL, text("true"))
    assert observed.of(ME) == {TOOL: {"type": ["number", "boolean"]}}
    observed.learn(ME, TOOL, text("null"))
    assert observed.of(ME) == {TOOL: {"type": ["number", "boolean", "null"]}}


def test_the_tools_of_an_owner_are_bounded_and_the_least_recently_called_goes_first() -> None:
    observed = ObservedTypes()
    for n in range(MAX_TOOLS):
        observed.learn(ME, f"tool {n}", text("1"))
    observed.learn(ME, "tool 0", text("1"))
    observed.learn(ME, "one more", text("1"))
    kept = observed.of(ME)
    assert len(kept) == MAX_TOOLS
    assert {"tool 0", "one more"} <= kept.keys()
    assert "tool 1" not in kept


def test_owners_are_bounded_and_the_least_recently_active_goes_first() -> None:
    observed = ObservedTypes()
    observed.learn(ME, TOOL, text("1"))
    for n in range(MAX_TOOLS_OF_ALL - 1):
        observed.learn(f"owner {n}", TOOL, text("1"))
    observed.learn(ME, TOOL, text("1"))
    observed.learn(OTHER, TOOL, text("1"))
    assert observed.of(ME) == observed.of(OTHER) == {TOOL: NUMBER}
    assert observed.of("owner 0") == {}
    assert observed.of("owner 1") == {TOOL: NUMBER}


# with a catalog


def catalog(*tools: Tool) -> Any:
    return build([UpstreamView("github", "ready", tools=tools)], Policy(PolicyRules()))


def test_removed_tools_and_tools_that_declare_a_schema_are_forgotten() -> None:
    observed = ObservedTypes()
    dispatcher = Dispatcher(no_source, ToolSettings(), observed)
    for tool in ("get", "list", "gone"):
        observed.learn(ME, f"mcp:github:{tool}", text("1"))
    declared = Tool("list", output_schema={"type": "object"})
    for tools in ((Tool("get"), declared), (Tool("get"), Tool("list"), Tool("gone"))):
        context = dispatcher.context("run", ME, Caller(ME), catalog(*tools))
        assert observed.of(ME) == {TOOL: NUMBER}
        assert "/* observed */ number" in context.catalog.signature(context.catalog.resolve(TOOL))


def test_a_run_keeps_the_types_observed_before_it_began() -> None:
    observed = ObservedTypes()
    dispatcher = Dispatcher(no_source, ToolSettings(), observed)
    current = catalog(Tool("get"))
    first = dispatcher.context("run_1", ME, Caller(ME), current).catalog
    observed.learn(ME, TOOL, text("1"))
    second = dispatcher.context("run_2", ME, Caller(ME), current).catalog
    observed.learn(ME, TOOL, text('"x"'))
    third = dispatcher.context("run_3", ME, Caller(ME), current).catalog
    foreign = dispatcher.context("run_4", OTHER, Caller(OTHER), current).catalog
    for _ in range(2):
        for run, expected in (
            (first, "McpToolResult>"),
            (second, "McpToolResult<number>>"),
            (third, "McpToolResult<string | number>>"),
            (foreign, "McpToolResult>"),
        ):
            assert f"Promise<{expected}" in run.files.read("mcp/github.d.ts")["content"]
            assert f"Promise<{expected}" in run.files.read("mcp/github.d.ts#get")["content"]
            assert f"Promise<{expected}" in run.signature(run.resolve(TOOL)).replace("/* observed */ ", "")
            assert run.version == current.version
            assert run.manifest == current.manifest


def test_declarations_say_that_a_result_is_text_and_of_which_kind_without_a_part_of_it() -> None:
    observed = ObservedTypes()
    dispatcher = Dispatcher(no_source, ToolSettings(), observed)
    observed.learn(ME, TOOL, text("[{'name': 'secret_table'}]"))
    run = dispatcher.context("run", ME, Caller(ME), catalog(Tool("get"))).catalog
    said = run.signature(run.resolve(TOOL))
    assert said.endswith("Promise<McpToolResult</* observed: text, not JSON: Python literal */ string>>")
    file = run.files.read("mcp/github.d.ts")["content"]
    assert (
        "@returns Shape observed in earlier results (text, not JSON: Python literal); the server declares none." in file
    )
    assert "secret_table" not in said + file


def test_hits_and_headers_have_observed_types() -> None:
    observed = ObservedTypes()
    dispatcher = Dispatcher(no_source, ToolSettings(), observed)
    current = catalog(Tool("get", "Get an issue"), Tool("find", "Find an issue"))
    observed.learn(ME, TOOL, text('{"title": "x"}'))
    run = dispatcher.context("run", ME, Caller(ME), current).catalog
    signature = (
        "MCP.github.get(input?: { [key: string]: unknown }): Promise<McpToolResult</* observed */ { title: string }>>"
    )
    hits = {hit["call"]: hit["signature"] for hit in run.search("issue", 5, None)}
    assert hits == {
        "MCP.github.get": signature,
        "MCP.github.find": "MCP.github.find(input?: { [key: string]: unknown }): Promise<McpToolResult>",
    }
    assert run.header("github", "get", schema=False)["header"] == signature
    assert "observed" not in json.dumps(current.search("issue", 5, None))
