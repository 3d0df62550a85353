"""A scripted model that solves tasks in each mode, and the bytes that it reads and writes.

A model reads the tools and the whole conversation again for each of its steps: for each call, and for its last words.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client

from codemode_mcp.base.text import utf8_size
from codemode_mcp.server.descriptions import prompt_bytes
from tests.integration.harness import SECONDS, serve
from tests.tasks.tasks import Task


@dataclass
class Model:
    """One conversation of a model.

    Attributes:
        through: bytes of the arguments that it has written and of the answers that it has got so far.
        read: bytes that it has read in all steps so far.
        known: tools whose signature it has read, by their path.
    """

    client: Client
    tools: list[types.Tool]
    through: int = 0
    read: int = 0
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.prompt = prompt_bytes([tool.model_dump(by_alias=True) for tool in self.tools])

    @property
    def cost(self) -> int:
        """Bytes that the model reads for the whole task, its last step included."""
        return self.read + self.prompt + self.through

    async def call(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        self.read += self.prompt + self.through
        self.through += utf8_size(json.dumps(arguments))
        with anyio.fail_after(SECONDS):
            result = await self.client.call_tool(tool, arguments)
        text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
        self.through += utf8_size(text)
        assert not result.is_error, text
        return result

    async def solve(self, task: Task) -> Any:
        """Solve a task with the tools that there are."""
        names = {tool.name for tool in self.tools}
        if names == {"search", "call"}:
            return await task.calls(lambda path, **given: self._searched(task, path, given))
        if len(names) > 2 and not task.by_program:
            return await task.calls(lambda path, **given: self._direct(path, given))
        if len(names) == 2:
            await self._read(task)
        result = await self.call("exec", {"code": task.program})
        assert result.structured_content is not None
        return result.structured_content["value"]

    async def _searched(self, task: Task, path: str, given: dict[str, Any]) -> Any:
        if path not in self.known:
            result = await self.call("search", {"query": task.looks_for[path]})
            hits = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
            self.known |= {each for each in task.looks_for if f"MCP.{each}(" in hits}
            assert path in self.known, f"{task.looks_for[path]!r} does not find {path}:\n{hits}"
        result = await self.call("call", {"name": f"MCP.{path}", "arguments": given})
        return result.structured_content

    async def _direct(self, path: str, given: dict[str, Any]) -> Any:
        server, _, method = path.partition(".")
        name = "".join("_" + each.lower() if each.isupper() else each for each in method)
        return (await self.call(f"{server}__{name}", given)).structured_content

    async def _read(self, task: Task) -> None:
        """Read the declarations of the tools that the task needs."""
        files = ["mcp/{}.d.ts#{}".format(*path.split(".")) for path in task.looks_for]
        program = f"return (await Promise.all({json.dumps(files)}.map((f) => API.read(f)))).map((r) => r.content)"
        await self.call("exec", {"code": program})


@asynccontextmanager
async def model(config: Path) -> AsyncIterator[Model]:
    """Yield a model with new servers."""
    async with serve(config) as session:
        with anyio.fail_after(SECONDS):
            tools = (await session.client.list_tools()).tools
        yield Model(session.client, tools)
