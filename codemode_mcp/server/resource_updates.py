"""Subscriptions of clients to updates of resources, in both protocol eras.

A client of the handshake revisions subscribes to each resource by a request, and gets a notification for each update. A
client of newer revisions names resources when it opens a stream. A client can subscribe to the resources that it can
read; updates have the URIs by which it reads them.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.exposure.items import exposed_contents_uri
from declarations.untrusted_text import escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from anyio.abc import TaskGroup

    from codemode_mcp.exposure.items import Located
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.services import Runs

    Locate = Callable[[Exchange, str], Awaitable[Located]]
    """Returns the server of a resource that the client of a request can read. Raises `JsonRpcError`."""

log = logging.getLogger("codemode_mcp.server")

MAX_RESOURCES: Final = 200
"""Maximum number of resources to which one client is subscribed."""

SEND_SECONDS: Final = 5.0
"""Timeout of a notification in seconds."""


class ResourceUpdates:
    """The subscriptions of all clients of a surface.

    Use `running` while there are subscriptions.
    """

    def __init__(self, servers: Runs, locate: Locate) -> None:
        self._servers = servers
        self._locate = locate
        self._group: TaskGroup | None = None
        self._subscribed: dict[object, dict[str, Callable[[], None]]] = {}
        """Functions that end subscriptions, by the session and the URI of the client."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send updates for the duration of the context. Leaving it ends all subscriptions."""
        try:
            async with anyio.create_task_group() as self._group:
                yield
                self._group.cancel_scope.cancel()
        finally:
            for session in [*self._subscribed]:
                self.forget(session)

    # clients of the handshake revisions

    async def subscribe(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        """Answer `resources/subscribe`. The subscription ends with the session.

        Raises:
            JsonRpcError: the client cannot read the resource, is subscribed to too many, or the server refuses.
        """
        session = exchange.session
        if session.connection not in self._subscribed:
            session.at_end(lambda: self.forget(session.connection))
        held = self._subscribed.setdefault(session.connection, {})
        if uri in held:
            return {}
        if len(held) >= MAX_RESOURCES:
            raise JsonRpcError(INVALID_PARAMS, f"this client is subscribed to {MAX_RESOURCES} resources already")

        def send(updated: str) -> None:
            assert self._group is not None
            self._group.start_soon(self._notify, exchange, updated)

        held[uri] = lambda: None  # a second request for it must not subscribe again meanwhile
        try:
            end = await self._begin(exchange, uri, send)
        except BaseException:
            held.pop(uri, None)
            raise
        if held.get(uri) is None or self._subscribed.get(session.connection) is not held:
            end()  # the client has unsubscribed or left meanwhile
        else:
            held[uri] = end
        return {}

    def unsubscribe(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        """Answer `resources/unsubscribe`. An unknown subscription is no error."""
        end = self._subscribed.get(exchange.session.connection, {}).pop(uri, None)
        if end is not None:
            end()
        return {}

    def forget(self, session: object) -> None:
        """End the subscriptions of a session."""
        for end in self._subscribed.pop(session, {}).values():
            end()

    async def _notify(self, exchange: Exchange, uri: str) -> None:
        with anyio.move_on_after(SEND_SECONDS):
            try:
                await exchange.session.notify("notifications/resources/updated", {"uri": uri})
            except Exception as error:  # a session that is ending must not end the subscriptions of others
                log.debug("a session could not be notified: %r", error)

    # clients of newer revisions

    @asynccontextmanager
    async def stream(
        self, exchange: Exchange, uris: Iterable[str], publish: Callable[[str], Awaitable[None]]
    ) -> AsyncIterator[list[str]]:
        """Subscribe to resources for the duration of the context. Yield the URIs that the client will get updates of.

        Args:
            publish: awaited with the URI of each updated resource.
        """
        ends: list[Callable[[], None]] = []
        honored: list[str] = []
        waiting: dict[str, None] = {}
        wake = anyio.Event()

        def note(uri: str) -> None:
            # Several updates of a resource that were not sent yet are sent as one, and a server that names ever new
            # parts of its resources cannot fill the memory.
            if len(waiting) < 2 * MAX_RESOURCES:
                waiting[uri] = None
                wake.set()

        async def forward() -> None:
            nonlocal wake
            while True:
                await wake.wait()
                wake = anyio.Event()
                for uri in [*waiting]:
                    del waiting[uri]
                    await publish(uri)

        try:
            for uri in [*dict.fromkeys(uris)][:MAX_RESOURCES]:
                try:
                    ends.append(await self._begin(exchange, uri, note))
                    honored.append(uri)
                except JsonRpcError as error:
                    log.debug("no updates of %s: %s", escape_line(uri), error.message)
            async with anyio.create_task_group() as group:
                group.start_soon(forward)
                yield honored
                group.cancel_scope.cancel()
        finally:
            for end in ends:
                end()

    async def _begin(self, exchange: Exchange, uri: str, send: Callable[[str], None]) -> Callable[[], None]:
        """Subscribe to a resource. Return a function that ends the subscription.

        Args:
            send: called with the URI of the client for each update.
        """
        located = await self._locate(exchange, uri)
        source = await self._servers.item_source(located.server, exchange.caller)
        if source is None:
            raise JsonRpcError(INVALID_PARAMS, f"Resource not found: {escape_line(uri)}", {"uri": uri})

        def take(updated: str) -> None:
            send(exposed_contents_uri(located.server, updated, is_wrapped=located.is_wrapped))

        try:
            return await source.subscribe(located.identifier, take)
        except UpstreamClientError as error:
            raise JsonRpcError(INVALID_PARAMS, f"{escape_line(uri)}: {error.message}", {"uri": uri}) from None
