"""The entries of this server in the files of clients: what each would start, or which address it would call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.mcp_clients.dialects import LeftOut, shared
from codemode_mcp.cli.mcp_clients.entries import is_this_server
from codemode_mcp.cli.mcp_clients.reading import read_clients

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.places import ClientName
    from codemode_mcp.cli.mcp_clients.reading import Here, Source

FROM_THE_DESKTOP: Final = ("claude-desktop", "cursor", "vscode", "windsurf", "zed")
"""Clients that are mostly not started from a shell, and do not have its PATH."""

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_OWN_NAME: Final = re.compile(r"code-?mode", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """One entry of this server in the file of a client.

    Attributes:
        client: as `install --client` has it.
        title: of the client and scope.
        path: the file.
        name: by which the client calls this server.
        env: the variables of the entry, expanded.
        folder: of the project that the entry belongs to; None for one of the user.
        comes_with_folder: the file is part of the folder, which may be by others.
        desktop: the client mostly has no PATH of a shell.
    """

    client: ClientName
    title: str
    path: Path
    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    folder: Path | None = None
    disabled: bool = False
    comes_with_folder: bool = False
    desktop: bool = False


def own_entries(here: Here) -> list[OwnEntry]:
    """Return the entries of this server in the files of all clients. Blocks."""
    return [
        found
        for source in read_clients(here)
        for name, given in source.servers.items()
        if isinstance(given, dict) and (found := _own_entry(source, str(name), given, here)) is not None
    ]


def _own_entry(source: Source, name: str, given: Mapping[str, Any], here: Here) -> OwnEntry | None:
    assert source.client is not None
    try:
        common, _ = shared(source.client, given)
    except LeftOut:
        return None
    url = common.get("url") or common.get("serverUrl") or common.get("httpUrl")
    is_http = isinstance(url, str) and common.get("command") is None and _OWN_NAME.search(name) is not None
    if not is_http and not is_this_server(given, source.client):
        return None
    folder = source.folder

    def expanded(text: object) -> str:
        return _REFERENCE.sub(lambda match: _value(match, here, folder), str(text))

    args, env = common.get("args"), common.get("env")
    return OwnEntry(
        source.client,
        source.title,
        source.path,
        name,
        command=None if is_http else expanded(common["command"]),
        args=tuple(map(expanded, args)) if isinstance(args, list) else (),
        env={str(key): expanded(each) for key, each in env.items()} if isinstance(env, dict) else {},
        url=expanded(url) if is_http else None,
        folder=folder,
        disabled=common.get("disabled") is True or common.get("enabled") is False,
        comes_with_folder=source.scope == "project",
        desktop=source.client in FROM_THE_DESKTOP,
    )


def _value(match: re.Match[str], here: Here, folder: Path | None) -> str:
    if match[1] == "userHome":
        return str(here.home)
    if match[1] == "workspaceFolder":
        return str(folder or here.folder)
    return here.environ.get(match[1]) or match[2] or ""
