"""Repair of the tool lists of sloppy servers. Pure: no I/O, no MCP SDK.

The SDK's parser refuses a whole page because of one malformed tool. Here only the malformed tool is dropped. A field is
repaired if the intention is clear. Each change is reported in one sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from upstream_clients.item_members import ICONS, META, MetadataReader, kind_of, typed_member
from upstream_clients.schema_relaxation import relax
from upstream_clients.tools import Annotations, JsonObject, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

MAX_NAME_LENGTH = 256
MAX_PROBLEMS = 50
"""Maximum number of problems that are reported for one list. A server with 10,000 bad tools must not fill the log."""

HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Keys of MCP tool annotations, by the attributes of `Annotations`."""


class Page(NamedTuple):
    """One page of a list, whose items are not read yet."""

    items: list[object]
    next_cursor: str | None
    problems: tuple[str, ...]


def open_page(raw: JsonObject, method: str = "tools/list", key: str = "tools") -> Page:
    """Return the parts of one result of `method`, whose list is called `key`."""
    problems = []
    items = raw.get(key)
    if not isinstance(items, list):
        problems.append(f"the answer to {method} has no list {key!r} ({kind_of(items)}); taken as empty")
        items = []
    cursor = raw.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        problems.append(f"nextCursor is not a string ({kind_of(cursor)}); taken as the last page")
        cursor = None
    return Page(items, cursor or None, tuple(problems))


def read_tools(items: Iterable[object]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the tools of all pages, in the server's order, and the problems. Of equal names, the first one is kept."""
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    metadata = MetadataReader()
    for position, item in enumerate(items):
        tool = _read_tool(item, position, metadata, problems)
        if tool is None:
            continue
        if tool.name in tools:
            problems.append(f"tool {tool.name!r} is listed more than once; the first one is kept")
            continue
        tools[tool.name] = tool
    return tuple(tools.values()), cap_problems(problems)


def cap_problems(problems: list[str]) -> tuple[str, ...]:
    """Return at most `MAX_PROBLEMS` of the sentences, then a count of the others."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    return (*problems[:MAX_PROBLEMS], f"... and {len(problems) - MAX_PROBLEMS} more problems")


def _read_tool(item: object, position: int, metadata: MetadataReader, problems: list[str]) -> Tool | None:
    if not isinstance(item, dict):
        problems.append(f"tool number {position + 1} is not an object ({kind_of(item)}); dropped")
        return None
    name = item.get("name")
    if not isinstance(name, str) or not name:
        problems.append(f"tool number {position + 1} has no name ({kind_of(name)}); dropped")
        return None
    if len(name) > MAX_NAME_LENGTH:
        problems.append(f"tool {name[:40] + '...'!r} has a name of {len(name)} characters (at most 256); dropped")
        return None

    def member(of: dict[str, Any], key: str, kind: type[T], expected: str) -> T | None:
        return typed_member(of, key, kind, expected, f"tool {name!r}", problems)

    annotations = member(item, "annotations", dict, "an object") or {}
    title = member(annotations, "title", str, "a string") or None
    for_clients = metadata.read(item, f"tool {name!r}", problems, (META, ICONS))
    tool = Tool(
        name=name,
        description=member(item, "description", str, "a string") or "",
        title=member(item, "title", str, "a string") or title,
        input_schema=_input_schema(item.get("inputSchema"), name, problems),
        output_schema=member(item, "outputSchema", dict, "an object"),
        annotations=Annotations(
            **{attribute: member(annotations, key, bool, "true or false") for attribute, key in HINTS.items()},
            title=title,
        ),
        meta=for_clients.get(META),
        icons=tuple(for_clients.get(ICONS, ())),
        needs_task=(member(item, "execution", dict, "an object") or {}).get("taskSupport") == "required",
    )
    return with_relaxed_schemas(tool)


def with_relaxed_schemas(tool: Tool) -> Tool:
    """Return a tool whose schemas do not contradict themselves. It keeps those that its server has sent."""
    sent = tool.input_schema, tool.output_schema
    taken, given = relax(sent[0]).schema, None if sent[1] is None else relax(sent[1]).schema
    if taken is sent[0] and given is sent[1]:
        return tool
    return replace(tool, input_schema=taken, output_schema=given, sent=sent)


def _input_schema(schema: object, name: str, problems: list[str]) -> JsonObject:
    """Return the schema of the arguments. A schema that does not describe an object is replaced by "any object"."""
    if not isinstance(schema, dict):
        problems.append(f"tool {name!r}: inputSchema is {kind_of(schema)}; any object is accepted")
        return {"type": "object"}
    declared = schema.get("type")
    if declared == "object" or (isinstance(declared, list) and "object" in declared):
        return schema
    if declared is None:
        return {**schema, "type": "object"}
    problems.append(f"tool {name!r}: inputSchema has type {_shorten(declared)}, not 'object'; any object is accepted")
    return {"type": "object"}


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
