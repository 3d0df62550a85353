"""Parts that benchmarks share: reporting a figure, and starting our server."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters

ECHO = Path(__file__).parent / "echo_server.py"


def report(name: str, figure: str, bar: str, ok: bool) -> None:
    print(f"{'ok  ' if ok else 'MISS'}  {name:<58} {figure:<34} bar: {bar}", flush=True)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process of Linux, also of its threads that have ended, in seconds."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock of the scheduler for this process


def ours(config: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "codemode_mcp", "serve", "--private", "--config", str(config), "--log-level", "error"],
        # Not among the user's own programs.
        env={"XDG_STATE_HOME": str(config.parent / "state")},
    )


def write_config(folder: str, **code_mode: Any) -> Path:
    """Return a configuration with the echo server; `code_mode` are fields of `tools.codeMode`."""
    config = Path(folder) / "codemode-mcp.json"
    servers = {"echo": {"command": sys.executable, "args": [str(ECHO)]}}
    config.write_text(json.dumps({"mcpServers": servers, "tools": {"codeMode": code_mode}}))
    return config
