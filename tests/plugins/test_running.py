"""Threads and time limits for the code of plugins: how many there are, what cancelling does, how they end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest

from codemode_mcp.catalog.plugins.running import Threads, TimedOutError, within


async def test_values_and_errors_come_back() -> None:
    threads = Threads(1, "one")
    assert await threads.run(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 1, 0)

    def end() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await threads.run(end)
    assert await threads.run(abs, -1) == 1
    threads.close()


async def test_no_more_run_together_than_there_are_places_and_all_get_their_turn() -> None:
    threads = Threads(2, "two")
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(10)
        with lock:
            running -= 1

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(threads.run, work)
    assert most == 2
    threads.close()


async def test_what_is_cancelled_keeps_its_place_until_it_returns() -> None:
    threads, let_go = Threads(1, "kept"), threading.Event()
    with anyio.move_on_after(0.02):
        await threads.run(let_go.wait, 30)
    with anyio.move_on_after(0.02) as second:
        await threads.run(abs, -1)
    assert second.cancelled_caught
    let_go.set()
    with anyio.fail_after(10):
        assert await threads.run(abs, -2) == 2
    threads.close()


async def test_a_coroutine_that_comes_after_its_caller_has_left_is_closed() -> None:
    threads, let_go = Threads(1, "late"), threading.Event()

    async def late() -> None:
        pytest.fail("it is not awaited")

    made = late()

    def make() -> tuple[bool, Coroutine[Any, Any, None]]:
        let_go.wait(30)
        return False, made

    with anyio.move_on_after(0.02):
        await threads.run(make)
    let_go.set()
    with anyio.fail_after(20):
        assert await threads.run(abs, -2) == 2  # there is one thread
    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED
    threads.close()


async def test_a_function_sees_the_context_of_its_caller() -> None:
    threads, variable = Threads(1, "context"), contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    assert await threads.run(variable.get) == "mine"
    threads.close()


async def test_closed_threads_end_and_take_nothing_more() -> None:
    threads = Threads(3, "closing")
    await threads.run(abs, -1)
    (thread,) = (each for each in threading.enumerate() if each.name == "closing")
    threads.close()
    await anyio.to_thread.run_sync(thread.join, 10)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        await threads.run(abs, -1)


# time limits of plugin code


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
    assert (ended[0], sorted(ended[1:])) == ("short", ["later", "sooner"])


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
