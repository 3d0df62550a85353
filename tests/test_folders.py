"""Paths of files and names of programs on each system, tested on Linux for all of them."""

from __future__ import annotations

import re
from pathlib import Path

import platformdirs
import platformdirs.macos
import platformdirs.unix
import platformdirs.windows
import pytest

from codemode_mcp.base import paths
from codemode_mcp.program import esbuild_pin, npm_package
from codemode_mcp.server.control import endpoints
from codemode_mcp.server.control.endpoints import folders
from hatch_build import WHEEL_PLATFORMS
from upstream_clients import token_store

LOCAL = r"C:\Users\me\AppData\Local"
SYSTEMS = {
    "linux": platformdirs.unix.Unix,
    "darwin": platformdirs.macos.MacOS,
    "win32": platformdirs.windows.Windows,
}
COLUMNS = {"linux": 1, "darwin": 2, "win32": 3}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A system whose folders are looked up, for a user whose home is `/home/me`."""
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(platformdirs.windows, "get_win_folder", lambda _: LOCAL)
    monkeypatch.setattr(platformdirs, "PlatformDirs", SYSTEMS[request.param])
    return str(request.param)


def documented(system: str) -> list[str]:
    """The column of this system in the table of the page."""
    page = (Path(__file__).parents[1] / "docs" / "install.md").read_text("utf-8")
    rows = [line.split("|") for line in page.partition("## Where things are")[2].splitlines() if line.startswith("| ")]
    cells = [row[1 + COLUMNS[system]].strip(" `") for row in rows[1:]]
    return [cell.replace("~", "/home/me").replace("%LOCALAPPDATA%", LOCAL) for cell in cells]


def test_the_folders_are_those_that_the_page_names(system: str) -> None:
    found = [paths.config_dir(), paths.cache_dir(), token_store.logins_folder().parent, paths.state_dir()]
    assert [normal(each) for each in found] == [normal(Path(each)) for each in documented(system)]


def normal(path: Path) -> str:
    """Whichever system's separators it has."""
    return re.sub(r"[/\\]+", "/", str(path))


def test_each_system_has_places_where_processes_are_reached(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints.sys, "platform", system)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/of/me")
    found = [normal(folder) for folder in folders()]
    cache = normal(paths.cache_dir() / "control")
    if system == "win32":
        assert found == [cache], "no socket, and no folder that others have"
    else:
        assert found[0] == "/run/of/me/codemode-mcp"
        assert cache in found
        assert re.fullmatch(r"/tmp/codemode-mcp-\d+", found[-1])


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_a_runtime_folder_that_is_no_absolute_path_is_not_used(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert all(folder.is_absolute() for folder in folders())
    assert not any("relative" in str(folder) for folder in folders())


@pytest.mark.parametrize(
    ("system", "machine", "key"),
    [
        ("linux", "x86_64", "linux-x64"),
        ("linux", "aarch64", "linux-arm64"),
        ("darwin", "arm64", "darwin-arm64"),
        ("darwin", "x86_64", "darwin-x64"),
        ("win32", "AMD64", "win32-x64"),
        ("win32", "ARM64", "win32-arm64"),
        ("linux", "riscv64", None),
        ("freebsd14", "amd64", None),
    ],
)
def test_the_esbuild_of_each_machine_is_known_by_its_name(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, key: str | None
) -> None:
    monkeypatch.setattr(npm_package.sys, "platform", system)
    monkeypatch.setattr(npm_package.platform, "machine", lambda: machine)
    assert esbuild_pin.platform_key() == key
    if key is not None:
        name = "esbuild.exe" if system == "win32" else "esbuild"
        assert esbuild_pin.executable_name(key) == esbuild_pin.executable_name(system) == name


def test_every_pinned_esbuild_has_a_wheel_and_every_wheel_an_esbuild() -> None:
    assert set(WHEEL_PLATFORMS) == set(esbuild_pin.INTEGRITY)
