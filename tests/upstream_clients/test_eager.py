"""Coroutines that run in the step that makes them, and become tasks only when they have to."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from upstream_clients.eager import EagerTasks, Reply, Scope, next_round

pytestmark = pytest.mark.anyio

NAME: ContextVar[str] = ContextVar("NAME", default="")


async def warm(eager: EagerTasks, count: int = 1) -> None:
    """Leave idle tasks."""
    for _ in range(count):
        eager.start(anyio.lowlevel.checkpoint())
    await anyio.wait_all_tasks_blocked()


async def test_the_first_step_runs_immediately_and_a_reply_runs_the_next_one() -> None:
    log: list[str] = []
    reply: Reply[str] = Reply()

    async def work() -> None:
        log.append("first step")
        log.append(await reply)
        await reply  # it has its result already
        log.append("end")

    async with anyio.create_task_group() as group:
        eager = EagerTasks(group.start_soon)
        await warm(eager)
        tasks = asyncio.all_tasks()
        eager.start(work())
        assert log == ["first step"]
        reply.bring("reply")
        assert log == ["first step", "reply", "end"]
        reply.bring("too late")
        assert asyncio.all_tasks() == tasks
        group.cancel_scope.cancel()


async def test_without_an_idle_task_a_coroutine_begins_in_the_next_round_and_ends_the_same_way() -> None:
    log: list[str] = []
    replies: list[Reply[str]] = [Reply() for _ in range(3)]

    async def work(reply: Reply[str]) -> None:
        log.append(await reply)

    async with anyio.create_task_group() as group:
        eager = EagerTasks(group.start_soon)
        for reply in replies:
            eager.start(work(reply))
        await anyio.wait_all_tasks_blocked()
        for number, reply in enumerate(replies):
            reply.bring(str(number))
        await anyio.wait_all_tasks_blocked()
        assert log == ["0", "1", "2"]
        group.cancel_scope.cancel()


async def sleeps() -> None:
    await anyio.sleep(0.01)


async def takes_turns() -> None:
    await asyncio.sleep(0)


async def uses_a_thread() -> None:
    assert await anyio.to_thread.run_sync(lambda: 1) == 1


async def times_out() -> None:
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def has_children() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
        group.start_soon(takes_turns)


async def locks() -> None:
    lock = anyio.Lock()
    async with lock:
        await next_round()
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("wait", [sleeps, takes_turns, uses_a_thread, times_out, has_children, locks, next_round])
async def test_a_coroutine_can_wait_for_anything_between_replies(wait: Callable[[], Awaitable[None]]) -> None:
    first, second, ended = Reply[int](), Reply[int](), anyio.Event()
    current: list[Any] = []

    async def work() -> None:
        token = NAME.set("inside")
        for each in (first, second):
            current.append(asyncio.current_task())
            await each
            await wait()
            current.append(asyncio.current_task())
        assert NAME.get() == "inside"
        NAME.reset(token)
        ended.set()

    async with anyio.create_task_group() as group:
        eager = EagerTasks(group.start_soon)
        await warm(eager)
        me = asyncio.current_task()
        eager.start(work())
        for each in (first, second):
            each.bring(1)
            await anyio.sleep(0.03)
        with anyio.fail_after(20):
            await ended.wait()
        assert NAME.get() == ""
        assert len(set(current)) == 1
        assert me is asyncio.current_task() is not current[0]
        group.cancel_scope.cancel()


@pytest.mark.parametrize("is_warm", [True, False])
async def test_a_scope_ends_a_coroutine_that_waits_for_a_reply_and_nothing_else(is_warm: bool) -> None:
    log: list[str] = []
    scope, reply, after = Scope(), Reply[str](), Reply[str]()

    async def work() -> None:
        with scope:
            await reply
        log.append(f"caught {scope.cancelled_caught}")
        log.append(await after)

    async with anyio.create_task_group() as group:
        eager = EagerTasks(group.start_soon)
        if is_warm:
            await warm(eager)
        eager.start(work())
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        reply.bring("as late as the cancellation")
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert log == ["caught True"]
        after.bring("after")
        await anyio.wait_all_tasks_blocked()
        assert log == ["caught True", "after"]
        group.cancel_scope.cancel()


async def test_a_scope_that_is_cancelled_in_the_last_step_harms_no_later_coroutine() -> None:
    log: list[str] = []

    async def first() -> None:
        with Scope() as scope:
            scope.cancel()

    async def second() -> None:
        await next_round()
        log.append("second")

    async with anyio.create_task_group() as group:
        eager = EagerTasks(group.start_soon)
        await warm(eager)
        eager.start(first())
        eager.start(second())
        await anyio.wait_all_tasks_blocked()
        eager.start(second())
        await anyio.wait_all_tasks_blocked()
        assert log == ["second", "second"]
        group.cancel_scope.cancel()


async def test_a_deadline_can_be_moved() -> None:
    now = asyncio.get_running_loop().time
    with anyio.fail_after(20):
        with Scope(now() + 0.01) as scope:
            await anyio.sleep_forever()
        assert (scope.cancel_called, scope.cancelled_caught) == (True, True)
        with Scope(now() + 0.01) as scope:
            scope.deadline = now() + 10
            await anyio.sleep(0.05)
            scope.deadline = now() + 0.01
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        with Scope(now() + 10) as scope:
            pass
        assert not scope.cancel_called


async def test_a_cancellation_from_outside_passes_a_scope_that_is_cancelled_too() -> None:
    log: list[str] = []
    with anyio.CancelScope() as outer:
        with Scope() as inner:
            outer.cancel()
            await anyio.lowlevel.checkpoint()
            log.append("not reached")
        log.append("not reached either")
    assert outer.cancelled_caught
    with anyio.CancelScope() as outer:
        with Scope() as inner:
            asyncio.get_running_loop().call_soon(inner.cancel)
            asyncio.get_running_loop().call_soon(outer.cancel)
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        log.append("not reached")
    assert log == []


async def test_the_end_of_the_group_cancels_coroutines_and_idle_tasks() -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            await Reply[None]()
        finally:
            log.append("ended")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            eager = EagerTasks(group.start_soon)
            await warm(eager, 3)
            eager.start(work())
            eager.start(work())
            group.cancel_scope.cancel()
    assert log == ["ended", "ended"]


async def test_an_exception_is_one_of_a_task_in_the_group() -> None:
    async def work() -> None:
        await next_round()
        raise ValueError("broken")

    with pytest.RaisesGroup(ValueError):
        async with anyio.create_task_group() as group:
            eager = EagerTasks(group.start_soon)
            await warm(eager)
            eager.start(work())
