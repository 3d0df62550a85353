"""The files in which each MCP client keeps its servers, and advice on each client. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final, Literal, get_args

from msgspec import Struct

from codemode_mcp.extensions.setup.mcp_clients.formats import Format, format_of

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
"""Clients whose model can write programs that call tools without this server."""

System = Literal["linux", "darwin", "win32"]

Scope = Literal["user", "project", "local"]

VSCODE_SETTINGS_KEYS: Final = ("mcp", "servers")
"""Keys of the servers in VS Code's `settings.json`. Versions before `mcp.json` kept servers there."""

ZED_KEYS: Final = ("context_servers",)

_MSIX_PACKAGE: Final = "Claude_pzs8sxrjxfjjc"
"""Package of Claude Desktop on Windows since 2026. Windows redirects its writes to APPDATA to the package's folder."""


class Machine(Struct, frozen=True):
    """The facts of a machine on which the locations of client files depend.

    Attributes:
        home: the user's home folder.
        folder: the project folder, usually the working directory.
    """

    system: System
    home: Path
    environ: Mapping[str, str]
    folder: Path

    def variable_path(self, variable: str) -> Path | None:
        """Return the folder that an environment variable names; None unless it is an absolute path."""
        text = self.environ.get(variable, "")
        flavour = PureWindowsPath if self.system == "win32" else PurePosixPath
        return type(self.home)(text) if flavour(text).is_absolute() else None

    @property
    def xdg_config(self) -> Path:
        return self.variable_path("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def applications(self) -> Path:
        if self.system == "win32":
            return self.variable_path("APPDATA") or self.home / "AppData" / "Roaming"
        return self.home / "Library" / "Application Support" if self.system == "darwin" else self.xdg_config


class Location(Struct, frozen=True):
    """One object of servers in one file of a client.

    Attributes:
        scope: `user` (for all folders), `project` (for one folder), or `local` (for one folder, but in the user's file,
            as in Claude Code).
        path: the absolute path of the file, which may not exist.
        keys: the keys from the root of the file to the object of servers by name: `("mcpServers",)`, `("servers",)`,
            `("projects", "/home/me/work", "mcpServers")`, `("mcp", "servers")`.
        folder: the folder that `project` and `local` servers belong to.
        documented: whether the client's documentation names this file. Some builds of a client use another file.
    """

    client: ClientName
    scope: Scope
    path: Path
    keys: tuple[str, ...]
    folder: Path | None = None
    documented: bool = True

    @property
    def format(self) -> Format:
        return format_of(self.path)

    @property
    def empty_text(self) -> str:
        """The text of a new file without servers, in the form that the client would write."""
        if self.format != "json":
            return ""
        schema = {"$schema": "https://opencode.ai/config.json"} if self.client == "opencode" else {}
        indent = "\t" if self.client == "vscode" else 2
        return json.dumps({**schema, self.keys[0]: {}}, indent=indent) + "\n"


def locations(client: ClientName, machine: Machine) -> tuple[Location, ...]:
    """Return all locations of a client. Locations of the user come first; within a scope, the likeliest comes first."""
    home, folder = machine.home, machine.folder
    common = ("mcpServers",)

    def user(path: Path, keys: tuple[str, ...] = common, *, documented: bool = True) -> Location:
        return Location(client, "user", path, keys, documented=documented)

    def project(path: Path, keys: tuple[str, ...] = common, *, documented: bool = True) -> Location:
        return Location(client, "project", path, keys, folder, documented)

    match client:
        case "claude-desktop":
            folders = _claude_desktop_folders(machine)
            return tuple(user(base / "claude_desktop_config.json", documented=known) for base, known in folders)
        case "claude-code":
            file = (machine.variable_path("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
            keys_of_folder = [("projects", key, "mcpServers") for key in project_keys(folder)]
            local = (Location(client, "local", file, keys, folder) for keys in keys_of_folder)
            return user(file), *local, project(folder / ".mcp.json")
        case "cursor":
            return user(home / ".cursor" / "mcp.json"), project(folder / ".cursor" / "mcp.json")
        case "vscode":
            bases = _vscode_folders(machine)
            return (
                *(user(base / "mcp.json", ("servers",), documented=known) for base, known in bases),
                *(user(base / "settings.json", VSCODE_SETTINGS_KEYS, documented=False) for base, _ in bases),
                project(folder / ".vscode" / "mcp.json", ("servers",)),
                project(folder / ".vscode" / "settings.json", VSCODE_SETTINGS_KEYS, documented=False),
            )
        case "windsurf":
            base = home / ".codeium"
            return (
                user(base / "windsurf" / "mcp_config.json"),
                user(base / "windsurf-next" / "mcp_config.json", documented=False),
                # Windsurf's plugins for other editors use this file.
                user(base / "mcp_config.json", documented=False),
            )
        case "codex":
            keys = ("mcp_servers",)
            base = machine.variable_path("CODEX_HOME") or home / ".codex"
            return user(base / "config.toml", keys), project(folder / ".codex" / "config.toml", keys)
        case "gemini-cli" | "qwen-code":
            name = ".gemini" if client == "gemini-cli" else ".qwen"
            return user(home / name / "settings.json"), project(folder / name / "settings.json")
        case "opencode":
            base = machine.xdg_config / "opencode"
            names = (("opencode.jsonc", False), ("opencode.json", True))
            return (
                *(user(base / name, ("mcp",), documented=known) for name, known in names),
                *(project(folder / name, ("mcp",), documented=known) for name, known in names),
            )
        case "copilot-cli":
            base = machine.variable_path("COPILOT_HOME") or home / ".copilot"
            return user(base / "mcp-config.json"), project(folder / ".github" / "mcp.json")
        case "zed":
            found = (user(base / "settings.json", ZED_KEYS, documented=known) for base, known in _zed_folders(machine))
            return *found, project(folder / ".zed" / "settings.json", ZED_KEYS)
        case "goose":
            windows = machine.applications / "Block" / "goose" / "config"
            base = windows if machine.system == "win32" else machine.xdg_config / "goose"
            return (user(base / "config.yaml", ("extensions",)),)


def install_location(
    client: ClientName, scope: Scope, machine: Machine, exists: Callable[[Path], bool]
) -> Location | None:
    """Return the location to install into: the first whose file or folder exists, else the documented one.

    Return None if the client has no servers of this scope. Files that only older versions read are left out.
    """
    found = [each for each in locations(client, machine) if each.scope == scope and each.keys != VSCODE_SETTINGS_KEYS]
    # A client may not have written its file yet, so its folder shows that this build is installed. Locations in
    # the same folder can be told apart only by their file.
    same_folder = len({each.path.parent for each in found}) < len(found)
    existing = (each for each in found if exists(each.path if same_folder else each.path.parent))
    return next(existing, next((each for each in found if each.documented), None))


def project_keys(folder: Path) -> tuple[str, ...]:
    """Return the keys that Claude Code may use for a folder. On Windows, only newer versions write slashes."""
    return tuple(dict.fromkeys((folder.as_posix(), str(folder))))


def _claude_desktop_folders(machine: Machine) -> tuple[tuple[Path, bool], ...]:
    documented = (machine.applications / "Claude", True)
    if machine.system != "win32":
        return (documented,)
    local = machine.variable_path("LOCALAPPDATA") or machine.home / "AppData" / "Local"
    packaged = local / "Packages" / _MSIX_PACKAGE / "LocalCache" / "Roaming" / "Claude"
    return ((packaged, False), documented)


def _vscode_folders(machine: Machine) -> tuple[tuple[Path, bool], ...]:
    base = machine.applications
    sandboxed = machine.home / ".var" / "app" / "com.visualstudio.code" / "config" / "Code" / "User"
    return (
        (base / "Code" / "User", True),
        (base / "Code - Insiders" / "User", False),
        *([(sandboxed, False)] if machine.system == "linux" else ()),
    )


def _zed_folders(machine: Machine) -> tuple[tuple[Path, bool], ...]:
    if machine.system == "win32":
        return ((machine.applications / "Zed", True),)
    if machine.system == "darwin":
        return ((machine.home / ".config" / "zed", True),)
    sandboxed = machine.home / ".var" / "app" / "dev.zed.Zed" / "config" / "zed"
    return ((machine.applications / "zed", True), (sandboxed, False))


RESTART: Final[Mapping[ClientName, str]] = {
    "claude-desktop": "quit Claude Desktop from its menu or tray icon (closing the window is not enough) and start it",
    "claude-code": "end the session and start `claude` again; `/mcp` then lists the server",
    "cursor": "in Cursor's settings under MCP switch the server on, or restart Cursor",
    "vscode": "run `MCP: List Servers` from VS Code's command palette, choose the server, and start it",
    "windsurf": "press refresh among the MCP servers of Cascade, or restart Windsurf",
    "codex": "end the session and start `codex` again; `/mcp` then lists the server",
    "gemini-cli": "end the session and start `gemini` again; `/mcp` then lists the server",
    "opencode": "end the session and start `opencode` again; `opencode mcp list` shows the server",
    "copilot-cli": "end the session and start `copilot` again; `/mcp show` then lists the server",
    "zed": "open the settings of Zed's agent panel; the dot beside the server is green when it runs",
    "goose": "end the session and start `goose session` again, or restart Goose Desktop",
    "qwen-code": "end the session and start `qwen` again; `/mcp` then lists the server",
}
"""The way to make each client read its changed file."""

RESTART_AFTER_UNDO: Final[Mapping[ClientName, str]] = {
    **RESTART,
    "claude-code": "end the session and start `claude` again",
    "cursor": "restart Cursor",
    "vscode": "run `Developer: Reload Window` from VS Code's command palette",
    "codex": "end the session and start `codex` again",
    "gemini-cli": "end the session and start `gemini` again",
    "opencode": "end the session and start `opencode` again",
    "copilot-cli": "end the session and start `copilot` again",
    "zed": "open the settings of Zed's agent panel; they list the servers that Zed has now",
    "qwen-code": "end the session and start `qwen` again",
}
"""The way to make each client read its file after this server was removed from it."""

REMARKS: Final[Mapping[ClientName, str]] = {
    "codex": (
        "`codex exec` cannot ask you and refuses this server's `exec`. To allow it, add "
        '`default_tools_approval_mode = "approve"` to the entry: Codex then asks about no call to this server. '
        "`tools.ask` of codemode-mcp still asks; `codex exec` has no one who could answer, so set "
        '`tools.approval.via` to "terminal" and approve there'
    ),
}
"""A setting of the client that `install` leaves to the user, with its consequences."""


def client_names(incomplete: str) -> list[str]:
    """Return names of MCP clients, for the completion of a shell."""
    return [name for name in CLIENTS if name.startswith(incomplete)]
