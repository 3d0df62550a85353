"""The log of the real process at level `debug`: shape and size of lists and results, and never a value."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import counting, http_server, raw
from tests.integration.http_harness import opened_session, serve_http

Request = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

pytestmark = pytest.mark.anyio

PLANTED = {
    "environment": "canary-environment-11",
    "variable": "canary-variable-12",
    "header": "canary-header-13",
    "argument": "canary-argument-14",
    "key of an argument": "canary-key-15678@host.example",
    "program text": "canary-program-16",
    "value": "canary-value-17",
    "output": "canary-output-18",
    "error": "canary-error-19",
    "junk": "canary-junk-20",
    "unknown argument": "canary-unknown-21",
    "reason": "canary-reason-22",
    "stored": "canary-stored-23",
}

PROGRAM = f"""
// {PLANTED["program text"]}
const found = await MCP.up.count({{ name: "{PLANTED["argument"]}" }});
await MCP.remote.echo({{ text: "{PLANTED["argument"]}" }}).catch(() => 0);
await MCP.up.count({{ name: {{ "{PLANTED["key of an argument"]}": 1 }} }}).catch(() => 0);
await MCP.up.refuse({{}});
text("{PLANTED["output"]}");
await store("kept", "{PLANTED["stored"]}");
await yield_control("{PLANTED["reason"]}");
return {{ found: found.content[0].text, own: "{PLANTED["value"]}", "{PLANTED["key of an argument"]}": [1, 2] }};
"""


def write(folder: Path, url: str, **tools: Any) -> Path:
    noise = json.dumps({"jsonrpc": "2.0", "id": PLANTED["junk"], "half": PLANTED["junk"]})[:-1]
    environment = {"SECRET": PLANTED["environment"], "TOKEN": "${VARIABLE}"}
    servers = {
        "up": counting(folder / "log", f"noise={noise}", env=environment),
        "remote": {"url": url, "headers": {"Authorization": f"Bearer {PLANTED['header']}"}},
    }
    path = folder / "config.json"
    tools = {"codeMode": {"connectWaitMs": 25_000}, **tools}
    path.write_text(json.dumps({"mcpServers": servers, "tools": tools, "store": {"kind": "memory"}}), "utf-8")
    return path


ENVIRONMENT = {"VARIABLE": PLANTED["variable"]}


async def play(request: Request) -> list[str]:
    """Use both tools in every way that has an answer; what is secret besides what was planted."""
    listed = await request("tools/list", {})
    assert [tool["name"] for tool in listed["tools"]] == ["exec", "wait"]
    suspended = await request("tools/call", {"name": "exec", "arguments": {"code": PROGRAM}})
    run_id = suspended["structuredContent"]["runId"]
    ended = await request("tools/call", {"name": "wait", "arguments": {"runId": run_id}})
    assert ended["structuredContent"]["value"]["found"] == PLANTED["argument"]
    for arguments in (
        {"code": f"throw new Error('{PLANTED['error']}')"},
        {"code": f"const a = '{PLANTED['program text']}' (("},
        {"code": "return 1", PLANTED["unknown argument"]: PLANTED["unknown argument"]},
    ):
        await request("tools/call", {"name": "exec", "arguments": arguments})
    return [run_id]


def hold(log: str, more: list[str]) -> None:
    """Hold that nothing planted is in a log."""
    shown = {name: secret for name, secret in PLANTED.items() if secret in log}
    assert shown == {}
    assert [each for each in more if each in log] == []


@asynccontextmanager
async def over_stdio(config: Path) -> AsyncIterator[tuple[Request, Callable[[], str]]]:
    async with raw(config, "--log-level", "debug", env=ENVIRONMENT) as client:
        await client.initialize("2025-11-25")

        async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return (await client.request(method, params))["result"]

        yield request, lambda: client.stderr


def looked_for(log: str) -> None:
    """Hold that shape and size of everything is told."""
    for pattern in (
        r"answer to tools/list: 2 tools, \d{4,} bytes, \[\{\"name\":\"string 4\"",
        r"server 'up': answer to tools/list: 9 tools \(0 with an output schema, 1 with annotations\), \d+ bytes",
        r"result of mcp:up:count: \d+ bytes, \{\"content\":\[\{\"type\":\"string 4\",\"text\":\"string \d+\"\}\]\}",
        r"answer to exec: 1 blocks of content, \d+ bytes, .*; structured content, \d+ bytes, \{\"status\":\"string 7\"",
        r"answer to wait: .*\"value\":\{\"found\":\"string 18\",\"own\":\"string 15\",\"key of \d+\":",
        r"answer to exec: .*\"error\":\"string \d+\",\"code\":\"string \d+\"",
    ):
        assert re.search(pattern, log), pattern


async def test_over_stdio_the_log_tells_shape_and_size_and_no_value(tmp_path: Path) -> None:
    async with http_server("--token", PLANTED["header"]) as url, over_stdio(write(tmp_path, url)) as (request, log):
        more = await play(request)
        looked_for(log())
        hold(log(), more)


async def test_over_http_the_log_tells_shape_and_size_and_no_value(tmp_path: Path) -> None:
    async with http_server("--token", PLANTED["header"]) as url:
        config = write(tmp_path, url)
        async with serve_http(config, "--log-level", "debug", env=ENVIRONMENT) as served:
            session = await opened_session(served)
            headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}

            async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                answer = await served.request(json=message, content=None, headers=headers)
                text = answer.text.rpartition("data: ")[2] if answer.text.startswith(("event", ":")) else answer.text
                return json.loads(text)["result"]

            more = await play(request)
            looked_for(served.stderr)
            hold(served.stderr, [*more, session])


async def test_in_pass_through_the_log_tells_shape_and_size_and_no_value(tmp_path: Path) -> None:
    async with http_server("--token", PLANTED["header"]) as url:
        config = write(tmp_path, url, codeMode=False)
        async with over_stdio(config) as (request, log):
            listed = await request("tools/list", {})
            arguments = {"name": PLANTED["argument"]}
            told = await request("tools/call", {"name": "up__count", "arguments": arguments})
            assert told["content"][0]["text"] == PLANTED["argument"]
            count = len(listed["tools"])
            assert re.search(rf"answer to tools/list: {count} tools, \d+ bytes", log())
            assert re.search(r"answer to up__count: 1 blocks of content, \d+ bytes, .*\"text\":\"string 18\"", log())
            hold(log(), [])
