"""Liveness of a connected server: a stopped process or a half-open connection only keeps silent.

Silence alone says little, for many servers do one thing at a time and answer nothing meanwhile. So a server counts as
hung only when all of this holds: it was asked something and did not answer in time, or has said nothing for `QUIET`
seconds; it has then kept silent on a probe for `PROBE_TIMEOUT`; and no call that was in flight before the probe may
just be long. A call may be as long as its limit says, or without one `PATIENCE`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from upstream_clients.errors import UpstreamCallError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from upstream_clients.call import Call
    from upstream_clients.upstream import Upstream

QUIET = 30.0
"""Seconds without any message, while calls wait, after which the server is probed."""

PROBE_TIMEOUT = 10.0
"""Seconds for any message at all once it is probed."""

PATIENCE = 600.0
"""Seconds that a call without a limit of its own may keep a server silent."""

LOOK = 1.0
"""Seconds between two looks while calls wait."""


class Link(Protocol):
    """The part of a connection that the monitor needs."""

    @property
    def heard(self) -> int:
        """Return how many messages have come so far."""
        ...

    async def probe(self) -> None:
        """Ask for any answer. Raises `UpstreamCallError`."""
        ...


class LivenessMonitor:
    """Monitors one connection."""

    def __init__(
        self, upstream: Upstream, link: Link, *, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        self._upstream = upstream
        self._link = link
        self._sleep = sleep

    async def until_hung(self) -> str:
        """Return when the server is to be taken for hung: why, in words."""
        while True:
            since, excuses = await self._until_doubtful()
            if not await self._shows_life(excuses):
                silent = self._upstream.clock() - since
                return (
                    f"server {self._upstream.name!r} has not said anything for {silent:.0f} s, not even to a ping; "
                    "it is being connected again"
                )

    async def _until_doubtful(self) -> tuple[float, set[Call]]:
        """Return the time of the last message, by the upstream's clock, and the calls that the server may be busy with.

        Later calls do not count.
        """
        upstream = self._upstream
        heard, since = self._link.heard, upstream.clock()
        while True:
            upstream.stirred = anyio.Event()
            if (suspected := upstream.suspected) is not None:
                upstream.suspected = None
                return since, suspected
            if self._link.heard != heard or not upstream.sent():
                heard, since = self._link.heard, upstream.clock()
            elif upstream.clock() - since >= QUIET:
                return since, upstream.sent()
            if upstream.calls:
                await self._sleep(LOOK)
            else:
                await upstream.stirred.wait()

    async def _shows_life(self, excuses: set[Call]) -> bool:
        heard, begun = self._link.heard, self._upstream.clock()
        async with anyio.create_task_group() as probing:
            probing.start_soon(self._probe)
            while True:
                await self._sleep(min(LOOK, PROBE_TIMEOUT))
                now = self._upstream.clock()
                excuses = {call for call in excuses & self._upstream.calls if _may_be_long(call, now)}
                if self._link.heard != heard or (now - begun >= PROBE_TIMEOUT and not excuses):
                    break
            probing.cancel_scope.cancel()
        return self._link.heard != heard

    async def _probe(self) -> None:
        # It is an answer too, or the end of the connection, which others notice.
        with suppress(UpstreamCallError):
            await self._link.probe()


def _may_be_long(call: Call, now: float) -> bool:
    # One with a limit ends by that, less the time for which a question of it was open.
    return call.limit is not None or now - call.since < PATIENCE
