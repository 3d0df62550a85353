"""Promise 5, of names: tools, keys and servers may be called like what every object or promise has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guest_harness import READ, called, ok

from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench
from tests.sandbox.conftest import OpenCell, RunCode
from upstream_clients.testing import FailingSource, ScriptedSource, text_result
from upstream_clients.tools import Tool

TOOLS = {
    "then": "then_",
    "catch": "catch_",
    "finally": "finally_",
    "__proto__": "proto_",
    "constructor": "constructor_",
    "toString": "toString_",
    "valueOf": "valueOf_",
    "hasOwnProperty": "hasOwnProperty_",
    "prototype": "prototype_",
    "$api": "$api_",
    "resources": "resources_",
    "prompts": "prompts_",
    "": "tool_",
    "a\nb": "aB",
    "q\"'`": "q",
    "*/ x": "x",
    "\u2028": "tool__3",
    "\0": "tool__2",
    "name": "name",
    "length": "length",
    "apply": "apply",
}
"""Names of tools and what a program writes."""


def source(name: str = "s", tools: Any = TOOLS) -> ScriptedSource:
    """Return a source of tools that answer with their own names."""
    return ScriptedSource(name, {tool: text_result(tool) for tool in tools}, tools=[Tool(tool) for tool in tools])


@pytest.mark.anyio
async def test_tools_named_like_anything_are_called_and_called_alone(engine: Engine) -> None:
    upstream = source()
    async with bench(engine, upstream) as it:
        outcome = await it.execute(
            f"const names = {json.dumps(list(TOOLS.values()))}; const answers = [];"
            "for (const name of names) answers.push((await MCP.s[name]({ from: name })).content[0].text);"
            "return [answers, Object.getPrototypeOf(MCP.s), (await MCP.s.$api()).tools.map((tool) => tool.mcpTool)]"
        )
    assert outcome.error == ""
    answers, prototype, listed = outcome.value
    assert answers == list(TOOLS)
    assert prototype is None
    assert sorted(listed) == sorted(TOOLS)
    assert upstream.calls == [(tool, {"from": name}) for tool, name in TOOLS.items()]


LOOKS = {
    "awaiting MCP": "return (await MCP) === MCP",
    "awaiting a server": "return (await MCP.s) === MCP.s && (await MCP.down) === MCP.down",
    "awaiting a tool": "return (await MCP.s.name) === MCP.s.name",
    "returning MCP": "return MCP",
    "returning a server": "return MCP.s",
    "returning a server that is down": "return MCP.down",
    "printing them": "text(MCP); json(MCP.s); console.log(MCP.down, [MCP])",
    "storing them": "store('k', [MCP, MCP.down])",
    "JSON.stringify": "return JSON.stringify([MCP, MCP.s, MCP.down])",
    "as strings": "for (const it of [MCP, MCP.s, MCP.down]) { let s = ''; try { s = `${it}` } catch {} text(s) }",
    "as numbers": "for (const it of [MCP, MCP.s, MCP.down]) { try { text(+it) } catch { } }",
    "through a proxy": "const it = new Proxy(MCP, {}); return [await it, JSON.stringify(it), Object.keys(it.s).length]",
    "spread": "return Object.keys({ ...MCP, ...MCP.s, ...MCP.down }).length > 5",
    "iterated over": "const out = []; for (const a in MCP) for (const b in MCP[a]) out.push(b); return out",
    "cloned": "try { return structuredClone(MCP) } catch (error) { return error.name }",
    "as an argument": "try { await MCP.s.name(MCP) } catch { } return 1",
    "compared": "return [MCP == 'x', MCP.s === MCP.s, Object.is(MCP, MCP)]",
    "thrown": "throw MCP",
    "thrown when down": "throw MCP.down",
    "rejected with": "Promise.reject(MCP.down); Promise.reject(MCP); return 1",
    "in Promise.all": "return (await Promise.all([MCP, MCP.s, MCP.down])).length",
    "resolved with": "return (await Promise.resolve(MCP.s)) === MCP.s",
    "as keys": "const map = new Map([[MCP, MCP.s]]); return map",
    "instanceof": "try { return MCP instanceof MCP.s.name } catch (error) { return error.name }",
    "extended": "class Own { then = MCP.s.apply } return 1",
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", LOOKS)
async def test_looking_at_the_objects_of_servers_calls_no_tool(engine: Engine, kind: str) -> None:
    upstream = source()
    async with bench(engine, upstream, FailingSource("down")) as it:
        outcome = await it.execute(LOOKS[kind])
    own = [("name", {"s": {}, "down": {}})] if kind == "as an argument" else []
    assert [(tool, arguments) for tool, arguments in upstream.calls if (tool, arguments) not in own] == []
    assert outcome.usage.call_count <= (1 if kind == "as an argument" else 0)
    assert not [note for note in outcome.notes if "mcp:" in note]


@pytest.mark.anyio
@pytest.mark.parametrize("code", ["return MCP", "return JSON.stringify(MCP)", "text(MCP.s)"])
async def test_a_tool_named_like_the_language_asks_for_json_is_not_called_by_it(engine: Engine, code: str) -> None:
    upstream = source(tools=["toJSON", "work"])
    async with bench(engine, upstream) as it:
        outcome = await it.execute(code)
    assert (outcome.usage.call_count, outcome.notes) == (0, ())


# keys of results and arguments

KEYS = (
    '{"__proto__":{"polluted":1},"then":"t","constructor":{"prototype":{"polluted":1}},"toJSON":"j","prototype":null,'
    '"hasOwnProperty":0,"":"empty","valueOf":[{"__proto__":{"x":1}}],"toString":"s","length":-1,"0":"zero"}'
)


def test_a_result_with_keys_of_prototypes_is_data_and_pollutes_nothing(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(
        "const got = await MCP.files.readFile({}); MCP.files.remove(got).catch(() => 1); store('k', got);"
        "return [got, {}.polluted === undefined, Object.getPrototypeOf(got) === Object.prototype, got.then,"
        "  Object.getOwnPropertyNames(got).length, unwrap({ content: [], structuredContent: got }) === got]"
    )
    assert told.requests == [called(1, READ, {})]
    told = guest.deliver(ok(1, json.loads(KEYS)))
    assert told.value == [json.loads(KEYS), True, True, "t", 11, True]
    # Whole numbers come first among the keys of an object: nothing else changes.
    assert json.loads(told.requests[0].input) == json.loads(KEYS)
    assert json.loads(told.requests[1].value) == json.loads(KEYS)


@pytest.mark.anyio
async def test_arguments_with_keys_of_prototypes_reach_the_upstream_unchanged(engine: Engine) -> None:
    upstream = ScriptedSource("s", {"echo": lambda arguments: {"content": [], "structuredContent": arguments}})
    async with bench(engine, upstream) as it:
        outcome = await it.execute(f"return (await MCP.s.echo(JSON.parse({json.dumps(KEYS)}))).structuredContent")
    assert upstream.calls == [("echo", json.loads(KEYS))]
    assert outcome.value == json.loads(KEYS)


THENABLES = {
    "a string": '{"then":"function () { text(1) }"}',
    "an object": '{"then":{"call":1,"apply":1}}',
    "deep": '{"content":[{"type":"text","text":"x","then":"y"}],"then":null}',
    "a list": '[{"then":1},["then"]]',
}


@pytest.mark.parametrize("text", THENABLES.values(), ids=THENABLES.keys())
@pytest.mark.parametrize(
    "how", ["await MCP.files.readFile({})", "await Promise.all([MCP.files.readFile({})]).then((a) => a[0])"]
)
def test_a_result_shaped_like_a_thenable_is_a_result(cell: OpenCell, how: str, text: str) -> None:
    guest = cell()
    guest.start(f"return {how}")
    told = guest.deliver(ok(1, json.loads(text)))
    assert told.value == json.loads(text)
    assert told.texts == []


@pytest.mark.parametrize("key", ["__proto__", "then", "constructor", "toJSON", "prototype", "", "hasOwnProperty"])
def test_values_are_told_with_keys_of_prototypes(run: RunCode, key: str) -> None:
    told = run(
        f"const it = Object.defineProperty({{}}, {json.dumps(key)}, {{ value: 1, enumerable: true }});"
        f"json([it, new Map([[{json.dumps(key)}, 2]])]); return it"
    )
    assert told.value == {key: 1}
    assert told.report is not None
    assert told.report.outputs[0]["value"] == [{key: 1}, {key: 2}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", ["__proto__", "constructor", "then", "toJSON", "hasOwnProperty", "$api", "MCP", "Object"]
)
async def test_a_server_may_have_any_name(engine: Engine, name: str) -> None:
    upstream = source(name, ["work"])
    async with bench(engine, upstream) as it:
        outcome = await it.execute(
            "const [only] = Object.keys(MCP); const got = await MCP[only].work({ a: 1 });"
            "return [(await MCP) === MCP, Object.keys(MCP).length, got.content[0].text, typeof MCP.$api]"
        )
    assert outcome.value == [True, 1, "work", "function"]
    assert upstream.calls == [("work", {"a": 1})]
