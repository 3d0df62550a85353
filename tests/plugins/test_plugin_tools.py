"""Tools of plugins: what goes in, what comes out, for whom they are, and the end of calls that go wrong."""

from __future__ import annotations

import asyncio
import logging
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import PolicyDenied
from codemode_mcp.base.settings import PluginSettings
from codemode_mcp.catalog.entries import OfferedTool
from codemode_mcp.catalog.plugins import host as host_module
from codemode_mcp.catalog.plugins import running
from codemode_mcp.catalog.plugins.interception import THREADS
from codemode_mcp.rules.policy.policy import Caller
from tests.plugins.host import Host, plugin, plugins
from tests.waiting import until
from upstream_clients.errors import UpstreamCallError
from upstream_clients.tools import Tool

ALICE = Caller("http:alice", "http", "alice", frozenset({"staff"}))
BOB = Caller("http:bob", "http", "bob")


def tool(arguments: str, before: str = "") -> str:
    """Return the code of a plugin with one tool, `t`."""
    return f"{before}\ndef register(api):\n    api.tool(PluginTool(name='t', description='A tool.', {arguments}))\n"


async def outcome(folder: Path, code: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return what a call of the tool `t` gives, or the message and whether it was dispatched."""
    async with plugins(folder, plugin("p", code)) as host:
        assert host.plugins.refused == {}
        try:
            return await host.call("plugin:p:t", arguments, **options)
        except UpstreamCallError as error:
            return error.message, error.dispatched


async def offered(host: Host, caller: Caller = ALICE) -> dict[str, OfferedTool]:
    return {each.id: each for each in await host.plugins.offered(caller)}


# in and out


MODELS = """
from pydantic import BaseModel, Field, field_validator
from datetime import date

class Issue(BaseModel):
    title: str = Field(min_length=1, description="What it is about.")
    due: date | None = None
    tags: list[str] = []

    @field_validator("title")
    @classmethod
    def _loud(cls, value):
        if value == "quiet":
            raise ValueError("titles are loud")
        return value

class Kept(BaseModel):
    id: int
    issue: Issue
"""


async def test_models_give_the_schemas_and_are_what_a_tool_gets_and_returns(tmp_path: Path) -> None:
    code = tool("input=Issue, output=Kept, run=lambda issue: Kept(id=issue.due.year, issue=issue)", MODELS)
    async with plugins(tmp_path, plugin("p", code)) as host:
        listed = (await offered(host))["plugin:p:t"].tool
        assert listed.input_schema["required"] == ["title"]
        assert listed.input_schema["properties"]["title"]["description"] == "What it is about."
        assert listed.output_schema is not None
        assert listed.output_schema["required"] == ["id", "issue"]
        issue = {"title": "A", "due": "2026-05-04"}
        assert await host.call("plugin:p:t", issue) == {"id": 2026, "issue": {**issue, "tags": []}}


async def test_input_that_a_model_does_not_take_is_refused_with_the_place_and_not_dispatched(tmp_path: Path) -> None:
    code = tool("input=Issue, run=lambda issue: 1", MODELS)
    message, dispatched = await outcome(tmp_path, code, {"title": "quiet", "due": "tomorrow"})
    assert "- title: Value error, titles are loud" in message
    assert "- due: " in message
    assert dispatched is False


@pytest.mark.parametrize(
    ("value", "output", "got"),
    [
        ("{'id': '3', 'issue': {'title': 'A'}}", "Kept", {"id": 3, "issue": {"title": "A", "due": None, "tags": []}}),
        ("[Issue(title='A')]", "None", [{"title": "A", "due": None, "tags": []}]),
        ("{'a': (1, 2.5, None, True), 3: 'x'}", "None", {"a": [1, 2.5, None, True], "3": "x"}),
        ("{'n': 1}", '{"type": "object", "properties": {"n": {"type": "integer"}}}', {"n": 1}),
        ("None", "None", None),
        ("'\\ud800'", "None", "\ud800"),
    ],
)
async def test_what_a_tool_returns_becomes_plain_json(tmp_path: Path, value: str, output: str, got: object) -> None:
    assert await outcome(tmp_path, tool(f"output={output}, run=lambda input: {value}", MODELS)) == got


NO_NUMBERS = ("float('nan')", "[float('inf')]", "10 ** 5000")
NO_VALUES = ("b'bytes'", "{1, 2}", "{(1, 2): 3}", "object()", "(x for x in [1])")


@pytest.mark.parametrize(
    ("value", "output", "words"),
    [
        *((value, "None", "contains a number that JSON cannot represent") for value in NO_NUMBERS),
        *((value, "None", "contains a value or a key that JSON cannot represent") for value in NO_VALUES),
        *((value, "None", "is nested deeper than 200 levels") for value in ("deep(150_000)", "deep(201)")),
        ("cycle()", "None", "contains itself"),
        ("{'id': 'x', 'issue': 3}", "Kept", "does not match its output model: id, issue"),
        ("{'n': 'secret'}", '{"properties": {"n": {"type": "integer"}}}', "/n: does not fit type"),
        ("Broken()", "None", "cannot be converted to JSON"),
    ],
)
async def test_a_result_that_is_no_json_or_does_not_fit_fails_the_call_by_the_plugins_name(
    tmp_path: Path, value: str, output: str, words: str
) -> None:
    before = (
        MODELS
        + """
def cycle():
    found = []
    found.append(found)
    return found
def deep(n):
    found = []
    for _ in range(n): found = [found]
    return found
class Broken(BaseModel):
    def model_dump(self, **options): raise RuntimeError("no")
"""
    )
    message, dispatched = await outcome(tmp_path, tool(f"output={output}, run=lambda input: {value}", before))
    assert message.startswith("plugin 'p' failed: the result of its tool 't' ")
    assert words in message
    assert "secret" not in message
    assert dispatched is True


async def test_what_a_plugin_keeps_is_not_what_a_program_gets(tmp_path: Path) -> None:
    code = tool("run=lambda input: kept", "kept = {'a': [1]}")
    async with plugins(tmp_path, plugin("p", code)) as host:
        (await host.call("plugin:p:t"))["a"].append(2)
        assert await host.call("plugin:p:t") == {"a": [1]}


# how a tool is called


@pytest.mark.parametrize(
    ("run", "got"),
    [
        ("run=lambda input: [input]", [{"x": 1}]),
        ("run=lambda input, call: [call.run_id, call.owner]", ["run_1", "me"]),
        ("run=lambda input, limit=5: limit", 5),
        ("run=lambda *all: len(all)", 1),
        ("run=Both().sync", [{"x": 1}, "run_1"]),
        ("run=Both().coroutine", [{"x": 1}, "run_1"]),
        ("run=Both()", [{"x": 1}, "called"]),
        ("run=lambda input: Both()(input)", [{"x": 1}, "called"]),
        ("run=functools.partial(Both().coroutine, call=CallInfo('r', 'o', None))", [{"x": 1}, "r"]),
    ],
)
async def test_a_tool_may_be_any_callable_of_one_or_two_parameters(tmp_path: Path, run: str, got: object) -> None:
    before = """
import functools
class Both:
    def sync(self, input, call): return [input, call.run_id]
    async def coroutine(self, input, call): return [input, call.run_id]
    async def __call__(self, input): return [input, "called"]
"""
    assert await outcome(tmp_path, tool(run, before), {"x": 1}) == got


RAISES = (
    *("raise ValueError('secret')", "raise StopIteration", "sys.exit('secret')", "raise KeyboardInterrupt"),
    *("raise asyncio.CancelledError", "raise BaseException('secret')"),
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ToolError('there is no issue 7')", "there is no issue 7"),
        ("raise ToolError()", "its tool 't' failed"),
        ("raise ToolError('x' * 9000)", "(5000 more characters)"),
        *((body, "plugin 'p' failed: its tool 't' raised an error") for body in RAISES),
    ],
)
@pytest.mark.parametrize("keyword", ["def", "async def"])
async def test_a_tool_that_fails_fails_its_call_and_tells_only_what_it_means_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keyword: str, body: str, words: str
) -> None:
    message, dispatched = await outcome(tmp_path, tool("run=t", f"{keyword} t(input): {body}"))
    assert words in message
    assert "secret" not in message
    assert dispatched is True
    if "secret" in body:
        assert "secret (p.py:" in caplog.text
        assert "Traceback" not in caplog.text


async def test_the_stack_of_a_failure_is_logged_for_debugging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await outcome(tmp_path, tool("run=t", "def t(input): 1 / 0"))
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("keyword", ["def t(input): time.sleep(30)", "async def t(input): await anyio.sleep(30)"])
async def test_a_tool_that_takes_too_long_is_given_up(tmp_path: Path, keyword: str) -> None:
    message, dispatched = await outcome(tmp_path, tool("run=t, timeout=0.05", keyword))
    assert message == "plugin 'p' failed: its tool 't' took longer than 0.05 s"
    assert dispatched is True


async def test_a_program_can_make_a_tools_time_shorter_and_not_longer(tmp_path: Path) -> None:
    code = tool("run=t, timeout=0.05", "async def t(input): await anyio.sleep(30)")
    assert "0.05 s" in (await outcome(tmp_path, code, timeout=600))[0]
    assert "0.01 s" in (await outcome(tmp_path, code, timeout=0.01))[0]


async def test_sync_tools_that_hang_stop_their_plugin_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proceed = threading.Event()
    monkeypatch.setattr(sys, "proceed", proceed, raising=False)
    stuck = tool("run=t, timeout=0.1", "def t(input): sys.proceed.wait(20) if input else None")
    before = threading.active_count()
    async with plugins(tmp_path, plugin("stuck", stuck), plugin("p", tool("run=lambda input: 1"))) as host:

        async def fails() -> None:
            with pytest.raises(UpstreamCallError, match=r"took longer than 0\.1 s"):
                await host.call("plugin:stuck:t", {"hang": True})

        async with anyio.create_task_group() as group:
            for _ in range(5 * THREADS):
                group.start_soon(fails)
        assert threading.active_count() <= before + 2 * THREADS + 2
        assert await host.call("plugin:p:t") == 1
        proceed.set()
        with anyio.fail_after(10):
            while True:
                try:
                    assert await host.call("plugin:stuck:t") is None
                    break
                except UpstreamCallError:  # the threads have not all ended yet
                    await anyio.lowlevel.checkpoint()


async def test_cancelling_a_call_cancels_an_async_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sys, "seen", seen, raising=False)
    before = """
async def t(input):
    sys.seen.append("started")
    try:
        await anyio.sleep_forever()
    finally:
        sys.seen.append("cancelled")
"""
    async with plugins(tmp_path, plugin("p", tool("run=t", before))) as host, anyio.create_task_group() as group:
        group.start_soon(host.call, "plugin:p:t")
        await until(lambda: seen)
        group.cancel_scope.cancel()
    assert seen == ["started", "cancelled"]


async def test_a_task_that_a_tool_waits_for_and_that_is_cancelled_cancels_nothing_else(tmp_path: Path) -> None:
    before = """
async def t(input):
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task
"""
    async with plugins(tmp_path, plugin("p", tool("run=t", before))) as host:
        with pytest.raises(UpstreamCallError, match="raised an error"):
            await host.call("plugin:p:t")
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_progress_reaches_every_listener_until_the_call_is_over(tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(*progress: Any) -> None:
        heard.append(progress)

    before = """
kept = []
async def t(input, call):
    kept.append(call)
    await call.progress(1, 3, "one")
    await call.progress(2)
    problems = []
    for wrong in (float("nan"), "a"):
        try:
            await call.progress(wrong)
        except (ValueError, TypeError):
            problems.append(1)
    return len(problems)
async def later(input):
    await kept[0].progress(3, 3)
"""
    code = tool("run=t", before) + "    api.tool(PluginTool(name='later', description='x', run=later))\n"
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert await host.call("plugin:p:t", on_progress=listen) == 2
        await host.call("plugin:p:later")
    assert heard == [(1, 3, "one"), (2, None, None)]


async def test_policy_decides_by_the_tool_as_it_is_when_it_is_called(tmp_path: Path) -> None:
    seen: list[Tool | None] = []
    order: list[str] = []

    def admit(present: Tool | None) -> None:
        seen.append(present)
        order.append("admitted")

    code = tool("annotations=Annotations(read_only=True), run=lambda input: 1")
    async with plugins(tmp_path, plugin("p", code)) as host:
        await host.call("plugin:p:t", admit=admit, on_sent=lambda: order.append("sent"))
        assert order == ["admitted", "sent"]
        assert seen[0] is not None
        assert seen[0].annotations.read_only is True

        def refuse(_: Tool | None) -> None:
            raise RuntimeError("denied")

        with pytest.raises(RuntimeError, match="denied"):
            await host.call("plugin:p:t", admit=refuse, on_sent=lambda: order.append("sent"))
        assert order == ["admitted", "sent"]


OWN_INPUT = "from pydantic import BaseModel\nclass Given(BaseModel):\n    n: int = 0\n"


INPUTS = {"a dict": tool("run=lambda input: 1"), "a model": tool("run=lambda input: 1, input=Given", OWN_INPUT)}


@pytest.mark.parametrize("code", INPUTS.values(), ids=INPUTS)
async def test_a_call_is_begun_when_its_input_is_read_and_looked_immediately_more(tmp_path: Path, code: str) -> None:
    order: list[str] = []

    async def begin() -> None:
        await anyio.lowlevel.checkpoint()
        order.append("begun")

    async def fail() -> None:
        raise RuntimeError("not written down")

    options: dict[str, Any] = {"admit": lambda _: order.append("admitted"), "on_sent": lambda: order.append("sent")}
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert await host.call("plugin:p:t", begin=begin, **options) == 1
        assert order == ["admitted", "begun", "admitted", "sent"]
        order.clear()
        with pytest.raises(RuntimeError, match="not written down"):
            await host.call("plugin:p:t", begin=fail, **options)
        assert order == ["admitted"]


# for whom


PER_OWNER = """
calls = []
def make(context):
    calls.append(context.principal)
    if context.principal is None:
        return None
    tools = [PluginTool(name="mine", description="x", run=lambda input: context.owner)]
    if "staff" in context.groups:
        tools.append(PluginTool(name="staff", description="x", run=lambda input: [context.owner, len(calls)]))
    return tools
def register(api):
    api.tools(["mine", "staff"], make)
"""


async def test_each_caller_gets_its_own_tools_made_once_and_can_call_no_others(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("p", PER_OWNER)) as host:
        assert await host.ids(ALICE) == ["plugin:p:mine", "plugin:p:staff"]
        assert await host.ids(BOB) == ["plugin:p:mine"]
        assert await host.ids(Caller(None, "http")) == []
        assert await host.call("plugin:p:mine", caller=ALICE) == "http:alice"
        assert await host.call("plugin:p:mine", caller=BOB) == "http:bob"
        assert await host.call("plugin:p:staff", caller=ALICE) == ["http:alice", 3]
        for stranger in (BOB, Caller(None, "http")):
            with pytest.raises(UpstreamCallError, match="no longer has the tool 'staff'"):
                await host.call("plugin:p:staff", caller=stranger)


async def test_what_is_offered_is_the_same_object_while_nothing_changes(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("p", tool("run=lambda input: 1"))) as host:
        first = await host.plugins.offered(ALICE)
        assert await host.plugins.offered(ALICE) is first
        assert await host.plugins.offered(BOB) is first
        await host.change(PluginSettings("p", "p.py:register", config={"other": 1}))
        assert await host.plugins.offered(ALICE) is not first


async def test_a_factory_is_told_for_whom_and_where(tmp_path: Path) -> None:
    code = """
        def register(api):
            api.tools(["t"], lambda c: PluginTool(name="t", description="x", run=lambda input: [
                dict(c.config), str(c.workspace_dir), c.owner, c.principal, sorted(c.groups), c.sandboxed]))
    """
    async with plugins(tmp_path, plugin("p", code, config={"a": 1}), sandboxed=False) as host:
        assert await host.call("plugin:p:t", caller=ALICE) == [
            {"a": 1}, str(tmp_path), "http:alice", "alice", ["staff"], False
        ]  # fmt: skip
        assert await host.call("plugin:p:t", caller=Caller(None, "http")) == [
            {"a": 1}, str(tmp_path), "", None, [], False
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("lambda c: 1 / 0", "raised ZeroDivisionError"),
        ("lambda c: sys.exit()", "raised SystemExit"),
        ("lambda c: time.sleep(30)", "took longer than"),
        ("wait", "took longer than"),
        ("lambda c: 3", "a factory must return PluginTools or None, not int"),
        ("lambda c: 'a'", "a factory must return PluginTools or None, not str"),
        ("lambda c: ['a']", "a tool must be a PluginTool, not str"),
        ("lambda c: Nonsense()", "RuntimeError: no length"),
        ("lambda c: tool('c')", "'c', whose name was not declared"),
        ("lambda c: [tool('a'), tool('a')]", "the tool 'a' twice"),
        ("lambda c: [tool('a')] * 9", "it returned 9 tools, but declared only 2 names"),
        ("lambda c: PluginTool(name='a', description='x', run=print, input={'type': 3})", "not a usable JSON Schema"),
        ("lambda c: (_ for _ in ()).throw(ToolError('not now'))", "not now"),
    ],
)
async def test_a_factory_that_fails_gives_no_tools_and_nothing_else_suffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, factory: str, words: str
) -> None:
    if words == "took longer than":
        monkeypatch.setattr(host_module, "FACTORY_SECONDS", 0.05)
    code = f"""
        async def wait(c): await anyio.sleep(30)
        class Nonsense(list):
            def __len__(self): raise RuntimeError("no length")
        def tool(name): return PluginTool(name=name, description="x", run=lambda input: 1)
        def register(api):
            api.tools(["a", "b"], {factory})
            api.tool(tool("beside"))
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert await host.ids() == ["plugin:p:beside"]
        assert words in caplog.text
        assert "Traceback" not in caplog.text
        ((names, why),) = host.plugins.failed_factories(host.plugins.loaded[0], Caller("me"))
        assert names == ("a", "b")
        assert words.removeprefix("raised ") in why


async def test_a_factory_that_has_failed_is_asked_again_after_a_while(tmp_path: Path) -> None:
    code = """
        asked = []
        async def make(c):
            asked.append(c)
            if len(asked) == 1:
                raise OSError("not yet")
            return PluginTool(name="a", description="x", run=lambda input: len(asked))
        def register(api):
            api.tools(["a"], make)
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert await host.ids() == []
        assert await host.ids() == []
        host.now += host_module.RETRY_SECONDS + 1
        assert await host.ids() == ["plugin:p:a"]
        assert await host.call("plugin:p:a") == 2


async def test_callers_who_come_together_have_their_tools_made_once(tmp_path: Path) -> None:
    code = """
        asked = []
        async def make(c):
            asked.append(c)
            await anyio.sleep(0.01)
            return PluginTool(name="a", description="x", run=lambda input: len(asked))
        def register(api):
            api.tools(["a"], make)
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(host.ids)
        assert await host.call("plugin:p:a") == 1


async def test_tools_of_many_callers_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_CALLERS", 2)
    async with plugins(tmp_path, plugin("p", PER_OWNER)) as host:
        for number in range(5):
            await host.ids(Caller(f"o{number}", "http", f"p{number}"))
        assert await host.call("plugin:p:mine", caller=Caller("o0", "http", "p0")) == "o0"
        assert len(host.plugins._callers) == 2


async def test_optional_tools_are_offered_as_such(tmp_path: Path) -> None:
    code = """
        def tool(name): return PluginTool(name=name, description="x", run=lambda input: 1, label="Tool " + name)
        def register(api):
            api.tool(tool("a"))
            api.tool(tool("b"), optional=True)
            api.tools(["c"], lambda c: tool("c"), optional=True)
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        found = await offered(host)
        optional = {name: each.optional for name, each in found.items()}
        assert optional == {"plugin:p:a": False, "plugin:p:b": True, "plugin:p:c": True}
        assert found["plugin:p:c"].label == "Tool c"


async def test_arguments_that_fitted_an_earlier_schema_are_checked_by_the_present_one(tmp_path: Path) -> None:
    code = tool("run=lambda input: 1, input={'type': 'object', 'required': ['a']}")
    message, dispatched = await outcome(tmp_path, code, {})
    assert "no longer match the input schema of the tool" in message
    assert dispatched is False


NASTY = """
from pydantic import BaseModel, field_validator, model_serializer

class Silent(Exception):
    def __str__(self): sys.exit(3)

class SilentTold(ToolError):
    def __str__(self): sys.exit(3)

class In(BaseModel):
    x: int = 1

    @field_validator("x")
    @classmethod
    def _check(cls, value):
        if value == 1: raise KeyError("the guts")
        if value == 2: sys.exit(3)
        return value

class Out(BaseModel):
    x: int = 1

    @model_serializer
    def _write(self):
        sys.exit(3) if self.x == 2 else 1 / 0

class Lazy(dict):
    def items(self): sys.exit(3)

def fail(_): raise Silent()
def tell(_): raise SilentTold()
async def fail_async(_): raise Silent()
async def lazy_async(_): return Lazy(a=1)
"""


@pytest.mark.parametrize(
    ("code", "x", "words", "dispatched"),
    [
        ("run=fail", 0, "its tool 't' raised an error", True),
        ("run=fail_async", 0, "its tool 't' raised an error", True),
        ("run=tell", 0, "no message", True),
        ("run=print, input=In", 1, "plugin 'p' failed: the input model of its tool 't' raised an error", False),
        ("run=print, input=In", 2, "plugin 'p' failed: the input model of its tool 't' raised an error", False),
        ("run=lambda _: Out(x=1)", 0, "plugin 'p' failed: the result of its tool 't' contains a Out that cannot", True),
        ("run=lambda _: Out(x=2), output=Out", 0, "plugin 'p' failed: the result of its tool 't' ", True),
        ("run=lambda _: Lazy(a=1)", 0, "plugin 'p' failed: the result of its tool 't' cannot be converted", True),
        ("run=lazy_async", 0, "plugin 'p' failed: the result of its tool 't' cannot be converted", True),
    ],
)
async def test_objects_whose_own_code_ends_the_process_end_their_call_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str, x: int, words: str, dispatched: bool
) -> None:
    message, sent = await outcome(tmp_path, tool(code, NASTY), {"x": x})
    assert words in message
    assert sent is dispatched
    assert "guts" not in message


@pytest.mark.parametrize("code", ["run=lambda i: 1, input=Slow", "run=later, output=Slow"])
async def test_a_model_that_takes_its_time_delays_no_other(tmp_path: Path, code: str) -> None:
    before = """
        from pydantic import BaseModel, model_serializer, model_validator
        waits, proceeds = threading.Event(), threading.Event()

        def wait():
            waits.set()
            assert proceeds.wait(10)

        class Slow(BaseModel):
            x: int = 1

            @model_validator(mode="after")
            def _check(self):
                if self.x == 2: wait()
                return self

            @model_serializer
            def _write(self):
                if self.x == 3: wait()
                return {"x": self.x}

        async def later(_): return Slow(x=3)
    """
    code = tool(code, textwrap.dedent(before))
    async with plugins(tmp_path, plugin("p", code)) as host:
        module = sys.modules["codemode_mcp_plugin_p"]
        async with anyio.create_task_group() as group:
            group.start_soon(host.call, "plugin:p:t", {"x": 2})
            with anyio.fail_after(10):
                await anyio.to_thread.run_sync(module.waits.wait, abandon_on_cancel=True)
            # This task continues, although no one has let the model continue.
            module.proceeds.set()


async def test_a_rule_that_comes_while_a_model_reads_the_input_counts(tmp_path: Path) -> None:
    before = "from pydantic import BaseModel\nclass In(BaseModel):\n    x: int = 1\n"
    seen: list[Tool | None] = []

    def admit(present: Tool | None) -> None:
        seen.append(present)
        if len(seen) > 1:
            raise PolicyDenied("not any more")

    async with plugins(tmp_path, plugin("p", tool("run=lambda i: 1, input=In", before))) as host:
        with pytest.raises(PolicyDenied, match="not any more"):
            await host.call("plugin:p:t", {}, admit=admit)


STUBBORN = """
async def stay(_):
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def own_timeout(_):
    with anyio.move_on_after(0.01):
        await asyncio.Event().wait()
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        await asyncio.sleep(0.2)
        return "continued"

async def clean_up(_):
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        cleaned.append(1)

cleaned = []
"""


@pytest.mark.parametrize("run", ["stay", "lambda _: stay(_)"])
async def test_a_tool_that_continues_although_it_is_cancelled_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    monkeypatch.setattr(running, "CLEANUP_SECONDS", 0.05)
    message, _ = await outcome(tmp_path, tool(f"run={run}, timeout=0.05", STUBBORN))
    assert "took longer than 0.05 s" in message


async def test_the_end_does_not_wait_for_a_tool_that_continues_although_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CLEANUP_SECONDS", 0.05)
    async with plugins(tmp_path, plugin("p", tool("run=stay", STUBBORN))) as host:
        sent = anyio.Event()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: host.call("plugin:p:t", on_sent=sent.set))
                await sent.wait()
                group.cancel_scope.cancel()


async def test_a_tools_own_timeouts_are_its_own_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CLEANUP_SECONDS", 0.05)
    assert await outcome(tmp_path, tool("run=own_timeout", STUBBORN)) == "continued"


async def test_a_tool_that_is_given_up_may_clean_up(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("p", tool("run=clean_up, timeout=0.05", STUBBORN))) as host:
        with pytest.raises(UpstreamCallError, match=r"took longer than 0\.05 s"):
            await host.call("plugin:p:t")
        assert sys.modules["codemode_mcp_plugin_p"].cleaned == [1]


async def test_a_factory_that_cannot_be_cancelled_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CLEANUP_SECONDS", 0.05)
    monkeypatch.setattr(host_module, "FACTORY_SECONDS", 0.05)
    code = f"{STUBBORN}\ndef register(api):\n    api.tools(['t'], stay)\n"
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert await host.ids() == []


async def test_nothing_is_kept_of_a_plugin_that_is_removed_while_its_factory_works(tmp_path: Path) -> None:
    code = """
        began, proceeds = anyio.Event(), anyio.Event()
        async def make(c):
            began.set()
            await proceeds.wait()
            return PluginTool(name="a", description="x", run=lambda input: 1)
        def register(api):
            api.tools(["a"], make)
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        module = sys.modules["codemode_mcp_plugin_p"]
        async with anyio.create_task_group() as group:
            group.start_soon(host.ids)
            await module.began.wait()
            await host.change()
            module.proceeds.set()
        assert await host.ids() == []
        assert not any(cached.tools or cached.failed_until for cached in host.plugins._callers.values())


async def test_hosts_of_one_process_have_modules_of_their_own(tmp_path: Path) -> None:
    code = "def register(api): pass"
    async with plugins(tmp_path, plugin("p", code)):
        first = sys.modules["codemode_mcp_plugin_p"]
        async with plugins(tmp_path, plugin("p", code)):
            assert sys.modules["codemode_mcp_plugin_p"] is first
            assert sys.modules["codemode_mcp_plugin_p__2"] is not first
    async with plugins(tmp_path, plugin("p", code)):
        assert sys.modules["codemode_mcp_plugin_p"] is not first
