"""Servers with apps that tests write themselves, and the real command in front of them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.apps.hosts import APPS, PAGES
from tests.integration.http_harness import Served, serve_http

MIME_TYPE = "text/html;profile=mcp-app"
SERVER = Path(__file__).parent / "servers" / "apps.py"

SCRIPT = (PAGES / "app.js").read_text("utf-8")
"""The part of an app that speaks with its host."""


def published(package: str) -> dict[str, Any]:
    """Return the entry of an example server from npm."""
    script = APPS / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": "node", "args": [str(script), "--stdio"]}


def document(script: str) -> str:
    """Return an app that runs a script after its greeting."""
    return f"<!doctype html><body><script>{SCRIPT}\n(async () => {{ await begin(); {script} }})();</script></body>"


def app_tool(name: str, uri: str, **ui: Any) -> dict[str, Any]:
    """Return a tool with an app, as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": uri, **ui}}}


def plain_tool(name: str) -> dict[str, Any]:
    """Return a tool without an app, as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}}


def app_content(html: str, **more: Any) -> dict[str, Any]:
    """Return the content of an app, as a server answers with it."""
    return {"mimeType": MIME_TYPE, "text": html, **more}


def written_server(
    folder: Path, name: str, tools: list[dict[str, Any]], contents: dict[str, Any], resources: list[Any] | None = None
) -> dict[str, Any]:
    """Write what a server lists, and return its entry."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"tools": tools, "contents": contents, "resources": resources or []}), "utf-8")
    return {"command": sys.executable, "args": [str(SERVER), str(path)]}


def calls_of(folder: Path, name: str) -> list[Any]:
    """Return the calls that a server has received: the name and the arguments of each."""
    path = folder / f"{name}.calls"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


@asynccontextmanager
async def serving_apps(folder: Path, port: int, servers: dict[str, Any], **more: Any) -> AsyncIterator[Served]:
    """Serve these servers over HTTP, for pages of the host at a port."""
    config = folder / "config.json"
    http = {"allowedOrigins": [f"http://127.0.0.1:{port}"]}
    common = {"http": http, "expose": {"direct": ["ui"]}, "store": {"kind": "memory"}}
    config.write_text(json.dumps({"mcpServers": servers, **common, **more}), "utf-8")
    async with serve_http(config) as running:
        yield running
