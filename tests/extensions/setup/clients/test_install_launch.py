"""Tests of the command by which clients start this server, for all systems."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.config.server_entry import starts_this_server
from codemode_mcp.extensions.setup.mcp_clients.launch import Launch, NoLaunchError, Program, launch, origin
from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, System
from codemode_mcp.extensions.setup.mcp_clients.own_entries import new_entry

SCRIPT = "/home/me/.local/bin/codemode-mcp"
PIPX = "/home/me/.local/share/pipx/venvs/codemode-mcp/bin/python"
UV_TOOL = "/home/me/.local/share/uv/tools/codemode-mcp/bin/python"
UVX = "/home/me/.cache/uv/archive-v0/Zx81_b/bin/python"
PIPX_RUN = "/home/me/.cache/pipx/1f2e3d/bin/python"
WINDOWS = r"C:\Users\me\venv\Scripts\codemode-mcp.exe"


def launched(program: Program, *files: str, system: System = "linux") -> tuple[str, ...]:
    found = launch(program, system, lambda path: path in files, lambda name: f"/usr/bin/{name}")
    assert starts_this_server(found.command, found.args)
    return (found.command, *found.args)


@pytest.mark.parametrize(
    ("program", "files", "system", "command"),
    [
        (Program(SCRIPT, PIPX), [SCRIPT], "linux", (SCRIPT, "serve")),
        (Program(SCRIPT, UV_TOOL), [SCRIPT], "linux", (SCRIPT, "serve")),
        (Program("/src/codemode_mcp/__main__.py", "/v/bin/python"), ["/v/bin/codemode-mcp"], "darwin",
         ("/v/bin/codemode-mcp", "serve")),
        (Program("/src/codemode_mcp/__main__.py", "/v/bin/python"), [], "linux",
         ("/v/bin/python", "-P", "-m", "codemode_mcp", "serve")),
        (Program(WINDOWS.removesuffix(".exe"), r"C:\Users\me\venv\Scripts\python.exe"), [WINDOWS], "win32",
         (WINDOWS, "serve")),
        (Program(WINDOWS, r"C:\Users\me\venv\Scripts\python.exe"), [WINDOWS], "win32", (WINDOWS, "serve")),
        (Program(SCRIPT, UVX), [SCRIPT], "linux", ("/usr/bin/uvx", "codemode-mcp", "serve")),
        (Program("C:\\x", r"C:\Users\me\AppData\Local\uv\cache\archive-v0\A\Scripts\python.exe"), [], "win32",
         ("/usr/bin/uvx", "codemode-mcp", "serve")),
        (Program("/x", PIPX_RUN), [], "linux", ("/usr/bin/pipx", "run", "codemode-mcp", "serve")),
        (Program("/x", UVX, "file:///home/me/a%20b/dist/x.whl"), [], "linux",
         ("/usr/bin/uvx", "--from", "/home/me/a b/dist/x.whl", "codemode-mcp", "serve")),
        (Program("/x", PIPX_RUN, "https://files.example/x.whl"), [], "linux",
         ("/usr/bin/pipx", "run", "--spec", "https://files.example/x.whl", "codemode-mcp", "serve")),
    ],
    ids=["pipx", "uv tool", "beside python", "module", "windows", "windows exe", "uvx", "uvx windows", "pipx run",
         "uvx of a file", "pipx run of a URL"],
)  # fmt: skip
def test_the_command_works_in_later_sessions(
    program: Program, files: list[str], system: System, command: tuple[str, ...]
) -> None:
    assert launched(program, *files, system=system) == command


def test_a_temporary_environment_is_reported() -> None:
    found = launch(Program("/x", UVX), "linux", lambda _: True, lambda name: f"/bin/{name}")
    assert found.note is not None
    assert "uv tool install codemode-mcp" in found.note


def test_the_advice_installs_from_the_same_origin() -> None:
    program = Program("/x", UVX, "file:///home/me/x%20y.whl")
    found = launch(program, "linux", lambda _: True, lambda name: f"/bin/{name}")
    assert found.note is not None
    assert "`uv tool install '/home/me/x y.whl'`" in found.note
    assert "install codemode-mcp" not in found.note


@pytest.mark.parametrize("where", [None, "https://me:secret@files.example/x.whl"])
def test_a_program_that_could_not_be_started_again_is_refused(where: str | None) -> None:
    with pytest.raises(NoLaunchError, match="uv tool install") as refused:
        launch(Program("/x", UVX, where), "linux", lambda _: True, lambda _: "/bin/uvx" if where else None)
    assert "secret" not in str(refused.value)


def test_the_origin_of_an_installation_names_its_commit() -> None:
    vcs = {"url": "https://git.example/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert origin(json.dumps(vcs)) == "git+https://git.example/x@abc"
    assert origin('{"url": "file:///x", "dir_info": {}}') == "file:///x"
    assert [origin(text) for text in (None, "[]", "{", "{}")] == [None] * 4


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-desktop", {"command": "/c", "args": ["serve", "--config", "/f"]}),
        (
            "claude-code",
            {"type": "stdio", "command": "/c", "args": ["serve", "--config", "/f"], "env": {}, "alwaysLoad": True},
        ),
        ("cursor", {"command": "/c", "args": ["serve", "--config", "/f"]}),
        ("vscode", {"type": "stdio", "command": "/c", "args": ["serve", "--config", "/f"]}),
        ("windsurf", {"command": "/c", "args": ["serve", "--config", "/f"]}),
    ],
)
def test_the_entry_has_the_form_of_the_client(client: ClientName, expected: dict[str, Any]) -> None:
    assert new_entry(client, Launch("/c", ("serve",)), "/f") == expected
    # Again, over itself.
    assert new_entry(client, Launch("/c", ("serve",)), "/f", expected) == expected


def test_other_keys_of_a_replaced_entry_are_kept() -> None:
    old = {
        "command": "/old",
        "args": ["-m", "codemode_mcp", "serve", "--read-only", "--config", "/old", "--log-level", "debug"],
        "env": {"TOKEN": "t"},
        "alwaysAllow": ["exec"],
        "disabled": True,
    }
    assert new_entry("cursor", Launch("/c", ("serve",)), "/f", old) == {
        "command": "/c",
        "args": ["serve", "--config", "/f", "--read-only", "--log-level", "debug"],
        "env": {"TOKEN": "t"},
        "alwaysAllow": ["exec"],
    }
    assert new_entry("cursor", Launch("/c", ("serve",)), "/f", {"args": ["serve", "--config=/old"]})["args"][3:] == []


def test_the_fallback_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("raise SystemExit('imported from the working directory')\n", "utf-8")
    found = launch(Program("/x", sys.executable), "linux", lambda path: False, lambda name: None)
    command = [found.command, *(word for word in found.args if word != "serve"), "tools", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
