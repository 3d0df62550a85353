"""Names of tools for clients that see them directly. Pure."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry


log = logging.getLogger("codemode_mcp.server")

SEPARATOR: Final = "__"

MAX_NAME: Final = 64
"""Longest name of a tool that common clients accept, in characters."""

_FIT_FOR_CLIENTS = re.compile(r"[A-Za-z0-9_-]+")

DIGEST_CHARACTERS: Final = 16
"""Hexadecimal digits of a digest in a name. They have 64 bits, so a server cannot find a name that collides."""

_LIKE_A_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST_CHARACTERS}}}$")


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
