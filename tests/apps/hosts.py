"""A host of MCP Apps in a real browser: the official client and bridge of npm on a page of these tests."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, FrameLocator, Page

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.program.esbuild import find_esbuild
from tests.integration.harness import REPOSITORY, SECONDS

APPS = REPOSITORY / ".cache" / "apps" / "node_modules"
"""The packages of `APP_PINS` in `tests/run.py`."""

PAGES = Path(__file__).parent / "pages"

RESTRICTED = (
    "default-src 'none'; script-src 'unsafe-inline' {resources}; style-src 'unsafe-inline' {resources}; "
    "img-src data: {resources}; connect-src {connect}; frame-src 'none'; object-src 'none'; base-uri 'self'"
)
"""The policy that the specification requires, with the domains of an app."""


def policy_of(csp: Mapping[str, Any]) -> str:
    """Return the content security policy for the metadata of an app."""
    resources, connect = (" ".join(csp.get(name, ())) for name in ("resourceDomains", "connectDomains"))
    return RESTRICTED.format(resources=resources, connect=connect or "'none'")


def bundled_host(folder: Path) -> Path:
    """Return the script of the host, with everything it imports from npm."""
    if not (APPS / "@modelcontextprotocol" / "ext-apps").is_dir():
        pytest.skip("the packages for tests of apps are not installed; python3 tests/run.py installs them")
    script = folder / "host.js"
    try:
        esbuild = find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    except RuntimeUnavailable as error:
        pytest.skip(error.message)
    command = [str(esbuild), str(PAGES / "host.js"), "--bundle", "--format=esm", f"--outfile={script}"]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "NODE_PATH": str(APPS)}, timeout=SECONDS
    )
    return script


@contextmanager
def served_pages(script: Path) -> Iterator[int]:
    """Serve the pages of the host for the duration of the context, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            name = address.path.removeprefix("/")
            path = script if name == "host.js" else PAGES / name
            if name not in ("host.html", "host.js", "sandbox.html"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", "text/javascript" if name == "host.js" else "text/html; charset=utf-8")
            if name == "sandbox.html":
                csp = parse_qs(address.query).get("csp", ["{}"])[0]
                self.send_header("content-security-policy", policy_of(json.loads(csp)))
            self.end_headers()
            self.wfile.write(path.read_bytes())

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Host:
    """The page of a host.

    Attributes:
        problems: errors of scripts, in all frames.
    """

    page: Page
    problems: list[str] = field(default_factory=list)

    async def connect(self, url: str, *, apps: bool = True) -> dict[str, Any]:
        """Connect to a server, list its tools, and return its capabilities."""
        found: dict[str, Any] = await self.page.evaluate("([url, apps]) => host.connect(url, apps)", [url, apps])
        return found

    async def tools(self) -> dict[str, dict[str, Any]]:
        """Return the tools by their names."""
        return {tool["name"]: tool for tool in await self.page.evaluate("host.tools")}

    async def run(self, name: str, frame: str = "app", **arguments: Any) -> dict[str, Any]:
        """Call a tool, show its app in a frame with an id, and return the result."""
        found: dict[str, Any] = await self.page.evaluate(
            "([id, name, args]) => host.run(id, name, args)", [frame, name, arguments]
        )
        return found

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request of the host, or its error as `{"error": ...}`."""
        found: dict[str, Any] = await self.page.evaluate(
            """([method, params]) => host.client.request({ method, params }).catch(
                 (error) => ({ error: { code: error.code, message: error.message } }))""",
            [method, params],
        )
        return found

    async def calls(self) -> list[dict[str, Any]]:
        """Return the calls of apps so far, as the host has received them."""
        found: list[dict[str, Any]] = await self.page.evaluate("host.calls")
        return found

    def app(self, frame: str = "app", depth: int = 1) -> FrameLocator:
        """Return the document of an app.

        Args:
            depth: the number of our pages around it.
        """
        found = self.page.frame_locator(f"#{frame}").frame_locator("iframe")
        for _ in range(depth):
            found = found.frame_locator("iframe")
        return found


@asynccontextmanager
async def showing_host(browser: Browser, port: int) -> AsyncIterator[Host]:
    """Open the page of the host for the duration of the context."""
    context = await browser.new_context(viewport={"width": 1000, "height": 800})
    try:
        page = await context.new_page()
        page.set_default_timeout(SECONDS * 1000)
        host = Host(page)
        page.on("pageerror", lambda error: host.problems.append(str(error)))
        await page.goto(f"http://127.0.0.1:{port}/host.html")
        await page.wait_for_function("globalThis.host !== undefined")
        await page.evaluate(f"host.sandbox = 'http://localhost:{port}/sandbox.html'")
        yield host
    finally:
        await context.close()
