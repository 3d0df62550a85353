"""Tests of the locations of client files, for all systems."""

from pathlib import PurePath, PurePosixPath, PureWindowsPath

import pytest

from codemode_mcp.extensions.setup.mcp_clients.locations import (
    CLIENTS,
    ClientName,
    Machine,
    System,
    install_location,
    locations,
)

HOME = PurePosixPath("/home/me")
MAC = PurePosixPath("/Users/me")
WINDOWS = PureWindowsPath(r"C:\Users\me")
ROAMING = r"C:\Users\me\AppData\Roaming"
PACKAGED = r"C:\Users\me\AppData\Local\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude"


def machine(system: System, home: PurePath, environ: dict[str, str] | None = None) -> Machine:
    return Machine(system, home, environ or {}, home / "work")  # type: ignore[arg-type]


def paths(
    client: ClientName, system: System, home: PurePath, environ: dict[str, str] | None = None
) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for location in locations(client, machine(system, home, environ)):
        assert location.client == client
        assert type(location.path) is type(home)
        found.setdefault(location.scope, []).append((str(location.path), location.keys))
    return found


def test_claude_desktop_has_one_file_which_windows_may_redirect_into_its_package() -> None:
    keys = ("mcpServers",)
    mac = "/Users/me/Library/Application Support/Claude/claude_desktop_config.json"
    assert paths("claude-desktop", "darwin", MAC) == {"user": [(mac, keys)]}
    linux = "/home/me/.config/Claude/claude_desktop_config.json"
    assert paths("claude-desktop", "linux", HOME) == {"user": [(linux, keys)]}
    moved = paths("claude-desktop", "linux", HOME, {"XDG_CONFIG_HOME": "/conf"})
    assert moved == {"user": [("/conf/Claude/claude_desktop_config.json", keys)]}
    file = "claude_desktop_config.json"
    windows = [(rf"{PACKAGED}\{file}", keys), (rf"{ROAMING}\Claude\{file}", keys)]
    assert paths("claude-desktop", "win32", WINDOWS) == {"user": windows}
    other = paths("claude-desktop", "win32", WINDOWS, {"APPDATA": r"D:\roaming", "LOCALAPPDATA": "relative"})
    assert other["user"] == [windows[0], (rf"D:\roaming\Claude\{file}", keys)]


def test_claude_code_has_user_and_local_servers_in_one_file_and_project_servers_in_another() -> None:
    assert paths("claude-code", "linux", HOME) == {
        "user": [("/home/me/.claude.json", ("mcpServers",))],
        "local": [("/home/me/.claude.json", ("projects", "/home/me/work", "mcpServers"))],
        "project": [("/home/me/work/.mcp.json", ("mcpServers",))],
    }
    assert paths("claude-code", "darwin", MAC, {"CLAUDE_CONFIG_DIR": "/c"})["user"][0][0] == "/c/.claude.json"
    windows = paths("claude-code", "win32", WINDOWS)
    assert [keys[1] for _, keys in windows["local"]] == ["C:/Users/me/work", r"C:\Users\me\work"]


def test_cursor_and_windsurf_use_the_home_folder_on_every_system() -> None:
    assert paths("cursor", "win32", WINDOWS) == {
        "user": [(r"C:\Users\me\.cursor\mcp.json", ("mcpServers",))],
        "project": [(r"C:\Users\me\work\.cursor\mcp.json", ("mcpServers",))],
    }
    assert paths("windsurf", "darwin", MAC)["user"][0] == (
        "/Users/me/.codeium/windsurf/mcp_config.json",
        ("mcpServers",),
    )


@pytest.mark.parametrize(
    ("system", "home", "base"),
    [
        pytest.param("linux", HOME, "/home/me/.config", id="linux"),
        pytest.param("darwin", MAC, "/Users/me/Library/Application Support", id="darwin"),
        pytest.param("win32", WINDOWS, ROAMING, id="win32"),
    ],
)
def test_vs_code_has_mcp_json_and_its_older_settings(system: System, home: PurePath, base: str) -> None:
    found = paths("vscode", system, home)
    inside = type(home)(base)
    for name in ("Code", "Code - Insiders"):
        assert (str(inside / name / "User" / "mcp.json"), ("servers",)) in found["user"]
        assert (str(inside / name / "User" / "settings.json"), ("mcp", "servers")) in found["user"]
    assert found["project"] == [
        (str(home / "work" / ".vscode" / "mcp.json"), ("servers",)),
        (str(home / "work" / ".vscode" / "settings.json"), ("mcp", "servers")),
    ]


def test_install_uses_the_location_that_exists() -> None:
    def user_folder(client: ClientName, system: System, home: PurePath, *there: str) -> str:
        location = install_location(client, "user", machine(system, home), lambda path: str(path) in there)
        assert location is not None
        return str(location.path.parent)

    assert user_folder("claude-desktop", "win32", WINDOWS) == rf"{ROAMING}\Claude"
    assert user_folder("claude-desktop", "win32", WINDOWS, PACKAGED, rf"{ROAMING}\Claude") == PACKAGED
    assert user_folder("vscode", "linux", HOME) == "/home/me/.config/Code/User"
    insiders = "/home/me/.config/Code - Insiders/User"
    assert user_folder("vscode", "linux", HOME, insiders) == insiders
    for client in CLIENTS:
        for scope in ("user", "project", "local"):
            location = install_location(client, scope, machine("linux", HOME), lambda _: True)
            assert location is None or (location.scope == scope and location.keys != ("mcp", "servers"))
    assert install_location("claude-desktop", "project", machine("linux", HOME), lambda _: True) is None
    assert install_location("cursor", "local", machine("linux", HOME), lambda _: True) is None
