"""The Inspector, a host of the authors of MCP, as a process and in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from playwright.async_api import FrameLocator, Page

from tests.apps.hosts import APPS
from tests.integration.harness import SECONDS, until
from tests.ports import reserved_port

LAUNCHER = APPS / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"


@asynccontextmanager
async def inspector(folder: Path, url: str) -> AsyncIterator[str]:
    """Run the Inspector for a server for the duration of the context, and yield the address of its page."""
    if not LAUNCHER.is_file():
        pytest.skip("the Inspector is not installed; python3 tests/run.py installs it")
    port, sandbox = reserved_port(), reserved_port()
    path = folder / "inspector.log"
    environ = {"HOME": str(folder), "CLIENT_PORT": str(port), "MCP_SANDBOX_PORT": str(sandbox)}
    quiet = {"BROWSER": "none", "MCP_AUTO_OPEN_ENABLED": "false", "MCP_INSPECTOR_SECRET_STORE": "memory"}
    command = ["node", str(LAUNCHER), "--web", "--transport", "http", "--server-url", url]
    with path.open("wb") as log:
        process = await anyio.open_process(
            command, env={**os.environ, **environ, **quiet}, stdin=None, stdout=log, stderr=log
        )
        try:
            await until(lambda: b"Auth token" in path.read_bytes() or process.returncode is not None)
            found = re.search(rf"http://\S+:{port}\S*", path.read_text("utf-8"))
            assert found is not None, path.read_text("utf-8")
            yield found[0]
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                await process.aclose()


async def open_app(page: Page, address: str, name: str) -> FrameLocator:
    """Connect the Inspector at an address, show an app that needs no input, and return our page around the app."""
    page.set_default_timeout(SECONDS * 1000)
    await page.goto(address)
    await page.locator("label:has(input[role=switch]), .mantine-Switch-track").first.click()
    await page.get_by_text("Apps", exact=True).first.click()
    await page.get_by_text(name, exact=True).first.click()
    opening = page.get_by_role("button", name="Open App")
    if await opening.count():
        await opening.first.click()
    return page.frame_locator("iframe").frame_locator("iframe")
