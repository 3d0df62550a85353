"""The calls of one upstream that wait or are in flight. This module knows no transport."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from upstream_clients.direct import Answer
    from upstream_clients.errors import UpstreamCallError


class CallUser(NamedTuple):
    """The user of a server who makes a call.

    Attributes:
        pool: identifies the pool.
        client: the key of the client; None if it is unknown, or the only client.
    """

    pool: object
    client: str | None


class Call:
    """One call that waits or is in flight.

    Attributes:
        since: the time at which the call began, in seconds on the clock of `CallsInFlight`.
        limit: seconds that the call may take; None for no limit.
        sent: True once the call may have reached the server.
        rejected: the reason why the call was ended early; None if it was not.
        user: the user who makes the call; None if the server has one user.
    """

    def __init__(self, since: float, limit: float | None, *, sent: bool = False) -> None:
        self.since = since
        self.limit = limit
        self.sent = sent
        self.rejected: str | None = None
        self.user: CallUser | None = None

    def stop(self) -> None:
        """End the call early, without an answer."""
        raise NotImplementedError


class TaskCall(Call):
    """A call that a task makes, inside `scope`."""

    def __init__(self, since: float, limit: float | None) -> None:
        super().__init__(since, limit)
        self.scope = anyio.CancelScope()

    def stop(self) -> None:
        self.scope.cancel()


class DirectCall(Call):
    """A `tools.SentCall` without a task. A timer of the event loop ends the call at its deadline.

    Args:
        on_end: called with the answer or the error, or with None if the call was stopped. Not called after `cancel`.
        on_leave: called at every end, before `on_end`.
    """

    def __init__(
        self,
        since: float,
        limit: float | None,
        on_end: Callable[[Answer | UpstreamCallError | None], None],
        on_leave: Callable[[], None],
    ) -> None:
        super().__init__(since, limit)
        self.give_up: Callable[[], None] | None = None
        """Function that gives the request up; None before the request is sent, and once it is answered."""
        self._on_end: Callable[[Answer | UpstreamCallError | None], None] | None = on_end
        self._on_leave = on_leave
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf

    @property
    def deadline(self) -> float:
        """Seconds on the clock of the event loop."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline != math.inf and self._on_end is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self.stop)

    def stop(self) -> None:
        self._end(None)

    def answered(self, answer: Answer | UpstreamCallError) -> None:
        """Take the answer."""
        self.give_up = None
        self._end(answer)

    def cancel(self) -> None:
        """Give the call up and tell the server. `on_end` is not called any more."""
        if self._on_end is not None:
            self._on_end = _ignore
            self._end(None)

    def _end(self, answer: Answer | UpstreamCallError | None) -> None:
        # The answer, the timer and a cancellation may come in the same round of the event loop. Only the first counts.
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        self.deadline = math.inf  # stops the timer
        if self.give_up is not None:
            self.give_up()
        self._on_leave()
        on_end(answer)


def _ignore(_: object) -> None:
    return


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
        for call in tuple(self._calls):  # a direct call removes itself when it is stopped
            if pool is None or (call.user is not None and call.user.pool is pool):
                call.rejected = why
                call.stop()
