"""Time limits of plugin code."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from codemode_mcp.catalog.plugins.running import TimedOutError, within

pytestmark = pytest.mark.anyio


async def give(value: Any) -> Any:
    return value


async def test_what_ends_in_time_gives_its_value_or_its_error() -> None:
    async def fail() -> None:
        raise ValueError("mine")

    assert await within(5, give, 7) == 7
    with pytest.raises(ValueError, match="mine"):
        await within(5, fail)


async def test_each_ends_at_its_own_time_whatever_began_before() -> None:
    ended: list[str] = []

    async def hang(name: str, seconds: float) -> None:
        with pytest.raises(TimedOutError):
            await within(seconds, anyio.sleep_forever)
        ended.append(name)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(hang, "long", 60)
            await anyio.wait_all_tasks_blocked()
            await hang("short", 0.05)
            async with anyio.create_task_group() as both:
                both.start_soon(hang, "later", 0.1)
                both.start_soon(hang, "sooner", 0.02)
            group.cancel_scope.cancel()
    assert ended[0] == "short"
    assert sorted(ended[1:]) == ["later", "sooner"]


async def test_one_that_swallows_its_cancellation_and_ends_is_late_all_the_same() -> None:
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return "too late"

    with anyio.fail_after(10), pytest.raises(TimedOutError):
        await within(0.02, stubborn)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await anyio.sleep(0.001)  # nothing is left of the cancellation


async def test_one_within_another_ends_without_the_other() -> None:
    async def outer() -> str:
        with pytest.raises(TimedOutError):
            await within(0.02, anyio.sleep_forever)
        return "outer continued"

    with anyio.fail_after(10):
        assert await within(30, outer) == "outer continued"


async def test_a_task_group_inside_is_ended_too() -> None:
    ended = []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    async def group_of_them() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(child)

    with anyio.fail_after(10), pytest.raises(TimedOutError):
        await within(0.02, group_of_them)
    assert ended == [True, True]


async def test_cancelling_from_outside_is_no_end_of_time() -> None:
    reached = anyio.Event()
    seen: list[BaseException] = []

    async def wait() -> None:
        try:
            reached.set()
            await within(30, anyio.sleep_forever)
        except BaseException as error:
            seen.append(error)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await reached.wait()
        group.cancel_scope.cancel()
    assert [type(error) for error in seen] == [asyncio.CancelledError]
