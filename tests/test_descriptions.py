"""Byte budgets of what a model reads first."""

from __future__ import annotations

import json

import pytest

from codemode_mcp import descriptions
from codemode_mcp.callers import Caller
from codemode_mcp.server import tool_list
from codemode_mcp.settings import PolicyContext, PolicyRules, ToolSettings

SERVERS = [[], ["github", "docs"], [f"server{n}" for n in range(5000)], ["日本語" * 20] * 50, ["x" * 3000]]


@pytest.mark.parametrize("servers", SERVERS, ids=["none", "two", "thousands", "wide", "one very long"])
def test_both_tools_stay_within_their_budget(servers: list[str]) -> None:
    tools = tool_list(servers, ToolSettings())
    assert [tool.name for tool in tools] == ["exec", "wait"]
    size = sum(
        len(tool.name.encode()) + len((tool.description or "").encode()) + len(json.dumps(tool.input_schema).encode())
        for tool in tools
    )
    assert size <= descriptions.TOOLS_BYTES
    assert len(json.dumps(descriptions.OUTPUT_SCHEMA)) <= descriptions.OUTPUT_SCHEMA_BYTES
    text = descriptions.instructions(servers, ("javascript", "typescript"))
    assert len(text.encode()) <= descriptions.INSTRUCTIONS_BYTES


def test_server_names_are_listed_while_they_fit_and_then_counted() -> None:
    two = descriptions.exec_description(["github", "docs"], ("javascript",))
    assert "github, docs\n" in two
    assert "Run a JavaScript program" in two
    many = descriptions.exec_description([f"server{n}" for n in range(500)], ("javascript",))
    assert "server0, server1, " in many
    assert " more, see API.list()" in many


# namespaces of plugins

LONG = "Use it to find and change issues of the team. " * 40


@pytest.mark.parametrize(
    "prompts",
    [
        [("issues", "Call issues.list({ open: true }).")],
        [("issues", LONG)],
        [("issues", LONG), ("notes", LONG), ("wiki", "short")],
        [(f"n{n}", LONG) for n in range(12)],
        [(f"n{n}", LONG) for n in range(500)],
        [("n" * 64, "") for _ in range(500)],
        [("issues", "\N{SNOWMAN}" * 900), ("notes", "\N{GRINNING FACE}" * 900)],
        [("a", LONG), *[(f"n{n}", "") for n in range(100)]],
    ],
)
def test_all_prompts_together_keep_to_their_bytes(prompts: list[tuple[str, str]]) -> None:
    languages = ("javascript", "typescript")
    without = descriptions.exec_description(["github"], languages)
    whole = descriptions.exec_description(["github"], languages, prompts)
    assert whole.startswith(without)
    said = whole[len(without) :]
    assert len(said.encode()) <= descriptions.PROMPTS_BYTES
    named = [line[2:].split(":")[0] for line in said.split("\n")[2:] if "more, see API.list()" not in line]
    assert named == [name for name, _ in prompts][: len(named)]
    assert named
    if len(named) < len(prompts):
        assert said.endswith(f"\n- {len(prompts) - len(named)} more, see API.list()")


def test_prompts_that_fit_are_told_whole_and_share_what_there_is() -> None:
    said = descriptions.namespace_prompts(
        [("empty", ""), ("issues", "Call  issues.list()\nfirst.\x1b[2J"), ("x", LONG)]
    )
    assert said.split("\n")[1:3] == ["Globals of plugins, beside MCP:", "- issues: Call issues.list() first. [2J"]
    assert said.split("\n")[3].startswith("- x: Use it to find and change issues of the team. Use")
    assert said.split("\n")[4] == "- empty"
    assert 900 < len(said.encode()) <= descriptions.PROMPTS_BYTES
    assert descriptions.namespace_prompts([]) == ""


@pytest.mark.parametrize("read_only", [True, False])
def test_the_tools_say_that_they_only_read_where_policy_admits_nothing_else(read_only: bool) -> None:
    for tool in tool_list(["x"], ToolSettings(policy=PolicyRules(read_only=read_only))):
        assert tool.annotations is not None
        hints = (tool.annotations.read_only_hint, tool.annotations.destructive_hint)
        assert hints == (read_only, not read_only)


def test_a_caller_whose_context_admits_more_is_not_told_that_the_tools_only_read() -> None:
    other = PolicyContext("ops", ("principal:ada",), PolicyRules())
    settings = ToolSettings(policy=PolicyRules(read_only=True), contexts=(other,))
    for name, read_only in (("ada", False), ("bob", True)):
        tool, *_ = tool_list(["x"], settings, caller=Caller("o", "http", name))
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is read_only
