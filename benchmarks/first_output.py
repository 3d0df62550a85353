"""The time of `codemode-mcp run` to its first output, beside a client of the SDK that makes the same call.

The bar: at most what the server itself takes, and 0.4 s. The server's own time is from its start to the answer to the
call, within a client whose imports are done.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import report

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / ".cache" / "node" / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
ROUNDS = 9
ALLOWED_MS = 400

PLAIN = """
import json, sys, time
import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main(entry, tool, arguments):
    began = time.perf_counter()
    async with stdio_client(StdioServerParameters(**entry)) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        await session.call_tool(tool, arguments)
        print(json.dumps((time.perf_counter() - began) * 1000), flush=True)

anyio.run(main, *json.loads(sys.argv[1]))
"""


def first_output() -> None:
    """Measure with a Python server, and with the filesystem server where it is installed."""
    echo = {"command": sys.executable, "args": [str(ROOT / "examples" / "quickstart" / "tracker.py")]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _measured("a Python server", folder, echo, "list_people", "listPeople", {})
        if FILES.is_file():
            files = {"command": "node", "args": [str(FILES), name]}
            _measured("the filesystem server", folder, files, "list_directory", "listDirectory", {"path": name})


def _measured(
    title: str, folder: Path, entry: dict[str, Any], tool: str, method: str, arguments: dict[str, Any]
) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": {"one": entry}}))
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    program = f"await MCP.one.{method}({json.dumps(arguments)}); text('done')"
    ours = [sys.executable, "-m", "codemode_mcp", "run", "-q", "--config", str(config), "-e", program]
    plain = [sys.executable, "-c", PLAIN, json.dumps([entry, tool, arguments])]
    _first_line(ours, environ)  # the engine is compiled, and the listing kept
    _first_line(plain, environ)
    run, client, server = [], [], []
    for _ in range(ROUNDS):
        run.append(_first_line(ours, environ)[0])
        took, line = _first_line(plain, environ)
        client.append(took)
        server.append(json.loads(line))
    over = statistics.median(mine - theirs for mine, theirs in zip(run, server, strict=True))
    figures = (statistics.median(each) for each in (run, server, client))
    shown = "run {:.0f} ms, server {:.0f}, client {:.0f}".format(*figures)
    report(f"first output of run, {title}", shown, f"server and {ALLOWED_MS} ms: {over:.0f}", over <= ALLOWED_MS)


def _first_line(command: list[str], environ: dict[str, str]) -> tuple[float, str]:
    """Return the milliseconds from the start of a process to its first line, and that line."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = (time.perf_counter() - began) * 1000
        process.stdout.read()
    if process.returncode != 0 or not line:
        raise RuntimeError(f"{command[:4]} failed")
    return took, line
