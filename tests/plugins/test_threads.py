"""Threads for what is not async: how many there are, what cancelling does, how they end."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest

from codemode_mcp.catalog.plugins.running import Threads

pytestmark = pytest.mark.anyio


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
