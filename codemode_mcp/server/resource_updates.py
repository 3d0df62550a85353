"""Subscriptions of clients to updates of resources, in both protocol eras.

A client of the handshake revisions subscribes to each resource by a request, and gets a notification for each update.
A client of newer revisions names resources when it opens a stream. Updates have the URIs by which the client reads the
resources.

A client can subscribe only to resources that it can read without an approval. This is decided again for each update,
since rules may have changed.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.server.exposure.items import exposed_contents_uri
from codemode_mcp.server.notifications import Outbox
from declarations.untrusted_text import escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError
from upstream_clients.resource_state import MAX_SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from anyio.abc import TaskGroup

    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.resources import ReadableResources
    from codemode_mcp.server.services import App


log = logging.getLogger("codemode_mcp.server")

MAX_RESOURCES: Final = 200
"""Maximum number of resources to which one client is subscribed."""

MAX_WAITING: Final = 2 * MAX_RESOURCES
"""Maximum number of resources whose updates wait for one client. Further ones are dropped."""

MAX_URI: Final = 8 * 1024
"""Longest URI of an update in characters. For a longer one, the client gets the URI to which it has subscribed."""


@dataclass(eq=False)
class _Held:
    """One subscription of a client of the handshake revisions. It can be closed before it has begun."""

    end: Callable[[], None] | None = None
    is_closed: bool = False

    def begun(self, end: Callable[[], None]) -> None:
        if self.is_closed:
            end()
        else:
            self.end = end

    def close(self) -> None:
        self.is_closed = True
        if self.end is not None:
            self.end()


@dataclass(eq=False)
class _Session:
    """The subscriptions of a client of the handshake revisions, by its URIs.

    Several updates of a resource that were not sent yet are sent as one, and a server that names ever new parts of its
    resources cannot fill the memory.
    """

    outbox: Outbox
    held: dict[str, _Held] = field(default_factory=dict)


class _Places:
    """The subscriptions of all callers at each server.

    A caller may have half of what the others leave, so a few callers cannot take all places of a server. Over stdio all
    clients belong to one user, and are not limited here.
    """

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._of_caller: Counter[tuple[str, str]] = Counter()

    def take(self, server: str, caller: Caller) -> Callable[[], None] | None:
        """Take a place. Return a function that gives it back, to be called once; None if the caller has too many."""
        key = server, caller.share or caller.owner or ""
        own = self._of_caller[key]
        if caller.kind != "stdio" and own >= (MAX_SUBSCRIPTIONS - (self._all[server] - own)) // 2:
            return None
        self._all[server] += 1
        self._of_caller[key] += 1

        def give_back() -> None:
            self._all[server] -= 1
            self._of_caller[key] -= 1
            if not self._of_caller[key]:
                del self._of_caller[key]

        return give_back


class ResourceUpdates:
    """The subscriptions of all clients of a surface.

    Use `running` while there are subscriptions.

    Args:
        readable: the resources that clients can read.
    """

    def __init__(self, servers: App, readable: ReadableResources) -> None:
        self._servers = servers
        self._readable = readable
        self._group: TaskGroup | None = None
        self._sessions: dict[object, _Session] = {}
        self._places = _Places()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send updates for the duration of the context. Leaving it ends all subscriptions."""
        try:
            async with anyio.create_task_group() as self._group:
                yield
                self._group.cancel_scope.cancel()
        finally:
            for session in [*self._sessions]:
                self.forget(session)

    # clients of the handshake revisions

    async def subscribe(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        """Answer `resources/subscribe`. The subscription ends with the session.

        Raises:
            JsonRpcError: the client cannot read the resource, is subscribed to too many, or the server refuses.
        """
        connection = exchange.session.connection
        session = self._sessions.get(connection) or self._begin_session(exchange)
        if uri in session.held:
            return {}
        if len(session.held) >= MAX_RESOURCES:
            raise JsonRpcError(INVALID_PARAMS, f"this client is subscribed to {MAX_RESOURCES} resources already")
        # A second request for it must not subscribe again meanwhile.
        held = session.held[uri] = _Held()
        try:
            held.begun(await self._begin(exchange, uri, session.outbox))
        except BaseException:
            if session.held.get(uri) is held:
                del session.held[uri]
            raise
        return {}

    def _begin_session(self, exchange: Exchange) -> _Session:
        async def notify(uri: str) -> None:
            await exchange.session.notify("notifications/resources/updated", {"uri": uri})

        connection = exchange.session.connection
        session = self._sessions[connection] = _Session(Outbox(notify, MAX_WAITING))
        assert self._group is not None
        exchange.session.at_end(lambda: self.forget(connection))
        self._group.start_soon(session.outbox.run)
        return session

    def unsubscribe(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        """Answer `resources/unsubscribe`. An unknown subscription is no error."""
        session = self._sessions.get(exchange.session.connection)
        held = None if session is None else session.held.pop(uri, None)
        if held is not None:
            held.close()
        return {}

    def forget(self, connection: object) -> None:
        """End the subscriptions of a session."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.outbox.close()
            for held in session.held.values():
                held.close()

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
        outbox = Outbox(publish, MAX_WAITING)
        try:
            for uri in [*dict.fromkeys(uris)][:MAX_RESOURCES]:
                try:
                    ends.append(await self._begin(exchange, uri, outbox))
                    honored.append(uri)
                except JsonRpcError as error:
                    log.debug("no updates of %s: %s", escape_line(uri), error.message)
            async with anyio.create_task_group() as group:
                group.start_soon(outbox.run)
                yield honored
                group.cancel_scope.cancel()
        finally:
            for end in ends:
                end()

    async def _begin(self, exchange: Exchange, uri: str, outbox: Outbox) -> Callable[[], None]:
        """Subscribe to a resource. Return a function that ends the subscription.

        Args:
            outbox: gets the URI of the client for each update.
        """
        located = await self._readable.locate(exchange, uri)
        source = await self._servers.item_source(located.server, exchange.caller)
        if source is None:
            raise JsonRpcError(INVALID_PARAMS, f"Resource not found: {escape_line(uri)}", {"uri": uri})
        leave = self._places.take(located.server, exchange.caller)
        if leave is None:
            message = f"you have too many subscriptions to resources of server {located.server!r}; end some of them"
            raise JsonRpcError(INVALID_PARAMS, message, {"uri": uri})

        def take(updated: str) -> None:
            if self._readable.may_read(exchange, located.server):
                named = updated if len(updated) <= MAX_URI else located.identifier
                own = exposed_contents_uri(located.server, named, is_wrapped=located.is_wrapped)
                outbox.put(own, own)

        try:
            remove = await source.subscribe(located.identifier, take)
        except BaseException as error:
            leave()
            if isinstance(error, UpstreamClientError):
                raise JsonRpcError(INVALID_PARAMS, f"{escape_line(uri)}: {error.message}", {"uri": uri}) from None
            raise

        def end() -> None:
            remove()
            leave()

        return end
