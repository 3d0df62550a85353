"""A server's announcements of changed lists and resources, and the listings that follow.

A legacy server sends announcements at any time. A modern one sends them on a stream that the client opens
(`subscriptions/listen`).
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from upstream_clients.backoff import Backoff
from upstream_clients.error_mapping import is_transport_failure
from upstream_clients.errors import UpstreamCallError
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.list_repair import ITEM_KINDS
from upstream_clients.list_state import SUBSCRIBED, ItemListName, ListName
from upstream_clients.listing import ItemListing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.resource_state import ResourceSubscriptions
    from upstream_clients.tools import JsonObject
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


# The subscriptions of one connection: the server is asked to report updates of the resources that have listeners.
#
# A legacy server gets `resources/subscribe` and `resources/unsubscribe` for each resource. A modern one gets the list
# of all resources with one request, whose answer is a stream of events (`subscriptions/listen`). If the list changes, a
# new stream is opened before the old one is closed, so that no update is missed.


ANSWER_TIMEOUT: Final = 10.0
"""Seconds for the answer to one subscription."""

LOSS_WAIT: Final = 0.1
"""Seconds for which a failed request waits for the end of its connection."""

FILTER: Final = "resourceSubscriptions"
"""Key by which `subscriptions/listen` requests updates of resources."""


async def keep_subscribed(
    subscriptions: ResourceSubscriptions,
    link: LiveConnection,
    *,
    sleep: Callable[[float], Awaitable[None]],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Have the server report updates of the resources that have listeners, until cancelled.

    `sleep`, `clock`: see `list_changed.ListChanges`.
    """
    subscriptions.report_gap()
    if link.modern:
        await _Streams(subscriptions, link, sleep, clock).run()
    else:
        await _subscribe_each(subscriptions, link)


async def _subscribe_each(subscriptions: ResourceSubscriptions, link: LiveConnection) -> None:
    subscribed: set[str] = set()
    while True:
        change = subscriptions.change()
        for uri in subscriptions.unanswered():
            why = await _request(link, "resources/subscribe", uri)
            if why is None:
                subscribed.add(uri)
                subscriptions.report_accepted([uri])
            elif await _is_lost(link):
                return  # the next connection subscribes
            else:
                subscriptions.report_refused([uri], why)
        for uri in subscribed - subscriptions.uris():
            subscribed.remove(uri)
            await _request(link, "resources/unsubscribe", uri)
        if not subscriptions.unanswered() and subscribed <= subscriptions.uris():
            await change.wait()


async def _request(link: LiveConnection, method: str, uri: str) -> str | None:
    """Send a request about a resource. Return the reason of a failure."""
    try:
        with anyio.fail_after(ANSWER_TIMEOUT):
            await link.send(method, {"uri": uri})
    except UpstreamCallError as error:
        return error.message
    except TimeoutError:
        return f"{method} got no answer within {ANSWER_TIMEOUT:g} s"
    return None


async def _is_lost(link: LiveConnection) -> bool:
    """Return True if the connection has ended. Its requests may fail a moment before that is known."""
    with anyio.move_on_after(LOSS_WAIT):
        while link.alive:  # noqa: ASYNC110 - for a tenth of a second
            await anyio.sleep(LOSS_WAIT / 10)
    return not link.alive


class _Stream:
    """One stream of updates.

    Attributes:
        why: the reason why the server has not opened it; None if it has.
    """

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.why: str | None = None
        self.scope = anyio.CancelScope()


class _Streams:
    """The streams of one connection to a modern server, one after the other.

    Attributes:
        current: the open stream; None without one.
    """

    def __init__(
        self,
        subscriptions: ResourceSubscriptions,
        link: LiveConnection,
        sleep: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._subscriptions = subscriptions
        self._link = link
        self._sleep = sleep
        self._clock = clock
        self._retry = Backoff(base=1.0)
        self.current: _Stream | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as streams:
            while True:
                change, uris = self._subscriptions.change(), self._subscriptions.uris()
                if not uris:
                    self._use(None)
                    await change.wait()
                    continue
                stream = _Stream()
                streams.start_soon(self._listen, stream, uris)
                with anyio.move_on_after(ANSWER_TIMEOUT):
                    await stream.subscription.acknowledged.wait()
                honored = stream.subscription.honored
                if honored is not None:
                    self._use(stream)
                    self._report(uris, honored)
                elif await _is_lost(self._link):
                    return  # the next connection subscribes
                else:
                    stream.scope.cancel()
                    why = f"subscriptions/listen failed: {stream.why or 'the server did not open the stream'}"
                    self._subscriptions.report_refused(uris.intersection(self._subscriptions.unanswered()), why)
                await self._until_needed(change)

    async def _listen(self, stream: _Stream, uris: frozenset[str]) -> None:
        with stream.scope:
            try:
                await self._link.listen(stream.subscription, {FILTER: sorted(uris)})
            except JsonRpcError as error:
                stream.why = error.message

    def _use(self, stream: _Stream | None) -> None:
        if self.current is not None:
            self.current.scope.cancel()
        self.current = stream

    def _report(self, uris: frozenset[str], honored: JsonObject) -> None:
        listed = honored.get(FILTER)
        listed = listed if isinstance(listed, list) else []
        accepted = uris.intersection(uri for uri in listed if isinstance(uri, str))
        self._subscriptions.report_accepted(accepted)
        self._subscriptions.report_refused(uris - accepted, "the server does not report updates of this resource")

    async def _until_needed(self, change: anyio.Event) -> None:
        current = self.current
        if current is None:
            # Resources of an earlier stream are tried again. Others are removed by those who wait for the answer.
            await _first(change.wait, partial(self._sleep, self._retry.after_failure()))
            self._subscriptions.report_gap()
            return
        since, over = self._clock(), current.subscription.over
        await _first(change.wait, over.wait)
        if over.is_set():
            self._use(None)
            self._subscriptions.report_gap()
            lost = current.subscription.lost
            await self._sleep(self._retry.after_failure() if lost else self._retry.after_loss(self._clock() - since))


async def _first(*functions: Callable[[], Awaitable[object]]) -> None:
    async def wait(function: Callable[[], Awaitable[object]]) -> None:
        await function()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for each in functions:
            tasks.start_soon(wait, each)


class Subscription:
    """One stream, from the request until its end."""

    def __init__(self) -> None:
        self.acknowledged = anyio.Event()
        """Set when the server has acknowledged the stream, and when the stream has ended."""
        self.honored: JsonObject | None = None
        """The changes that the server will report, as JSON; None before the acknowledgement."""
        self.over = anyio.Event()
        self.lost = False
        """True if the stream ended without the server's answer."""

    def end(self, *, lost: bool) -> None:
        """Note the end of the stream. The first call counts."""
        if not self.over.is_set():
            self.lost = lost
            self.over.set()
            self.acknowledged.set()
