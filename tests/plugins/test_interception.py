"""Hooks and middleware by themselves: who sees what, in which order, and the end of those that misbehave."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import PluginError, PolicyDenied, ProgramError
from codemode_mcp.catalog.plugins import running
from codemode_mcp.catalog.plugins.interception import MAX_TEXT, THREADS, Interceptors, Registered
from codemode_mcp.plugins import ChangeInput, DenyCall, NoteCall, ToolCallEvent, ToolError
from tests.values import replace
from upstream_clients.tools import JsonObject

EVENT = ToolCallEvent(
    tool_id="mcp:git:push",
    tool_kind="mcp",
    tool_input_kind="json",
    input={"branch": "main", "tags": ["a"]},
    run_id="run_1",
    owner="me",
    principal=None,
)
ALL = ("*",)
LIMIT = 10_000


def hook(callback: Callable[..., Any], plugin: str = "guard", **more: Any) -> Registered:
    return Registered(plugin, callback, **{"declared": ALL, "granted": ALL, **more})


@pytest.fixture
def interceptors() -> Iterator[Interceptors]:
    made = Interceptors()
    yield made
    made.close()


def accept(text: str) -> JsonObject:
    found: JsonObject = json.loads(text)
    if "bad" in found:
        raise ProgramError("nested_tool_failed", "bad is not declared")
    return {**found, "filled": True}


async def ask(interceptors: Interceptors, event: ToolCallEvent = EVENT, notes: list[str] | None = None) -> JsonObject:
    note = (lambda _: None) if notes is None else notes.append
    return await interceptors.before(event, "MCP.git.push", note, accept)


async def finish(interceptors: Interceptors, result: Any, event: ToolCallEvent = EVENT) -> Any:
    return json.loads(await interceptors.after(event, "MCP.git.push", result, LIMIT))


# who sees what


@pytest.mark.parametrize(
    ("declared", "granted", "tool_id", "sees"),
    [
        ((), (), "plugin:guard:own", True),
        ((), ("*",), "mcp:git:push", False),
        (("mcp:git:*",), (), "mcp:git:push", False),
        (("mcp:git:*",), ("mcp:*",), "mcp:git:push", True),
        (("mcp:git:*",), ("mcp:*",), "mcp:other:push", False),
        (("*",), ("mcp:git:pus?",), "mcp:git:push", True),
        (("*",), ("mcp:git:pus?",), "mcp:git:pull", False),
        (("*",), (), "plugin:guard:own", True),
        (("*",), (), "plugin:guardian:own", False),
        (("*",), (), "core:guard:own", False),
        (("mcp:*",), (), "plugin:guard:own", False),
        (("*",), ("mcp:git:[p]ush",), "mcp:git:push", False),
        (("*",), (), "core:code_mode:exec", False),
        (("core:code_mode:exec",), ("core:code_mode:exec",), "core:code_mode:exec", True),
    ],
)
async def test_a_hook_sees_what_it_declares_and_the_operator_grants_and_its_own_tools(
    interceptors: Interceptors, declared: tuple[str, ...], granted: tuple[str, ...], tool_id: str, sees: bool
) -> None:
    seen = []
    registered = Registered("guard", lambda event: seen.append(event.tool_id), declared, granted)
    interceptors.apply([registered], [registered])
    assert interceptors.has_hooks(tool_id) is interceptors.has_middleware(tool_id) is sees
    await ask(interceptors, replace(EVENT, tool_id=tool_id))
    assert seen == [tool_id] * sees


async def test_until_it_is_known_who_sees_calls_they_wait(interceptors: Interceptors) -> None:
    assert not interceptors.is_ready
    async with anyio.create_task_group() as group:
        group.start_soon(interceptors.ready)
        await anyio.wait_all_tasks_blocked()
        interceptors.apply([], [])
    assert interceptors.is_ready


async def test_what_was_applied_last_counts_and_nothing_before(interceptors: Interceptors) -> None:
    async def deny(event: ToolCallEvent) -> DenyCall:
        return DenyCall("no")

    interceptors.apply([hook(deny)], [])
    assert interceptors.has_hooks(EVENT.tool_id)
    interceptors.apply([], [])
    assert not interceptors.has_hooks(EVENT.tool_id)
    assert await ask(interceptors) == EVENT.input


async def test_calls_that_a_plugin_has_to_see_are_refused_while_it_is_missing(interceptors: Interceptors) -> None:
    interceptors.apply([], [], {"guard": ("mcp:git:*",)})
    assert interceptors.has_hooks("mcp:git:push")
    assert not interceptors.has_hooks("mcp:docs:read")
    with pytest.raises(PluginError, match=r"MCP\.git\.push: plugin 'guard', .* could not be loaded"):
        await ask(interceptors)


# what hooks may do


async def test_each_hook_sees_the_input_as_those_before_it_left_it_checked_again(interceptors: Interceptors) -> None:
    seen: list[tuple[str, JsonObject]] = []

    async def first(event: ToolCallEvent) -> ChangeInput:
        seen.append(("first", event.input))
        return ChangeInput({"branch": "dev"})

    def second(event: ToolCallEvent) -> ChangeInput:
        seen.append(("second", event.input))
        return ChangeInput({**event.input, "force": False})

    async def third(event: ToolCallEvent) -> None:
        seen.append(("third", event.input))

    interceptors.apply([hook(first), hook(second, "other"), hook(third)], [])
    left = {"branch": "dev", "filled": True, "force": False}
    assert await ask(interceptors) == left
    assert seen == [("first", EVENT.input), ("second", {"branch": "dev", "filled": True}), ("third", left)]


async def test_hooks_of_this_product_come_last(interceptors: Interceptors) -> None:
    order = []

    def core(event: ToolCallEvent) -> None:
        order.append("core")

    async def plugin(event: ToolCallEvent) -> None:
        order.append("plugin")

    interceptors.apply([hook(core, "duplicates", core=True), hook(plugin)], [])
    await ask(interceptors)
    assert order == ["plugin", "core"]


async def test_an_input_changed_in_place_is_not_what_is_sent(interceptors: Interceptors) -> None:
    def change(event: ToolCallEvent) -> None:
        event.input["tags"].append("b")
        event.input["branch"] = "other"  # type: ignore[index]

    interceptors.apply([hook(change), hook(change)], [])
    assert await ask(interceptors) == {"branch": "main", "tags": ["a"]}
    assert EVENT.input == {"branch": "main", "tags": ["a"]}


async def test_a_denial_gives_its_reason_and_later_hooks_are_not_asked(interceptors: Interceptors) -> None:
    asked = []
    interceptors.apply([hook(lambda _: DenyCall("not on a Friday")), hook(asked.append)], [])
    with pytest.raises(PolicyDenied) as denied:
        await ask(interceptors)
    assert (denied.value.message, asked) == ("MCP.git.push was denied by plugin 'guard': not on a Friday", [])


async def test_a_note_names_its_plugin_and_the_call_continues(interceptors: Interceptors) -> None:
    notes: list[str] = []
    interceptors.apply([hook(lambda _: NoteCall("care\nful")), hook(lambda _: NoteCall("x" * 9000))], [])
    assert await ask(interceptors, notes=notes) == EVENT.input
    assert notes[0] == "Plugin 'guard': care\n  ful"
    assert len(notes[1]) < MAX_TEXT + 100


async def test_a_changed_input_that_does_not_fit_names_the_plugin(interceptors: Interceptors) -> None:
    interceptors.apply([hook(lambda _: ChangeInput({"bad": 1}))], [])
    with pytest.raises(PluginError, match="plugin 'guard' changed the input to an invalid one: bad is not declared"):
        await ask(interceptors)


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


INPUTS: list[Any] = ["text", None, [], {"a": {1, 2}}, {"a": float("nan")}, CYCLE]
WRONG: list[Any] = ["yes", True, {"input": {}}, object(), ChangeInput, *map(ChangeInput, INPUTS)]
WRONG += [DenyCall(None), NoteCall(3)]  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: re.sub(" at 0x[0-9a-f]+", "", str(answer)))
async def test_an_answer_that_is_none_names_the_plugin(interceptors: Interceptors, answer: Any) -> None:
    interceptors.apply([hook(lambda _: answer)], [])
    with pytest.raises(PluginError, match=r"MCP\.git\.push: plugin 'guard' failed: its hook"):
        await ask(interceptors)


# what misbehaves


def raising(error: BaseException, *, is_async: bool) -> Callable[..., Any]:
    def sync(*_: Any) -> Any:
        raise error

    async def later(*_: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return later if is_async else sync


ERRORS = [
    *(
        (error, way)
        for error in (ValueError("/secret/path"), SystemExit(3), asyncio.CancelledError())
        for way in (1, 0)
    ),
    *((StopIteration(), False), (ExceptionGroup("all", [ValueError()]), True)),
]


@pytest.mark.parametrize(("error", "is_async"), ERRORS, ids=repr)
async def test_whatever_a_hook_or_middleware_raises_fails_this_call_by_name_and_tells_nothing(
    interceptors: Interceptors, error: BaseException, is_async: bool
) -> None:
    bad = hook(raising(error, is_async=is_async))
    interceptors.apply([bad], [bad])
    for calling in (ask(interceptors), finish(interceptors, {"content": []})):
        with pytest.raises(PluginError) as failed:
            await calling
        assert failed.value.message.startswith("MCP.git.push: plugin 'guard' failed")
        assert "secret" not in failed.value.message
    await anyio.lowlevel.checkpoint()  # no one cancels this task


async def test_a_tool_error_of_a_hook_or_middleware_is_told_in_its_words(interceptors: Interceptors) -> None:
    bad = hook(raising(ToolError("the list of branches is out of date"), is_async=True))
    interceptors.apply([bad], [bad])
    for calling in (ask(interceptors), finish(interceptors, {"content": []})):
        with pytest.raises(PluginError, match=r"^MCP\.git\.push: plugin 'guard': the list of branches is out of date$"):
            await calling


async def test_what_hangs_in_a_coroutine_fails_its_call_when_its_time_is_over(interceptors: Interceptors) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(3600)

    bad = hook(hang, timeout=0.02)
    interceptors.apply([bad], [bad])
    for calling in (ask(interceptors), finish(interceptors, {"content": []})):
        with anyio.fail_after(10), pytest.raises(PluginError, match=r"plugin 'guard' failed.* 0.02 s"):
            await calling


async def test_what_hangs_in_threads_fails_its_own_calls_alone(interceptors: Interceptors) -> None:
    let_go = threading.Event()

    def hang(event: ToolCallEvent) -> None:
        let_go.wait(30)

    stuck = hook(hang, "stuck", timeout=0.05, declared=("mcp:git:*",))
    interceptors.apply([stuck, hook(lambda _: None, "other")], [])
    try:
        for _ in range(THREADS + 3):
            with anyio.fail_after(10), pytest.raises(PluginError, match="plugin 'stuck' failed"):
                await ask(interceptors)
        hanging = [thread for thread in threading.enumerate() if thread.name == "hooks of stuck"]
        assert len(hanging) == THREADS
        assert all(thread.daemon for thread in hanging)
        # Another plugin's hooks have threads of their own.
        docs = replace(EVENT, tool_id="mcp:docs:read")
        assert await ask(interceptors, docs) == EVENT.input
    finally:
        let_go.set()
    with anyio.fail_after(10):
        while True:
            try:
                interceptors.apply([hook(lambda _: None, "stuck")], [])
                await ask(interceptors)
                break
            except PluginError:
                await anyio.sleep(0.01)


async def test_a_sync_hook_that_waits_delays_no_other(interceptors: Interceptors) -> None:
    let_go = threading.Event()
    interceptors.apply([hook(lambda _: let_go.wait(30) and None)], [])
    async with anyio.create_task_group() as group:
        group.start_soon(ask, interceptors)
        await anyio.lowlevel.checkpoint()
        let_go.set()  # reached at all only because the loop continues


async def test_cancelling_a_call_ends_its_hook(interceptors: Interceptors) -> None:
    begun, ended = anyio.Event(), []

    async def wait(event: ToolCallEvent) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    interceptors.apply([hook(wait)], [])
    async with anyio.create_task_group() as group:
        group.start_soon(ask, interceptors)
        await begun.wait()
        group.cancel_scope.cancel()
    assert ended == [True]


async def test_callable_objects_and_awaitables_of_functions_are_awaited(interceptors: Interceptors) -> None:
    class Guard:
        async def __call__(self, event: ToolCallEvent) -> DenyCall:
            return DenyCall("object")

    async def later() -> DenyCall:
        return DenyCall("awaitable")

    for callback, reason in ((Guard(), "object"), (lambda _: later(), "awaitable")):
        interceptors.apply([hook(callback)], [])
        with pytest.raises(PolicyDenied, match=reason):
            await ask(interceptors)


# middleware


async def test_each_middleware_sees_the_result_as_those_before_it_left_it(interceptors: Interceptors) -> None:
    async def first(event: ToolCallEvent, result: Any) -> Any:
        return {**result, "a": (1, 2)}

    async def second(event: ToolCallEvent, result: Any) -> Any:
        return {**result, "seen": result["a"]}

    interceptors.apply([], [hook(first), hook(second)])
    assert await finish(interceptors, {"content": []}) == {"content": [], "a": [1, 2], "seen": [1, 2]}


async def test_middleware_may_change_a_result_in_place(interceptors: Interceptors) -> None:
    async def redact(event: ToolCallEvent, result: Any) -> Any:
        result["content"] = []
        return result

    interceptors.apply([], [hook(redact)])
    assert await finish(interceptors, {"content": [{"type": "text", "text": "secret"}]}) == {"content": []}


@pytest.mark.parametrize(
    "nonsense",
    [object(), {"content": {1, 2}}, {("a", "b"): 1}, CYCLE, b"bytes", None, [], "text", {"content": "text"}],
    ids=lambda value: type(value).__name__,
)
async def test_a_result_of_an_mcp_tool_that_is_none_names_the_plugin(interceptors: Interceptors, nonsense: Any) -> None:
    async def replace_it(event: ToolCallEvent, result: Any) -> Any:
        return nonsense

    interceptors.apply([], [hook(replace_it)])
    with pytest.raises(PluginError, match=r"MCP\.git\.push: plugin 'guard' failed: its middleware returned"):
        await finish(interceptors, {"content": []})


async def test_middleware_of_other_tools_may_return_any_json(interceptors: Interceptors) -> None:
    async def count(event: ToolCallEvent, result: Any) -> Any:
        return len(result)

    interceptors.apply([], [hook(count)])
    event = replace(EVENT, tool_id="plugin:issues:list", tool_kind="plugin")
    assert await finish(interceptors, [1, 2, 3], event) == 3


async def test_a_result_that_middleware_made_too_large_names_the_plugin(interceptors: Interceptors) -> None:
    async def swell(event: ToolCallEvent, result: Any) -> Any:
        return {"content": [{"type": "text", "text": "é" * (LIMIT // 2)}]}

    interceptors.apply([], [hook(swell)])
    with pytest.raises(PluginError, match=r"plugin 'guard' failed: .* bytes, more than maxToolResultBytes \(10000\)"):
        await finish(interceptors, {"content": []})


async def test_closing_waits_for_no_hook_that_hangs(interceptors: Interceptors) -> None:
    let_go = threading.Event()
    interceptors.apply([hook(lambda _: let_go.wait(60), timeout=0.01)], [])
    with pytest.raises(PluginError):
        await ask(interceptors)
    began = time.monotonic()
    interceptors.close()
    assert time.monotonic() - began < 5
    let_go.set()


async def test_a_hook_that_continues_although_it_is_cancelled_is_let_go(
    interceptors: Interceptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CLEANUP_SECONDS", 0.05)

    async def stay(_: ToolCallEvent) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await anyio.sleep_forever()

    interceptors.apply([hook(stay, timeout=0.05)], [])
    with anyio.fail_after(10), pytest.raises(PluginError, match=r"its hook took longer than 0\.05 s"):
        await ask(interceptors)


class Ending(dict[str, Any]):
    """A dict that ends the process when it is read."""

    def items(self) -> Any:
        raise SystemExit(3)


async def test_answers_whose_own_code_ends_the_process_fail_their_call_alone(interceptors: Interceptors) -> None:
    interceptors.apply([hook(lambda _: ChangeInput({"a": Ending(b=1)}))], [hook(lambda _, result: Ending(a=1))])
    with pytest.raises(
        PluginError, match="plugin 'guard' failed: its hook changed the input to a value that is not a JSON object"
    ):
        await ask(interceptors)
    with pytest.raises(PluginError, match="plugin 'guard' failed: its middleware returned a value that is not JSON"):
        await interceptors.after(EVENT, "MCP.git.push", {"content": []}, LIMIT)
