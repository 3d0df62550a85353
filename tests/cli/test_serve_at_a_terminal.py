"""Tests of the message of `serve` to a person who typed it at a terminal, which clients do not get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")


def started(tmp_path: Path, stdin: int, text: str = '{"mcpServers": {}}') -> subprocess.Popen[str]:
    config = tmp_path / "codemode-mcp.json"
    config.write_text(text)
    return subprocess.Popen(
        [sys.executable, "-m", "codemode_mcp", "serve", "--private", "--config", str(config)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )


def test_at_a_terminal_only_an_unreadable_configuration_is_reported(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    process = started(tmp_path, theirs, "{")
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)
    assert said.startswith("invalid_config")
    assert "waits for an MCP client" not in said
    assert process.returncode == 2


def test_at_a_terminal_it_says_that_it_waits_for_a_client_and_what_to_do(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    process = started(tmp_path, theirs)
    try:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)
    assert "waits for an MCP client on standard input; Ctrl-C ends it" in said
    assert "codemode-mcp install --client NAME" in said
    assert "codemode-mcp demo" in said
    assert out == ""


def test_a_client_gets_no_such_message(tmp_path: Path) -> None:
    process = started(tmp_path, subprocess.PIPE)
    try:
        _, err = process.communicate("", timeout=60)
    finally:
        process.kill()
    assert "waits for an MCP client" not in err
