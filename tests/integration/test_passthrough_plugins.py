"""Tools of plugins in pass-through mode, and serving with nothing configured, in the real process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.integration.announcements import Ear
from tests.integration.harness import SECONDS, Session, counting, serve

pytestmark = pytest.mark.anyio

BOOKS = """
import asyncio, os
from codemode_mcp.plugins import *

TITLED = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


async def watched(given, call):
    await call.progress(1, 2, "half")
    while not os.path.exists(given["until"]):
        await asyncio.sleep(0.01)
    return [1]


def fail(given):
    raise ToolError("there is no such book")


def hook(event):
    if event.input.get("title") == "Forbidden":
        return DenyCall("not this one")
    if event.input.get("title") == "Wrapped":
        return ChangeInput({"title": "Changed"})


def register(api):
    api.tool(PluginTool(name="find", description="Find a book.", run=lambda given: given, input=TITLED, output=TITLED,
        label="Find", annotations=Annotations(read_only=True)))
    api.tool(PluginTool(name="word", description="A word.", run=lambda given: "plain"))
    api.tool(PluginTool(name="watched", description="Say how far it is.", run=watched))
    api.tool(PluginTool(name="fail", description="Fail.", run=fail))
    api.tool(PluginTool(name="large", description="Give much.", run=lambda given: "x" * 5000))
    api.tool(PluginTool(name="burn", description="Burn a book.", run=lambda given: "burnt"))
    api.tool(PluginTool(name="secret", description="Denied.", run=lambda given: "secret"))
    api.before_tool_call(hook)
"""


def write(folder: Path, plugins: list[str], servers: dict[str, Any] | None = None, **others: Any) -> Path:
    for name in plugins:
        (folder / f"{name}.py").write_text(BOOKS, "utf-8")
    path = folder / "config.json"
    named = {name: {"module": f"{name}.py:register"} for name in plugins}
    tools = {"codeMode": {"enabled": False, "maxToolResultBytes": 1024}, **others.pop("tools", {})}
    path.write_text(json.dumps({"plugins": named, "mcpServers": servers or {}, "tools": tools, **others}), "utf-8")
    return path


async def listed(session: Session) -> dict[str, types.Tool]:
    with anyio.fail_after(SECONDS):
        return {tool.name: tool for tool in (await session.client.list_tools(cache_mode="refresh")).tools}


async def call(session: Session, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    with anyio.fail_after(SECONDS):
        return await session.client.call_tool(tool, arguments, **options)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def decide(context: Any, params: Any) -> types.ElicitResult:
    assert "plugin:books:burn" in params.message
    return types.ElicitResult(action="accept", content={"decision": "approve" if "KEEP" in params.message else "deny"})


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    rules = {"deny": ["plugin:books:secret"], "ask": ["plugin:books:burn"]}
    config = write(
        folder,
        ["books", "one"],
        {"one": counting(folder / "log")},
        tools=rules,
        audit={"trajectory": str(folder / "events.jsonl")},
    )
    async with serve(config, elicitation_callback=decide) as session:
        yield session


async def test_tools_of_plugins_are_listed_beside_those_of_servers(session: Session) -> None:
    tools = await listed(session)
    assert list(tools) == sorted(tools)
    assert {"one__advance", "books__find", "books__word"} <= tools.keys()
    found = tools["books__find"].model_dump(by_alias=True, mode="json", exclude_none=True)
    titled = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    assert found == {
        "name": "books__find",
        "title": "Find",
        "description": "Find a book.",
        "inputSchema": titled,
        "outputSchema": titled,
        "annotations": {"readOnlyHint": True},
    }
    assert not [name for name in tools if name.startswith("results__")], "what keeps values for programs is of no use"


async def test_a_plugin_with_the_name_of_a_server_takes_no_name_from_it(session: Session) -> None:
    tools = await listed(session)
    of_plugin = [name for name in tools if name.startswith("one__find_")]
    assert len(of_plugin) == 1
    assert "one__find" not in tools
    assert text(await call(session, of_plugin[0], {"title": "A"})) == '{"title":"A"}'


async def test_the_result_of_a_plugin_is_data_and_text(session: Session) -> None:
    found = await call(session, "books__find", {"title": "A"})
    assert (found.is_error, found.structured_content, text(found)) == (False, {"title": "A"}, '{"title":"A"}')
    word = await call(session, "books__word")
    assert (word.is_error, text(word)) == (False, "plain")


async def test_calls_of_plugins_are_governed_as_those_of_servers(session: Session) -> None:
    tools = await listed(session)
    assert "books__secret" not in tools
    with pytest.raises(MCPError, match=r"Unknown tool: \"books__secret\"") as raised:
        await call(session, "books__secret")
    assert raised.value.error.code == -32602
    misfit = await call(session, "books__find", {})
    assert misfit.is_error
    assert text(misfit).startswith("books__find: ")
    assert "title" in text(misfit)
    denied = await call(session, "books__find", {"title": "Forbidden"})
    assert denied.is_error
    assert "not this one" in text(denied)
    assert (await call(session, "books__find", {"title": "Wrapped"})).structured_content == {"title": "Changed"}
    large = await call(session, "books__large")
    assert large.is_error
    assert "maxToolResultBytes" in text(large)
    failed = await call(session, "books__fail")
    assert (failed.is_error, text(failed)) == (True, "books__fail: there is no such book")
    assert text(await call(session, "books__burn", {"why": "KEEP"})) == "burnt"
    assert "was not approved" in text(await call(session, "books__burn", {"why": "cold"}))


async def test_progress_and_the_trajectory_of_a_call_of_a_plugin(session: Session, folder: Path) -> None:
    told: list[Any] = []
    until = folder / "told"

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        until.touch()

    given = {"until": str(until)}
    assert text(await call(session, "books__watched", given, progress_callback=on_progress)) == "[1]"
    assert told == [(1, 2, "half")]
    await call(session, "books__word")
    with anyio.fail_after(SECONDS):
        events = folder / "events.jsonl"  # made when the first event is written
        while not events.exists() or '"plugin:books:word"' not in events.read_text("utf-8"):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def test_a_plugin_that_comes_or_goes_is_announced(tmp_path: Path) -> None:
    ear = Ear("legacy")
    config = write(tmp_path, ["books"])
    async with serve(config, message_handler=ear) as session:
        assert "books__find" in await listed(session)
        write(tmp_path, [])
        await ear.heard()
        assert await listed(session) == {}
        with pytest.raises(MCPError, match="Unknown tool"):
            await call(session, "books__find", {"title": "A"})
        write(tmp_path, ["books", "more"])
        await ear.heard(2)
        assert {"books__find", "more__find"} <= (await listed(session)).keys()


@pytest.mark.parametrize("code_mode", [True, False], ids=["code", "pass-through"])
async def test_with_nothing_configured_there_are_no_tools_until_a_server_is_added(
    tmp_path: Path, code_mode: bool
) -> None:
    ear = Ear("legacy")
    config = write(tmp_path, [], tools={"codeMode": code_mode})
    async with serve(config, message_handler=ear) as session:
        assert await listed(session) == {}
        said = session.client.instructions or ""
        assert "codemode-mcp import --write" in said
        assert "mcpServers" in said
        assert "exec" not in said
        if code_mode:
            assert "There are no tools yet" in said
            assert len(said.encode()) <= 1000
        write(tmp_path, [], {"one": counting(tmp_path / "log")}, tools={"codeMode": code_mode})
        await ear.heard()
        assert (["exec", "wait"] if code_mode else ["one__advance"]) == list(await listed(session))[: 1 + code_mode]
