"""Tools of upstream servers under the names and with the fields that clients get. Pure."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.servers import ServerIndex
from codemode_mcp.catalog.toolset import Toolset
from codemode_mcp.json_text import joined_halves, json_text
from codemode_mcp.server.protocol_fit import fit_tool
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.settings import PolicyRules

log = logging.getLogger("codemode_mcp.server")

SEPARATOR: Final = "__"


MAX_NAME: Final = 64
"""Characters that common clients take in a tool's name."""


_FIT_FOR_CLIENTS = re.compile(r"[A-Za-z0-9_-]+")


DIGEST_CHARACTERS: Final = 16
"""Hexadecimal digits of a digest within a name: 64 bits, so that a server cannot search for the name of another."""


_LIKE_A_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST_CHARACTERS}}}$")


_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


def exposed_name(server: str, tool: str) -> str:
    """Return the name of a tool for clients: `<server>__<tool>` where clients take it and it is unambiguous.

    Otherwise it is made fit and ends in a digest of both names. It depends on these alone, so that no other tool that
    comes or goes renames this one.
    """
    name = server + SEPARATOR + tool
    if (
        len(name) <= MAX_NAME
        and _FIT_FOR_CLIENTS.fullmatch(name)
        and SEPARATOR not in server
        and not server.endswith("_")
        and not _LIKE_A_DIGEST.search(name)
    ):
        return name
    return _with_digest(name, server, tool)


def plugin_tool_name(plugin: str, tool: str, servers: Collection[str]) -> str:
    """Return what clients call a tool of a plugin: as `exposed_name`, unless a server has the plugin's name.

    Then the tools of the server keep their names, and those of the plugin end in a digest.
    """
    if plugin in servers:
        return _with_digest(plugin + SEPARATOR + tool, "plugin", plugin, tool)
    return exposed_name(plugin, tool)


def _with_digest(name: str, *parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGEST_CHARACTERS]
    fit = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return f"{fit[: MAX_NAME - DIGEST_CHARACTERS - 1]}_{digest}"


class Listing:
    """The list of tools for one catalog.

    Attributes:
        catalog: the same tools, whose messages speak of them by the names that clients use.
        entries: by these names.
        tools: in MCP's form, by name.
        fingerprint: equal for equal `tools`.
    """

    def __init__(self, catalog: Catalog, rules: PolicyRules) -> None:
        self.entries = _named(catalog)
        shown = {entry.id: entry for entry in self.entries.values()}
        servers = [
            replace(server, tools=tuple(shown[entry.id] for entry in server.tools if entry.id in shown), groups=())
            for server in catalog.servers
        ]
        toolset = Toolset(
            [(shown[entry.id], catalog.toolset.label(entry)) for entry in catalog.toolset.entries if entry.id in shown]
        )
        self.catalog = _Untyped(ServerIndex(tuple(servers)), toolset)
        text = json_text(
            [
                _shown(name, entry, rules, self._title(entry))
                for name, entry in sorted(self.entries.items(), key=lambda item: item[0])
            ]
        )
        self.tools: list[dict[str, Any]] = json.loads(joined_halves(text))
        self.fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._fitted: dict[str, list[dict[str, Any]]] = {}

    def _title(self, entry: Entry) -> str | None:
        return entry.tool.title if entry.source == "mcp" else self.catalog.toolset.label(entry)

    def of_version(self, version: str) -> list[dict[str, Any]]:
        """`tools` as far as a protocol revision can say them; a tool that it cannot say at all is left out."""
        found = self._fitted.get(version)
        if found is None:
            found = self._fitted[version] = [
                fitted for tool in self.tools if (fitted := fit_tool(tool, version)) is not None
            ]
        return found


def _named(catalog: Catalog) -> dict[str, Entry]:
    """Return the tools by the names that clients use, which are their paths.

    Two equal digests would leave open which tool a client means: then neither is shown, whatever the order.
    """
    named: dict[str, list[Entry]] = {}
    for server in catalog.servers:
        for entry in server.tools:
            name = exposed_name(entry.source_name, entry.tool.name)
            named.setdefault(name, []).append(replace(entry, path=name))
    servers = {server.name for server in catalog.servers}
    taken = set(named)
    for entry in catalog.toolset.entries:
        if entry.source == "plugin":
            name = plugin_tool_name(entry.source_name, entry.tool.name, servers)
            if name in taken:
                log.error("%s is not shown: a tool of a server is called %s", escape_line(entry.id), name)
            else:
                named.setdefault(name, []).append(replace(entry, path=name))
    for name, entries in named.items():
        if len(entries) > 1:
            ids = ", ".join(escape_line(entry.id) for entry in entries)
            log.error("these tools are not shown, since all would be called %s: %s; rename one", name, ids)
    return {name: entries[0] for name, entries in named.items() if len(entries) == 1}


class _Untyped(Catalog):
    """A catalog for clients that write no programs: they know a tool by its schema."""

    def signature(self, entry: Entry) -> str:
        return ""


def _shown(name: str, entry: Entry, rules: PolicyRules, title: str | None) -> dict[str, Any]:
    tool = entry.tool
    shown: dict[str, Any] = {"name": name, "inputSchema": tool.input_schema}
    if tool.description:
        shown["description"] = tool.description
    if title is not None:
        shown["title"] = title
    if tool.output_schema is not None:
        shown["outputSchema"] = tool.output_schema
    if entry.source != "mcp" or entry.source_name not in rules.distrusted_servers:
        declared = ((key, getattr(tool.annotations, attribute)) for key, attribute in _HINTS)
        annotations = {key: value for key, value in declared if value is not None}
        if annotations:
            shown["annotations"] = annotations
    return shown
