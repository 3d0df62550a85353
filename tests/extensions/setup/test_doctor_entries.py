"""Doctor on the entries of this server in the files of clients, over real processes."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.extensions.setup.doctor import Check, machine
from codemode_mcp.extensions.setup.mcp_clients.locations import Machine
from codemode_mcp.extensions.setup.mcp_clients.own_entries import own_entries
from tests.ports import reserved_port

MODULE = ["-P", "-m", "codemode_mcp", "serve", "--config"]


async def checks(home: Path, servers: dict[str, Any], file: str = ".cursor/mcp.json") -> dict[str, Check]:
    """Return the checks of what one client's file has, by the name of the entry."""
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(json.dumps({"mcpServers": servers}))
    here = Machine("linux", home, {"WHERE": str(home)}, home / "work")
    found = await machine.check_entries(lambda: own_entries(here))
    return {check.detail.split("'")[1]: check for check in found if "'" in check.detail}


@pytest.mark.anyio
async def test_each_entry_is_started_and_named_with_what_was_seen(tmp_path: Path) -> None:
    marked = {"mark": {"command": sys.executable, "args": ["-c", f"open({str(tmp_path / 'started')!r}, 'w')"]}}
    (tmp_path / "good.json").write_text(json.dumps({"mcpServers": marked}))
    (tmp_path / "mistaken.json").write_text(json.dumps({"mcpServers": {"a": {"comand": "x"}}}))
    found = await checks(
        tmp_path,
        {
            "good": {"command": sys.executable, "args": [*MODULE, "${env:WHERE}/good.json"]},
            "no-config": {"command": sys.executable, "args": [*MODULE, "/nowhere/c.json"]},
            "mistaken": {"command": sys.executable, "args": [*MODULE, "${env:WHERE}/mistaken.json"]},
            "gone": {"command": "/nowhere/bin/codemode-mcp", "args": ["serve"]},
            "off": {"command": "/nowhere/bin/codemode-mcp", "args": ["serve"], "disabled": True},
            "other": {"command": "/nowhere/bin/other"},
        },
    )
    assert {name: check.status for name, check in found.items()} == {
        "good": "ok",
        "mistaken": "fail",
        "no-config": "fail",
        "gone": "fail",
        "off": "info",
    }
    assert "it starts: codemode-mcp" in found["good"].detail
    assert not (tmp_path / "started").exists(), "no upstream server is started"
    assert f"Cursor, user, 'no-config' in {tmp_path / '.cursor' / 'mcp.json'}: it exited with code 2" in (
        found["no-config"].detail
    )
    assert "/nowhere/c.json does not exist" in found["no-config"].detail
    assert 'mcpServers.a.comand: unknown key (did you mean "command"?)' in found["mistaken"].detail
    assert found["mistaken"].advice.startswith("correct the configuration file")
    assert "the command '/nowhere/bin/codemode-mcp' was not found" in found["gone"].detail
    for name in ("gone", "no-config"):
        assert "codemode-mcp install --client cursor writes the entry again" in found[name].advice


@pytest.mark.anyio
async def test_an_entry_that_starts_slowly_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SLOW_SECONDS", 0.0)
    (tmp_path / "good.json").write_text("{}")
    entry = {"slow": {"command": sys.executable, "args": [*MODULE, "${env:WHERE}/good.json"]}}
    check = (await checks(tmp_path, entry))["slow"]
    assert check.status == "warn"
    assert "slow to start: codemode-mcp" in check.detail


@pytest.mark.anyio
async def test_what_hangs_is_ended_and_what_a_folder_brings_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "START_SECONDS", 0.2)
    program = tmp_path / "codemode-mcp"
    program.write_text(f"#!{sys.executable}\nimport time\nopen({str(tmp_path / 'ran')!r}, 'a')\ntime.sleep(600)\n")
    program.chmod(0o700)
    entry = {"c": {"command": str(program), "args": ["serve"]}}
    brought = await checks(tmp_path, entry, "work/.mcp.json")
    assert brought["c"].status == "ok"
    assert "it is not started, because the file is part of the folder" in brought["c"].detail
    assert not (tmp_path / "ran").exists()
    (tmp_path / "work" / ".mcp.json").unlink()
    hanging = await checks(tmp_path, entry)
    assert hanging["c"].status == "fail"
    assert "it did not answer within 0 s" in hanging["c"].detail


@pytest.mark.anyio
async def test_an_address_is_reachable_or_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, gone = listener.getsockname()[1], reserved_port()
        found = await checks(
            tmp_path,
            {
                "codemode": {"url": f"http://127.0.0.1:{port}/mcp?token=sk-secret"},
                "codemode-2": {"url": f"http://127.0.0.1:{gone}/mcp"},
                "docs": {"url": "http://127.0.0.1:1/mcp"},
            },
        )
    assert {name: check.status for name, check in found.items()} == {"codemode": "ok", "codemode-2": "fail"}
    assert "sk-secret" not in found["codemode"].detail
    assert f"http://127.0.0.1:{gone}/mcp cannot be reached" in found["codemode-2"].detail


@pytest.mark.anyio
async def test_an_entry_of_the_user_is_not_started_in_the_folder_that_doctor_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, foreign = tmp_path / "home", tmp_path / "foreign"
    for folder in (home, foreign / "bin"):
        folder.mkdir(parents=True)
    mark = tmp_path / "ran"
    # Python puts the folder it is in first: this would be imported in the place of the library.
    (foreign / "anyio.py").write_text(f"open({str(mark)!r}, 'w')\n")
    program = foreign / "bin" / "codemode-mcp"
    program.write_text(f"#!{sys.executable}\nopen({str(mark)!r}, 'w')\n")
    program.chmod(0o700)
    (home / "c.json").write_text('{"mcpServers": {}}')
    monkeypatch.chdir(foreign)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    found = await checks(
        home,
        {
            "module": {"command": sys.executable, "args": ["-m", "codemode_mcp", "serve", "--config", "c.json"]},
            "relative": {"command": "bin/codemode-mcp", "args": ["serve"]},
        },
    )
    assert found["module"].status == "ok"
    assert found["relative"].status == "info"
    assert "it is not started" in found["relative"].detail
    assert not mark.exists()
