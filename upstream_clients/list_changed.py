"""A server's announcements of changed lists (`notifications/tools/list_changed`, ...), and the listings that follow.

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
from upstream_clients.item_list_repair import ITEM_KINDS
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.list_state import SUBSCRIBED
from upstream_clients.listing import ItemListing
from upstream_clients.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from upstream_clients.list_state import ItemListName, ListName
    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.upstream import Upstream

logger = logging.getLogger("upstream_clients.connection")

MIN_RELIST_INTERVAL = 1.0
"""Seconds between two listings. The interval doubles while a server announces changes without end."""

MAX_RELIST_INTERVAL = 30.0
"""Longest interval in seconds. After this time without an announcement, the next one is followed immediately again."""

LISTEN_WAIT = 2.0
"""Seconds that a first listing waits for a modern server to acknowledge the stream of changes."""

ITEM_LIST_TIMEOUT = 10.0
"""Seconds for the first page of prompts, templates or resources. Requests about them may wait for it."""

LOGIN_POLL_INTERVAL = 1.0
"""Seconds between two checks for a login to a server that is used without one, or the other way round."""

STALE_POLL_INTERVAL = 5.0
"""Seconds between two checks for lists that are no longer fresh by the hint of their server."""


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
        self._listening = anyio.Event()
        """Set once the stream of changes is open, or cannot be opened."""

    def schedule_relist(self, name: ListName = "tools") -> None:
        """Have `relist` or `list_items` request a list again soon."""
        self._upstream.lists[name].announce()
        self._upstream.answers.drop_list(name)

    async def relist(self, link: LiveConnection) -> None:
        """List the tools again after each announcement, until cancelled. A failed listing leaves them unchanged."""

        async def list_tools() -> None:
            had_login = self._upstream.login_stamp() is not None
            limit = self._upstream.spec.connect_timeout
            try:
                with anyio.fail_after(limit):
                    listing = await link.list_tools()
            except (UpstreamCallError, TimeoutError) as error:
                why = str(error) if isinstance(error, UpstreamCallError) else f"no answer within {limit:g} s"
                logger.warning("server %r: tools could not be listed again: %s", self._upstream.name, why)
                self._upstream.report_listing_failed("tools")
            else:
                # Some pages of this list may be from before the login.
                logged_in = had_login and link.logged_in
                # Nothing is awaited between these: calls must not be admitted by one list and made by another.
                more = link.use_list()
                problems = (*listing.problems, *more)
                self._upstream.report_tools(listing.tools, problems, listing.hint, logged_in=logged_in)
                for problem in more:
                    self._upstream.log.add_error(problem)
                await self._on_listed()

        await self._after_announcements("tools", list_tools)

    async def list_items(self, name: ItemListName, link: LiveConnection) -> None:
        """List prompts, templates or resources after each announcement, until cancelled. A failure becomes a problem.

        The beginning of a connection counts as an announcement, unless the list was never used.
        """
        kind, upstream = ITEM_KINDS[name], self._upstream
        limit = min(ITEM_LIST_TIMEOUT, upstream.spec.connect_timeout)
        await self.wait_listening()

        async def list_once() -> None:
            try:
                with anyio.fail_after(limit):
                    listing = await link.list_items(kind)
            except (UpstreamCallError, TimeoutError) as error:
                if isinstance(error, UpstreamCallError) and error.code == METHOD_NOT_FOUND:
                    # Many servers with resources have no templates, or only templates, and do not know the method.
                    listing = ItemListing((), ())
                else:
                    why = str(error) if isinstance(error, UpstreamCallError) else f"no answer within {limit:g} s"
                    is_refused = not isinstance(error, UpstreamCallError) or error.answered
                    upstream.report_listing_failed(name, f"{kind.method} failed: {why}", is_refused=is_refused)
                    return
            if link.logged_in == upstream.view().logged_in:
                upstream.report_items(name, listing.items, listing.problems, listing.hint)
                await self._on_listed()
            else:
                # The user of the server has changed since the tools were listed. They come first, and this list again.
                upstream.report_listing_failed(name)
                self.schedule_relist()

        await self._after_announcements(name, list_once)

    async def relist_after_login(self) -> None:
        """List the tools again when a login was made or removed, by any process, until cancelled.

        Requests use a new login immediately, and servers may list other tools for it. The other lists follow the tools.
        """
        known = self._upstream.view().logged_in
        while self._upstream.spec.may_log_in:
            await anyio.sleep(LOGIN_POLL_INTERVAL)
            has_login = self._upstream.login_stamp() is not None
            if has_login != known:
                known = has_login
                self.schedule_relist()

    async def relist_stale(self, link: LiveConnection) -> None:
        """Have lists requested again after the time that a modern server has given for them, until cancelled.

        A list is not requested if the server was not used since the last time: no call was made, and no program or
        client has requested its tools.
        """
        interval = min(STALE_POLL_INTERVAL, self._upstream.spec.refresh_seconds / 4)
        while link.modern:
            await anyio.sleep(interval)
            now = self._upstream.clock()
            last_used = max(self._upstream.calls.last_used, self._upstream.looked_at)
            for state in self._upstream.lists.values():
                is_due = state.hint.ttl_ms and state.is_current and state.is_stale(now)
                if is_due and last_used > state.listed_at:
                    state.announce()

    async def _after_announcements(self, name: ListName, list_once: Callable[[], Awaitable[None]]) -> None:
        state, interval = self._upstream.lists[name], MIN_RELIST_INTERVAL
        while True:
            with anyio.move_on_after(MAX_RELIST_INTERVAL) as calm:
                await state.announced.wait()
            if calm.cancelled_caught:
                interval = MIN_RELIST_INTERVAL
                await state.announced.wait()
            state.begin()
            await list_once()
            # A call that waits for a listing ends the pause early.
            with anyio.move_on_after(interval):
                await state.wanted.wait()
            interval = min(2 * interval, MAX_RELIST_INTERVAL)

    async def wait_listening(self) -> None:
        """Wait until `listen` has opened the stream of changes or has failed, for `LISTEN_WAIT` seconds at most."""
        with anyio.move_on_after(LISTEN_WAIT):
            await self._listening.wait()

    async def listen(self, link: LiveConnection, names: Collection[ListName]) -> None:
        """Keep a modern server's stream of changes of these lists open. Return immediately if there are none.

        The dispatcher handles its events like a legacy server's notifications. After a gap between two streams, the
        lists are requested again, since a change may have been missed.
        """
        retry = Backoff(base=1.0)
        try:
            while names and (delay := await self._listen_once(link, names, retry)) is not None:
                await self._sleep(delay)
                for name in names:
                    self.schedule_relist(name)
        finally:
            self._listening.set()
            if link.modern:
                for name in names:
                    self._upstream.lists[name].is_announced = False

    async def _listen_once(self, link: LiveConnection, names: Collection[ListName], retry: Backoff) -> float | None:
        """Open one stream and wait for its end.

        Returns:
            The seconds to wait before the next stream; None if there should be no other.
        """
        subscription = Subscription()
        refusal: JsonRpcError | None = None
        keys = [SUBSCRIBED[name] for name in names]

        async def subscribe() -> None:
            nonlocal refusal
            try:
                await link.listen(subscription, dict.fromkeys(keys, True))
            except JsonRpcError as error:
                refusal = error

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribe)
            await subscription.acknowledged.wait()
            since = self._clock()
            if subscription.honored is not None:
                for name in names:
                    is_honored = subscription.honored.get(SUBSCRIBED[name]) is True
                    self._upstream.lists[name].is_announced = is_honored
                self._listening.set()
                if not any(subscription.honored.get(key) is True for key in keys):
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
