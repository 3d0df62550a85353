"""The tools `search` and `call`: the surface of the mode `search`. Pure.

Their names, descriptions and input schemas take at most `SEARCH_BYTES` together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.did_you_mean import hint, nearest
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.base.text import quoted, utf8_size
from codemode_mcp.catalog.servers import lookup_error
from codemode_mcp.server.descriptions import INSTRUCTIONS_BYTES, names_that_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry, Source

NAMES: Final = ("search", "call")

SEARCH_BYTES: Final = 1200
"""Limit of the names, descriptions and input schemas of both tools, in bytes."""

_SEARCH: Final = """\
Find tools of these MCP servers: {servers}. Say what you need in a few words. Each hit has the name of a tool, its \
signature and its purpose. Then use call."""

_CALL: Final = """\
Call a tool that search has found. name: the name before the parenthesis of its signature, such as \
MCP.github.createIssue. arguments: the fields of its input."""

_SEARCH_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "server": {"type": "string"},
    },
    "required": ["query"],
    "additionalProperties": False,
}

_CALL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name"],
    "additionalProperties": False,
}

_INSTRUCTIONS: Final = """\
The tools of several MCP servers, behind two tools. search finds tools and shows their signatures. call calls one of \
them by its name.{servers}"""

_META: Final = {"anthropic/alwaysLoad": True}


def search_tool_list(servers: Sequence[str], *, read_only: bool) -> list[dict[str, Any]]:
    """Return `search` and `call` as entries of `tools/list`.

    Args:
        servers: the configured names of the servers that the caller sees. As many as fit are named.
        read_only: True if the caller can call only tools that change nothing.
    """
    schemas = compact_json(_SEARCH_SCHEMA), compact_json(_CALL_SCHEMA)
    room = SEARCH_BYTES - sum(map(utf8_size, (*NAMES, *schemas, _CALL, _SEARCH.format(servers=""))))
    searching = _SEARCH.format(servers=names_that_fit(servers, room, more="") if servers else "none")
    return [
        _tool("search", "Find tools", searching, _SEARCH_SCHEMA, read_only=True),
        _tool("call", "Call a tool", _CALL, _CALL_SCHEMA, read_only=read_only),
    ]


def _tool(name: str, title: str, description: str, schema: Mapping[str, Any], *, read_only: bool) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": {
            "title": title,
            "readOnlyHint": read_only,
            "destructiveHint": not read_only,
            "openWorldHint": name == "call",
        },
        "_meta": _META,
    }


def search_instructions(servers: Sequence[str]) -> str:
    if not servers:
        return _INSTRUCTIONS.format(servers="")
    room = INSTRUCTIONS_BYTES - utf8_size(_INSTRUCTIONS.format(servers=" Servers: ."))
    return _INSTRUCTIONS.format(servers=f" Servers: {names_that_fit(servers, room, more='')}.")


def found_tools(catalog: Catalog, arguments: Mapping[str, Any], default_limit: int, max_limit: int) -> str:
    """Return the answer of `search`: a line with the signature of each hit, and a line with its effects and purpose.

    Raises:
        ProgramError: the arguments are invalid, or there is no such server.
    """
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        raise _invalid('search: query is missing; pass what you need, e.g. {"query": "create an issue"}')
    server, limit = arguments.get("server"), arguments.get("limit")
    if server is not None and not isinstance(server, str):
        raise _invalid("search: server must be a string, the name of a server")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _invalid("search: limit must be a whole number of 1 or more")
    count = min(default_limit if limit is None else limit, max_limit)
    found = catalog.search(query, count, server, _SOURCES)
    hits = [hit for hit in found if _is_callable(catalog, hit)]
    if not hits:
        return f"No tool fits {quoted(query)}. Try other words."
    others = [*(["limit"] if count < max_limit else []), *(["server"] if server is None else [])]
    how = f"pass {' or '.join(others)} for more" if others else "ask for something more precise"
    more = f"{len(hits)} of {found.total} hits; {how}." if len(found) < found.total else ""
    return "\n".join(filter(None, (*map(_shown, hits), more)))


def _is_callable(catalog: Catalog, hit: Mapping[str, Any]) -> bool:
    """Return True for a tool, and for a server without known tools, which is told.

    Operations are not called here, nor are saved programs, which only programs call.
    """
    if "call" not in hit:
        return True  # the tool of a plugin
    found = catalog.entry_at(hit["call"])
    return found.operation is None if found is not None else not hit["call"].startswith("programs.")


_SOURCES: Final[frozenset[Source]] = frozenset({"plugin"})
"""The sources of tools that can be called here, beside MCP servers."""


def _shown(hit: Mapping[str, Any]) -> str:
    signature = hit["signature"] or hit.get("call") or hit["id"]
    down = " (its server is down)" if hit.get("status") == "down" and hit["signature"] else ""
    effects = f"[{hit['effects']}]" if hit.get("effects") else ""
    about = " ".join(filter(None, (effects, hit["description"])))
    return f"{signature}{down}\n  {about}" if about else f"{signature}{down}"


def called_entry(catalog: Catalog, arguments: Mapping[str, Any]) -> tuple[Entry, Mapping[str, Any]]:
    """Return the tool that a `call` names, and its arguments.

    The name may be the expression of a program, an id, or the name of the mode `direct`.

    Raises:
        ProgramError: the arguments are invalid, or there is no such tool, or it is held.
    """
    name, given = arguments.get("name"), arguments.get("arguments")
    if not isinstance(name, str) or not name.strip():
        raise _invalid("call: name is missing; pass the name of a tool that search has found")
    if given is None:
        given = {key: value for key, value in arguments.items() if key not in ("name", "arguments")}
        if given:
            raise _invalid(f"call: put the fields of the tool's input into arguments: {compact_json([*given][:5])}")
    if not isinstance(given, dict):
        raise _invalid("call: arguments must be an object with the fields of the tool's input")
    entry = catalog.entry_at(name) or catalog.get(name)
    if entry is None:
        meant = [each for each in catalog.meant_by(name) if each.operation is None]
        entry = meant[0] if len(meant) == 1 else None
    if entry is None or entry.operation is not None or entry.source in ("client", "program"):
        raise _unknown(catalog, name)
    return entry, given


def _unknown(catalog: Catalog, name: str) -> ProgramError:
    server, _, tool = name.removeprefix("MCP.").partition(".")
    found = catalog.index.by_identifier.get(server)
    if found is not None and tool:
        return found.no_member(tool)
    near = nearest(name, [entry.path for entry in catalog.index.tools])
    return lookup_error(f"there is no tool {quoted(name)}.{hint(near)} Find tools with search.")


def _invalid(message: str) -> ProgramError:
    return ProgramError("invalid_input", message)
