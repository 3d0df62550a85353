"""The core without one extension: it imports, shows its commands, and answers an exec."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.extension_points import Extension
from tests.extensions.without import EXTENSIONS, ROOT, environment, linked

IMPORTED = """
import importlib, os, sys
import codemode_mcp
for package in ("codemode_mcp", "declarations", "upstream_clients"):
    for folder, _, files in os.walk(package, followlinks=True):
        if not folder.startswith(tuple(sys.argv[1:])):
            for file in files:
                name = os.path.join(folder, file.removesuffix(".py")).replace(os.sep, ".")
                if file.endswith(".py"):
                    importlib.import_module(name.removesuffix(".__init__"))
parts = tuple(each.replace(os.sep, ".") for each in sys.argv[1:])
print(codemode_mcp.__path__[0], *(name for name in sys.modules if name.startswith(parts)))
"""
"""A program that imports the core, and prints the modules of extensions that this has imported."""

USED = """
import contextlib
app = importlib.import_module("codemode_mcp.cli").app
with contextlib.suppress(SystemExit):
    app(["--help"])
sys.stdout.flush()
app(["serve", "--private", "--config", "mcp.json"])
"""
"""A program that shows the commands, and serves."""

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

MESSAGES: list[dict[str, Any]] = [
    {"id": 1, "method": "initialize", "params": CLIENT},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {"name": "exec", "arguments": {"code": "return 20 + 1"}}},
]

FOLDERS = ["codemode_mcp/extensions", *map(str, EXTENSIONS.values())]


def test_no_module_of_the_core_imports_an_extension(tmp_path: Path) -> None:
    linked("", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *FOLDERS],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "codemode_mcp")]


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_core_works_without_an_extension(name: str, tmp_path: Path) -> None:
    linked(name, tmp_path)
    assert not (tmp_path / EXTENSIONS[name]).exists()
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTED + USED, *FOLDERS],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[str] = []
    with process, process.stdin as requests:
        for message in MESSAGES:
            requests.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        requests.flush()
        while not lines or '"id":2' not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "serve ended without an answer"
    commands = {line.split()[1] for line in lines if line.startswith("│ ") and line.split()[1:]}
    assert {"serve", "run", "runs"} <= commands
    if (ROOT / EXTENSIONS[name] / "extension.py").exists():
        gone: Extension = import_module(f"codemode_mcp.extensions.{name}.extension").EXTENSION
        assert not commands & set(gone.commands)
    assert json.loads(lines[-1])["result"]["content"][0]["text"] == "21"
