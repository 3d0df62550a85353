"""The threads of guests, and the ticker of the engine's epoch."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import wasmtime

P = ParamSpec("P")
T = TypeVar("T")
_Job: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"

THREAD_STACK = 128 * 1024 * 1024
"""Virtual bytes of a thread's stack. The default for secondary threads is 512 KiB on macOS."""

IDLE_SECONDS = 2.0
"""Time without work after which a thread ends."""

EPOCH_SECONDS = 0.004
"""Period of the epoch. It limits how late the epoch stops a guest, or pauses a turn that takes too long for the event
loop."""

SNAPSHOT_THREADS = 2
"""Number of additional threads for snapshots. Without them, a request whose time is over would queue behind guests that
compute."""


class GuestThreads:
    """The threads of guests, at most `count`, each with a stack that is larger than a guest can use.

    A thread ends after a while without work, which frees the memory of its stack.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue `work`, and start a thread for it if all others are busy.

        Raises:
            RuntimeError: the threads are closed.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            self._jobs.append((future, functools.partial(work, *args, **kwargs)))
            if self._waiting >= len(self._jobs):
                self._changed.notify()
            elif self._threads < self._count:
                self._threads += 1
                # The stack size is a setting of the process, so it is changed only for the start of the thread.
                previous = threading.stack_size(THREAD_STACK)
                try:
                    threading.Thread(target=self._run, name="guest").start()
                except RuntimeError:
                    self._threads -= 1
                    # Another thread would do the work later. If there is none, the work is not accepted.
                    if not self._threads:
                        self._jobs.pop()
                        raise
                finally:
                    threading.stack_size(previous)
        return future

    def close(self) -> None:
        """Take no more work, cancel queued work, and let the threads end."""
        with self._changed:
            self._closed = True
            while self._jobs:
                self._jobs.popleft()[0].cancel()
            self._changed.notify_all()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work, job  # a thread that waits for work must not keep the last guest alive

    def _next(self) -> _Job | None:
        """Return the next work; None if the thread has to end."""
        with self._changed:
            while not self._jobs:
                self._waiting += 1
                woken = not self._closed and self._changed.wait(IDLE_SECONDS)
                self._waiting -= 1
                if not woken and not self._jobs:
                    self._threads -= 1
                    return None
            return self._jobs.popleft()


class Ticker(AbstractContextManager[None]):
    """A thread that advances the engine's epoch as long as at least one caller is in the context."""

    _CLOSING_TICKS = 1000
    _IDLE_TICKS = 50
    """Ticks without callers after which the thread sleeps. Waking it for every turn would cost more than the turn."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._inside = 0
        self._asleep = True
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="epoch", daemon=True).start()

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1
            if self._asleep:
                self._changed.notify()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1

    def close(self) -> None:
        """Let the thread end, after it has let the callers see their deadlines."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        idle = 0
        while True:
            with self._changed:
                if self._inside:
                    idle = 0
                while idle >= self._IDLE_TICKS and not self._inside and not self._closed:
                    self._asleep = True
                    self._changed.wait()
                self._asleep = False
                if self._closed:
                    break
            idle += 1
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()
        # Callers that are still inside check their deadlines when the epoch advances.
        for _ in range(self._CLOSING_TICKS):
            if not self._inside:
                break
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()
