"""The limit of requests that are in flight at one server, and the order of those that wait. Needs no MCP SDK.

A limit that the operator has set counts for all owners together: it is the capacity of the server. The default limit
counts for each owner, so that the calls of one owner never delay those of another.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from upstream_clients.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

DEFAULT_LIMIT = 32
"""Calls of one owner in flight at one server, where the operator sets no limit."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for a call. The call steps out while it waits for a person, and steps in again even above the limit.

    Attributes:
        state: `ended` is final: a question may be over only after its call.
    """

    limiter: FairLimiter
    lane: str
    state: Literal["in", "out", "ended"] = "in"

    def step_out(self) -> None:
        """Give the place to another call for a while."""
        if self.state == "in":
            self.state = "out"
            self.limiter.give_back(self.lane)

    def step_in(self) -> None:
        """Take the place again, even if none is free."""
        if self.state == "out":
            self.state = "in"
            self.limiter.take(self.lane)

    def end(self) -> None:
        """Give the place back."""
        self.step_out()
        self.state = "ended"


class FairLimiter:
    """Admits `limit` calls at a time. The others wait: the runs take turns, and a run is first in, first out.

    Args:
        limit: for all owners together; None for `DEFAULT_LIMIT` calls of each owner.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = DEFAULT_LIMIT if limit is None else limit
        self._shared = limit is not None
        # The mutable state, by lane: the owner, or one lane for all where the limit is shared.
        self._held: Counter[str] = Counter()
        self._queue = FairQueue()

    @asynccontextmanager
    async def admitted(self, owner: str, run: str, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[Slot]:
        """Wait for a place, and hold it for the duration of the context.

        Args:
            on_wait: called before a wait.
        """
        slot = self.try_admit(owner)
        if slot is None:
            lane = "" if self._shared else owner
            on_wait()
            await self._queue.wait(lane, run, partial(self.give_back, lane))
            slot = Slot(self, lane)
        try:
            yield slot
        finally:
            slot.end()

    def try_admit(self, owner: str) -> Slot | None:
        """Take a place that is free now. The caller ends it."""
        lane = "" if self._shared else owner
        if self._held[lane] >= self.limit:
            return None
        self.take(lane)
        return Slot(self, lane)

    def take(self, lane: str) -> None:
        """Count one more call in flight, even above the limit."""
        self._held[lane] += 1

    def give_back(self, lane: str) -> None:
        """Count one call less in flight, and admit the next one."""
        self._held[lane] -= 1
        runs = self._queue.groups.get(lane)
        if runs and self._held[lane] < self.limit:
            self.take(lane)
            self._queue.give_turn(lane, next(iter(runs)))
        if not self._held[lane]:
            self._held.pop(lane)  # faster than `del` of a Counter
