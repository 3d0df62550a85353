"""Namespaces of plugins in the real process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest

from codemode_mcp.descriptions import PROMPTS_BYTES, TOOLS_BYTES
from tests.integration.harness import SECONDS, serve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.harness import Session

pytestmark = pytest.mark.anyio

TRACKER = """
import os, time
from codemode_mcp.plugins import *

HERE = os.path.dirname(__file__)
TITLED = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def slow(given):
    while not os.path.exists(os.path.join(HERE, "go")):
        time.sleep(0.01)
    return {"slow": given}


def register(api):
    read_only = Annotations(read_only=True)
    api.tool(PluginTool(name="list", description="List issues.", run=lambda given: [given], annotations=read_only))
    api.tool(PluginTool(name="add", description="Add an issue.", run=lambda given: given, input=TITLED))
    api.tool(PluginTool(name="slow", description="Wait.", run=slow, annotations=read_only))

    async def scope(context):
        if not context.config["works"]:
            raise RuntimeError("the key is SECRET")
        return {
            "team": api.config["team"],
            "run": context.run_id,
            "list": namespace_tool("list"),
            "issue": {"add": namespace_tool("add", lambda title: {"title": title.upper()})},
            "slow": namespace_tool("slow"),
        }

    api.namespace("issues", "issues", description="Issues of the team", required_tools=["list", "add", "slow"],
        create_scope=scope, prompt="Call issues.list() first; issues.issue.add(title) adds one.")
"""


def write(folder: Path, *, text: str = TRACKER, works: bool = True, enabled: bool = True, **tools: Any) -> Path:
    (folder / "tracker.py").write_text(text, "utf-8")
    path = folder / "config.json"
    plugin = {"module": "tracker.py:register", "config": {"team": ["ada"], "works": works}, "enabled": enabled}
    path.write_text(json.dumps({"plugins": {"tracker": plugin}, "tools": tools}), "utf-8")
    return path


async def described(session: Session) -> str:
    """What the two tools say."""
    with anyio.fail_after(SECONDS):
        tools = (await session.client.list_tools()).tools
    assert [tool.name for tool in tools] == ["exec", "wait"]
    size = sum(
        len(tool.name.encode()) + len((tool.description or "").encode()) + len(json.dumps(tool.input_schema).encode())
        for tool in tools
    )
    assert size <= TOOLS_BYTES + PROMPTS_BYTES
    return str(tools[0].description)


async def becomes(session: Session, kind: str) -> None:
    """Return once programs that begin have a namespace, or have none."""
    with anyio.fail_after(SECONDS):
        while await session.value("return typeof issues") != kind:  # noqa: ASYNC110 - other processes set no events
            await anyio.sleep(0.05)


async def test_a_program_works_with_a_namespace(tmp_path: Path) -> None:
    async with serve(write(tmp_path)) as session:
        answer = await session.exec(
            "return [issues === namespaces.issues, issues.team, issues.run, await issues.list({ open: true }),"
            "  await issues.issue.add('a title'), await issues.issue.add().catch((error) => error.message)]"
        )
        same, team, run, listed, added, refused = answer.value
        assert (same, team, listed, added) == (True, ["ada"], [{"open": True}], {"title": "A TITLE"})
        assert run.startswith("run_")
        assert refused.startswith("issues.issue.add takes other arguments: missing a required argument: 'title'")
        assert [call["tool"] for call in answer.structured["telemetry"]["calls"]][:2] == [
            "plugin:tracker:list",
            "plugin:tracker:add",
        ]
        files = await session.value("return [(await API.list()).files, await API.read('namespaces.d.ts')]")
        assert {"path": "namespaces.d.ts", "description": "issues: Issues of the team"}.items() <= files[0][-1].items()
        assert "declare const issues: { readonly [name: string]: any };" in files[1]["content"]
        assert "plugin:tracker:add" in files[1]["content"]


async def test_the_prompt_is_in_the_description_for_whoever_sees_the_namespace(tmp_path: Path) -> None:
    async with serve(write(tmp_path)) as session:
        assert await session.value("return typeof issues") == "object"
        text = await described(session)
        assert "\n- issues: Call issues.list() first; issues.issue.add(title) adds one." in text
    async with serve(write(tmp_path, deny=["plugin:tracker:add"])) as session:
        assert await session.value("return [typeof issues, Object.keys(namespaces)]") == ["undefined", []]
        text = await described(session)
        assert "issues" not in text
        assert "Globals of plugins" not in text


async def test_a_call_that_is_suspended_is_resumed_by_wait(tmp_path: Path) -> None:
    async with serve(write(tmp_path, codeMode={"timeoutMs": 600})) as session:
        waiting = await session.exec(
            "const it = await issues.slow({ n: 1 }); return [it, await issues.list(), issues.run]"
        )
        assert waiting.status == "waiting"
        assert [call["tool"] for call in waiting.structured["pendingToolCalls"]] == ["plugin:tracker:slow"]
        (tmp_path / "go").touch()
        ended = await session.finish(await session.wait(waiting.run_id))
        assert ended.value == [{"slow": {"n": 1}}, [{}], waiting.run_id]


async def test_a_person_is_shown_what_is_sent_and_not_what_the_program_wrote(tmp_path: Path) -> None:
    shown: list[str] = []

    async def person(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params.message)
        decision = "approve" if "KEEP" in params.message else "deny"
        return types.ElicitResult(action="accept", content={"decision": decision})

    path = write(tmp_path, ask=["plugin:tracker:add"])
    async with serve(path, elicitation_callback=person) as session:
        answer = await session.finish(await session.exec("return await issues.issue.add('keep')"))
        assert answer.value == {"title": "KEEP"}
        answer = await session.finish(
            await session.exec("return await issues.issue.add('other').catch((error) => error.message)")
        )
        assert answer.value.startswith("issues.issue.add was not approved")
    assert len(shown) == 2
    assert "plugin:tracker:add" in shown[0]
    assert "KEEP" in shown[0]


async def test_a_scope_that_fails_is_a_rejection_that_names_the_plugin_and_tells_nothing(tmp_path: Path) -> None:
    async with serve(write(tmp_path, works=False)) as session:
        message = await session.value("return await issues.list().catch((error) => error.message)")
        assert message.startswith("issues.list: the namespace cannot be used in this run: plugin 'tracker' failed")
        assert "SECRET" not in message
        assert await session.value("return await tools.call('plugin:tracker:list', { a: 1 })") == [{"a": 1}]


async def test_a_plugin_whose_namespace_is_refused_is_rolled_back_whole(tmp_path: Path) -> None:
    path = write(tmp_path, text=TRACKER.replace('"issues", "issues"', '"issues", "MCP"'))
    async with serve(path) as session:
        seen = await session.value(
            "return [Object.keys(namespaces), ALL_TOOLS.filter((tool) => tool.source === 'plugin'), await API.list()]"
        )
        assert seen[:2] == [[], []]
        assert "namespaces.d.ts" not in json.dumps(seen)
        assert "namespace 'issues': the global name 'MCP' is taken" in session.stderr


async def test_a_plugin_that_is_taken_out_takes_its_namespace_with_it(tmp_path: Path) -> None:
    async with serve(write(tmp_path)) as session:
        parked = await session.exec(
            "await yield_control(); return [issues.team, await issues.list().catch((error) => error.message)]"
        )
        assert "- issues:" in await described(session)
        write(tmp_path, enabled=False)

        await becomes(session, "undefined")
        assert "issues" not in await described(session)
        team, message = (await session.finish(await session.wait(parked.run_id))).value
        assert team == ["ada"]
        assert "'tracker'" in message
        write(tmp_path)

        await becomes(session, "object")
        assert "- issues:" in await described(session)
