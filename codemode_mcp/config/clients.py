"""`clients`: changes to the profiles of MCP clients, by globs on the names that clients give themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.config.nodes import describe
from codemode_mcp.settings import Clamp, ProfileOverride

if TYPE_CHECKING:
    from codemode_mcp.config.nodes import Node

_FLAGS = {
    "showsStructured": "shows_structured",
    "losesPictures": "loses_pictures",
    "defersTools": "defers_tools",
    "sendsNull": "sends_null",
    "repeatsFailures": "repeats_failures",
}
_LIMIT, _ADDED = "maxOutputBytes", "addsArguments"

OUTPUT_CLAMP = Clamp(1024, 10 * 1024 * 1024)


def read_clients(node: Node) -> tuple[ProfileOverride, ...]:
    """Read the entries in the order of the file; the first that matches a client counts."""
    if node.value is None:
        return ()
    return tuple(ProfileOverride(glob, _values(glob, entry)) for glob, entry in node.entries().items())


def _values(glob: str, node: Node) -> tuple[tuple[str, Any], ...]:
    if not glob.strip() or not glob.isprintable():
        node.fail("needs the name of a client, or a glob such as claude-*; codemode-mcp clients lists the names")
    fields = node.fields((*_FLAGS, _LIMIT, _ADDED))
    values: dict[str, Any] = {_FLAGS[key]: fields[key].flag() for key in _FLAGS if key in fields}
    if _ADDED in fields:
        values["adds_arguments"] = tuple(item.filled() for item in fields[_ADDED].items())
    if _LIMIT in fields:
        values["max_output_bytes"] = _limit(fields[_LIMIT])
    return tuple(values.items())


def _limit(node: Node) -> int | None:
    """Read a number of bytes; null lifts the limit of a profile."""
    if node.value is None:
        return None
    value = node.integer("an integer or null")
    if value is None:
        return None
    inside = min(max(value, OUTPUT_CLAMP.lowest), OUTPUT_CLAMP.highest)
    if inside != value:
        node.note(f"{describe(value)} is outside {OUTPUT_CLAMP.lowest} - {OUTPUT_CLAMP.highest}; {inside} is used")
    return inside
