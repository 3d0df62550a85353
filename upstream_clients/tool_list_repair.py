"""Repair or drop what a sloppy server sends in `tools/list`. Pure: no I/O, no MCP SDK.

The SDK's parser refuses a whole page for one malformed tool. Here one malformed tool costs that tool alone, and the
rest is repaired where the intention is clear. Everything that was changed is told in one sentence per problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from upstream_clients.tools import Annotations, JsonObject, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME_LENGTH = 256
MAX_PROBLEMS = 50
"""A server with 10,000 bad tools must not fill the log; what is over is counted."""

_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


class Page(NamedTuple):
    """One `tools/list` result, opened but not yet read tool by tool."""

    items: list[object]
    next_cursor: str | None
    problems: tuple[str, ...]


def open_page(raw: JsonObject) -> Page:
    """Take the parts out of one `tools/list` result."""
    problems = []
    items = raw.get("tools")
    if not isinstance(items, list):
        problems.append(f"the answer to tools/list has no list 'tools' ({_kind(items)}); taken as empty")
        items = []
    cursor = raw.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        problems.append(f"nextCursor is no string ({_kind(cursor)}); taken as the last page")
        cursor = None
    return Page(items, cursor or None, tuple(problems))


def read_tools(items: Iterable[object]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Tools of all pages, in the server's order, and what was wrong with them. Of equal names the first wins."""
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    for position, item in enumerate(items):
        tool = _read_tool(item, position, problems)
        if tool is None:
            continue
        if tool.name in tools:
            problems.append(f"tool {tool.name!r} is listed more than once; the first one is kept")
            continue
        tools[tool.name] = tool
    return tuple(tools.values()), cap_problems(problems)


def cap_problems(problems: list[str]) -> tuple[str, ...]:
    """Return at most `MAX_PROBLEMS` sentences, then a count of the others."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    return (*problems[:MAX_PROBLEMS], f"... and {len(problems) - MAX_PROBLEMS} more problems")


def _read_tool(item: object, position: int, problems: list[str]) -> Tool | None:
    if not isinstance(item, dict):
        problems.append(f"tool number {position + 1} is no object ({_kind(item)}); dropped")
        return None
    name = item.get("name")
    if not isinstance(name, str) or not name:
        problems.append(f"tool number {position + 1} has no name ({_kind(name)}); dropped")
        return None
    if len(name) > MAX_NAME_LENGTH:
        problems.append(f"tool {name[:40] + '...'!r} has a name of {len(name)} characters (at most 256); dropped")
        return None
    annotations = item.get("annotations")
    if annotations is not None and not isinstance(annotations, dict):
        problems.append(f"tool {name!r}: annotations are no object ({_kind(annotations)}); ignored")
        annotations = None
    annotations = annotations or {}
    return Tool(
        name=name,
        description=_text(item, "description", name, problems) or "",
        title=_text(item, "title", name, problems) or _text(annotations, "title", name, problems) or None,
        input_schema=_input_schema(item.get("inputSchema"), name, problems),
        output_schema=_output_schema(item.get("outputSchema"), name, problems),
        annotations=Annotations(
            **{attribute: _hint(annotations, key, name, problems) for key, attribute in _HINTS},
        ),
    )


def _input_schema(schema: object, name: str, problems: list[str]) -> JsonObject:
    """Arguments are always one object, so a schema that cannot describe one is replaced by "any object"."""
    if not isinstance(schema, dict):
        problems.append(f"tool {name!r}: inputSchema is {_kind(schema)}; any object is accepted")
        return {"type": "object"}
    declared = schema.get("type")
    if declared == "object" or (isinstance(declared, list) and "object" in declared):
        return schema
    if declared is None:
        return {**schema, "type": "object"}
    problems.append(f"tool {name!r}: inputSchema has type {_shorten(declared)}, not 'object'; any object is accepted")
    return {"type": "object"}


def _output_schema(schema: object, name: str, problems: list[str]) -> JsonObject | None:
    if schema is None or isinstance(schema, dict):
        return schema
    problems.append(f"tool {name!r}: outputSchema is {_kind(schema)}; ignored")
    return None


def _text(item: dict[str, Any], key: str, name: str, problems: list[str]) -> str | None:
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value
    problems.append(f"tool {name!r}: {key} is no string ({_kind(value)}); ignored")
    return None


def _hint(annotations: dict[str, Any], key: str, name: str, problems: list[str]) -> bool | None:
    value = annotations.get(key)
    if value is None or isinstance(value, bool):
        return value
    problems.append(f"tool {name!r}: {key} is neither true nor false ({_kind(value)}); ignored")
    return None


def _kind(value: object) -> str:
    """Return what JSON type was seen, in words."""
    match value:
        case None:
            return "missing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list"
        case _:
            return "an object"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
