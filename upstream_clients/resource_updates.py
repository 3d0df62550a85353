"""The subscriptions of one connection: the server is asked to report updates of the resources that have listeners.

A legacy server gets `resources/subscribe` and `resources/unsubscribe` for each resource. A modern one gets the list of
all resources with one request, whose answer is a stream of events (`subscriptions/listen`). If the list changes, a new
stream is opened before the old one is closed, so that no update is missed.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from upstream_clients.backoff import Backoff
from upstream_clients.errors import UpstreamCallError
from upstream_clients.jsonrpc import JsonRpcError
from upstream_clients.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.resource_subscriptions import ResourceSubscriptions
    from upstream_clients.tools import JsonObject

logger = logging.getLogger("upstream_clients.connection")

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
        """Keep a stream for the resources that have listeners open, until cancelled or until the connection ends."""
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
        """Wait until another stream is needed, and make the pause before it."""
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
    """Wait until the first of these functions has ended, and cancel the others."""

    async def wait(function: Callable[[], Awaitable[object]]) -> None:
        await function()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for each in functions:
            tasks.start_soon(wait, each)
