"""Hooks, middleware and the guard against repeated calls, in the real process, from a plugin's module."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest

from tests.integration.harness import SECONDS, SERVERS, counting, events, serve, until
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.harness import Session

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
    api.tool(PluginTool(name="double", description="Twice a number.", run=lambda given: 2 * given["n"],
        input={"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}))
    twice = namespace_tool("double", lambda n: {"n": n})
    api.namespace("books", "books", description="Doubles.", required_tools=["double"],
        create_scope=lambda context: {"twice": twice, "deep": {"twice": twice}})
"""


def write(folder: Path, servers: dict[str, Any], *, grants: Any = ("*",), **tools: Any) -> Path:
    (folder / "guard.py").write_text(GUARD, "utf-8")
    path = folder / "config.json"
    guard = {"module": "guard.py:register", "hooks": list(grants), "middleware": list(grants)}
    path.write_text(json.dumps({"mcpServers": servers, "plugins": {"guard": guard}, "tools": tools}), "utf-8")
    return path


def seen(folder: Path) -> list[list[Any]]:
    path = folder / "seen.txt"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])


@pytest.fixture(scope="module")
async def granted(folder: Path) -> AsyncIterator[tuple[Session, Path]]:
    """Yield a server whose plugin sees everything, and its folder; the log of the server `up` is `log` there."""
    place = folder / "granted"
    place.mkdir()
    library = {"command": sys.executable, "args": [str(SERVERS / "library.py")]}
    config = write(place, {"up": counting(place / "log"), "library": library})
    async with serve(config, list_roots_callback=roots) as session:
        yield session, place


async def test_a_hook_of_a_plugin_sees_denies_and_changes_what_programs_call(granted: tuple[Session, Path]) -> None:
    session, place = granted
    before, begun = len(seen(place)), len(events(place / "log"))
    answer = await session.exec(
        "const said = [];\n"
        "for (const name of ['old', 'forbidden', 'odd', 'slow', 'nonsense']) {\n"
        "  const call = MCP.up.count({ name }).then((result) => result._meta.stamped.name);\n"
        "  said.push(await call.catch((e) => e.message));\n"
        "}\n"
        "return said"
    )
    new, denied, odd, slow, nonsense = answer.value
    assert (new, odd, slow) == ("new", "odd", "slow")
    assert denied == "MCP.up.count was denied by plugin 'guard': that name is reserved"
    assert nonsense.startswith("MCP.up.count: plugin 'guard' failed: its middleware returned")
    assert "Plugin 'guard': an odd name" in answer.read
    refused = await session.exec("hang()")
    assert (refused.code, refused.error) == (
        "invalid_input",
        "exec was denied by plugin 'guard': this program would hang",
    )
    assert await session.value("return 'still here'") == "still here"
    assert events(place / "log")[begun:] == ["call new", "call odd", "call slow", "call nonsense"]
    first, *rest = seen(place)[before:]
    assert first[:3] == ["core:code_mode:exec", "code_mode_exec", "javascript"]
    assert rest[0] == ["mcp:up:count", "mcp", "json", {"name": "old"}]


async def test_hooks_see_calls_of_every_form(granted: tuple[Session, Path]) -> None:
    session, place = granted
    before = len(seen(place))
    code = (
        "await MCP.up.count({ name: 'a' }); await MCP.up['count']({ name: 'b' });"
        "await tools.double({ n: 1 }); await tools.call('plugin:guard:double', { n: 2 });"
        "await tools.call('core:results:list'); await tools.call('client:session:roots');"
        "await Promise.all([1, 2].map((n) => tools.double({ n: 10 * n })));"
        "await MCP.library.resources.list({ cursor: '20' }); await MCP.library.prompts.list();"
        "await books.twice(5); await namespaces.books.deep.twice(6);"
    )
    await session.value(code + " return 1")
    assert [(tool, kind, given) for tool, kind, _, given in seen(place)[before:]][1:] == [
        ("mcp:up:count", "mcp", {"name": "a"}),
        ("mcp:up:count", "mcp", {"name": "b"}),
        ("plugin:guard:double", "plugin", {"n": 1}),
        ("plugin:guard:double", "plugin", {"n": 2}),
        ("core:results:list", "core", {}),
        ("client:session:roots", "client", {}),
        ("plugin:guard:double", "plugin", {"n": 10}),
        ("plugin:guard:double", "plugin", {"n": 20}),
        ("mcp:library:resources/list", "mcp", {"cursor": "20"}),
        ("mcp:library:prompts/list", "mcp", {}),
        ("plugin:guard:double", "plugin", {"n": 5}),
        ("plugin:guard:double", "plugin", {"n": 6}),
    ]


async def test_in_pass_through_hooks_see_calls_and_the_client_reads_their_notes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serve(write(tmp_path, {"up": counting(log)}, codeMode=False)) as session:
        with anyio.fail_after(SECONDS):
            denied = await session.client.call_tool("up__count", {"name": "forbidden"})
            odd = await session.client.call_tool("up__count", {"name": "odd"})
    assert denied.is_error
    assert denied.content[0].text == "up__count was denied by plugin 'guard': that name is reserved"
    assert [block.text for block in odd.content][1:] == ["Plugin 'guard': an odd name"]
    assert odd.meta["stamped"] == {"name": "odd"}
    assert events(log) == ["call odd"]
    assert [tool for tool, *_ in seen(tmp_path)] == ["mcp:up:count", "mcp:up:count"]


def settle(folder: Path, **duplicates: Any) -> Path:
    """Return a server that no plugin may see, and another whose plugin cannot be loaded."""
    (folder / "guard.py").write_text(GUARD, "utf-8")
    (folder / "broken.py").write_text("raise ValueError('broken')", "utf-8")
    plugins = {
        "guard": {"module": "guard.py:register", "hooks": ["mcp:other:*"], "middleware": ["mcp:other:*"]},
        "broken": {"module": "broken.py:register", "hooks": ["mcp:guarded:count"]},
    }
    servers = {name: counting(folder / name) for name in ("up", "guarded")}
    tools = {"duplicates": duplicates, "codeMode": {"maxOutputBytes": 1024}}
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": servers, "plugins": plugins, "tools": tools}), "utf-8")
    return path


@pytest.fixture(scope="module")
async def guarded(folder: Path) -> AsyncIterator[tuple[Session, Path]]:
    """Yield a server with what `settle` writes into its folder."""
    place = folder / "guarded"
    place.mkdir()
    async with serve(settle(place, max=2, action="deny")) as session:
        yield session, place


async def test_what_the_operator_does_not_grant_is_not_seen(guarded: tuple[Session, Path]) -> None:
    session, place = guarded
    before = len(seen(place))
    value = await session.value(
        "return [(await MCP.up.count({ name: 'forbidden' }))._meta ?? null, await tools.double({ n: 4 })]"
    )
    assert value == [None, 8]
    assert [tool for tool, *_ in seen(place)[before:]] == ["plugin:guard:double"]


async def test_calls_of_a_plugin_that_does_not_load_are_refused_where_it_has_to_see_them(
    guarded: tuple[Session, Path],
) -> None:
    session, place = guarded
    message, other_call = await session.value(
        "let why; try { await MCP.guarded.count({ name: 'a' }) } catch (e) { why = e.message }\n"
        "return [why, (await MCP.guarded.environment()).content.length]"
    )
    assert message.startswith("MCP.guarded.count: plugin 'broken', which must see its calls, could not be loaded")
    assert other_call == 1
    assert events(place / "guarded") == ["call environment"]


# duplicates and results, which come with the product


async def test_a_program_that_repeats_a_call_is_warned_also_across_suspensions(
    guarded: tuple[Session, Path],
) -> None:
    session, place = guarded
    before = len(events(place / "up"))
    suspended = await session.exec(
        "await MCP.up.count({ name: 'a' }); await MCP.up.count({ name: 'a' }); await yield_control();\n"
        "return await MCP.up.count({ name: 'a' }).catch((e) => e.message)"
    )
    answer = await session.wait(suspended.run_id)
    assert "MCP.up.count was denied: this program has made the same call 2 times already" in answer.value
    assert events(place / "up")[before:] == ["call a", "call a"]
    # Changed while it runs.
    settle(place, max=1)
    await until(lambda: "the configuration has changed: new settings of tools" in session.stderr)
    answer = await session.exec("for (let i = 0; i < 4; i++) await MCP.up.count({ name: 'b' }); return 1")
    assert answer.value == 1
    assert answer.read.count("called with the same arguments more than once") == 1
    assert events(place / "up")[before + 2 :] == ["call b"] * 4


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


async def test_a_result_that_was_too_large_to_show_is_listed_and_loaded_in_parts(guarded: tuple[Session, Path]) -> None:
    session, _ = guarded
    ref = (await session.value("return Array.from({ length: 5000 }, (_, i) => i)"))["ref"]
    listed, part = await session.value(
        "const { items } = await tools.call('core:results:list');\n"
        "return [items, await tools.call('core:results:load', { key: items[0].key, offset: 10, limit: 3 })]"
    )
    assert [item["key"] for item in listed] == [ref]
    assert (part["type"], part["total"], part["value"]) == ("array", 5000, [10, 11, 12])
