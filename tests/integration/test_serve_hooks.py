"""Hooks, middleware and the guard against repeated calls, in the real process, from a plugin's module."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import SECONDS, counting, events, serve
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

pytestmark = pytest.mark.anyio

GUARD = """
import json, os, time
from codemode_mcp.plugins import *

SEEN = os.path.join(os.path.dirname(__file__), "seen.txt")


def register(api):
    async def look(event):
        with open(SEEN, "a", encoding="utf-8") as file:
            file.write(json.dumps([event.tool_id, event.tool_kind, event.tool_input_kind, event.input]) + "\\n")
        if event.input.get("name") == "forbidden":
            return DenyCall("that name is reserved")
        if event.input.get("name") == "old":
            return ChangeInput({"name": "new"})
        if "hang()" in event.input.get("code", ""):
            return DenyCall("this program would hang")
        if event.input.get("name") == "odd":
            return NoteCall("an odd name")

    def slow(event):
        if event.input.get("name") == "slow":
            time.sleep(0.2)

    async def stamp(event, result):
        if event.input.get("name") == "nonsense":
            return {"content": {1, 2}}
        return {**result, "_meta": {"stamped": event.input}}

    api.before_tool_call(look, tools=["*"])
    api.before_tool_call(slow, tools=["mcp:*"])
    api.tool_result_middleware(stamp, tools=["mcp:*"])
"""


def write(folder: Path, **tools: Any) -> Path:
    """Return a configuration with the server `up`, whose log is `log`, and the plugin, which may see everything."""
    (folder / "guard.py").write_text(GUARD, "utf-8")
    path = folder / "config.json"
    guard = {"module": "guard.py:register", "hooks": ["*"], "middleware": ["*"]}
    servers = {"up": counting(folder / "log")}
    path.write_text(json.dumps({"mcpServers": servers, "plugins": {"guard": guard}, "tools": tools}), "utf-8")
    return path


def seen(folder: Path) -> list[list[Any]]:
    path = folder / "seen.txt"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def test_a_hook_of_a_plugin_sees_denies_and_changes_what_programs_call(tmp_path: Path) -> None:
    async with serve(write(tmp_path)) as session:
        answer = await session.exec(
            "const said = [];\n"
            "for (const name of ['old', 'forbidden', 'odd', 'slow', 'nonsense']) {\n"
            "  const call = MCP.up.count({ name }).then((result) => result._meta.stamped.name);\n"
            "  said.push(await call.catch((e) => e.message));\n"
            "}\n"
            "return said"
        )
        refused = await session.exec("hang()")
        assert await session.value("return 'still here'") == "still here"
    new, denied, odd, slow, nonsense = answer.value
    assert (new, odd, slow) == ("new", "odd", "slow")
    assert denied == "MCP.up.count was denied by plugin 'guard': that name is reserved"
    assert nonsense.startswith("MCP.up.count: plugin 'guard' failed: its middleware returned")
    assert "Plugin 'guard': an odd name" in answer.read
    assert (refused.code, refused.error) == (
        "invalid_input",
        "exec was denied by plugin 'guard': this program would hang",
    )
    assert events(tmp_path / "log") == ["call new", "call odd", "call slow", "call nonsense"]
    first, *rest = seen(tmp_path)
    assert first[:3] == ["core:code_mode:exec", "code_mode_exec", "javascript"]
    assert rest[0] == ["mcp:up:count", "mcp", "json", {"name": "old"}]


async def test_in_pass_through_hooks_see_calls_and_the_client_reads_their_notes(tmp_path: Path) -> None:
    async with serve(write(tmp_path, codeMode=False)) as session:
        with anyio.fail_after(SECONDS):
            denied = await session.client.call_tool("up__count", {"name": "forbidden"})
            odd = await session.client.call_tool("up__count", {"name": "odd"})
    assert denied.is_error
    assert denied.content[0].text == "up__count was denied by plugin 'guard': that name is reserved"
    assert [block.text for block in odd.content][1:] == ["Plugin 'guard': an odd name"]
    assert odd.meta["stamped"] == {"name": "odd"}
    assert events(tmp_path / "log") == ["call odd"]
    assert [tool for tool, *_ in seen(tmp_path)] == ["mcp:up:count", "mcp:up:count"]


# duplicates and results, which come with the product


async def test_a_call_that_another_program_of_the_same_owner_made_counts_and_one_of_another_owner_does_not(
    tmp_path: Path,
) -> None:
    config = {
        "mcpServers": {"up": counting(tmp_path / "log")},
        "http": TWO_TOKENS,
        "tools": {"duplicates": {"max": 2, "action": "deny"}},
        "store": {"kind": "memory"},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), "utf-8")
    code = "return await MCP.up.count({ name: 'a' }).then(() => 'made', (e) => e.message)"
    async with serve_http(path) as served:
        async with served.client(token=ALICE) as alice:
            suspended = await alice.exec(f"await yield_control(); {code}")
            assert await alice.value(code) == "made"
            assert (await alice.wait(suspended.run_id)).value == "made"
        async with served.client(token=ALICE) as alice:
            denied = await alice.value(code)
        async with served.client(token=BOB) as bob:
            assert await bob.value(code) == "made"
    assert "the same call was made 2 times already within 600 s, also by another program of the same" in denied
    assert f"({suspended.run_id[:12]}, " in denied
    assert re.search(r", [0-9]+ s ago\)", denied)
    assert events(tmp_path / "log") == ["call a"] * 3
