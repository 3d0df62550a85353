"""A catalog, and the compiler, for tests of single checks."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.settings import Language, PolicyRules
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.extensions.type_check.compiler import Compiler, find_compiler
from codemode_mcp.extensions.type_check.declared import CheckedText, of_cell
from codemode_mcp.program.preflight import inspect
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.tools import Tool, UpstreamView

TEXT = {"type": "string"}
STATE = {"enum": ["open", "closed"]}
ISSUE = {"type": "object", "properties": {"id": {"type": "integer"}, "title": TEXT, "state": STATE}}

INT64 = {"type": "integer", "format": "int64"}
AD = {"type": "object", "properties": {"id": INT64, "sizes": {"type": "array", "items": INT64}}}
AD["required"] = ["id", "sizes"]
PAGE = {"type": "integer", "minimum": 1, "maximum": 100}


def installed_compiler() -> Compiler:
    """Return the compiler; skip the test where it was never fetched."""
    try:
        return find_compiler(cache_dir())
    except CodeModeError as error:
        pytest.skip(error.message)


def listed(name: str, required: list[str], result: Any = None, **properties: Any) -> Tool:
    """Return a tool."""
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, input_schema=schema, output_schema=result)


def catalog() -> Catalog:
    """Return a catalog of one server."""
    tools = (
        listed("create_issue", ["title"], ISSUE, title=TEXT, state=STATE, labels={"type": "array", "items": TEXT}),
        listed("list_issues", [], {"type": "object", "properties": {"items": {"type": "array", "items": ISSUE}}}),
        listed("raw", [], None, query=TEXT),
        listed("read_ad", ["id"], AD, id={"type": "integer"}, title=TEXT, page=PAGE, ratio={"type": "number"}),
    )
    down = UpstreamView("asleep", "down", error="not found")
    return build([UpstreamView("tracker", "ready", tools=tools), down], Policy(PolicyRules()))


def cell(source: str, language: Language = "javascript") -> CheckedText:
    """Return the text that is checked for a cell."""
    return of_cell(inspect(source, language), language)
