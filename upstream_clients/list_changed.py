"""A server's announcements of changed tools (`notifications/tools/list_changed`), and the listings that follow them.

A legacy server sends announcements at any time. A modern one sends them on a stream that the client opens
(`subscriptions/listen`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from upstream_clients.backoff import Backoff
from upstream_clients.error_mapping import is_transport_failure
from upstream_clients.errors import UpstreamCallError
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.upstream import Upstream

logger = logging.getLogger("upstream_clients.connection")

MIN_RELIST_INTERVAL = 1.0
"""Seconds between two listings. The interval doubles while a server announces changes without end."""

MAX_RELIST_INTERVAL = 30.0
"""Longest interval in seconds. After this time without an announcement, the next one is followed immediately again."""


class ListChanges:
    """The announcements on one connection.

    Args:
        on_listed: awaited after each new listing.
        sleep, clock: in seconds. `sleep` makes the pauses between streams, `clock` measures their lifetimes.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        on_listed: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._upstream = upstream
        self._on_listed = on_listed
        self._sleep = sleep
        self._clock = clock
        self._announced = anyio.Event()

    def schedule_relist(self) -> None:
        """Have `relist` list the tools again soon."""
        self._upstream.list_changes += 1
        self._announced.set()

    async def relist(self, link: LiveConnection) -> None:
        """List the tools again after each announcement, until cancelled. A failed listing leaves them unchanged."""
        upstream, interval = self._upstream, MIN_RELIST_INTERVAL
        while True:
            with anyio.move_on_after(MAX_RELIST_INTERVAL) as calm:
                await self._announced.wait()
            if calm.cancelled_caught:
                interval = MIN_RELIST_INTERVAL
                await self._announced.wait()
            # Before the listing, so that an announcement during the listing causes another one.
            self._announced, upstream.relist_wanted = anyio.Event(), anyio.Event()
            list_changes = upstream.list_changes
            try:
                with anyio.fail_after(upstream.spec.connect_timeout):
                    listing = await link.list_tools()
            except (UpstreamCallError, TimeoutError) as error:
                logger.warning("server %r: tools could not be listed again: %s", upstream.name, error)
                upstream.report_relisted(list_changes)
            else:
                upstream.report_tools(listing.tools, listing.problems, logged_in=link.logged_in)
                upstream.report_relisted(list_changes)
                await self._on_listed()
            # A call that waits for a listing ends the pause early.
            with anyio.move_on_after(interval):
                await upstream.relist_wanted.wait()
            interval = min(2 * interval, MAX_RELIST_INTERVAL)

    async def listen(self, link: LiveConnection, opened: anyio.Event) -> None:
        """Keep a modern server's stream of changes open. Set `opened` once it is open, or cannot be opened.

        The dispatcher handles its events like a legacy server's notifications. After a gap between two streams, the
        tools are listed again, since a change may have been missed.
        """
        retry = Backoff(base=1.0)
        try:
            while (delay := await self._listen_once(link, opened, retry)) is not None:
                await self._sleep(delay)
                self.schedule_relist()
        finally:
            opened.set()

    async def _listen_once(self, link: LiveConnection, opened: anyio.Event, retry: Backoff) -> float | None:
        """Open one stream and wait for its end.

        Returns:
            The seconds to wait before the next stream; None if there should be no other.
        """
        subscription = Subscription()
        refusal: JsonRpcError | None = None

        async def subscribe() -> None:
            nonlocal refusal
            try:
                await link.listen(subscription)
            except JsonRpcError as error:
                refusal = error

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribe)
            await subscription.acknowledged.wait()
            since = self._clock()
            if subscription.honored is not None:
                opened.set()
                if subscription.honored.get("toolsListChanged") is not True:
                    tasks.cancel_scope.cancel()
                    return None
                await subscription.over.wait()
            tasks.cancel_scope.cancel()
        if subscription.honored is not None:
            return retry.after_failure() if subscription.lost else retry.after_loss(self._clock() - since)
        if refusal is not None:
            no_retry = is_transport_failure(refusal) or refusal.code in (METHOD_NOT_FOUND, INVALID_PARAMS)
            return None if no_retry else retry.after_failure()
        # Ended before it was acknowledged. If the server ended the stream with an answer, it has no changes to report.
        return retry.after_failure() if subscription.lost else None
