"""The three ways in which a model is shown tools, over real servers.

- `direct`: each server is connected by itself, and all of its tools are in the prompt. codemode-mcp is not there.
- `search`: codemode-mcp in its mode `search`, with the tools `search` and `call`.
- `code`: codemode-mcp in its default mode, with the tools `exec` and `wait`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from benchmarks.agents.task import differences
from benchmarks.agents.worlds import SERVES, WORLDS, Tables

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("direct", "search", "code")
CONNECTED = ("needed", "all")
"""The servers that are connected: those that a task needs, or all ten."""
SECONDS = 60.0
"""Limit of one call."""


@dataclass(frozen=True)
class Result:
    """The result of a call: the text that a model reads, and `structuredContent`."""

    text: str
    is_error: bool
    structured: Any = None


class Toolbox:
    """The tools of one arm for one task, as they are in `tools/list`."""

    def __init__(
        self,
        folder: Path,
        servers: Sequence[str],
        tools: list[dict[str, Any]],
        routes: Mapping[str, tuple[Client, str]],
    ) -> None:
        self.tools = tools
        self._servers = servers
        self._folder = folder
        self._routes = routes

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """Call a tool by its name in the prompt. Failures are results, as a client shows them to its model."""
        if name not in self._routes:
            return Result(f"There is no tool {name}.", is_error=True)
        client, own = self._routes[name]
        try:
            with anyio.fail_after(SECONDS):
                result = await client.call_tool(own, arguments)
        except (MCPError, TimeoutError) as error:
            return Result(str(error) or "The tool has not answered in time.", is_error=True)
        text = "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
        return Result(text, bool(result.is_error), result.structured_content)

    def tables(self, server: str) -> Tables:
        """Return the tables of a server as its last change has left them."""
        state = self._folder / f"{server}.json"
        return json.loads(state.read_text("utf-8")) if state.exists() else WORLDS[server].make()

    def differences(self, wanted: Mapping[str, Tables]) -> list[str]:
        """Return what is wrong in the tables of all servers. Those of servers that are not given must be unchanged."""
        return [
            f"{server}: {problem}"
            for server in self._servers
            for problem in differences(self.tables(server), wanted.get(server) or WORLDS[server].make())
        ]


def connected(servers: Sequence[str], which: str) -> tuple[str, ...]:
    """Return the names of the servers to connect for a task that needs some."""
    return tuple(WORLDS) if which == "all" else tuple(servers)


@asynccontextmanager
async def opened(arm: str, servers: Sequence[str], folder: Path) -> AsyncIterator[Toolbox]:
    """Yield the tools of an arm, with new servers that keep their tables in a folder."""
    entries = {
        name: {"command": sys.executable, "args": ["-P", str(SERVES), name, str(folder / f"{name}.json")]}
        for name in servers
    }
    async with AsyncExitStack() as stack:
        tools: list[dict[str, Any]] = []
        routes: dict[str, tuple[Client, str]] = {}
        errlog = stack.enter_context((folder / "stderr.log").open("a", encoding="utf-8"))
        if arm == "direct":
            started = [(f"{name}__", StdioServerParameters(**entry)) for name, entry in entries.items()]
        else:
            started = [("", _gateway(arm, entries, folder))]
        for prefix, parameters in started:
            client = await stack.enter_async_context(Client(stdio_client(parameters, errlog=errlog), mode="legacy"))
            for tool in (await client.list_tools()).tools:
                entry = tool.model_dump(by_alias=True, exclude_none=True)
                tools.append({**entry, "name": prefix + tool.name})
                routes[prefix + tool.name] = client, tool.name
        yield Toolbox(folder, servers, tools, routes)


def _gateway(arm: str, entries: dict[str, Any], folder: Path) -> StdioServerParameters:
    config = folder / "codemode-mcp.json"
    # On a busy machine, servers start slowly and programs take longer. This must not change what a model reads.
    tools = {"codeMode": {"connectWaitMs": 30_000, "timeoutMs": 45_000}}
    config.write_text(json.dumps({"mcpServers": entries, "expose": {"mode": arm}, "tools": tools}), "utf-8")
    command = ["-m", "codemode_mcp", "serve", "--private", "--config", str(config), "--log-level", "error"]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state")}
    return StdioServerParameters(command=sys.executable, args=command, env=env)
