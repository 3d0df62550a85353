"""Names and fields of tools in pass-through mode. Pure."""

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
from codemode_mcp.exposure.item_forms import icons_form
from codemode_mcp.json_text import join_surrogates, json_text
from codemode_mcp.server.protocol_fit import fit_tool
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.settings import PolicyRules
    from upstream_clients.tools import Annotations, Tool

log = logging.getLogger("codemode_mcp.server")

SEPARATOR: Final = "__"

MAX_NAME: Final = 64
"""Longest name of a tool that common clients accept, in characters."""

_FIT_FOR_CLIENTS = re.compile(r"[A-Za-z0-9_-]+")

DIGEST_CHARACTERS: Final = 16
"""Hexadecimal digits of a digest in a name. They have 64 bits, so a server cannot find a name that collides."""

_LIKE_A_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST_CHARACTERS}}}$")


_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
    ("title", "title"),
)


def exposed_name(server: str, tool: str) -> str:
    """Return the name of a tool for clients: `<server>__<tool>` if clients accept this name and it is unambiguous.

    Otherwise characters are replaced and a digest of both names is appended. The result depends only on the two names,
    so a name never changes because of another tool.
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
    """Return the name of a plugin's tool for clients, as `exposed_name` does.

    If a server has the plugin's name, the tools of the server keep their names, and those of the plugin get a digest.
    """
    if plugin in servers:
        return _with_digest(plugin + SEPARATOR + tool, "plugin", plugin, tool)
    return exposed_name(plugin, tool)


def _with_digest(name: str, *parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGEST_CHARACTERS]
    fit = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return f"{fit[: MAX_NAME - DIGEST_CHARACTERS - 1]}_{digest}"


class Listing:
    """The list of tools of one catalog.

    Attributes:
        catalog: the tools, with the names for clients in its messages.
        entries: the tools by their names for clients.
        withheld: reasons why other tools are held, by their names for clients. They follow the name in a sentence.
        holders: the servers of held tools, by the same names.
        tools: the tools as JSON of MCP, ordered by name.
        fingerprint: equal for equal `tools`.
    """

    def __init__(
        self, catalog: Catalog, rules: PolicyRules, is_listed: Callable[[Entry], bool] = lambda _: True
    ) -> None:
        """`is_listed`: returns False for tools that are left out."""
        self.entries = {name: entry for name, entry in _entries_by_name(catalog).items() if is_listed(entry)}
        self.withheld = {
            exposed_name(server.name, tool): why for server in catalog.servers for tool, why in server.withheld.items()
        }
        shown = {entry.id: entry for entry in self.entries.values()}
        self.holders = {
            exposed_name(server.name, tool): server.name for server in catalog.servers for tool in server.withheld
        }
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
                _tool_json(name, entry, rules, self._title(entry))
                for name, entry in sorted(self.entries.items(), key=lambda item: item[0])
            ]
        )
        self.tools: list[dict[str, Any]] = json.loads(join_surrogates(text))
        self.fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._fitted: dict[str, list[dict[str, Any]]] = {}

    def _title(self, entry: Entry) -> str | None:
        return entry.tool.title if entry.source == "mcp" else self.catalog.toolset.label(entry)

    def of_version(self, version: str) -> list[dict[str, Any]]:
        """Return `tools` in the form of a protocol revision, without tools that have no such form."""
        found = self._fitted.get(version)
        if found is None:
            found = self._fitted[version] = [
                fitted for tool in self.tools if (fitted := fit_tool(tool, version)) is not None
            ]
        return found


def _entries_by_name(catalog: Catalog) -> dict[str, Entry]:
    """Return the tools by their names for clients. The names become the paths of the entries.

    Tools with equal names are all left out, because a call could mean any of them.
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
                log.error("plugin tool %s is not listed: a server's tool is named %s", escape_line(entry.id), name)
            else:
                named.setdefault(name, []).append(replace(entry, path=name))
    for name, entries in named.items():
        if len(entries) > 1:
            ids = ", ".join(escape_line(entry.id) for entry in entries)
            log.error("these tools are not listed, because each would be named %s: %s; rename one", name, ids)
    return {name: entries[0] for name, entries in named.items() if len(entries) == 1}


class _Untyped(Catalog):
    """A catalog for clients that know tools by their schemas and write no programs."""

    def signature(self, entry: Entry) -> str:
        return ""


def _tool_json(name: str, entry: Entry, rules: PolicyRules, title: str | None) -> dict[str, Any]:
    tool = entry.tool
    shown: dict[str, Any] = {"name": name, "inputSchema": tool.input_schema}
    if tool.description:
        shown["description"] = tool.description
    if title is not None:
        shown["title"] = title
    if tool.output_schema is not None:
        shown["outputSchema"] = tool.output_schema
    shown_annotations: Annotations | None = tool.annotations
    if entry.source == "mcp" and entry.source_name in rules.distrusted_servers:
        shown_annotations = dict(rules.annotations).get(entry.id)
    if shown_annotations is not None:
        declared = ((key, getattr(shown_annotations, attribute)) for key, attribute in _HINTS)
        annotations = {key: value for key, value in declared if value is not None}
        if annotations:
            shown["annotations"] = annotations
    if icons := icons_form(tool.icons):
        shown["icons"] = icons
    if meta := _meta(tool):
        shown["_meta"] = meta
    return shown


def _meta(tool: Tool) -> dict[str, Any]:
    """Return the metadata of a tool, without the references to apps. `exposed_apps` adds these with our URIs."""
    meta = tool.meta or {}
    return {key: value for key, value in meta.items() if key != "ui" and not key.startswith("ui/")}
