"""Where each MCP client keeps its servers, on each system. Pure: system, folders and environment are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import PurePath

ClientName = Literal["claude-desktop", "claude-code", "cursor", "vscode", "windsurf"]

CLIENTS: Final[tuple[ClientName, ...]] = ("claude-desktop", "claude-code", "cursor", "vscode", "windsurf")

TITLES: Final[Mapping[ClientName, str]] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
}

System = Literal["linux", "darwin", "win32"]

Scope = Literal["user", "project", "local"]

SETTINGS_KEYS: Final = ("mcp", "servers")
"""Where `settings.json` of VS Code has servers that were added before it had `mcp.json`."""

_MSIX_PACKAGE: Final = "Claude_pzs8sxrjxfjjc"
"""Claude Desktop as Windows has installed it since 2026: what it writes under APPDATA is kept in this folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """One file, or one part of a file, in which a client keeps servers.

    Attributes:
        scope: `user` (for everything its user does), `project` (for one folder), or `local` (of one folder, but in the
            user's own file, as Claude Code has it).
        path: the absolute file; it need not be there.
        keys: the way from the root of the file to the object of servers by name: `("mcpServers",)`, `("servers",)`,
            `("projects", "/home/me/work", "mcpServers")`, `("mcp", "servers")`.
        folder: the folder that `project` and `local` servers belong to.
        usual: whether the client's own documentation has it there; other builds of it keep it elsewhere.
    """

    client: ClientName
    scope: Scope
    path: PurePath
    keys: tuple[str, ...]
    folder: PurePath | None = None
    usual: bool = True


def places(
    client: ClientName, system: System, home: PurePath, environ: Mapping[str, str], folder: PurePath
) -> tuple[Place, ...]:
    """All places of a client, those of the user first, of one scope the likeliest first.

    Args:
        home: the user's home folder.
        folder: the project that is asked about.
    """
    root = _Folders(system, home, environ)
    match client:
        case "claude-desktop":
            return tuple(
                Place(client, "user", base / "claude_desktop_config.json", ("mcpServers",), usual=usual)
                for base, usual in root.claude_desktop()
            )
        case "claude-code":
            own = root.path("CLAUDE_CONFIG_DIR") or home
            return (
                Place(client, "user", own / ".claude.json", ("mcpServers",)),
                *(
                    Place(client, "local", own / ".claude.json", ("projects", key, "mcpServers"), folder)
                    for key in project_keys(folder)
                ),
                Place(client, "project", folder / ".mcp.json", ("mcpServers",), folder),
            )
        case "cursor":
            return (
                Place(client, "user", home / ".cursor" / "mcp.json", ("mcpServers",)),
                Place(client, "project", folder / ".cursor" / "mcp.json", ("mcpServers",), folder),
            )
        case "vscode":
            bases = root.vscode()
            own_folder = folder / ".vscode"
            return (
                *(Place(client, "user", base / "mcp.json", ("servers",), usual=usual) for base, usual in bases),
                *(Place(client, "user", base / "settings.json", SETTINGS_KEYS, usual=False) for base, _ in bases),
                Place(client, "project", own_folder / "mcp.json", ("servers",), folder),
                Place(client, "project", own_folder / "settings.json", SETTINGS_KEYS, folder, usual=False),
            )
        case "windsurf":
            base = home / ".codeium"
            return (
                Place(client, "user", base / "windsurf" / "mcp_config.json", ("mcpServers",)),
                Place(client, "user", base / "windsurf-next" / "mcp_config.json", ("mcpServers",), usual=False),
                # Of its plugins for other editors.
                Place(client, "user", base / "mcp_config.json", ("mcpServers",), usual=False),
            )


def find(
    client: ClientName,
    scope: Scope,
    system: System,
    home: PurePath,
    environ: Mapping[str, str],
    folder: PurePath,
    exists: Callable[[PurePath], bool],
) -> Place | None:
    """Where a server for this client belongs: where this client keeps things, else where its documentation says.

    None when it has no servers of this scope. What is only read for the sake of older versions is left out.

    Args:
        exists: whether there is such a folder.
    """
    found = [
        each
        for each in places(client, system, home, environ, folder)
        if each.scope == scope and each.keys != SETTINGS_KEYS
    ]
    there = (each for each in found if exists(each.path.parent))
    return next(there, next((each for each in found if each.usual), None))


def project_keys(folder: PurePath) -> tuple[str, ...]:
    """Under which names Claude Code may have a folder in its file: newer versions write slashes on Windows too."""
    return tuple(dict.fromkeys((folder.as_posix(), str(folder))))


@dataclass(frozen=True, slots=True)
class _Folders:
    """Where programs of this user keep what they have to keep."""

    system: System
    home: PurePath
    environ: Mapping[str, str]

    def path(self, variable: str) -> PurePath | None:
        """The folder that a variable names; what is no absolute path counts as unset."""
        text = self.environ.get(variable, "")
        kind = PureWindowsPath if self.system == "win32" else PurePosixPath
        # A `Path` where the home folder is one, so that it can be opened.
        found = type(self.home)(text)
        return found if kind(text).is_absolute() else None

    @property
    def applications(self) -> PurePath:
        if self.system == "win32":
            return self.path("APPDATA") or self.home / "AppData" / "Roaming"
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        return self.path("XDG_CONFIG_HOME") or self.home / ".config"

    def claude_desktop(self) -> tuple[tuple[PurePath, bool], ...]:
        documented = (self.applications / "Claude", True)
        if self.system != "win32":
            return (documented,)
        local = self.path("LOCALAPPDATA") or self.home / "AppData" / "Local"
        packaged = local / "Packages" / _MSIX_PACKAGE / "LocalCache" / "Roaming" / "Claude"
        return ((packaged, False), documented)

    def vscode(self) -> tuple[tuple[PurePath, bool], ...]:
        found = [(self.applications / "Code" / "User", True), (self.applications / "Code - Insiders" / "User", False)]
        if self.system == "linux":
            sandboxed = self.home / ".var" / "app" / "com.visualstudio.code" / "config"
            found.append((sandboxed / "Code" / "User", False))
        return tuple(found)
