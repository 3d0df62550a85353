"""A host of plugins whose code is written in the test, as files, and what tests ask of it."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from codemode_mcp.base.settings import PluginSettings
from codemode_mcp.catalog.plugins import host
from codemode_mcp.catalog.plugins.host import Plugins
from codemode_mcp.rules.policy.policy import Caller

ME = Caller("me")

HEAD = """from codemode_mcp.plugins import *; import time, sys, asyncio, anyio, threading
def note(path, text): \n with open(path, "a") as file: file.write(text)
"""


class Host:
    """Plugins in files of one folder.

    Attributes:
        changes: how often it was told that what is offered may be another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changes = 0
        self.now = 0.0
        self.plugins: Plugins

    def write(self, name: str, code: str, **settings: Any) -> PluginSettings:
        path = self.folder / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(code), "utf-8")
        return PluginSettings(name, f"{name}.py:register", **settings)

    async def ids(self, caller: Caller = ME) -> list[str]:
        with anyio.fail_after(20):
            return [offered.id for offered in await self.plugins.offered(caller)]

    async def call(
        self, tool_id: str, arguments: dict[str, Any] | None = None, caller: Caller = ME, **options: Any
    ) -> Any:
        source, plugin, tool = tool_id.split(":")
        with anyio.fail_after(20):
            found = self.plugins.source(source, plugin, caller, "run_1", caller.owner or "holder")
            return (await found.call_tool(tool, arguments or {}, **options)).result

    async def change(self, *settings: PluginSettings) -> None:
        self.plugins.apply(settings)
        with anyio.fail_after(20):
            await self.plugins.ready()

    def _changed(self) -> None:
        self.changes += 1


@asynccontextmanager
async def plugins(
    folder: Path, *made: Callable[[Host], PluginSettings], wait: bool = True, **options: Any
) -> AsyncIterator[Host]:
    """Plugins, loaded: each of `made` is given the host to write its file with."""
    opened = Host(folder)
    settings = [make(opened) for make in made]
    opened.plugins = host.Plugins(
        settings, workspace_dir=folder, on_change=opened._changed, clock=lambda: opened.now, **options
    )
    async with anyio.create_task_group() as group:
        group.start_soon(opened.plugins.run)
        if wait:
            with anyio.fail_after(20):
                await opened.plugins.ready()
        try:
            yield opened
        finally:
            group.cancel_scope.cancel()


def plugin(name: str, code: str, **settings: Any) -> Callable[[Host], PluginSettings]:
    return lambda host: host.write(name, code, **settings)
