"""The limit of requests in flight at one server, and the order of the requests that wait. Needs no MCP SDK.

A limit that the operator has set counts for all callers together: it is the capacity of the server. The default limit
counts for each caller, so that the calls of one caller never delay those of another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from upstream_clients.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_LIMIT = 32
"""Calls of one caller in flight at one server, where the operator sets no limit."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for a call.

    The call gives its place back while it waits for a person. Then it takes a place again even above the limit: it is
    at the server already, so waiting would not relieve the server.

    Attributes:
        state: `ended` is final. A question may end after its call, and must not take a place then.
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
        """Give the place back, and never take one again."""
        self.step_out()
        self.state = "ended"


class FairLimiter:
    """The limit of one server. When a place is free, the callers take turns, and so do the runs of a caller.

    The calls of a run are first in, first out.

    Args:
        limit: maximum number of calls in flight of all callers together; None for `DEFAULT_LIMIT` calls of each caller.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = DEFAULT_LIMIT if limit is None else limit
        self._shared = limit is not None
        # The mutable state, by lane. A lane is a caller. If the limit is shared, all callers have one lane.
        self._held: Counter[str] = Counter()
        self._queue = FairQueue()

    async def admit(self, caller: str, run: str, on_wait: Callable[[], None] = lambda: None) -> Slot:
        """Wait for a place. The caller ends it.

        Args:
            on_wait: called before a wait.
        """
        lane = "" if self._shared else caller
        if self._held[lane] < self.limit:
            self.take(lane)
        else:
            on_wait()
            await self._queue.wait(caller, run, partial(self.give_back, lane))
        return Slot(self, lane)

    def take(self, lane: str) -> None:
        """Count one more call in flight, even above the limit."""
        self._held[lane] += 1

    def give_back(self, lane: str) -> None:
        """Count one call less in flight, and admit the next one."""
        self._held[lane] -= 1
        # The place is handed over here, before the waiter runs, so that no later call can take it first.
        caller = next(iter(self._queue.groups), "") if self._shared else lane
        runs = self._queue.groups.get(caller)
        if runs and self._held[lane] < self.limit:
            self.take(lane)
            self._queue.give_turn(caller, next(iter(runs)))
        if not self._held[lane]:
            self._held.pop(lane)  # faster than `del` of a Counter
