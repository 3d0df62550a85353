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

HELP = 'importlib.import_module("codemode_mcp.cli").app(["--help"])'

FOLDERS = ["codemode_mcp/extensions", *map(str, EXTENSIONS.values())]


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_module_of_the_core_imports_an_extension(tmp_path: Path) -> None:
    linked("", tmp_path)
    assert run(tmp_path, "-c", IMPORTED, *FOLDERS).split() == [str(tmp_path / "codemode_mcp")]


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_core_works_without_an_extension(name: str, tmp_path: Path) -> None:
    linked(name, tmp_path)
    assert not (tmp_path / EXTENSIONS[name]).exists()
    shown = run(tmp_path, "-c", IMPORTED + HELP, *FOLDERS)
    commands = {line.split()[1] for line in shown.splitlines() if line.startswith("│ ") and line.split()[1:]}
    assert {"serve", "run", "runs"} <= commands
    if (ROOT / EXTENSIONS[name] / "extension.py").exists():
        gone: Extension = import_module(f"codemode_mcp.extensions.{name}.extension").EXTENSION
        assert not commands & set(gone.commands)
    assert answered(tmp_path, "return 20 + 1") == "21"


def answered(folder: Path, code: str) -> Any:
    """Return the text that `serve` answers to an exec."""
    (folder / "mcp.json").write_text('{"mcpServers": {}}')
    process = subprocess.Popen(
        [sys.executable, "-m", "codemode_mcp", "serve", "--private", "--config", "mcp.json"],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "exec", "arguments": {"code": code}}
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as requests:
        for message in (
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            requests.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        requests.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if answer.get("id") == 2:
                return answer["result"]["content"][0]["text"]
    raise AssertionError("serve ended without an answer")
