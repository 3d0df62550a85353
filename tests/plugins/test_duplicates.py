"""The guard against repeated calls: what counts as the same call, and that what it remembers is bounded."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest

from codemode_mcp.base.settings import DuplicateSettings
from codemode_mcp.catalog.plugins.api import HookAnswer
from codemode_mcp.catalog.plugins.bundled import duplicates
from codemode_mcp.catalog.plugins.bundled.duplicates import Duplicates
from codemode_mcp.plugins import DenyCall, NoteCall, ToolCallEvent
from tests.values import replace

EVENT = ToolCallEvent(
    "mcp:git:push", "mcp", "json", {"branch": "main", "n": [1, {"b": 1, "a": 2}]}, "run_1", "me", None
)
SAME = {"n": [1, {"a": 2, "b": 1}], "branch": "main"}


NUMBERS = count(1)


class Clock:
    """Monotonic seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def answers(guard: Duplicates, *inputs: Any, **more: Any) -> list[HookAnswer]:
    return [guard(replace(EVENT, call=next(NUMBERS), **{"input": each, **more})) for each in inputs]


@pytest.mark.parametrize("limit", [1, 3])
async def test_up_to_the_limit_nothing_is_said_and_beyond_it_every_call_is_denied(limit: int) -> None:
    guard = Duplicates(lambda: DuplicateSettings(limit, "deny"))
    said = await answers(guard, *([EVENT.input, SAME] * limit))
    assert (said[:limit], len(said[limit:])) == ([None] * limit, limit)
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


@pytest.mark.parametrize("more", [{"read_only": True}, {"tool_kind": "code_mode_exec"}], ids=["read-only", "exec"])
async def test_what_may_be_repeated_is_not_counted(more: dict[str, Any]) -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    assert await answers(guard, SAME, SAME, SAME, **more) == [None] * 3


async def test_other_arguments_other_tools_and_other_owners_are_other_calls() -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    inputs: list[Any] = [{"a": 1}, {"a": 2}, {"a": "1"}, {"a": None}, {}, {"a": [1]}, {"a": {"b": 1}}, {"a": True}]
    assert await answers(guard, *inputs) == [None] * len(inputs)
    assert await answers(guard, inputs[0], tool_id="mcp:git:pull") == [None]
    assert await answers(guard, inputs[0], run_id="run_2", owner="another") == [None]


async def test_calls_of_all_programs_of_an_owner_count_within_the_window() -> None:
    clock = Clock()
    guard = Duplicates(lambda: DuplicateSettings(2, "deny", 600), clock)
    assert await answers(guard, SAME, run_id="run_1") == [None]
    clock.now += 500
    assert await answers(guard, SAME, run_id="run_2_and_more_characters") == [None]
    clock.now += 42
    (denied,) = await answers(guard, SAME, run_id="run_3")
    assert isinstance(denied, DenyCall)
    assert denied.reason == (
        "the same call was made 2 times already within 600 s, also by another program of the same user "
        "(run_2_and_mo, 42 s ago) (tools.duplicates); use the earlier results, or change the arguments"
    )
    clock.now += 57
    assert isinstance((await answers(guard, SAME, run_id="run_3"))[0], DenyCall)
    clock.now += 1
    assert await answers(guard, SAME, run_id="run_3") == [None], "the first call is older than the window"


async def test_a_denied_call_does_not_count() -> None:
    clock = Clock()
    guard = Duplicates(lambda: DuplicateSettings(1, "deny", 600), clock)
    said = []
    for _ in range(7):
        said += await answers(guard, SAME)
        clock.now += 100
    assert [each is None for each in said] == [True, False, False, False, False, False, True]


async def test_a_warning_names_the_other_program_and_how_long_ago_it_was() -> None:
    clock = Clock()
    guard = Duplicates(lambda: DuplicateSettings(1, "warn"), clock)
    assert await answers(guard, SAME) == [None]
    clock.now += 180
    for run in ("run_2", "run_3"):
        (note,) = await answers(guard, SAME, run_id=run)
        assert isinstance(note, NoteCall), "each program has a reader of its own"
        assert "with the same arguments more than once within 600 s, also by another program" in note.text
    assert re.search(r"\(run_2, 0 s ago\), and it may not be read-only", note.text)


async def test_calls_of_another_owner_neither_count_nor_show() -> None:
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    await answers(guard, SAME, run_id="run_of_ada", owner="ada")
    assert await answers(guard, SAME, run_id="run_of_bob", owner="bob") == [None]
    (denied,) = await answers(guard, SAME, run_id="run_of_bob", owner="bob")
    assert isinstance(denied, DenyCall)
    assert "ada" not in denied.reason
    assert denied.reason.startswith("this program has made the same call once already, the last time 0 s ago")


async def test_without_a_window_calls_count_for_their_own_program_as_long_as_it_lives() -> None:
    clock = Clock()
    guard = Duplicates(lambda: DuplicateSettings(1, "deny", 0), clock)
    assert await answers(guard, SAME, run_id="run_1") == [None]
    assert await answers(guard, SAME, run_id="run_2") == [None]
    clock.now += 100_000
    assert isinstance((await answers(guard, SAME, run_id="run_1"))[0], DenyCall)


async def test_a_call_that_is_begun_again_counts_once() -> None:
    for window in (0, 600):
        guard = Duplicates(lambda window=window: DuplicateSettings(2, "deny", window))  # type: ignore[misc]
        for _ in range(5):  # another process had the program meanwhile, which had not sent the call
            assert guard(replace(EVENT, call=7)) is None
        assert guard(replace(EVENT, call=8)) is None
        assert isinstance(guard(replace(EVENT, call=9)), DenyCall)


async def test_changed_settings_count_immediately() -> None:
    settings = DuplicateSettings(1, "deny")
    guard = Duplicates(lambda: settings)
    assert isinstance((await answers(guard, SAME, SAME))[1], DenyCall)
    settings = DuplicateSettings(5, "deny")
    assert await answers(guard, SAME) == [None]
    settings = DuplicateSettings(1, "off")
    assert await answers(guard, SAME) == [None]


async def test_what_is_remembered_is_bounded_by_calls_by_owners_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_CALLS", 4)
    monkeypatch.setattr(duplicates, "MAX_OWNERS", 3)
    guard = Duplicates(lambda: DuplicateSettings(1, "deny"))
    for owner in range(10):
        await answers(guard, *({"n": n} for n in range(10)), owner=f"owner {owner}")
        assert repr(guard) == f"<Duplicates: {4 * min(owner + 1, 3)} calls of {min(owner + 1, 3)} owners>"
    # The latest calls of the latest owners are what is left.
    assert isinstance((await answers(guard, {"n": 9}, owner="owner 9"))[0], DenyCall)
    assert await answers(guard, {"n": 5}, owner="owner 9") == [None]
    monkeypatch.setattr(duplicates, "MAX_CALLS_OF_ALL", 6)
    await answers(guard, {"n": "new"}, owner="owner 9")
    assert repr(guard) == "<Duplicates: 4 calls of 1 owners>"


@pytest.mark.parametrize("window", [0, 600])
async def test_a_loop_of_identical_calls_takes_no_more_room_than_its_limit(window: int) -> None:
    guard = Duplicates(lambda: DuplicateSettings(3, "warn", window))
    said = await answers(guard, *[SAME] * 1000)
    assert (sum(each is not None for each in said), repr(guard)) == (1, "<Duplicates: 4 calls of 1 owners>")


async def test_calls_older_than_the_window_are_forgotten() -> None:
    clock = Clock()
    guard = Duplicates(lambda: DuplicateSettings(3, "deny", 10), clock)
    for _ in range(20):
        assert await answers(guard, SAME) == [None]
        clock.now += 4
    assert repr(guard) == "<Duplicates: 3 calls of 1 owners>"
