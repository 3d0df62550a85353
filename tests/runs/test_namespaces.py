"""Namespaces in runs: their members in programs, and calls of their functions."""

from __future__ import annotations

import gc
import json
import re
import threading
import time
from collections.abc import Mapping
from datetime import date
from typing import Any, Unpack

import anyio
import pytest

from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.entries import OfferedTool
from codemode_mcp.catalog.plugins.api import NamespaceContext, ToolError, namespace_tool
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.rules.policy.approval import ApprovalRequest, Verdict
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs import namespaces as module
from codemode_mcp.runs.calls.outcome import CallContext, Calling, CallRecord
from codemode_mcp.runs.verdicts import _with_nearest_function
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import NamespaceCall, Thrown
from tests.runs.bench import CALLER, OWNER, Bench, bench, ran, texts
from tests.runs.fake_plugins import FakePlugins
from tests.waiting import until
from upstream_clients.results import read_outcome
from upstream_clients.testing import ScriptedSource, text_result
from upstream_clients.tools import CallOptions, JsonObject, Tool, ToolOutcome

TITLED = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}},
    "required": ["title"],
}


def scope(context: NamespaceContext | None = None) -> Mapping[str, Any]:
    shared = {"colours": ("red", "green"), "since": date(2026, 1, 2)}
    return {
        "team": "core",
        "limits": {"open": 10, "labels": [1, 2]},
        "list": namespace_tool("list"),
        "mine": shared,
        "theirs": shared,
        "items": {"add": namespace_tool("add", lambda title, *labels: {"title": title, "labels": list(labels)})},
        "repos": [{"name": "a", "list": namespace_tool("list", lambda: {"repo": "a"})}],
    }


def tracker(create_scope: Any = scope, **more: Any) -> tuple[FakePlugins, ScriptedSource]:
    """A plugin with two tools and a namespace."""
    plugins = FakePlugins()
    source = plugins.add_tools("tracker", "list", Tool("add", input_schema=TITLED))
    plugins.add(create_scope, **more)
    return plugins, source


async def opened_by(it: Bench) -> tuple[CallContext, module.OpenNamespaces]:
    """Return the open namespaces of a run that begins now, without a guest."""
    catalog = it.catalog()
    opened = await module.open_namespaces(
        catalog.namespaces, it.plugins, run_id="run_1", owner=OWNER, aborted=lambda: False, memory_limit=64 << 20
    )
    return it.dispatcher.context("run_1", OWNER, CALLER, catalog), opened


GIVEN = ".structuredContent.given"


# what a program sees


async def test_a_namespace_is_a_global_and_a_member_of_namespaces_with_data_and_functions(engine: Engine) -> None:
    plugins, _ = tracker()
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute("return [namespaces.issues === issues, Object.keys(namespaces), issues]")
    assert outcome.error == ""
    same, names, shown = outcome.value
    assert (same, names) == (True, ["MCP", "issues"])
    colours = {"colours": ["red", "green"], "since": "2026-01-02"}
    assert shown == {
        "team": "core",
        "limits": {"open": 10, "labels": [1, 2]},
        "list": "[Function: list]",
        "mine": colours,
        "theirs": colours,
        "items": {"add": "[Function: add]"},
        "repos": [{"name": "a", "list": "[Function: list]"}],
    }


async def test_without_plugins_namespaces_holds_the_servers_alone(engine: Engine) -> None:
    outcome = await ran(
        engine, "return [Object.keys(namespaces), namespaces.MCP === MCP, Object.isFrozen(namespaces), typeof issues]"
    )
    assert outcome.value == [["MCP"], True, True, "undefined"]


async def test_namespaces_are_found_by_their_global_names_and_not_by_their_ids(engine: Engine) -> None:
    plugins, source = tracker(id="tracker-of-issues", global_name="Issues")
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "await namespaces.Issues.list({ a: 1 }); return [namespaces.Issues === Issues, Object.keys(namespaces)]"
        )
    assert (outcome.value, source.calls) == ([True, ["MCP", "Issues"]], [("list", {"a": 1})])


async def test_calls_are_ordinary_calls_of_the_plugins_own_tools(engine: Engine) -> None:
    plugins, source = tracker()
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "const all = [issues.list(), issues.list({ open: true }), issues.items.add('a', 'x', 'y'),"
            "  issues.repos[0].list(), namespaces.issues.items.add('b')];"
            f"return (await Promise.all(all)).map((it) => it{GIVEN})"
        )
    expected = [{}, {"open": True}, {"title": "a", "labels": ["x", "y"]}, {"repo": "a"}, {"title": "b", "labels": []}]
    assert outcome.value == expected
    assert [given for _, given in source.calls] == expected
    assert [(call.tool, call.path, call.status) for call in outcome.usage.calls] == [
        ("plugin:tracker:list", "issues.list", "completed"),
        ("plugin:tracker:list", "issues.list", "completed"),
        ("plugin:tracker:add", "issues.items.add", "completed"),
        ("plugin:tracker:list", "issues.repos.0.list", "completed"),
        ("plugin:tracker:add", "issues.items.add", "completed"),
    ]
    assert outcome.usage.call_count == 5


async def test_the_default_input_is_the_first_argument_or_an_empty_object(engine: Engine) -> None:
    plugins, source = tracker()
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "await issues.list(); await issues.list(undefined); await issues.list({ a: 1 }, { ignored: 2 });"
            "const said = []; for (const wrong of [null, 5, 'x', [1]])"
            "  said.push(await issues.list(wrong).then(() => 'called', (error) => error.message.split('\\n')[0]));"
            "return said"
        )
    assert [given for _, given in source.calls] == [{}, {}, {"a": 1}]
    assert outcome.value == ["issues.list: invalid arguments, nothing was sent."] * 4


async def test_a_mapper_gets_the_arguments_as_they_were_given(engine: Engine) -> None:
    seen: list[tuple[Any, ...]] = []

    def mapper(*arguments: Any) -> dict[str, Any]:
        seen.append(arguments)
        return {"when": date(2026, 1, 2)}

    plugins, source = tracker(lambda context: {"call": namespace_tool("list", mapper)})
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "await issues.call(); await issues.call(1, undefined, { a: [null] }, undefined);"
            "await issues.call({ __proto__: null, 'a.b': { ['__proto__']: 1 } }, '\\ud83d'); return 1"
        )
    assert (outcome.error, seen) == ("", [(), (1, None, {"a": [None]}), ({"a.b": {"__proto__": 1}}, "\ufffd")])
    assert [given for _, given in source.calls] == [{"when": "2026-01-02"}] * 3


async def test_a_scope_is_made_once_for_each_run_and_only_where_it_is_visible(engine: Engine) -> None:
    contexts: list[NamespaceContext] = []

    async def create(context: NamespaceContext) -> Mapping[str, Any]:
        contexts.append(context)
        return {"run": context.run_id, "owner": context.owner, "config": context.config, "number": len(contexts)}

    config = {"team": {"name": "core"}}
    plugins, _ = tracker(create, config=config)
    async with bench(engine, plugins=plugins) as it:
        first = await it.execute("return [issues, issues.number]")
        suspended = await it.execute("const n = issues.number; await yield_control(); return [n, issues.number]")
        second = await it.observe(suspended.run_id)
        it.rules = PolicyRules(deny=("plugin:tracker:add",))
        assert (await it.execute("return typeof issues")).value == "undefined"
    assert first.value[0] == {"run": first.run_id, "owner": OWNER, "config": config, "number": 1}
    assert second.value == [2, 2]
    assert [context.run_id for context in contexts] == [first.run_id, suspended.run_id]
    contexts[0].config["team"]["name"] = "changed"
    assert config == {"team": {"name": "core"}}


async def test_scopes_are_made_for_their_owner_and_not_shared(engine: Engine) -> None:
    plugins, _ = tracker(lambda context: {"secret": f"of {context.owner}"})
    async with bench(engine, plugins=plugins) as it:
        values = [
            (await it.execute("return issues.secret", caller=Caller(owner, "http"))).value for owner in ("ada", "bob")
        ]
    assert values == ["of ada", "of bob"]


async def test_no_new_image_is_made_for_scopes(engine: Engine) -> None:
    plugins, _ = tracker(lambda context: {"run": context.run_id})
    async with bench(engine, plugins=plugins) as it:
        before = it.catalog()
        values = {(await it.execute("return issues.run")).value for _ in range(3)}
        assert it.catalog().manifest == before.manifest
        assert "issues" not in before.manifest.replace("plugin:tracker", "")
        image = engine.image(before.manifest)
        assert engine.image(it.catalog().manifest) is image
    assert len(values) == 3


# what hides a namespace


@pytest.mark.parametrize("rule", ["plugin:tracker:add", "plugin:tracker:*", "plugin:*", "*:add", "destructive"])
async def test_a_namespace_is_hidden_where_policy_hides_a_tool_that_it_requires(engine: Engine, rule: str) -> None:
    made: list[Any] = []
    plugins, _ = tracker(lambda context: made.append(context) or {})
    async with bench(engine, plugins=plugins, rules=PolicyRules(deny=(rule,))) as it:
        assert it.catalog().namespaces == ()
        outcome = await it.execute("return [typeof issues, Object.keys(namespaces), 'issues' in globalThis]")
        files = (await it.execute("return [await API.list(), await API.read('mcp/index.d.ts')]")).value
    assert (outcome.value, made) == (["undefined", ["MCP"], False], [])
    assert "issues" not in json.dumps(files)


@pytest.mark.parametrize(
    "others", [{}, {"another": ["list", "add"]}, {"tracker2": ["list", "add"], "tracker": ["list"]}]
)
async def test_a_namespace_without_its_own_tools_is_hidden(engine: Engine, others: dict[str, list[str]]) -> None:
    plugins = FakePlugins()
    for plugin, tools in others.items():
        plugins.add_tools(plugin, *tools)
    plugins.add(scope, plugin="tracker")
    async with bench(engine, ScriptedSource("tracker", {"list": {}, "add": {}}), plugins=plugins) as it:
        outcome = await it.execute("return [typeof issues, Object.keys(namespaces)]")
    assert outcome.value == ["undefined", ["MCP"]]


async def test_a_tool_of_our_own_with_the_same_name_does_not_count(engine: Engine) -> None:
    plugins, _ = tracker()
    own = [OfferedTool("core", "tracker", each.tool) for each in plugins.tools()]
    assert select_tools(own, plugins.namespaces(), Policy(PolicyRules())).namespaces == ()
    assert select_tools(plugins.tools(), plugins.namespaces(), Policy(PolicyRules())).namespaces == plugins.namespaces()


async def test_a_removed_plugin_takes_its_namespaces_with_it(engine: Engine) -> None:
    plugins, source = tracker()
    plugins.add_tools("notes", "read")
    plugins.add(lambda context: {"read": namespace_tool("read")}, plugin="notes", id="notes", global_name="notes",
                required=["read"])  # fmt: skip
    async with bench(engine, plugins=plugins) as it:
        suspended = await it.execute("await yield_control(); return await issues.list().catch((e) => e.message)")
        plugins.remove("tracker")
        assert (await it.execute("return Object.keys(namespaces)")).value == ["MCP", "notes"]
        # A run keeps its catalog, but what is gone cannot be called.
        ended = await it.observe(suspended.run_id)
        plugins.add_tools("tracker", "list", "add")
        plugins.add(scope)
        assert (await it.execute("return Object.keys(namespaces)")).value == ["MCP", "notes", "issues"]
    assert ended.value.startswith("issues.list: plugin 'tracker' was removed or loaded again while this program ran; ")
    assert "run a new program" in ended.value
    assert source.calls == []


async def test_a_plugin_that_is_loaded_again_while_a_run_begins_is_not_mixed_up(engine: Engine) -> None:
    plugins, _ = tracker()
    async with bench(engine, plugins=plugins) as it:
        catalog = it.catalog()
        plugins.remove("tracker")
        plugins.add_tools("tracker", "list", "remove_all")
        plugins.add(lambda context: {"list": namespace_tool("remove_all")}, required=["remove_all"])
        it.catalog = lambda: catalog  # type: ignore[method-assign]
        outcome = await it.execute("return await issues.list().catch((error) => error.message)")
    assert "plugin 'tracker': the plugin was removed or loaded again" in outcome.value


# failures


def _raises(error: Exception) -> Any:
    def create(context: NamespaceContext) -> Mapping[str, Any]:
        raise error

    return create


BROKEN: dict[str, tuple[Any, str]] = {
    "raises": (_raises(KeyError("secret")), "plugin 'tracker' failed"),
    "raises a ToolError": (_raises(ToolError("no such team")), "plugin 'tracker': no such team"),
    "ends the process": (_raises(SystemExit(1)), "plugin 'tracker' failed"),  # type: ignore[arg-type]
    "returns a list": (lambda context: [], "plugin 'tracker': a scope must be an object, not a list"),
    "returns a function": (lambda context: {"list": print}, "plugin 'tracker': scope.list is a raw function"),
    "returns a cycle": (lambda context: (made := {}).update(a=made) or made, "scope.a contains itself"),
    "has an unsafe key": (lambda context: {"__proto__": {"x": 1}}, "scope has the key '__proto__'"),
    "calls another tool": (lambda context: {"x": namespace_tool("close")}, "scope.x calls 'close'"),
    "calls a server's tool": (lambda context: {"x": namespace_tool("mcp:s:t")}, "scope.x calls 'mcp:s:t'"),
    "is too large": (lambda context: {"x": ["y" * 1000] * 1000}, "plugin 'tracker': more than"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_scope_that_cannot_be_used_ends_its_namespace_and_not_the_run(engine: Engine, kind: str) -> None:
    create, expected = BROKEN[kind]
    plugins, source = tracker(create)
    plugins.add(scope, id="whole", global_name="whole")
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "const said = [];"
            "for (const use of [() => issues.list(), () => issues.a.b[0].c({}), () => namespaces.issues.anything(1)])"
            "  said.push(await use().then(() => 'called', (e) => [e.name, e.code, e.message]));"
            "for (const use of [() => `${issues.name}`, () => issues.count + 1, () => Object.keys(issues),"
            "    () => JSON.stringify(issues), () => ({ ...issues })])"
            "  try { use(); said.push('used') } catch (e) { said.push([e.name, e.code, e.message]) }"
            "await whole.list(); text(issues); return said"
        )
    assert (outcome.error, len(outcome.value)) == ("", 8)
    for name, code, message in outcome.value:
        assert (name, code) == ("ToolCallError", "nested_tool_failed")
        assert expected in message
        assert "secret" not in message
    assert source.calls == [("list", {})]
    assert "cannot be used in this run" in texts(outcome)[0]
    failed = [call.path for call in outcome.usage.calls if call.status == "failed"]
    assert failed == ["issues.list", "issues.a.b.0.c", "issues.anything"]


async def test_a_failure_that_is_not_caught_names_the_plugin(engine: Engine) -> None:
    plugins, _ = tracker(_raises(RuntimeError()))
    outcome = await ran(engine, "await issues.list()", plugins=plugins)
    assert (outcome.status, outcome.code) == ("failed", "nested_tool_failed")
    assert "issues.list: the namespace cannot be used in this run: plugin 'tracker' failed" in outcome.error


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_scope_that_is_never_made_does_not_hold_the_run(
    engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCOPE_SECONDS", 0.05)
    release = threading.Event()
    aborted: list[NamespaceContext] = []

    def hang(context: NamespaceContext) -> Mapping[str, Any]:
        aborted.append(context)
        release.wait(30)
        return {}

    async def hang_async(context: NamespaceContext) -> Mapping[str, Any]:
        aborted.append(context)
        await anyio.sleep_forever()
        return {}

    plugins, _ = tracker(hang if kind == "sync" else hang_async)
    try:
        async with bench(engine, plugins=plugins) as it:
            outcome = await it.execute("text('runs'); return await issues.list().catch((error) => error.message)")
    finally:
        release.set()
    assert texts(outcome) == ["runs"]
    assert "plugin 'tracker' failed" in outcome.value
    assert "took longer than" in outcome.value


async def test_a_scope_learns_that_its_run_was_given_up(engine: Engine) -> None:
    contexts: list[NamespaceContext] = []
    begun = anyio.Event()

    async def create(context: NamespaceContext) -> Mapping[str, Any]:
        contexts.append(context)
        begun.set()
        if len(contexts) == 1:
            await anyio.sleep_forever()
        return {}

    plugins, _ = tracker(create)
    async with bench(engine, plugins=plugins) as it, anyio.create_task_group() as group:
        group.start_soon(it.execute, "return 1")
        await begun.wait()
        assert not contexts[0].aborted()
        group.cancel_scope.cancel()
    assert contexts[0].aborted()
    async with bench(engine, plugins=plugins) as it:
        suspended = await it.execute("await yield_control()")
        assert not contexts[1].aborted()
        await it.observe(suspended.run_id, cancel=True)
        assert contexts[1].aborted()


def _secret(*_: Any) -> Any:
    raise KeyError("secret")


def _says(*_: Any) -> Any:
    raise ToolError("a title is at most 80 characters")


def _coroutine(*_: Any) -> Any:
    async def mapped() -> dict[str, Any]:
        return {"title": "a"}

    return mapped()


RETURNED = "issues.map: plugin 'tracker' failed: its input mapper returned an invalid input"
MAPPERS: dict[str, tuple[Any, str]] = {
    "raises": (_secret, "issues.map: plugin 'tracker' failed: the input mapper of issues.map raised an error"),
    "raises a ToolError": (_says, "issues.map: a title is at most 80 characters"),
    "returns nothing": (lambda *_: None, RETURNED),
    "returns a list": (lambda *_: [], RETURNED),
    "returns a function": (lambda *_: {"title": print}, "issues.map: plugin 'tracker' failed: .*input.title is a raw"),
    "takes less": (lambda: {"title": "a"}, "issues.map takes other arguments: too many positional arguments"),
    "takes more": (lambda a, b, c: {"title": a}, "issues.map takes other arguments: missing a required argument: 'b'"),
    "does not fit": (lambda *_: {"title": 5}, "issues.map: invalid arguments, nothing was sent."),
}


@pytest.mark.parametrize("kind", MAPPERS)
async def test_failures_of_input_mappers_are_rejections_that_can_be_caught(engine: Engine, kind: str) -> None:
    mapper, expected = MAPPERS[kind]
    plugins, source = tracker(lambda context: {"map": namespace_tool("add", mapper)})
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "return await issues.map('a').then(() => 'called', (e) => [e.name, e.code, e.data.dispatched, e.message])"
        )
    name, code, dispatched, message = outcome.value
    assert (name, code, dispatched) == ("ToolCallError", "nested_tool_failed", False)
    assert re.search(expected, message), message
    assert "secret" not in message
    assert source.calls == []


async def test_a_mapper_that_hangs_ends_its_call_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAPPER_SECONDS", 0.05)
    release = threading.Event()

    def hang(*_: Any) -> dict[str, Any]:
        release.wait(30)
        return {}

    plugins, source = tracker(lambda context: {"hang": namespace_tool("list", hang), "list": namespace_tool("list")})
    try:
        async with bench(engine, plugins=plugins) as it:
            outcome = await it.execute(
                "const late = issues.hang().catch((error) => error.message); await issues.list({}); return await late"
            )
    finally:
        release.set()
    assert "plugin 'tracker' failed: the input mapper of issues.hang took longer than" in outcome.value
    assert source.calls == [("list", {})]


async def test_a_promise_as_argument_is_refused_before_anything_is_sent(engine: Engine) -> None:
    plugins, source = tracker()
    async with bench(engine, plugins=plugins) as it:
        outcome = await it.execute(
            "const said = []; for (const wrong of [[issues.list()], [1, Promise.resolve(1)], [{ a: issues.list() }],"
            "  [10n ** 4300n], [() => 1], [Symbol()], Array(40).fill(1)])"
            "  said.push(await issues.items.add(...wrong).then(() => 'called', (error) => error.message)); return said"
        )
    assert all(message.startswith("the arguments cannot be sent as JSON: ") for message in outcome.value)
    assert {tool for tool, _ in source.calls} <= {"list"}


# policy, hooks, limits: the one road


async def test_policy_decides_before_a_mapper_sees_anything(engine: Engine) -> None:
    seen: list[Any] = []
    plugins, source = tracker(lambda context: {"add": namespace_tool("add", lambda *given: seen.append(given) or {})})
    async with bench(engine, plugins=plugins) as it:
        suspended = await it.execute("await yield_control(); return await issues.add('x').catch((e) => e.message)")
        it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=PolicyRules(deny=("plugin:tracker:add",))))
        ended = await it.observe(suspended.run_id)
    assert ended.value.startswith("issues.add may not be called: denied by the rule 'plugin:tracker:add'")
    assert (seen, source.calls) == ([], [])


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_decides_about_what_is_sent(engine: Engine, approved: bool) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Verdict:
        asked.append(request)
        return Verdict(approved, "the person said no")

    plugins, source = tracker()
    async with bench(engine, plugins=plugins, rules=PolicyRules(ask=("plugin:tracker:add",))) as it:
        context, opened = await opened_by(it)
        call = opened.tool_call(NamespaceCall(1, "issues", "items.add", ('"x"', '"y"')))
        record = CallRecord(1, call.target, 0.0)
        completion = await it.dispatcher.call(Calling(call, context, record, approve=approve))
    [request] = asked
    assert (request.tool, request.path) == ("plugin:tracker:add", "issues.items.add")
    assert request.arguments == {"title": "x", "labels": ["y"]}
    assert source.calls == ([("add", {"title": "x", "labels": ["y"]})] if approved else [])
    assert (completion.error is None) == approved


async def test_calls_of_namespaces_queue_like_others(engine: Engine) -> None:
    plugins, source = tracker()
    async with bench(engine, plugins=plugins, max_pending_tool_calls=2, max_queued_tool_calls=3) as it:
        outcome = await it.execute(
            "const ended = await Promise.allSettled(Array.from({ length: 8 }, (_, i) => issues.items.add('t' + i)));"
            "return ended.map((each) => each.status === 'fulfilled' ? 'ok' : each.reason.code)"
        )
    assert outcome.value == ["ok"] * 5 + ["too_many_pending_tool_calls"] * 3
    made = [int(given["title"][1:]) for _, given in source.calls]
    assert sorted(made) == [0, 1, 2, 3, 4]
    # Functions of namespaces run in threads. Two calls at the same time end in either order, and no third one before.
    assert all(number <= place + 1 for place, number in enumerate(made))


# suspending


class SlowSource(ScriptedSource):
    """`add` waits until it is released."""

    def __init__(self) -> None:
        super().__init__("tracker", {"list": text_result("listed")}, tools=[Tool("list"), Tool("add")])
        self.release = anyio.Event()

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        await self._begin(tool, options)
        self._record(tool, arguments, options.get("on_sent"))
        if tool == "add":
            await self.release.wait()
        return read_outcome(text_result("done"))


async def test_a_call_of_a_namespace_is_suspended_and_resumed_by_wait(engine: Engine) -> None:
    plugins, source = FakePlugins(), SlowSource()
    plugins.add_tools("tracker", "list", "add", source=source)
    made: list[Any] = []

    def create(context: NamespaceContext) -> Mapping[str, Any]:
        made.append(context)
        return {"list": namespace_tool("list"), "add": namespace_tool("add", lambda title: {"title": title}), "n": 7}

    plugins.add(create)
    async with bench(engine, plugins=plugins, timeout_ms=200) as it:
        waiting = await it.execute(
            "const first = await issues.add('slow'); const second = await namespaces.issues.list({ after: issues.n });"
            "return [unwrap(first), unwrap(second), issues === namespaces.issues, Object.isFrozen(issues)]"
        )
        assert (waiting.status, [call.tool for call in waiting.pending]) == ("waiting", ["plugin:tracker:add"])
        still = await it.observe(waiting.run_id)
        assert still.status == "waiting"
        source.release.set()
        *_, ended = await it.finish(waiting.run_id)
    assert ended.value == ["done", "done", True, True]
    assert (source.calls, len(made)) == ([("add", {"title": "slow"}), ("list", {"after": 7})], 1)


async def test_a_suspended_run_keeps_its_functions_and_not_its_data(engine: Engine) -> None:
    plugins, _ = tracker(lambda context: {"large": "x" * 200_000, "list": namespace_tool("list")})
    async with bench(engine, plugins=plugins) as it:
        suspended = await it.execute("await yield_control(); await issues.list(); return issues.large.length")
        run = it.manager._live.runs[suspended.run_id]
        await until(lambda: run.namespaces.text == "[]")
        gc.collect()
        assert (await it.observe(suspended.run_id)).value == 200_000


# calls that no function of a namespace makes


PATHS = ("limits.open", "items", "", "add", "list.add", "items.add.call", "items..add", ".list", "repos.00.list")
MADE_UP = [
    *(("issues", path) for path in (*PATHS, "repos[0].list", "__proto__.list")),
    *((namespace, "list") for namespace in ("other", "Issues", "", "plugin:tracker")),
]


@pytest.mark.parametrize(("namespace", "path"), MADE_UP)
async def test_made_up_ids_and_paths_lead_nowhere(engine: Engine, namespace: str, path: str) -> None:
    """Send calls as a guest with a broken prelude would: the host resolves them in its own copy."""
    plugins, _ = tracker()
    async with bench(engine, plugins=plugins) as it:
        context, opened = await opened_by(it)
        call = opened.tool_call(NamespaceCall(1, namespace, path, ("{}",)))
        record = CallRecord(1, call.target, 0.0)
        completion = await it.dispatcher.call(Calling(call, context, record))
    assert completion.error is not None
    assert re.search("is not a function of the namespace|no namespace", completion.error.message)
    assert not record.dispatched
    assert not record.tool.startswith(("plugin:", "mcp:", "core:"))


async def test_arguments_that_are_no_json_end_their_call_alone(engine: Engine) -> None:
    plugins, _ = tracker()
    async with bench(engine, plugins=plugins) as it:
        context, opened = await opened_by(it)
        for text in ("NaN", "{", "[" * 100_000, ""):
            for path in ("items.add", "list"):
                call = opened.tool_call(NamespaceCall(1, "issues", path, (text, None)))
                completion = await it.dispatcher.call(Calling(call, context, CallRecord(1, call.target, 0.0)))
                assert completion.error is not None
                assert completion.error.code == "nested_tool_failed"


async def test_all_scopes_together_leave_the_program_its_memory(engine: Engine) -> None:
    plugins = FakePlugins()
    plugins.add_tools("tracker", "list")
    large = {"large": "x" * 250_000, "list": namespace_tool("list")}
    for name in ("n0", "n1", "n2", "n3", "n4", "n5"):
        plugins.add(lambda context: large, id=name, global_name=name, required=["list"])
    async with bench(engine, plugins=plugins, memory_limit_bytes=8 << 20) as it:
        outcome = await it.execute(
            "const said = []; for (const name in namespaces) if (name !== 'MCP')"
            "  said.push(await namespaces[name].list().then(() => 'called', (error) => error.message)); return said"
        )
    assert outcome.value[:4] == ["called"] * 4
    assert all("no room for its data" in message for message in outcome.value[4:])


# the declaration file


async def test_the_file_of_namespaces_is_there_where_they_are_and_text_stays_in_its_comments(engine: Engine) -> None:
    plugins, _ = tracker(description="*/ declare const stolen: 1; /*\nIssues", prompt="Call\u2028 `list` */ first")
    async with bench(engine, plugins=plugins) as it:
        catalog = it.catalog()
        [listed] = [file for file in catalog.files.list_files("names") if file["path"] == "namespaces.d.ts"]
        text = catalog.files.read("namespaces.d.ts")["content"]
        assert listed["description"] == "issues: */ declare const stolen: 1; /* Issues"
        code = re.sub(r"/\*[\s\S]*?\*/", "", text).split("\n")
        assert [line for line in code if line.strip()] == ["declare const issues: { readonly [name: string]: any };"]
        assert "plugin:tracker:list, plugin:tracker:add" in text
        outcome = await it.execute("return await API.read('namespaces.d.ts#issues').catch((error) => error.message)")
        assert "namespaces.d.ts has no tools" in outcome.value
        it.rules = PolicyRules(deny=("plugin:tracker:list",))
        assert it.catalog().files.list_files("names") == []
        outcome = await it.execute("return await API.read('namespaces.d.ts').catch((error) => error.message)")
        assert outcome.value.startswith('there is no file "namespaces.d.ts".')


BOOK = {"type": "object", "properties": {"id": {"type": "integer"}, "title": {"type": "string"}}, "required": ["id"]}
SEARCH = {
    "type": "object",
    "properties": {"q": {"type": "string", "description": "What to look for */"}, "max": {"type": "integer"}},
    "required": ["q"],
}


async def test_the_file_of_namespaces_has_the_types_of_what_is_in_the_scope(engine: Engine) -> None:
    plugins = FakePlugins()
    plugins.add_tools(
        "shop",
        Tool("find-book", "Find a book.", input_schema=SEARCH, output_schema={"type": "array", "items": BOOK}),
        Tool("tree", "A tree.", output_schema={"$ref": "#/$defs/T", "$defs": {"T": {
            "type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}}}),
    )  # fmt: skip
    plugins.add(
        lambda context: {
            "find": namespace_tool("find-book"),
            "by-title": namespace_tool("find-book", lambda title: {"q": title}),
            "deep": {"er": {"tree": namespace_tool("tree"), "name": "x", "__odd": None}, "empty": {}},
            "numbers": [1, 2.5],
            "mixed": [1, "x"],
            "none": [],
            "flag": True,
            "many": {f"m{n}": n for n in range(500)},
        },
        plugin="shop",
        id="shop-id",
        global_name="Shop",
        required=["find-book", "tree"],
    )
    async with bench(engine, plugins=plugins) as it:
        listed, read = (await it.execute("return [await API.list(), await API.read('namespaces.d.ts')]")).value
    text = read["content"]
    assert "namespaces.d.ts" in [file["path"] for file in listed["files"]]
    assert read["bytes"] == len(text.encode())
    for line in (
        "  find(input: { q: string; max?: number | bigint }): Promise<{ id: number; title?: string }[]>;",
        '  "by-title"(...args: any[]): Promise<{ id: number; title?: string }[]>;',
        "  readonly deep: {\n    readonly er: {\n",
        "      readonly name: string;\n      readonly __odd: null;\n    };\n",
        "    readonly empty: Record<string, never>;\n",
        "  readonly numbers: readonly number[];\n",
        "  readonly mixed: readonly any[];\n",
        "  readonly none: readonly any[];\n",
        "  readonly flag: boolean;\n",
        "    readonly [name: string]: any;\n  };\n};\n",
    ):
        assert line in text, line
    assert text.count("readonly m") < 200
    assert "namespaces.Shop" in text


def test_a_long_word_in_an_error_is_searched_in_linear_time() -> None:
    error = Thrown("TypeError", "a" * 16_000, "", False, None)
    began = time.process_time()
    for text in ("a" * 16_000, "a." * 8_000):
        assert _with_nearest_function(text, error, module.OpenNamespaces()) == text
    assert time.process_time() - began < 1
