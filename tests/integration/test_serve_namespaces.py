"""Namespaces of plugins in the real process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest

from codemode_mcp.server.descriptions import DESCRIPTION_BYTES, TOOLS_BYTES_NAMESPACES
from codemode_mcp.server.services import LIST_SECONDS
from tests.integration.announcements import Ear, listening
from tests.integration.harness import SECONDS, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


def plugin(
    folder: Path, name: str = "tracker", its: str = "issues", *, everywhere: str | None = None, works: bool = True
) -> dict[str, Any]:
    """Return the entry of a plugin and of its namespace; `everywhere`: the global name, where that is another."""
    (folder / f"{name}.py").write_text(
        TRACKER.replace('"issues", "issues"', f'"{its}", "{everywhere or its}"'), "utf-8"
    )
    return {"module": f"{name}.py:register", "config": {"team": ["ada"], "works": works}}


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


async def becomes(session: Session, kind: str) -> None:
    """Return once programs that begin have a namespace, or have none."""
    with anyio.fail_after(SECONDS):
        while await session.value("return typeof issues") != kind:  # noqa: ASYNC110 - other processes set no events
            await anyio.sleep(0.05)


@dataclass
class Person:
    """Approves what holds the word KEEP."""

    shown: list[str] = field(default_factory=list)

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.shown.append(params.message)
        decision = "approve" if "KEEP" in params.message else "deny"
        return types.ElicitResult(action="accept", content={"decision": decision})


@pytest.fixture(scope="module")
def person() -> Person:
    return Person()


@pytest.fixture(scope="module")
async def session(folder: Path, person: Person) -> AsyncIterator[Session]:
    """Yield a session with a plugin whose namespace is in order, and with faulty ones."""
    plugins = {
        "tracker": plugin(folder),
        "asked": plugin(folder, "asked", "desk"),
        "denied": plugin(folder, "denied", "hidden"),
        "failing": plugin(folder, "failing", "broken", works=False),
        "greedy": plugin(folder, "greedy", "greedy", everywhere="MCP"),
    }
    rules = {"ask": ["plugin:asked:add"], "deny": ["plugin:denied:add"]}
    config = write(folder, plugins, **rules, codeMode={"timeoutMs": 600})
    async with serve(config, elicitation_callback=person) as session:
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
        "  /** Wait. */\n"
        "  slow(input?: { [key: string]: unknown }): Promise<any>;\n"
        "};\n"
    )


async def test_the_description_and_the_prompt_are_read_by_each_caller_who_sees_the_namespace(session: Session) -> None:
    kinds = await done(session, "return [typeof issues, typeof hidden, Object.keys(namespaces)]")
    assert kinds == ["object", "undefined", ["MCP", "issues", "desk", "broken"]]
    text = await described(session)
    assert "\n- issues: Issues of the team. Call issues.list() first; issues.issue.add(title) adds one." in text
    assert "hidden" not in text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_first_list_of_a_process_has_the_namespaces_and_no_change_follows(tmp_path: Path, mode: str) -> None:
    ear = Ear(mode)
    config = write(tmp_path, {"tracker": plugin(tmp_path)})
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
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
        began = anyio.current_time()
        assert await described(session) == first
        assert anyio.current_time() - began < LIST_SECONDS  # later lists wait for nothing
    assert "issues" not in first  # it would be there, had the list waited until the other plugin was given up


async def test_a_function_that_is_not_there_is_answered_with_the_nearest(session: Session) -> None:
    for code, nearest in (
        ("await issues.lst()", "list"),
        ("await namespaces.issues.lst()", "list"),
        ("await issues.issue.ad('x')", "issue.add"),
    ):
        failed = await session.finish(await session.exec(code))
        assert f"is not a function (nearest: {nearest})" in failed.error
    far = await session.finish(await session.exec("issues.completelyOther()"))
    assert "nearest" not in far.error


async def test_a_call_that_is_suspended_is_resumed_by_wait(session: Session, folder: Path) -> None:
    waiting = await session.exec("const it = await issues.slow({ n: 1 }); return [it, await issues.list(), issues.run]")
    assert waiting.status == "waiting"
    assert [call["tool"] for call in waiting.structured["pendingToolCalls"]] == ["plugin:tracker:slow"]
    (folder / "go").touch()
    ended = await session.finish(await session.wait(waiting.run_id))
    assert ended.value == [{"slow": {"n": 1}}, [{}], waiting.run_id]


async def test_a_person_is_shown_what_is_sent_and_not_what_the_program_wrote(session: Session, person: Person) -> None:
    assert await done(session, "return await desk.issue.add('keep')") == {"title": "KEEP"}
    refused = await done(session, "return await desk.issue.add('other').catch((error) => error.message)")
    assert refused.startswith("desk.issue.add was not approved")
    assert len(person.shown) == 2
    assert "plugin:asked:add" in person.shown[0]
    assert "KEEP" in person.shown[0]


async def test_a_scope_that_fails_is_a_rejection_that_names_the_plugin_and_tells_nothing(session: Session) -> None:
    message = await done(session, "return await broken.list().catch((error) => error.message)")
    assert message.startswith("broken.list: the namespace cannot be used in this run: plugin 'failing' failed")
    assert "SECRET" not in message
    assert await done(session, "return await tools.call('plugin:failing:list', { a: 1 })") == [{"a": 1}]


async def test_a_plugin_whose_namespace_is_refused_is_rolled_back_whole(session: Session) -> None:
    seen = await done(
        session,
        "return [Object.keys(namespaces), ALL_TOOLS.map((tool) => tool.id), await API.read('namespaces.d.ts')]",
    )
    assert "plugin:failing:list" in seen[1]
    assert "greedy" not in json.dumps(seen)
    assert "namespace 'greedy': the global name 'MCP' is taken" in session.stderr


async def test_a_plugin_that_is_taken_out_takes_its_namespace_with_it(tmp_path: Path) -> None:
    tracker = plugin(tmp_path)
    async with serve(write(tmp_path, {"tracker": tracker})) as session:
        suspended = await session.exec(
            "await yield_control(); const failed = (error) => error.message;"
            "return [issues.team, await issues.list().catch(failed), await issues.issue.add('a').catch(failed),"
            "  await tools.call('plugin:tracker:list').catch(failed)]"
        )
        assert "- issues:" in await described(session)
        write(tmp_path, {"tracker": {**tracker, "enabled": False}})

        await becomes(session, "undefined")
        text = await described(session)
        assert "issues" not in text
        assert "Global objects of plugins" not in text
        assert "namespaces.d.ts" not in json.dumps(await session.value("return await API.list()"))
        team, *messages = (await session.finish(await session.wait(suspended.run_id))).value
        assert team == ["ada"]
        for path, message in zip(["issues.list", "issues.issue.add", "tools.list"], messages, strict=True):
            assert message == (
                f"{path}: plugin 'tracker' was removed or loaded again while this program ran; run a new program, "
                "which sees the current tools"
            )
        assert "plugin 'tracker' failed" not in session.stderr
        write(tmp_path, {"tracker": tracker})

        await becomes(session, "object")
        assert "- issues:" in await described(session)
