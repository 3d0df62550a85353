"""The calls of one upstream that wait or are in flight. This module knows no transport."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

import anyio

from upstream_clients.eager import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        """Count a call until `discard`."""
        self._calls.add(call)
        self.last_used = self.clock()
        self.changed.set()

    def discard(self, call: Call) -> None:
        """Forget a call that has ended."""
        self._calls.discard(call)
        self.last_used = self.clock()
        self.changed.set()
        if self.on_empty is not None and not self._calls:
            self.on_empty()

    def sent(self) -> set[Call]:
        """Return the calls that may be at the server."""
        return {call for call in self._calls if call.sent}

    def note_timeout(self) -> None:
        """Note that a call has timed out."""
        if self.suspects is None:
            self.suspects = self.sent()

    def reject(self, why: str, pool: object = None) -> None:
        """End all calls, or all calls of one pool, immediately, each with the reason `why`."""
        for call in self._calls:
            if pool is None or (call.user is not None and call.user.pool is pool):
                call.rejected = why
                call.scope.cancel()
