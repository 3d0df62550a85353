"""A catalog as JSON text, and back. Only observed types are lost. Pure.

The text has nothing that follows from the rest: no paths, no ids of tools, and no schemas of the operations on
resources and prompts, which `declarations.operations` lists.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args
from weakref import WeakKeyDictionary

from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import Entry, OfferedNamespace, Source, mcp_id, operation_entry, operation_id
from codemode_mcp.catalog.servers import Server, ServerIndex
from codemode_mcp.catalog.toolset import Toolset, entry_of
from codemode_mcp.errors import ProgramError
from codemode_mcp.policy.policy import Effects
from codemode_mcp.strict_json import Fields, items, strictly, text
from declarations.operations import OPERATIONS
from upstream_clients.tools import Annotations, Tool

if TYPE_CHECKING:
    from codemode_mcp.search.finder import Meaning

FORMAT: Final = 1

_OPERATIONS: Final = {
    (group, operation.id): operation for group, operations in OPERATIONS.items() for operation in operations
}
_SOURCES: Final[tuple[Source, ...]] = get_args(Source)
_STATUSES: Final = ("ready", "connecting", "down")


class _Digests:
    """The digests of catalogs that share an index of servers, by their other tools: they differ in nothing else."""

    def __init__(self, servers: ServerIndex) -> None:
        self._servers = hashlib.sha256(_servers_text(servers).encode())
        self._whole: WeakKeyDictionary[Toolset, str] = WeakKeyDictionary()

    def of(self, toolset: Toolset) -> str:
        known = self._whole.get(toolset)
        if known is None:
            digest = self._servers.copy()
            digest.update(_toolset_text(toolset).encode())
            known = self._whole[toolset] = digest.hexdigest()
        return known


_digests: WeakKeyDictionary[ServerIndex, _Digests] = WeakKeyDictionary()


def catalog_hash(catalog: Catalog) -> str:
    """Return the SHA-256 of `catalog_text`, and raise the same errors.

    It is remembered as long as catalogs share the index of servers: for ten thousand tools it takes a moment.
    """
    digests = _digests.get(catalog.index)
    if digests is None:
        digests = _digests[catalog.index] = _Digests(catalog.index)
    return digests.of(catalog.toolset)


def catalog_text(catalog: Catalog) -> str:
    """Return the text of a catalog. Equal catalogs have the same text.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, a schema is nested too deep.
    """
    return _servers_text(catalog.index) + _toolset_text(catalog.toolset)


def catalog_of(text: str, meaning: Meaning | None = None) -> Catalog:
    """Return the catalog of a text.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with strictly(_refused):
        fields = Fields(json.loads(text))
        found = fields.any("format")
        if not isinstance(found, int) or isinstance(found, bool):
            raise TypeError
        if found != FORMAT:
            raise _refused(f"it was written by another version of codemode-mcp (format {str(found)[:20]})")
        servers = fields.each("servers", _server)
        toolset = _toolset(fields.object("tools"), meaning)
        fields.end()
        if len({each.identifier for each in servers}) < len(servers):
            raise ValueError
        index = ServerIndex(tuple(servers), meaning)
        return Catalog(index, toolset) if toolset.entries or toolset.namespaces else Catalog(index)


# servers


def _servers_text(index: ServerIndex) -> str:
    return f'{{"format":{FORMAT},"servers":{_json([_of_server(each) for each in index.servers])},"tools":'


def _of_server(server: Server) -> dict[str, Any]:
    return {
        "identifier": server.identifier,
        "alias": server.alias,
        "name": server.name,
        "status": server.status,
        "error": server.error,
        "description": server.description,
        "login": server.login_required,
        "tools": [[entry.identifier, _of_tool(entry.tool), _of_effects(entry.effects)] for entry in server.tools],
        "groups": [
            [
                group,
                [[entry.id, entry.operation.id, _of_effects(entry.effects)] for entry in entries if entry.operation],
            ]
            for group, entries in server.groups
        ],
    }


def _server(raw: Any) -> Server:
    fields = Fields(raw)
    identifier, name = fields.text("identifier"), fields.text("name")
    server = Server(
        identifier=identifier,
        alias=fields.text_or_none("alias"),
        name=name,
        status=fields.one_of("status", _STATUSES),
        error=fields.text_or_none("error"),
        description=fields.text("description"),
        tools=tuple(fields.each("tools", partial(_mcp_tool, identifier, name))),
        groups=tuple(fields.each("groups", partial(_group, identifier, name))),
        login_required=fields.flag("login"),
    )
    fields.end()
    for names in ([each.identifier for each in server.tools], [each.id for each in server.entries]):
        if len(set(names)) < len(names):
            raise ValueError
    return server


def _mcp_tool(server: str, server_name: str, raw: Any) -> Entry:
    name, tool, effects = items(raw, 3)
    found = _tool(Fields(tool))
    return Entry(
        id=mcp_id(server_name, found.name),
        source="mcp",
        source_name=server_name,
        path=f"MCP.{server}.{text(name)}",
        identifier=name,
        tool=found,
        effects=_effects(effects),
    )


def _group(server: str, server_name: str, raw: Any) -> tuple[str, tuple[Entry, ...]]:
    group, entries = items(raw, 2)

    def read(raw: Any) -> Entry:
        entry_id, name, effects = items(raw, 3)
        operation = _OPERATIONS[(group, text(name))]
        if text(entry_id) != operation_id(server_name, operation):
            raise ValueError
        return operation_entry(server, server_name, group, operation, _effects(effects))

    return text(group), tuple(map(read, items(entries)))


# other tools


def _toolset_text(toolset: Toolset) -> str:
    tools = {
        "entries": [
            [
                entry.source,
                entry.source_name,
                _of_tool(entry.tool),
                _of_effects(entry.effects),
                toolset.label(entry),
                toolset.names.get(entry.tool.name) == entry.id,
            ]
            for entry in toolset.entries
        ],
        "namespaces": [
            {
                "id": each.id,
                "plugin": each.plugin,
                "global": each.global_name,
                "description": each.description,
                "required": list(each.required_tools),
                "prompt": each.prompt,
            }
            for each in toolset.namespaces
        ],
    }
    return f"{_json(tools)}}}"


def _toolset(fields: Fields, meaning: Meaning | None) -> Toolset:
    names: list[tuple[str, str]] = []

    def read(raw: Any) -> tuple[Entry, str | None]:
        source, source_name, tool, effects, label, is_function = items(raw, 6)
        if not isinstance(is_function, bool):
            raise TypeError
        known: Source = Fields({"source": source}).one_of("source", _SOURCES)
        entry = entry_of(known, text(source_name), _tool(Fields(tool)), _effects(effects), is_function=is_function)
        if is_function:
            names.append((entry.tool.name, entry.id))
        return entry, None if label is None else text(label)

    entries = fields.each("entries", read)
    namespaces = fields.each("namespaces", _namespace)
    fields.end()
    for each in ([name for name, _ in names], [entry.id for entry, _ in entries]):
        if len(set(each)) < len(each):
            raise ValueError
    return Toolset(entries, names, namespaces, meaning)


def _namespace(raw: Any) -> OfferedNamespace:
    fields = Fields(raw)
    namespace = OfferedNamespace(
        id=fields.text("id"),
        plugin=fields.text("plugin"),
        global_name=fields.text("global"),
        description=fields.text("description"),
        required_tools=tuple(fields.each("required", text)),
        prompt=fields.text("prompt"),
    )
    fields.end()
    return namespace


# parts


def _of_tool(tool: Tool) -> dict[str, Any]:
    declared = tool.annotations
    return {
        "name": tool.name,
        "description": tool.description,
        "title": tool.title,
        "input": tool.input_schema,
        "output": tool.output_schema,
        "annotations": [declared.read_only, declared.destructive, declared.idempotent, declared.open_world],
    }


def _tool(fields: Fields) -> Tool:
    given, output = fields.any("input"), fields.any("output")
    if not isinstance(given, dict) or not isinstance(output, dict | None):
        raise TypeError
    annotations = items(fields.any("annotations"), 4)
    if not all(each is None or isinstance(each, bool) for each in annotations):
        raise TypeError
    tool = Tool(
        name=fields.text("name"),
        description=fields.text("description"),
        title=fields.text_or_none("title"),
        input_schema=given,
        output_schema=output,
        annotations=Annotations(*annotations),
    )
    fields.end()
    return tool


def _of_effects(effects: Effects) -> list[bool]:
    return [effects.read_only, effects.destructive, effects.idempotent, effects.open_world]


def _effects(raw: Any) -> Effects:
    if not all(isinstance(each, bool) for each in items(raw, 4)):
        raise TypeError
    return Effects(*raw)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        raise ProgramError(
            "snapshot_limit_exceeded", "the schema of a tool is nested too deep to suspend a program that sees it"
        ) from None


def _refused(why: str) -> ProgramError:
    return ProgramError(
        "snapshot_restore_failed",
        f"the suspended program cannot be restored: the stored list of its tools cannot be read: {why}; start it again",
    )
