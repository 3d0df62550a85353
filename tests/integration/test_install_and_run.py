"""One command, and the next start of the client, turn a client's file with ten servers into a working `exec`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import SERVERS, cli
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from codemode_mcp.base.paths import cache_dir

NAMES = tuple(f"server-{number}" for number in range(10))
PROGRAM = """
const { servers } = await MCP.$api();
return { servers: servers.length, said: unwrap(await MCP.server7.say({ name: "x" })) };
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home folder of a user with ten servers in Cursor."""
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "say", "inputSchema": {"type": "object"}}]), "utf-8")
    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(tmp_path)]}
    folder = tmp_path / "home" / ".cursor"
    folder.mkdir(parents=True)
    servers = {name: {**entry, "env": {"NAME": name}} for name in NAMES}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2), "utf-8")
    return tmp_path / "home"


def private(home: Path) -> dict[str, str]:
    """Return the environment of a user with that home folder; what is compiled is found where it was."""
    folders = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".data", "APPDATA": "roaming"}
    here = {name: str(home / folder) for name, folder in folders.items()}
    return {**here, "HOME": str(home), "USERPROFILE": str(home), "XDG_CACHE_HOME": str(cache_dir().parent)}


@pytest.mark.anyio
async def test_one_command_puts_ten_servers_behind_this_one_and_another_takes_it_back(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    before = file.read_bytes()
    done = cli("install", "--client", "cursor", "--move-servers", cwd=home, env=private(home))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(file)
    assert all(name in done.stderr for name in NAMES)
    assert "codemode-mcp install --client cursor --undo" in done.stderr

    # As the client does it: with the entry, and with little else.
    (entry,) = json.loads(file.read_text("utf-8"))["mcpServers"].values()
    environ = {"XDG_CACHE_HOME": str(cache_dir().parent)}
    started = StdioServerParameters(command=entry["command"], args=entry["args"], env=environ, cwd=os.sep)
    async with Client(started) as client:
        result = await client.call_tool("exec", {"code": PROGRAM})
    answer: Any = result.structured_content
    assert answer["status"] == "completed", answer
    assert answer["value"] == {"servers": 10, "said": {"name": "x"}}

    undone = cli("install", "--client", "cursor", "--undo", cwd=home, env=private(home))
    assert undone.returncode == 0, undone.stderr
    assert file.read_bytes() == before
