"""Liveness of a connected server: a stopped process or a half-open connection gives no error, only silence.

Silence alone proves little, since many servers do one thing at a time and answer nothing meanwhile. So a server counts
as hung only when all of this holds:

- A call has timed out, or the server has sent nothing for `QUIET` seconds while calls wait.
- After that, the server has sent nothing for `PROBE_TIMEOUT` seconds after a probe.
- None of the calls that were in flight before the probe can be the reason: each has ended, or has no limit and has
  taken more than `PATIENCE_SECONDS`. A call with a limit can be the reason until it ends at its limit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from upstream_clients.errors import UpstreamCallError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from upstream_clients.call import Call, CallsInFlight
    from upstream_clients.live_connection import LiveConnection

QUIET = 30.0
"""Seconds without any message, while calls wait, after which the server is probed."""

PROBE_TIMEOUT = 10.0
"""Seconds for any message of the server after the probe."""

PATIENCE_SECONDS = 600.0
"""Seconds for which a call without a limit may keep a server silent."""

POLL_INTERVAL = 1.0
"""Seconds between two checks while calls wait."""


class LivenessMonitor:
    """The monitor of one connection."""

    def __init__(
        self,
        calls: CallsInFlight,
        connection: LiveConnection,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._calls = calls
        self._connection = connection
        self._sleep = sleep

    async def until_hung(self) -> float:
        """Wait until the server counts as hung. Return the seconds for which it has been silent."""
        while True:
            since, long_calls = await self._until_suspicious()
            if not await self._shows_life(long_calls):
                return self._calls.clock() - since

    async def _until_suspicious(self) -> tuple[float, set[Call]]:
        """Wait for a reason to probe.

        Return the time of the last message, and the calls that may keep the server busy.
        """
        calls = self._calls
        count, since = self._connection.message_count, calls.clock()
        while True:
            calls.changed = anyio.Event()
            if (suspects := calls.suspects) is not None:
                calls.suspects = None
                return since, suspects
            if self._connection.message_count != count or not calls.sent():
                count, since = self._connection.message_count, calls.clock()
            elif calls.clock() - since >= QUIET:
                return since, calls.sent()
            if calls:
                await self._sleep(POLL_INTERVAL)
            else:
                await calls.changed.wait()

    async def _shows_life(self, long_calls: set[Call]) -> bool:
        """Probe the server. Return False if it has sent nothing, and none of the calls can be the reason."""
        count, begun = self._connection.message_count, self._calls.clock()
        async with anyio.create_task_group() as probing:
            probing.start_soon(self._probe)
            while True:
                await self._sleep(min(POLL_INTERVAL, PROBE_TIMEOUT))
                now = self._calls.clock()
                long_calls = {call for call in long_calls.intersection(self._calls) if _may_be_long(call, now)}
                if self._connection.message_count != count or (now - begun >= PROBE_TIMEOUT and not long_calls):
                    break
            probing.cancel_scope.cancel()
        return self._connection.message_count != count

    async def _probe(self) -> None:
        # An error is an answer too. The end of the connection is noticed elsewhere.
        with suppress(UpstreamCallError):
            await self._connection.probe()


def _may_be_long(call: Call, now: float) -> bool:
    # A call with a limit ends at its deadline. Its age proves nothing: the deadline moves while a question is open.
    return call.limit is not None or now - call.since < PATIENCE_SECONDS
