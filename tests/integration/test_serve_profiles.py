"""Answers and listings fit the client that gets them: by its name, by the configuration, over stdio and HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.announcements import Ear, listening
from tests.integration.harness import SECONDS, Session, serve
from tests.integration.http_harness import Served, serve_http

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "legacy"])

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"image({{ type: 'image', mimeType: 'image/png', data: '{PIXEL}' }}); text('seen'); return 1"


def write(folder: Path, **more: Any) -> Path:
    path = folder / "config.json"
    servers = {"one": {"command": "no-such-command", "disabled": False}}
    path.write_text(json.dumps({"mcpServers": servers, "store": {"kind": "memory"}, **more}), "utf-8")
    return path


def named(name: str) -> types.Implementation:
    return types.Implementation(name=name, version="2.1.330")


async def listed(client: Client) -> list[types.Tool]:
    with anyio.fail_after(SECONDS):
        return list((await client.list_tools(cache_mode="refresh")).tools)


async def called(client: Client, code: str = PICTURE) -> types.CallToolResult:
    with anyio.fail_after(SECONDS):
        result = await client.call_tool("exec", {"code": code})
    assert isinstance(result, types.CallToolResult)
    return result


@asynccontextmanager
async def over_http(served: Served, mode: str, name: str, **options: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(timeout=httpx2.Timeout(SECONDS)) as http,
        Client(
            streamable_http_client(served.url, http_client=http), mode=mode, client_info=named(name), **options
        ) as c,
    ):
        yield c


def reads_text_alone(tools: list[types.Tool], result: types.CallToolResult) -> None:
    assert [tool.output_schema for tool in tools] == [None, None]
    assert result.structured_content is None
    reads_everything_in_text(result)


def gets_both_forms(tools: list[types.Tool], result: types.CallToolResult) -> None:
    assert all(tool.output_schema for tool in tools)
    assert result.structured_content["status"] == "completed"
    assert result.structured_content["output"][0] == {"type": "image", "mimeType": "image/png", "bytes": 70}
    reads_everything_in_text(result)


def reads_everything_in_text(result: types.CallToolResult) -> None:
    assert [block.type for block in result.content] == ["image", "text"]
    assert result.content[1].text == "seen\n1"


@pytest.fixture(scope="module")
async def served(folder: Path) -> AsyncIterator[Served]:
    """Yield a server that tests share. Over stdio, each client would need a process."""
    async with serve_http(write(folder)) as served:
        yield served


@ERAS
async def test_a_client_that_shows_structured_content_gets_text_and_pictures_alone(tmp_path: Path, mode: str) -> None:
    async with serve(write(tmp_path), mode=mode, client_info=named("claude-code")) as session:
        await gets_text_and_pictures_alone(session.client)


async def gets_text_and_pictures_alone(client: Client) -> None:
    reads_text_alone(await listed(client), await called(client))
    failed = await called(client, "throw new Error('x')")
    assert (failed.is_error, failed.structured_content) == (True, None)
    waiting = await called(client, "await yield_control('rate limit'); return 2")
    assert waiting.structured_content is None
    text = waiting.content[0].text
    run_id = text.partition('"runId": "')[2].partition('"')[0]
    assert "it yielded control (rate limit)" in text
    resumed = await client.call_tool("wait", {"runId": run_id})
    assert resumed.content[0].text == "2"


@ERAS
async def test_a_client_that_repeats_failures_gets_their_text_alone(served: Served, mode: str) -> None:
    async with over_http(served, mode, "gemini-cli-mcp-client") as client:
        gets_both_forms(await listed(client), await called(client))
        failed = await called(client, "throw new Error('the disk is full')")
        assert (failed.is_error, failed.structured_content) == (True, None)
        assert "codemode-mcp/telemetry" not in (failed.meta or {})
        assert "the disk is full" in failed.content[0].text


@ERAS
async def test_an_argument_that_the_client_adds_to_every_tool_is_ignored_without_a_note(
    served: Served, mode: str
) -> None:
    async with over_http(served, mode, "gemini-cli-mcp-client") as client:
        added = {"wait_for_previous": True}
        result = await client.call_tool("exec", {"code": "await yield_control(); return 1", **added})
        waiting = result.structured_content
        assert "notes" not in waiting
        resumed = await client.call_tool("wait", {"runId": waiting["runId"], **added})
        assert resumed.structured_content == {"status": "completed", "value": 1}
        other = await client.call_tool("exec", {"code": "return 1", **added, "x": 1})
        assert other.structured_content["notes"] == ["Ignored unknown arguments: 'x'; exec takes code, language"]
        misspelt = await client.call_tool("exec", {**added, "coed": "return 1"})
        assert "unknown argument 'coed'; did you mean 'code'?" in misspelt.content[0].text


@pytest.fixture(scope="module")
async def configured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Yield a server whose configuration has profiles of clients."""
    clients = {
        "claude-*": {"showsStructured": False},
        "my-*": {"showsStructured": True, "maxOutputBytes": 1024},
        "mine": {"addsArguments": ["code", "runId"]},
    }
    async with serve_http(write(tmp_path_factory.mktemp("configured"), clients=clients)) as served:
        yield served


@ERAS
async def test_the_configuration_overrides_profiles(configured: Served, mode: str) -> None:
    async with over_http(configured, mode, "mine") as client:  # it needs `code`, whatever is configured
        result = await client.call_tool("exec", {"code": "return 1"})
        assert result.structured_content == {"status": "completed", "value": 1}
    async with over_http(configured, mode, "claude-code") as client:
        gets_both_forms(await listed(client), await called(client))
    async with over_http(configured, mode, "my-agent") as client:
        reads_text_alone(await listed(client), await called(client))
        long = await called(client, "return 'x'.repeat(5000)")
        assert '"truncated":true' in long.content[0].text


@ERAS
async def test_clients_of_one_http_server_each_get_what_fits_them_also_after_a_change(
    tmp_path: Path, mode: str
) -> None:
    config = write(tmp_path)
    async with serve_http(config) as served, AsyncExitStack() as stack:
        ears = [Ear(mode), Ear(mode)]
        shows, reads = [
            await stack.enter_async_context(over_http(served, mode, name, message_handler=ear))
            for name, ear in zip(("claude-code", "someone"), ears, strict=True)
        ]
        for client, ear in ((shows, ears[0]), (reads, ears[1])):
            await stack.enter_async_context(listening(Session(client, served.stderr_path), mode, ear))
        for _ in range(2):
            async with anyio.create_task_group() as group:
                group.start_soon(holds, reads_text_alone, shows)
                group.start_soon(holds, gets_both_forms, reads)
        # The two change places.
        write(tmp_path, clients={"claude-code": {"showsStructured": False}, "someone": {"showsStructured": True}})
        for ear in ears:
            await ear.heard()
        await holds(gets_both_forms, shows)
        await holds(reads_text_alone, reads)


async def holds(check: Any, client: Client) -> None:
    check(await listed(client), await called(client))
