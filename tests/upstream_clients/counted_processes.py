"""The processes of a server that writes its pid to a file, see `servers/counted_server.py`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from upstream_clients import ToolSource, UpstreamSpec

SERVER = Path(__file__).parent / "servers" / "counted_server.py"


class Processes:
    """The processes of `counted_server.py` that were started in one test."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def spec(self, *flags: str, **more: Any) -> UpstreamSpec:
        return UpstreamSpec(
            **{
                "name": "srv",
                "command": sys.executable,
                "args": (str(SERVER), str(self._path), *flags),
                "environ": {**os.environ},
                **more,
            }
        )

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._path.read_text().split()] if self._path.exists() else []

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if _lives(pid)]

    async def until_alive(self, count: int) -> None:
        with anyio.fail_after(20):
            while len(self.alive) != count:  # noqa: ASYNC110 - these are other processes
                await anyio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def said(source: ToolSource, tool: str = "pid", **arguments: str) -> Any:
    outcome = await source.call_tool(tool, arguments, timeout=20)
    return json.loads(outcome.result["content"][0]["text"])
