"""Apps of published servers, shown by the official bridge for hosts in a real browser, through the real command."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.apps.hosts import APPS
from tests.integration.http_harness import serve_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.apps.hosts import Host
    from tests.integration.http_harness import Served

pytestmark = pytest.mark.anyio

PACKAGES = {
    "clock": "server-basic-vanillajs",
    "budget": "server-budget-allocator",
}


def published(package: str) -> dict[str, Any]:
    """Return the entry of an example server from npm."""
    script = APPS / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": "node", "args": [str(script), "--stdio"]}


@asynccontextmanager
async def served(folder: Path, port: int, servers: dict[str, Any], **more: Any) -> AsyncIterator[Served]:
    """Serve these servers over HTTP, for pages of the host."""
    config = folder / "config.json"
    expose = {"direct": ["ui"]}
    http = {"allowedOrigins": [f"http://127.0.0.1:{port}"]}
    written = {"mcpServers": servers, "http": http, "expose": expose, "store": {"kind": "memory"}, **more}
    config.write_text(json.dumps(written), "utf-8")
    async with serve_http(config) as running:
        yield running


async def test_an_app_of_a_server_is_shown_and_calls_its_tool(host: Host, host_port: int, tmp_path: Path) -> None:
    async with served(tmp_path, host_port, {"clock": published("server-basic-vanillajs")}) as running:
        await host.connect(running.url)
        assert list(await host.tools()) == ["exec", "wait", "clock__get-time"]
        result = await host.run("clock__get-time")
        first = result["structuredContent"]["time"]
        app = host.app()
        await app.get_by_text(first).first.wait_for()
        await app.get_by_role("button", name="Get Server Time").click()
        await host.page.wait_for_function("host.calls.length > 0")
        assert (await host.calls())[0]["name"] == "clock__get-time"
        await app.get_by_text(first).first.wait_for(state="detached")
        await host.page.screenshot(path=tmp_path / "clock.png")
