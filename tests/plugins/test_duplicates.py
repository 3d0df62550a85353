"""The guard against repeated calls: what counts as the same call, and that what it remembers is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from codemode_mcp.plugins import DenyCall, NoteCall, ToolCallEvent
from codemode_mcp.plugins.bundled import duplicates
from codemode_mcp.plugins.bundled.duplicates import Duplicates
from codemode_mcp.settings import DuplicateSettings

if TYPE_CHECKING:
    from codemode_mcp.plugins.api import HookAnswer

pytestmark = pytest.mark.anyio

EVENT = ToolCallEvent(
    "mcp:git:push", "mcp", "json", {"branch": "main", "n": [1, {"b": 1, "a": 2}]}, "run_1", "me", None
)
SAME = {"n": [1, {"a": 2, "b": 1}], "branch": "main"}


async def answers(guard: Duplicates, *inputs: Any, **more: Any) -> list[HookAnswer]:
    return [await guard(replace(EVENT, input=each, **more)) for each in inputs]


@pytest.mark.parametrize("limit", [1, 3])
async def test_up_to_the_limit_nothing_is_said_and_beyond_it_every_call_is_denied(limit: int) -> None:
    guard = Duplicates(lambda: DuplicateSettings(limit, "deny"))
    said = await answers(guard, *([EVENT.input, SAME] * limit))
    assert said[:limit] == [None] * limit
    assert len(said[limit:]) == limit
    assert all(isinstance(each, DenyCall) for each in said[limit:])


async def test_the_reader_is_warned_of_each_tool_once() -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "warn"))
    said = await answers(guard, SAME, SAME, SAME, {"branch": "dev"}, {"branch": "dev"})
    assert [type(each) for each in said] == [type(None), NoteCall, type(None), type(None), type(None)]
    said = await answers(guard, SAME, SAME, tool_id="mcp:git:pull")
    assert [type(each) for each in said] == [type(None), NoteCall]


async def test_a_warning_is_one_line_whatever_the_tool_is_called() -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "warn"))
    _, note = await answers(guard, SAME, SAME, tool_id="mcp:git:pull\n**Error** all is lost\u202e")
    assert isinstance(note, NoteCall)
    assert note.text.startswith("mcp:git:pull\\n**Error** all is lost\\u202e was called")


@pytest.mark.parametrize(
    "more",
    [{"read_only": True}, {"tool_kind": "code_mode_exec"}],
    ids=["read-only", "exec"],
)
async def test_what_may_be_repeated_is_not_counted(more: dict[str, Any]) -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    assert await answers(guard, SAME, SAME, SAME, **more) == [None] * 3


async def test_other_arguments_other_tools_and_other_runs_are_other_calls() -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    inputs: list[Any] = [{"a": 1}, {"a": 2}, {"a": "1"}, {"a": None}, {}, {"a": [1]}, {"a": {"b": 1}}, {"a": True}]
    assert await answers(guard, *inputs) == [None] * len(inputs)
    assert await answers(guard, inputs[0], tool_id="mcp:git:pull") == [None]
    assert await answers(guard, inputs[0], run_id="run_2") == [None]


async def test_changed_settings_count_at_once() -> None:
    settings = DuplicateSettings(1, "deny")
    guard = Duplicates(lambda: settings)
    assert isinstance((await answers(guard, SAME, SAME))[1], DenyCall)
    settings = DuplicateSettings(5, "deny")
    assert await answers(guard, SAME) == [None]
    settings = DuplicateSettings(1, "off")
    assert await answers(guard, SAME) == [None]


async def test_what_is_remembered_is_bounded_by_calls_by_runs_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_CALLS", 4)
    monkeypatch.setattr(duplicates, "MAX_RUNS", 3)
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    for run in range(10):
        await answers(guard, *({"n": n} for n in range(10)), run_id=f"run_{run}")
        assert repr(guard) == f"<Duplicates: {4 * min(run + 1, 3)} calls of {min(run + 1, 3)} runs>"
    # The latest calls of the latest runs are what is left.
    assert isinstance((await answers(guard, {"n": 9}, run_id="run_9"))[0], DenyCall)
    monkeypatch.setattr(duplicates, "MAX_CALLS_OF_ALL", 6)
    await answers(guard, {"n": "new"}, run_id="run_9")
    assert repr(guard) == "<Duplicates: 4 calls of 1 runs>"
