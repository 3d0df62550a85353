"""The command that is run when a program waits for a person."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from codemode_mcp.process.app import terminal_access
from codemode_mcp.process.app.terminal_access import open_notifier

WRITE = (
    "import json, os, sys; "
    "json.dump([sys.argv[2:], os.environ.get('CODEMODE_MCP_RUN_ID'), os.environ.get('A_SECRET'), sys.stdin.read()], "
    "open(sys.argv[1] + '.new', 'w')); os.rename(sys.argv[1] + '.new', sys.argv[1])"
)


async def until_so(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not happened():  # noqa: ASYNC110 - caused by another process
            await anyio.sleep(0.02)


async def test_the_command_gets_the_run_id_and_nothing_of_our_environment_or_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_SECRET", "of the server")
    seen = tmp_path / "seen"
    code = f"print('on stdout'); {WRITE}"
    async with open_notifier(lambda: (sys.executable, "-c", code, str(seen), "a b; c")) as notice:
        notice("run_1")
        await until_so(seen.exists)
    assert json.loads(seen.read_text()) == [["a b; c", "run_1"], "run_1", None, ""]
    assert capfd.readouterr().out == ""


async def test_one_run_is_notified_once_in_a_while(tmp_path: Path) -> None:
    asked: list[str] = []

    def command() -> tuple[str, ...]:
        asked.append("")
        return sys.executable, "-c", "import sys; open(sys.argv[1] + sys.argv[2], 'a').write('x')", str(tmp_path / "n-")

    async with open_notifier(command) as notice:
        for run in ("one", "one", "two"):
            notice(run)
        await until_so((tmp_path / "n-one").exists)
        await until_so((tmp_path / "n-two").exists)
        await until_so(lambda: (tmp_path / "n-one").read_text() == "x")
    assert len(asked) == 3
    assert (tmp_path / "n-one").read_text() == "x"


@pytest.mark.parametrize("command", [("no-such-program-here",), (sys.executable, "-c", "raise SystemExit(3)")])
async def test_a_command_that_fails_is_logged(command: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    async with open_notifier(lambda: command) as notice:
        notice("run_1")
        await until_so(lambda: bool(caplog.records))
    assert "tools.approval.notify" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
async def test_a_command_of_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n: > planted; exit 1")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    async with open_notifier(lambda: ("tool",), {"PATH": "."}) as notice:
        notice("run_1")
        await until_so(lambda: bool(caplog.records))
    assert not (tmp_path / "planted").exists()


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(terminal_access, "LIMIT_SECONDS", 0.2)
    async with open_notifier(lambda: (sys.executable, "-c", "import time; time.sleep(600)")) as notice:
        notice("run_1")
        await until_so(lambda: bool(caplog.records))
    assert "took more than 0.2 s" in caplog.text
