"""Coroutines that run without a task of their own for as long as they wait only for answers.

A program makes thousands of calls. A task for each call, and a round of the event loop for each of its steps, took more
time than the call itself. So a call is one coroutine, which `EagerTasks.start` runs in the step of the event loop that
made it. At its first wait, there are two cases:

- It waits for a `Reply`, as a call does once its request is sent. The bringer of the reply runs the next step.
- It waits for anything else. Then a task continues it, and it is an ordinary coroutine of this task from there on.

The coroutine cannot tell the difference. Each step runs in the context of the coroutine, and with a task as the current
one, so cancel scopes, timeouts, locks and task groups work from the first step on. This task is idle: it is parked,
lends its identity to one coroutine at a time, and continues the coroutine only in the second case, or to cancel it.
`asyncio` documents the functions with which this is done (Extending, Task lifetime support).

If no task is idle, the coroutine begins as an ordinary task, in the next round. That task is idle afterwards, so the
number of idle tasks is that of the coroutines which ran at the same time, up to `MAX_IDLE`.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import _enter_task, _leave_task
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

T = TypeVar("T")

MAX_IDLE: Final = 256
"""Maximum number of idle tasks."""


class Reply(asyncio.Future[T]):
    """A future that runs the next step of an eager coroutine as soon as it has its result."""

    waiter: _Worker | None = None

    def bring(self, result: T) -> None:
        """Set the result, and continue the coroutine that waits. Do nothing if the reply is no longer awaited."""
        if not self.done():
            self.set_result(result)
            if self.waiter is not None:
                self.waiter.resume(self)

    def fail(self, error: Exception) -> None:
        """Raise an exception in the coroutine that waits. Do nothing if the reply is no longer awaited."""
        if not self.done():
            self.set_exception(error)
            if self.waiter is not None:
                self.waiter.resume(self)


async def next_round() -> None:
    loop = asyncio.get_running_loop()
    reply: Reply[None] = Reply(loop=loop)
    loop.call_soon(reply.bring, None)
    await reply


class Scope:
    """A scope that can be cancelled, with a deadline, in the manner of `asyncio.Timeout`.

    It takes a fifth of the time of anyio's scope, which every call would enter twice. If the scope is cancelled, its
    task is cancelled once, and the scope ends there. Cancellations from outside pass.

    Attributes:
        cancel_called: True if the scope was cancelled, or its deadline has passed.
        cancelled_caught: True if the scope has ended for this reason.
    """

    __slots__ = ("_cancelling", "_deadline", "_task", "_timer", "cancel_called", "cancelled_caught")

    def __init__(self, deadline: float = math.inf) -> None:
        """`deadline`: in seconds on the clock of the event loop."""
        self._deadline = deadline
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling = 0
        self.cancel_called = self.cancelled_caught = False

    @property
    def deadline(self) -> float:
        """Seconds on the clock of the event loop."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._task is not None:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadline != math.inf:
            self._timer = asyncio.get_running_loop().call_at(self._deadline, self.cancel)

    def cancel(self) -> None:
        """End the scope, now or as soon as it is entered."""
        if not self.cancel_called:
            self.cancel_called = True
            if self._task is not None:
                self._task.cancel()

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        if self.cancel_called:
            task.cancel()
        elif self._deadline != math.inf:
            self._set_timer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.cancel_called:
            assert task is not None
            others = task.uncancel() > self._cancelling
            self.cancelled_caught = isinstance(error, asyncio.CancelledError) and not others
        return self.cancelled_caught


class EagerTasks:
    """The eager coroutines of one task group.

    Args:
        spawn: starts a task in the group.
    """

    def __init__(self, spawn: Callable[..., object]) -> None:
        self._spawn = spawn
        self._idle: list[_Worker] = []

    def start(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine up to its first wait. Return False if it begins in the next round, since no task is idle.

        An exception of the coroutine is one of a task in the group.
        """
        while self._idle:
            worker = self._idle.pop()
            if worker.is_idle:
                worker.start(work)
                return True
        Context().run(self._spawn, _Worker(self._idle).run, work)
        return False


class _Worker:
    """A task that lends its identity to one coroutine at a time."""

    __slots__ = ("_context", "_idle", "_loop", "_parked", "_task", "_waits_for", "_work")

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any]
        self._work: Coroutine[Any, Any, None] | None = None
        self._context = copy_context()
        self._parked: asyncio.Future[None] = self._loop.create_future()
        """The future that the task waits for while others run the coroutine."""
        self._waits_for: Any = None
        """The object that the coroutine has yielded, as to a task."""

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        await self._run(work, work.send, None)
        while len(self._idle) < MAX_IDLE:
            self._parked = self._loop.create_future()
            self._rest()
            try:
                await self._parked
            except asyncio.CancelledError as error:
                if self._work is None:
                    if self._task.cancelling():  # the group ends
                        raise
                    continue  # a scope was cancelled in the last step of its coroutine
                if isinstance(self._waits_for, Reply):
                    self._waits_for.cancel()
                await self._run(self._work, self._work.throw, error)
            else:
                assert self._work is not None
                await self._run(self._work, None, None)

    async def _run(self, work: Coroutine[Any, Any, None], resume: Callable[..., Any] | None, value: Any) -> None:
        """Run a coroutine to its end in this task.

        Args:
            resume: takes `value` in the next step; None if the coroutine waits.
        """
        try:
            while True:
                step = resume
                if step is None:
                    try:
                        step, value = work.send, await _Wait(self._waits_for)
                    except BaseException as error:
                        step, value = work.throw, error
                self._waits_for, resume = self._context.run(step, value), None
        except StopIteration:
            pass
        finally:
            self._work = self._waits_for = None

    @property
    def is_idle(self) -> bool:
        """True unless the task was cancelled."""
        return not self._parked.done()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run another coroutine up to its first wait. The task is idle."""
        self._work, self._context = work, copy_context()
        self._step()

    def resume(self, reply: Reply[Any]) -> None:
        """Run the next step of the coroutine that waits for a reply, unless the task itself continues it."""
        if self._waits_for is reply and not self._parked.done():
            self._step()

    def _step(self) -> None:
        assert self._work is not None
        self._waits_for = None
        current = asyncio.current_task(self._loop)
        if current is not None:
            _leave_task(self._loop, current)
        _enter_task(self._loop, self._task)
        try:
            waits_for = self._context.run(self._work.send, None)
        except StopIteration:
            self._work = None
            self._rest()
        except BaseException as error:
            self._work = _raising(error)
            self._hand_over()
        else:
            self._waits_for = waits_for
            if type(waits_for) is Reply:
                waits_for.waiter = self
            else:
                self._hand_over()
        finally:
            _leave_task(self._loop, self._task)
            if current is not None:
                _enter_task(self._loop, current)

    def _rest(self) -> None:
        if not self._parked.done():
            self._idle.append(self)

    def _hand_over(self) -> None:
        if not self._parked.done():  # otherwise it is cancelled, and continues anyway
            self._parked.set_result(None)


class _Wait:
    """An awaitable that yields a value to the task as it is."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._value)


async def _raising(error: BaseException) -> None:
    raise error
