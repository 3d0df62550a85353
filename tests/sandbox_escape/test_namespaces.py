"""Namespaces of plugins, for programs that want to change, forge or misuse them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guest_harness import ok

from codemode_mcp.catalog.plugins.api import namespace_tool
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import NamespaceCall
from tests.runs.bench import bench
from tests.runs.fake_plugins import FakePlugins
from tests.sandbox.conftest import OpenCell
from tests.sandbox_escape.reach import WALK
from upstream_clients.testing import ScriptedSource

NAMESPACES = json.dumps(
    [
        {
            "id": "issues",
            "global": "issues",
            "data": {"team": "core", "list": None, "items": {"add": None}, "repos": [{"open": None}, 2]},
            "functions": [["list"], ["items", "add"], ["repos", "0", "open"]],
            "reason": None,
        },
        {"id": "broken", "global": "broken", "data": None, "functions": [], "reason": "plugin 'x' failed"},
    ]
)


def calls(told: Any) -> list[tuple[str, str, tuple[Any, ...]]]:
    return [
        (each.namespace, each.path, tuple(_read(text) for text in each.arguments))
        for each in told.requests
        if isinstance(each, NamespaceCall)
    ]


def _read(text: Any) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except RecursionError:
        return "deep"


CHANGES = {
    "assigned to": "issues = 1",
    "assigned to in strict code": "'use strict'; issues = 1",
    "assigned to on the global object": "globalThis.issues = 1",
    "declared again": "(0, eval)('var issues = 1')",
    "declared as a function": "(0, eval)('function issues() {}')",
    "redefined": "Object.defineProperty(globalThis, 'issues', { value: 1 })",
    "redefined with a getter": "Object.defineProperty(globalThis, 'issues', { get: () => 1 })",
    "deleted": "'use strict'; delete globalThis.issues",
    "replaced among namespaces": "'use strict'; namespaces.issues = 1",
    "added to namespaces": "'use strict'; namespaces.more = 1",
    "namespaces replaced": "'use strict'; globalThis.namespaces = { issues: 1 }",
    "given another function": "'use strict'; issues.list = () => 1",
    "given more": "'use strict'; issues.more = 1",
    "robbed": "'use strict'; delete issues.list",
    "given another prototype": "Object.setPrototypeOf(issues, { list: 1 })",
    "given another __proto__": "issues.__proto__ = { list: 1 }",
    "changed deep inside": "'use strict'; issues.items.add = 1",
    "changed in a list": "'use strict'; issues.repos[0] = 1",
    "a longer list": "'use strict'; issues.repos.push(1)",
    "its function changed": "'use strict'; issues.list.more = 1",
    "its function renamed": "Object.defineProperty(issues.list, 'name', { value: 'x' })",
    "the broken one changed": "'use strict'; broken.x = 1",
    "the broken one redefined": "Object.defineProperty(broken, 'x', { value: 1 })",
    "the broken one replaced": "'use strict'; globalThis.broken = 1",
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_program_cannot_change_a_namespace(cell: OpenCell, how: str) -> None:
    told = cell().start(
        "const before = [issues, issues.list, issues.items, issues.items.add, issues.repos, namespaces, broken];"
        f"try {{ (0, eval)({json.dumps(CHANGES[how])}) }} catch {{ }}"
        "const after = [globalThis.issues, namespaces.issues.list, issues.items, issues.items.add, issues.repos,"
        "  globalThis.namespaces, globalThis.broken];"
        "const same = before.every((it, i) => it === after[i]) && issues === after[0];"
        "issues.list({ a: 1 }).catch(() => 1);"
        "return [same, Object.keys(namespaces).length, Object.keys(issues), issues.repos.length, issues.list.name]",
        namespaces=NAMESPACES,
    )
    assert told.value == [True, 3, ["team", "list", "items", "repos"], 2, "list"]
    assert calls(told) == [("issues", "list", ({"a": 1},))]


OVERWRITTEN = {
    "JSON": "JSON.stringify = () => '\"forged\"'; JSON.parse = () => ({}); JSON = null",
    "arrays": "Array.prototype[Symbol.iterator] = function* () { yield 'forged' };"
    "Array.prototype.map = Array.prototype.join = Array.prototype.toString = () => 'forged'",
    "setters of Object.prototype": "for (const name of ['0', '1', 'path', 'arguments', 'op', 'id', 'length'])"
    "  try { Object.defineProperty(Object.prototype, name, { set() { }, get() { return 'forged' } }) } catch { }",
    "setters of Array.prototype": "for (const name of ['0', '1', '2'])"
    "  Object.defineProperty(Array.prototype, name, { set() { }, get() { return 'forged' } })",
    "toJSON": "Object.prototype.toJSON = () => 'forged'; String.prototype.toJSON = () => 'forged'",
    "strings": "String.prototype.concat = String.prototype.toString = String.prototype.valueOf = () => 'forged'",
    "functions": "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => 'forged'",
    "reflection": "Reflect.apply = () => 'forged'; Object.keys = () => ['forged']; Object.freeze = (it) => it",
    "promises": "Promise.prototype.then = () => 'forged'; globalThis.Promise = class { }",
    "maps": "Map.prototype.get = Map.prototype.set = () => 'forged'",
    "proxies": "Proxy = null; Symbol.toPrimitive; Object.getOwnPropertyDescriptor = () => undefined",
}  # fmt: skip


@pytest.mark.parametrize("what", OVERWRITTEN)
def test_what_a_program_overwrites_does_not_change_what_is_sent(cell: OpenCell, what: str) -> None:
    guest = cell()
    told = guest.start(
        f"{OVERWRITTEN[what]};"
        "const first = issues.items.add('a', { b: [1] }, undefined, null); const second = broken.any.thing(1);"
        "return [await first, await second]",
        namespaces=NAMESPACES,
    )
    # An object says itself what it is as JSON.
    given = "forged" if what == "toJSON" else {"b": [1]}
    assert calls(told) == [("issues", "items.add", ("a", given, None, None)), ("broken", "any.thing", (1,))]
    told = guest.deliver(ok(1, {"a": 1}), ok(2, 2))
    assert told.report is not None
    assert told.report.state in ("done", "failed" if what == "promises" else "done")


ARGUMENTS = {
    "one that makes calls when it is read": "({ toJSON() { issues.list('inner'); return 1 } })",
    "one that throws when it is read": "({ get a() { throw new Error('mine') } })",
    "a proxy": "new Proxy({}, { ownKeys() { throw new Error('mine') } })",
    "one that lies about its length": "Object.assign([1], { toJSON: () => ({ length: 5 }) })",
    "text that ends the message": '\'"]}],"outputs":[{"type":"text","text":"forged"}]\'',
    "halves of characters": "'\\ud800'",
    "a cycle": "(() => { const it = {}; it.it = it; return it })()",
    "one nested deep": "JSON.parse('['.repeat(3000) + ']'.repeat(3000))",
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments_are_sent_as_data_or_refused(cell: OpenCell, what: str) -> None:
    told = cell().start(
        f"const sent = issues.items.add('before', {ARGUMENTS[what]});"
        "sent.catch((error) => text(error.name)); issues.list('after').catch(() => 1); await 1; await 1; return 'end'",
        namespaces=NAMESPACES,
    )
    assert told.value == "end"
    made = calls(told)
    assert made[-1] == ("issues", "list", ("after",))
    assert {(namespace, path) for namespace, path, _ in made} <= {("issues", "list"), ("issues", "items.add")}
    assert "forged" not in told.texts
    if what == "text that ends the message":
        assert made[0] == ("issues", "items.add", ("before", '"]}],"outputs":[{"type":"text","text":"forged"}]'))


LOOKS = {
    "awaiting": "return (await issues) === issues && (await broken) === broken",
    "awaiting deep inside": "return (await issues.items) === issues.items && typeof (await broken.a.b) === 'function'",
    "returning": "return [issues, issues.items.add]",
    "printing": "text(issues); json(issues); console.log(issues, broken, broken.a); text(broken); json([broken.a.b])",
    "returning what is broken": "return [broken, broken.a, namespaces]",
    "JSON.stringify": "return JSON.stringify([issues, namespaces.issues])",
    "JSON.stringify of what is broken": "try { JSON.stringify(broken) } catch { } return JSON.stringify([broken.a])",
    "as strings": "for (const it of [issues, broken, broken.a]) { try { text(`${it}`) } catch { } }",
    "compared": "try { return [issues == 'x', broken == 'x', broken.a == 1] } catch { }",
    "spread": "try { return [{ ...issues }, { ...broken }] } catch { return Object.keys({ ...issues }) }",
    "iterated over": "try { for (const it of broken) text(it) } catch { } for (const name in issues) text(name)",
    "cloned": "for (const it of [issues, broken]) try { structuredClone(it) } catch { }",
    "thrown": "throw broken",
    "thrown, a function": "throw broken.a",
    "rejected with": "Promise.reject(broken); Promise.reject(broken.a.b); return 1",
    "resolved with": "return (await Promise.resolve(broken.a)) !== null",
    "stored": "store('k', [issues, broken, broken.a]); return 1",
    "as arguments of others": "try { MCP.files.readFile(broken).catch(() => 1) } catch { } return 1",
    "with instanceof": "try { return 1 instanceof broken.a } catch { }",
    "as a constructor": "try { return new broken.a() } catch { }",
    "as a template tag": "try { await broken`x` } catch { }",
    "as a class to extend": "try { class Own extends broken.a { } } catch { }",
    "proxied": "const it = new Proxy(broken, {}); try { return await it } catch { }",
    "described": "return [Object.getOwnPropertyDescriptor(broken, 'x'), 'x' in broken, Object.isFrozen(broken.a)]",
}


@pytest.mark.parametrize("kind", LOOKS)
def test_looking_at_namespaces_calls_nothing(cell: OpenCell, kind: str) -> None:
    told = cell().start(LOOKS[kind], namespaces=NAMESPACES)
    assert told.report is not None
    assert told.stopped is None
    assert told.report.state in ("done", "failed")
    assert calls(told) == []


def test_no_more_can_be_reached_than_the_namespaces_themselves(cell: OpenCell) -> None:
    """Check that all functions but those of the scope are in MCP or belong to the language."""
    code = (
        WALK
        + "const ours = [];"
        + "for (const [it, place] of walk({ MCP, namespaces })) {"
        + "  if (place[0] === 'MCP') continue;"
        + "  if (typeof it === 'function' && !Function.prototype.toString.call(it).includes('[native code]'))"
        + "    ours.push([place.join(' '), Object.isFrozen(it), it.length, typeof it.prototype]);"
        + "}"
        + "return ours"
    )
    sound = json.dumps(json.loads(NAMESPACES)[:1])
    # A function of the language, which is ours, is no more frozen than the others.
    assert cell().start(code, namespaces=sound).value == [
        [f"namespaces .issues {place}", not place.endswith("toLocaleString"), 0, "undefined"]
        for place in (".list", ".items .add", ".repos ^ .toLocaleString", ".repos .0 .open")
    ]  # fmt: skip


BROKEN_ROADS = {
    "its constructor": "return typeof broken.constructor",
    "the constructor of its functions": "const it = broken.a.constructor; return it === Function",
    "code made from text": "return await broken.a.constructor('return 5')().then(() => 1, (error) => error.message)",
    "its prototype": "return [Object.getPrototypeOf(broken), Object.getPrototypeOf(broken.a) === Function.prototype]",
    "caller and arguments": "return [typeof broken.a.caller, typeof broken.a.arguments]",
    "a very long path": "let it = broken; for (let i = 0; i < 20000; i++) it = it.aaaa; it().catch(() => 1); return 1",
    "names that are no names": "broken['a:b/c\\n\"'].x().catch(() => 1); broken[''].x().catch(() => 1); return 1",
}


@pytest.mark.parametrize("road", BROKEN_ROADS)
def test_a_broken_namespace_is_no_way_to_anything(cell: OpenCell, road: str) -> None:
    told = cell().start(BROKEN_ROADS[road], namespaces=NAMESPACES)
    assert told.stopped is None
    for namespace, path, _ in calls(told):
        assert namespace == "broken"
        assert len(path) <= 600
        assert not set(path) & set(':/\n"')
    if road == "the constructor of its functions":
        assert told.value is False


def test_namespaces_are_as_they_were_after_a_suspension(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const kept = [issues, issues.list]; await yield_control(); try { globalThis.issues = 1 } catch { }"
        "issues.items.add(7).catch(() => 1);"
        "return [kept[0] === issues, kept[1] === namespaces.issues.list, Object.isFrozen(issues.items)]",
        namespaces=NAMESPACES,
    )
    told = cell(suspended=guest.snapshot()).deliver(ok(1, None))
    assert told.value == [True, True, True]
    assert calls(told) == [("issues", "items.add", (7,))]


# through the host


@pytest.mark.anyio
async def test_no_program_calls_what_its_namespaces_do_not_have(engine: Engine) -> None:
    plugins = FakePlugins()
    source = plugins.add_tools("tracker", "list", "remove_all")
    plugins.add(lambda context: {"list": namespace_tool("list"), "n": 1}, required=["list", "remove_all"])
    upstream = ScriptedSource("s", {"work": {}})
    async with bench(engine, upstream, plugins=plugins) as it:
        outcome = await it.execute(
            "const said = [];"
            "const uses = ["
            "  () => issues.remove_all(), () => issues.list.remove_all(), () => issues['remove_all'](),"
            "  () => issues.n(), () => namespaces.tracker.remove_all(), () => namespaces['plugin:tracker'].list(),"
            "  () => issues.list.call({ path: 'remove_all' }), () => Reflect.apply(issues.list, 'remove_all', []),"
            "  () => new issues.list(), () => issues.list`remove_all`,"
            "];"
            "for (const use of uses) try { await use(); said.push('called') } catch (error) { said.push(error.name) }"
            "return said"
        )
    called = ["TypeError"] * 6 + ["called", "called", "TypeError", "ToolCallError"]
    assert outcome.value == called
    assert [tool for tool, _ in source.calls] == ["list", "list"]
    assert upstream.calls == []


@pytest.mark.anyio
async def test_data_of_a_scope_cannot_pass_for_a_function(engine: Engine) -> None:
    """Check that data cannot pass for a function: the host lists the functions apart from the data."""
    marked = {"name": "list", "input_mapper": None, "functions": [["x"]], "$tool": "list", "reason": None, "id": "x"}
    plugins = FakePlugins()
    plugins.add_tools("tracker", "list")
    plugins.add(lambda context: {"x": marked, "functions": [["x"]], "data": None, "reason": "no"}, required=["list"])
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute("return issues")
    assert outcome.value == {"x": marked, "functions": [["x"]], "data": None, "reason": "no"}


@pytest.mark.anyio
async def test_text_of_a_scope_cannot_leave_its_place(engine: Engine) -> None:
    texts = ['"}],"code":"text(1)"', "\u2028\u2029", "\\", "\0", "</script>", "`${text(1)}`", "\ud800", "__proto__"]
    plugins = FakePlugins()
    plugins.add_tools("tracker", "list")
    plugins.add(
        lambda context: {"texts": texts, **{f'"{n}`\\': n for n in range(3)}},
        required=["list"],
        description='*/ declare const x: 1; /* "}],',
    )
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute("return [issues, Object.keys(namespaces)]")
    expected = [text.replace("\ud800", "\ufffd") for text in texts]
    assert outcome.value == [{"texts": expected, **{f'"{n}`\\': n for n in range(3)}}, ["MCP", "issues"]]
    assert outcome.outputs == ()
