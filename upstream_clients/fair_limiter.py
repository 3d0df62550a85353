"""The limit of requests that one server is sent at the same time, and the order of those that wait. Needs no MCP SDK.

A limit that the operator has set counts for all owners together: it is what the server can take. The default limit
counts for each owner, so that the calls of one owner never delay those of another.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

DEFAULT_LIMIT = 32
"""Calls of one owner in flight at one server, where the operator sets no limit."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for a call. The call may step out while it waits for a person, and steps in again whatever is free.

    Attributes:
        state: `ended` is final: a question may be over only after its call.
    """

    limiter: FairLimiter
    lane: str
    state: Literal["in", "out", "ended"] = "in"

    def step_out(self) -> None:
        if self.state == "in":
            self.state = "out"
            self.limiter.give_back(self.lane)

    def step_in(self) -> None:
        if self.state == "out":
            self.state = "in"
            self.limiter.take(self.lane)

    def end(self) -> None:
        self.step_out()
        self.state = "ended"


class FairLimiter:
    """Admits `limit` calls at a time. Others wait: first in first out within one run, and the runs take turns."""

    def __init__(self, limit: int | None) -> None:
        """Set the limit for all owners together; None: `DEFAULT_LIMIT` for each owner."""
        self.limit = DEFAULT_LIMIT if limit is None else limit
        self._shared = limit is not None
        # The mutable state, by lane: the owner, or one lane for all where the limit is shared.
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[str, deque[anyio.Event]]] = {}
        """Waiting calls by run; the run whose turn it is comes first. No queue is empty."""

    @asynccontextmanager
    async def admitted(self, owner: str, run: str, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[Slot]:
        """Wait for a place, and hold it inside. `on_wait` is called before a wait."""
        lane = "" if self._shared else owner
        if self._held[lane] < self.limit:
            self.take(lane)
        else:
            on_wait()
            await self._wait(lane, run)
        slot = Slot(self, lane)
        try:
            yield slot
        finally:
            slot.end()

    def try_admit(self, owner: str) -> Slot | None:
        """Take a place that is free now; the caller ends it."""
        lane = "" if self._shared else owner
        if self._held[lane] >= self.limit:
            return None
        self.take(lane)
        return Slot(self, lane)

    def take(self, lane: str) -> None:
        self._held[lane] += 1

    def give_back(self, lane: str) -> None:
        self._held[lane] -= 1
        runs = self._waiting.get(lane)
        if runs and self._held[lane] < self.limit:
            run, queue = runs.popitem(last=False)
            self.take(lane)
            queue.popleft().set()
            if queue:
                runs[run] = queue
            elif not runs:
                del self._waiting[lane]
        if not self._held[lane]:
            self._held.pop(lane)  # `del` of a Counter is Python

    async def _wait(self, lane: str, run: str) -> None:
        turn = anyio.Event()
        runs = self._waiting.setdefault(lane, OrderedDict())
        runs.setdefault(run, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                # Given a place at the very moment at which it stopped waiting.
                self.give_back(lane)
            else:
                runs[run].remove(turn)
                if not runs[run]:
                    del runs[run]
                if not runs:
                    del self._waiting[lane]
            raise
