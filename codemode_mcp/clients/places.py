"""Where each MCP client keeps its servers, on each system. Pure: system, folders and environment are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pathlib import PurePath

ClientName = Literal["claude-desktop", "claude-code", "cursor", "vscode", "windsurf"]

CLIENTS: Final[tuple[ClientName, ...]] = ("claude-desktop", "claude-code", "cursor", "vscode", "windsurf")

System = Literal["linux", "darwin", "win32"]


@dataclass(frozen=True, slots=True)
class Place:
    """One file, or one part of a file, in which a client keeps servers.

    Attributes:
        scope: `user` (for everything its user does), `project` (for one folder), or `local` (of one folder, but in the
            user's own file, as Claude Code has it).
        path: the absolute file; it need not be there.
        keys: the way from the root of the file to the object of servers by name: `("mcpServers",)`, `("servers",)`,
            `("projects", "/home/me/work", "mcpServers")`, `("mcp", "servers")`.
    """

    client: ClientName
    scope: Literal["user", "project", "local"]
    path: PurePath
    keys: tuple[str, ...]
