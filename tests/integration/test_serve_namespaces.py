"""Namespaces of plugins in the real process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.server.descriptions import DESCRIPTION_BYTES, TOOLS_BYTES_NAMESPACES
from codemode_mcp.server.services import LIST_SECONDS
from tests.integration.announcements import Ear
from tests.integration.harness import SECONDS, Session, serve

pytestmark = pytest.mark.anyio

TRACKER = """
from codemode_mcp.plugins import *

TITLED = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def register(api):
    read_only = Annotations(read_only=True)
    api.tool(PluginTool(name="list", description="List issues.", run=lambda given: [given], annotations=read_only))
    api.tool(PluginTool(name="add", description="Add an issue.", run=lambda given: given, input=TITLED))

    async def scope(context):
        return {
            "team": api.config["team"],
            "run": context.run_id,
            "list": namespace_tool("list"),
            "issue": {"add": namespace_tool("add", lambda title: {"title": title.upper()})},
        }

    api.namespace("issues", "issues", description="Issues of the team", required_tools=["list", "add"],
        create_scope=scope, prompt="Call issues.list() first; issues.issue.add(title) adds one.")
"""


def plugin(folder: Path, name: str = "tracker", its: str = "issues") -> dict[str, Any]:
    """Return the entry of a plugin and of its namespace."""
    (folder / f"{name}.py").write_text(TRACKER.replace('"issues", "issues"', f'"{its}", "{its}"'), "utf-8")
    return {"module": f"{name}.py:register", "config": {"team": ["ada"]}}


def write(folder: Path, plugins: dict[str, Any], **tools: Any) -> Path:
    """Return the configuration, with another plugin beside these: with nothing configured there are no tools at all."""
    path = folder / "config.json"
    (folder / "bare.py").write_text("def register(api):\n    pass\n", "utf-8")
    bare = {"module": "bare.py:register"}
    path.write_text(json.dumps({"plugins": {"bare": bare, **plugins}, "tools": tools}), "utf-8")
    return path


async def described(session: Session) -> str:
    """Return the descriptions of the two tools."""
    with anyio.fail_after(SECONDS):
        tools = (await session.client.list_tools(cache_mode="refresh")).tools
    assert [tool.name for tool in tools] == ["exec", "wait"]
    size = sum(
        len(tool.name.encode()) + len((tool.description or "").encode()) + len(json.dumps(tool.input_schema).encode())
        for tool in tools
    )
    assert size <= TOOLS_BYTES_NAMESPACES
    assert all(len((tool.description or "").encode()) <= DESCRIPTION_BYTES for tool in tools)
    return str(tools[0].description)


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    """Yield a session with a plugin whose namespace is in order, and with one whose namespace is hidden."""
    plugins = {"tracker": plugin(folder), "denied": plugin(folder, "denied", "hidden")}
    async with serve(write(folder, plugins, deny=["plugin:denied:add"])) as session:
        yield session


async def done(session: Session, code: str) -> Any:
    """Return the value of a program, also of one that takes longer."""
    return (await session.finish(await session.exec(code))).value


async def test_a_program_works_with_a_namespace(session: Session) -> None:
    answer = await session.finish(
        await session.exec(
            "return [issues === namespaces.issues, issues.team, issues.run, await issues.list({ open: true }),"
            "  await issues.issue.add('a title'), await issues.issue.add().catch((error) => error.message)]"
        )
    )
    same, team, run, listed, added, refused = answer.value
    assert (same, team, listed, added) == (True, ["ada"], [{"open": True}], {"title": "A TITLE"})
    assert run.startswith("run_")
    assert refused.startswith("issues.issue.add takes other arguments: missing a required argument: 'title'")
    assert [call["tool"] for call in answer.telemetry["calls"]][:2] == [
        "plugin:tracker:list",
        "plugin:tracker:add",
    ]
    failed = await session.exec("await issues.issue.ad('x')")
    assert "is not a function (nearest: issue.add)" in failed.error
    listed, read = await done(session, "return [(await API.list()).files, await API.read('namespaces.d.ts')]")
    assert listed[-1]["path"] == "namespaces.d.ts"
    assert "issues: Issues of the team" in listed[-1]["description"]
    assert "plugin:tracker:add" in read["content"]
    declared = read["content"].partition("declare const issues: ")[2]
    assert declared.startswith(
        "{\n"
        "  readonly team: readonly string[];\n"
        "  readonly run: string;\n"
        "  /** List issues. */\n"
        "  list(input?: { [key: string]: unknown }): Promise<any>;\n"
        "  readonly issue: {\n"
        "    /** Add an issue. */\n"
        "    add(...args: any[]): Promise<any>;\n"
        "  };\n"
        "};\n"
    )


async def test_the_description_and_the_prompt_are_read_by_each_caller_who_sees_the_namespace(session: Session) -> None:
    kinds = await done(session, "return [typeof issues, typeof hidden, Object.keys(namespaces)]")
    assert kinds == ["object", "undefined", ["MCP", "issues"]]
    text = await described(session)
    assert "\n- issues: Issues of the team. Call issues.list() first; issues.issue.add(title) adds one." in text
    assert "hidden" not in text


async def test_the_first_list_of_a_process_has_the_namespaces_and_no_change_follows(tmp_path: Path) -> None:
    ear = Ear("legacy")
    config = write(tmp_path, {"tracker": plugin(tmp_path)})
    async with serve(config, message_handler=ear) as session:
        assert "- issues: Issues of the team." in await described(session)
        assert await session.value("return typeof issues") == "object"
        # The next change is the first one that is heard.
        write(tmp_path, {})
        await ear.heard()
        assert ear.count == 1
        assert "issues" not in await described(session)


async def test_a_plugin_that_hangs_while_it_loads_does_not_hold_up_the_list(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import time\n\ndef register(api):\n    time.sleep(60)\n", "utf-8")
    config = write(tmp_path, {"hanging": {"module": "hanging.py:register"}, "tracker": plugin(tmp_path)})
    async with serve(config) as session:
        first = await described(session)
        with anyio.fail_after(SECONDS):  # later lists wait for nothing: so many would take longer
            for _ in range(int(SECONDS / LIST_SECONDS) + 1):
                assert await described(session) == first
    assert "issues" not in first  # it would be there, had the list waited until the other plugin was given up
