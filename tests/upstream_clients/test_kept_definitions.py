"""Tests that no definition of a server loses a member of MCP between the wire and its view, in both eras."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import npm_server
from upstream_clients import Tool, UpstreamSpec, UpstreamView
from upstream_clients.list_repair import ITEM_KINDS
from upstream_clients.server_log import StderrTail
from upstream_clients.stdio import open_process

pytestmark = pytest.mark.anyio

HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

ICONS = [{"src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}]
WHOLE: dict[str, Any] = json.loads((Path(__file__).parent / "whole_definitions.json").read_text("utf-8"))
"""Definitions of each kind with every field that MCP has, by the method that lists them."""
INFO = {"name": "whole", "title": "Whole", "version": "1", "websiteUrl": "https://example.com/", "icons": ICONS}


def tool_json(tool: Tool) -> dict[str, Any]:
    flags = (tool.annotations.read_only, tool.annotations.destructive)
    flags += (tool.annotations.idempotent, tool.annotations.open_world)
    annotations = {"title": tool.annotations.title, **dict(zip(HINTS, flags, strict=True))}
    found = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {key: value for key, value in annotations.items() if value is not None} or None,
        "icons": list(tool.icons) or None,
        "_meta": tool.meta,
    }
    return {key: value for key, value in found.items() if value is not None}


def lists_of(view: UpstreamView) -> dict[str, list[Any]]:
    return {
        "tools/list": [tool_json(tool) for tool in view.tools],
        "prompts/list": [*(view.prompt_list or ())],
        "resources/list": [*(view.resource_list or ())],
        "resources/templates/list": [*(view.template_list or ())],
    }


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_every_member_of_mcp_is_in_the_view(era: str, raw_server: Any, pool_of: Any, tmp_path: Any) -> None:
    (tmp_path / "lists.json").write_text(json.dumps({**WHOLE, "info": INFO}))
    flags = ("modern",) if era == "modern" else ()
    async with pool_of(raw_server("items", f"lists={tmp_path / 'lists.json'}", *flags)) as pool:
        await pool.wait_listed(None, 20)
        await pool.source("srv").list_resources()
        view = pool.source("srv").view()
    assert view.era == era
    assert (lists_of(view), view.problems, view.server_info) == (WHOLE, (), INFO)


async def test_the_lists_of_the_reference_server_are_whole(pool_of: Any) -> None:
    entry = npm_server("everything", "stdio")
    spec = UpstreamSpec("srv", command=entry["command"], args=tuple(entry["args"]))
    async with pool_of(spec) as pool:
        await pool.wait_listed(None, 20)
        await pool.source("srv").list_resources()
        view = pool.source("srv").view()
    info, listed = await listed_by(spec)
    for tool in listed["tools/list"]:
        del tool["execution"]  # of tasks: see `Tool.needs_task`
        tool["inputSchema"].setdefault("type", "object")
    assert lists_of(view) == listed
    assert (view.server_info, view.instructions) == (info["serverInfo"], info["instructions"])


async def listed_by(spec: UpstreamSpec) -> tuple[Any, dict[str, Any]]:
    """Return the answer of a legacy server to `initialize`, and its lists, without anything between."""
    tail = StderrTail(spec.name, spec.redact)
    keys = {"tools/list": "tools"} | {kind.method: kind.key for kind in ITEM_KINDS.values()}
    with tail, anyio.fail_after(30):
        async with open_process(spec, tail) as (transport, _):

            async def request(number: int, method: str, params: dict[str, Any]) -> Any:
                await transport.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                while True:
                    message: Any = await transport.receive()
                    if message.get("id") == number and "result" in message:
                        return message["result"]

            client = {"name": "test", "version": "1"}
            asked = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
            params = {"protocolVersion": "2025-11-25", "capabilities": asked, "clientInfo": client}
            info = await request(1, "initialize", params)
            await transport.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            found = {}
            for number, (method, key) in enumerate(keys.items(), 2):
                found[method] = (await request(number, method, {}))[key]
            return info, found
