"""The surface that a client sees before it runs anything: two tools, in both eras, fast, and nothing but JSON-RPC."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import SECONDS, SERVERS, counting, other, parse_message, raw, serve, write_config

pytestmark = pytest.mark.anyio


def size(*values: Any) -> int:
    texts = (v if isinstance(v, str) else json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values)
    return sum(len(text.encode()) for text in texts)


def check_budget(tools: list[dict[str, Any]]) -> None:
    assert [tool["name"] for tool in tools] == ["exec", "wait"]
    assert sum(size(tool["name"], tool["description"], tool["inputSchema"]) for tool in tools) <= 2200
    assert all(size(tool["outputSchema"]) <= 900 for tool in tools)
    assert all(tool["title"] and tool["annotations"] for tool in tools)
    assert all(tool["_meta"] == {"anthropic/alwaysLoad": True} for tool in tools)
    assert all(len(tool["description"]) <= 2000 for tool in tools)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_list_is_exec_and_wait_and_stays_so(tmp_path: Path, mode: str) -> None:
    config = write_config(tmp_path, {"counting": counting(tmp_path / "log")})
    async with serve(config, mode=mode) as session:
        with anyio.fail_after(SECONDS):
            first = (await session.client.list_tools()).model_dump(by_alias=True, mode="json")
            assert await session.value('return unwrap(await MCP.counting.count({ name: "x" }))') == "x"
            second = (await session.client.list_tools()).model_dump(by_alias=True, mode="json")
    assert first["tools"] == second["tools"]
    check_budget(first["tools"])


async def test_the_budget_holds_for_many_servers_with_long_names(tmp_path: Path) -> None:
    names = [f"server-number-{n}-with-a-long-name-é" for n in range(150)]
    config = write_config(tmp_path, {name: {"command": "no-such-command"} for name in names})
    async with serve(config) as session:
        tools = (await session.client.list_tools()).model_dump(by_alias=True, mode="json")["tools"]
        instructions = session.client.instructions
    check_budget(tools)
    assert "server number 0 with a long name é" in tools[0]["description"].split("\n")[0]
    assert "more" in tools[0]["description"]
    assert instructions is not None
    assert size(instructions) <= 1000


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_list_is_answered_while_an_upstream_never_answers(tmp_path: Path, mode: str) -> None:
    mute = other("raw_server.py", "silent", "probe_silent", connectTimeoutMs=600_000)
    async with serve(write_config(tmp_path, {"mute": mute}, codeMode={"connectWaitMs": 100}), mode=mode) as session:
        with anyio.fail_after(SECONDS):
            tools = (await session.client.list_tools()).tools
            again = (await session.client.list_tools()).tools
        assert [tool.name for tool in tools] == [tool.name for tool in again] == ["exec", "wait"]
        assert "mute" in (tools[0].description or "")
        assert await session.value("return (await MCP.$api()).servers[0].status") == "connecting"


async def test_the_oldest_client_gets_its_own_version_and_clean_lines(tmp_path: Path) -> None:
    odd = {"command": sys.executable, "args": [str(SERVERS / "odd_content.py")]}
    servers = {"counting": counting(tmp_path / "log", "junk", "stderr=upstream noise"), "odd": odd}
    config = write_config(tmp_path, servers)
    async with raw(config) as client:
        hello = await client.initialize("2024-11-05")
        assert hello["protocolVersion"] == "2024-11-05"
        assert hello["serverInfo"]["name"] == "codemode-mcp"
        assert "exec" in hello["instructions"]
        assert list(hello["capabilities"]) == ["tools", "prompts", "resources", "completions", "logging"]
        check_budget((await client.request("tools/list"))["result"]["tools"])
        code = 'console.log("print\\nme"); return unwrap(await MCP.counting.count({ name: "raw" }))'
        answer = (await client.request("tools/call", {"name": "exec", "arguments": {"code": code}}))["result"]
        assert answer["structuredContent"]["value"] == "raw"
        assert answer["isError"] is False
        # Its revision is older than audio.
        answer = await client.call("exec", {"code": "image((await MCP.odd.mixed({})).content[3])"})
        (block,) = answer["result"]["content"]
        assert (block["type"], block["resource"]["mimeType"]) == ("resource", "audio/wav")
        assert await client.end() == 0
    for line in client.received.splitlines():
        parse_message(line)
    assert client.received.endswith(b"}\n")


async def test_a_policy_that_allows_nothing_leaves_no_tools(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"counting": counting(tmp_path / "log")}, allow=[])
    async with serve(config) as session:
        assert (await session.client.list_tools()).tools == []
        refused = await session.exec("return 1")
    assert refused.code == "invalid_input"
    assert "no tools" in refused.error
