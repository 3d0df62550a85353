"""The calls of one upstream: those in flight, and the order of those that wait. Needs no MCP SDK.

A limit that the operator has set counts for all callers together: it is the capacity of the server. The default limit
counts for each caller, so that the calls of one caller never delay those of another.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import anyio
from msgspec import Struct

from upstream_clients.eager import Scope
from upstream_clients.spec import DEFAULT_LIMIT

# A queue of waiters in two levels: groups take turns, and so do the members of a group.
#
# The waiters of one member are first in, first out. The queue knows no capacity: its user decides when a waiter gets
# its turn. To wait and to give a turn take the same time for one waiter as for thousands.


class FairQueue:
    """Waiters by group and member.

    Attributes:
        groups: the next group comes first, and in it the next member. No group and no member is empty.
    """

    def __init__(self) -> None:
        self.groups: OrderedDict[str, OrderedDict[str, deque[anyio.Event]]] = OrderedDict()

    def members(self) -> Iterator[tuple[str, str]]:
        """Yield each group with each of its members, the next ones first."""
        return ((group, member) for group, members in self.groups.items() for member in members)

    async def wait(self, group: str, member: str, give_back: Callable[[], None]) -> None:
        """Wait for a turn. Cancelling leaves the queue.

        Args:
            give_back: called if the waiter is cancelled when it has its turn already. Otherwise the turn would be lost.
        """
        turn = anyio.Event()
        self.groups.setdefault(group, OrderedDict()).setdefault(member, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                give_back()
            else:
                self._remove(group, member, turn)
            raise

    def give_turn(self, group: str, member: str) -> None:
        """Give a turn to the first waiter of a member. The member and its group move to the end."""
        turn = self.groups[group][member][0]
        self._remove(group, member, turn)
        if group in self.groups:
            self.groups.move_to_end(group)
            if member in self.groups[group]:
                self.groups[group].move_to_end(member)
        turn.set()

    def _remove(self, group: str, member: str, turn: anyio.Event) -> None:
        members = self.groups[group]
        members[member].remove(turn)
        if not members[member]:
            del members[member]
        if not members:
            del self.groups[group]


class Slot(Struct, eq=False):
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
        self._held[lane] -= 1
        # The place is handed over here, before the waiter runs, so that no later call can take it first.
        caller = next(iter(self._queue.groups), "") if self._shared else lane
        runs = self._queue.groups.get(caller)
        if runs and self._held[lane] < self.limit:
            self.take(lane)
            self._queue.give_turn(caller, next(iter(runs)))
        if not self._held[lane]:
            self._held.pop(lane)  # faster than `del` of a Counter


# The calls of one upstream that wait or are in flight. This module knows no transport.


class CallUser(NamedTuple):
    """The user of a server who makes a call.

    Attributes:
        pool: identifies the pool.
        client: the key of the client; None if it is unknown, or the only client.
    """

    pool: object
    client: str | None


class Call:
    """One call that waits or is in flight, inside `scope`.

    Attributes:
        since: the time at which the call began, in seconds on the clock of `CallsInFlight`.
        limit: seconds that the call may take; None for no limit.
        sent: True once the call may have reached the server.
        rejected: the reason why the call was ended early; None if it was not.
        user: the user who makes the call; None if the server has one user.
    """

    __slots__ = ("limit", "rejected", "scope", "sent", "since", "user")

    def __init__(self, since: float, limit: float | None, user: CallUser | None = None) -> None:
        self.since = since
        self.limit = limit
        self.sent = False
        self.rejected: str | None = None
        self.user = user
        deadline = math.inf if limit is None else asyncio.get_running_loop().time() + limit
        self.scope = Scope(deadline)


class CallsInFlight:
    """The calls of one upstream, including those that wait.

    Attributes:
        changed: set when a call begins or ends. The reader replaces it with a new event before it looks at the calls.
        last_used: time at which a call last began or ended.
        suspects: the calls that were at the server when one of them timed out; None while no call has timed out since
            the liveness monitor last looked.
        on_empty: called when the last call has ended; None if nothing waits for this.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`, in seconds, measures the ages of calls."""
        self.clock = clock
        self.changed = anyio.Event()
        self.last_used = clock()
        self.suspects: set[Call] | None = None
        self.on_empty: Callable[[], None] | None = None
        self._calls: set[Call] = set()

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def note_connection(self) -> None:
        """Note a new connection: no call is suspected, and the idle time begins."""
        self.suspects = None
        self.last_used = self.clock()

    def add(self, call: Call) -> None:
        self._calls.add(call)
        self.last_used = self.clock()
        self.changed.set()

    def discard(self, call: Call) -> None:
        self._calls.discard(call)
        self.last_used = self.clock()
        self.changed.set()
        if self.on_empty is not None and not self._calls:
            self.on_empty()

    def sent(self) -> set[Call]:
        """Return the calls that may be at the server."""
        return {call for call in self._calls if call.sent}

    def note_timeout(self) -> None:
        if self.suspects is None:
            self.suspects = self.sent()

    def reject(self, why: str, pool: object = None) -> None:
        """End all calls, or all calls of one pool, immediately, each with the reason `why`."""
        for call in self._calls:
            if pool is None or (call.user is not None and call.user.pool is pool):
                call.rejected = why
                call.scope.cancel()
