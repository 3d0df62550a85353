"""Relays as processes of the real command, of a user with folders of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.nesting import DEPTH_VARIABLE
from codemode_mcp.process.instance import registry
from tests.instance.fake_instance import FakeInstance, close_all

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class User:
    """A user with folders of their own, and a fake of the shared instance."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self.fake = FakeInstance(home / "control")
        self.processes: list[subprocess.Popen[bytes]] = []

    def publish(self, config: Path | None) -> None:
        """Make the fake the instance of a configuration."""
        registry.write_record(registry.key_of(config), registry.Record(**self.fake.record))

    def serve(self, *options: str, **environ: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "codemode_mcp", "serve", *options]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(command, cwd=self.work, env={**os.environ, **environ}, **pipes)
        self.processes.append(process)
        return process


@contextmanager
def user_with_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """Yield a user, whose folders this process uses too, for the duration of the context."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        home = Path(short).resolve()
        monkeypatch.delenv("CODEMODE_MCP_CONFIG", raising=False)
        monkeypatch.delenv(DEPTH_VARIABLE, raising=False)
        monkeypatch.setenv("HOME", str(home))
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        found = User(home)
        yield found
        for process in found.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        close_all()


def write_line(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def read_line(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())
