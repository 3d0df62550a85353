"""Files of each MCP client's servers, on each system. Pure: system, folders and environment are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Final, Literal, get_args

from codemode_mcp.config.formats import format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import PurePath

    from codemode_mcp.config.formats import Format

ClientName = Literal[
    "claude-desktop",
    "claude-code",
    "cursor",
    "vscode",
    "windsurf",
    "codex",
    "gemini-cli",
    "opencode",
    "copilot-cli",
    "zed",
    "goose",
    "qwen-code",
]

CLIENTS: Final[tuple[ClientName, ...]] = get_args(ClientName)

TITLES: Final[Mapping[ClientName, str]] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "codex": "Codex",
    "gemini-cli": "Gemini CLI",
    "opencode": "opencode",
    "copilot-cli": "GitHub Copilot CLI",
    "zed": "Zed",
    "goose": "Goose",
    "qwen-code": "Qwen Code",
}

OWN_CODE_MODE: Final[tuple[ClientName, ...]] = ("codex", "opencode")
"""Clients in which the model can write programs that call tools, without this server."""

System = Literal["linux", "darwin", "win32"]

Scope = Literal["user", "project", "local"]

SETTINGS_KEYS: Final = ("mcp", "servers")
"""Path in `settings.json` of VS Code of servers that were added before it had `mcp.json`."""

ZED_KEYS: Final = ("context_servers",)

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

    @property
    def format(self) -> Format:
        return format_of(self.path)


def places(
    client: ClientName, system: System, home: PurePath, environ: Mapping[str, str], folder: PurePath
) -> tuple[Place, ...]:
    """Return all places of a client, those of the user first, of one scope the likeliest first.

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
        case "codex":
            own = root.path("CODEX_HOME") or home / ".codex"
            return (
                Place(client, "user", own / "config.toml", ("mcp_servers",)),
                Place(client, "project", folder / ".codex" / "config.toml", ("mcp_servers",), folder),
            )
        case "gemini-cli" | "qwen-code":
            name = ".gemini" if client == "gemini-cli" else ".qwen"
            return (
                Place(client, "user", home / name / "settings.json", ("mcpServers",)),
                Place(client, "project", folder / name / "settings.json", ("mcpServers",), folder),
            )
        case "opencode":
            base = (root.path("XDG_CONFIG_HOME") or home / ".config") / "opencode"
            names = (("opencode.jsonc", False), ("opencode.json", True))
            return (
                *(Place(client, "user", base / name, ("mcp",), usual=usual) for name, usual in names),
                *(Place(client, "project", folder / name, ("mcp",), folder, usual=usual) for name, usual in names),
            )
        case "copilot-cli":
            own = root.path("COPILOT_HOME") or home / ".copilot"
            return (
                Place(client, "user", own / "mcp-config.json", ("mcpServers",)),
                Place(client, "project", folder / ".github" / "mcp.json", ("mcpServers",), folder),
            )
        case "zed":
            return (
                *(Place(client, "user", base / "settings.json", ZED_KEYS, usual=usual) for base, usual in root.zed()),
                Place(client, "project", folder / ".zed" / "settings.json", ZED_KEYS, folder),
            )
        case "goose":
            return (Place(client, "user", root.goose() / "config.yaml", ("extensions",)),)


def find(
    client: ClientName,
    scope: Scope,
    system: System,
    home: PurePath,
    environ: Mapping[str, str],
    folder: PurePath,
    exists: Callable[[PurePath], bool],
) -> Place | None:
    """Return the place of servers of this client: where it keeps some, else where its documentation says.

    None when it has no servers of this scope. What is only read for the sake of older versions is left out.

    Args:
        exists: whether there is such a folder.
    """
    found = [
        each
        for each in places(client, system, home, environ, folder)
        if each.scope == scope and each.keys != SETTINGS_KEYS
    ]
    # Of two names of one file, the one that is there; of two folders, the one that is there.
    both = len({each.path.parent for each in found}) < len(found)
    there = (each for each in found if exists(each.path if both else each.path.parent))
    return next(there, next((each for each in found if each.usual), None))


def project_keys(folder: PurePath) -> tuple[str, ...]:
    """Under which names Claude Code may have a folder in its file: newer versions write slashes on Windows too."""
    return tuple(dict.fromkeys((folder.as_posix(), str(folder))))


@dataclass(frozen=True, slots=True)
class _Folders:
    """Folders for files of this user's programs."""

    system: System
    home: PurePath
    environ: Mapping[str, str]

    def path(self, variable: str) -> PurePath | None:
        """Return the folder that a variable names; what is no absolute path counts as unset."""
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

    def zed(self) -> tuple[tuple[PurePath, bool], ...]:
        if self.system == "win32":
            return ((self.applications / "Zed", True),)
        if self.system == "darwin":
            return ((self.home / ".config" / "zed", True),)
        sandboxed = self.home / ".var" / "app" / "dev.zed.Zed" / "config" / "zed"
        return ((self.applications / "zed", True), (sandboxed, False))

    def goose(self) -> PurePath:
        if self.system == "win32":
            return self.applications / "Block" / "goose" / "config"
        return (self.path("XDG_CONFIG_HOME") or self.home / ".config") / "goose"
