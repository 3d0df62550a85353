"""Byte budgets of what a model reads first."""

from __future__ import annotations

import json

import pytest

from codemode_mcp import descriptions
from codemode_mcp.server import tool_list
from codemode_mcp.settings import ToolSettings

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
