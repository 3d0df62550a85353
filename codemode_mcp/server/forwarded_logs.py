"""Log messages of servers for clients that ask for them, in both protocol eras.

MCP has deprecated logging since 2026-07-28; clients and servers that have it can still use it. A client of the
handshake revisions names a level by `logging/setLevel`, and gets messages until its session ends. A client of newer
revisions names a level in a request, and gets the messages that come before the answer. Without a level, nothing is
sent.

A client gets messages of the servers that it sees. The name of the server is put before the name of the logger.
Secrets are replaced and texts are cut where messages arrive (`upstream_clients.server_log`).

Over HTTP there are several callers, and a message may quote what another caller has sent. So a caller over HTTP gets
only messages that are known to be about its own calls. Without authentication, a session is a caller; clients of
newer revisions have no sessions, so they cannot be told apart, and get none.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.server.notifications import Outbox
from declarations.untrusted_text import drop_hidden
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.server_log import LEVELS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.abc import TaskGroup

    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.exchange import Client, Exchange
    from codemode_mcp.server.services import App
    from upstream_clients.tools import JsonObject, LogLevel

    Send = Callable[[JsonObject], Awaitable[None]]
    """Sends the params of one `notifications/message`."""


BURST: Final = 500.0
"""Allowance of one server: what it may send to one client without a pause. A message takes 1, and 1 for each KiB."""

RATE: Final = 50.0
"""Growth of the allowance in one second. Once it is used up, messages are dropped until it has grown for a second."""

MAX_QUEUED: Final = 1000
"""Most messages that wait for a client that does not read. Later ones are dropped."""

LAST_SECONDS: Final = 1.0
"""Seconds in which the last messages of a request are sent before its answer."""

LISTEN_SECONDS: Final = 2.0
"""Seconds that a request which names a level waits until messages are received, while the servers are being opened."""

OWN_LOGGER: Final = "codemode-mcp"
"""The logger of our own messages about messages that were dropped."""


class ForwardedLogs:
    """The log messages for all clients of a surface. Use `running` while there are clients.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, servers: App, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._clock = clock
        self._group: TaskGroup | None = None
        self._sessions: dict[object, _Subscriber] = {}
        """The clients of the handshake revisions that have named a level, by connection."""
        self._requests: list[_Subscriber] = []
        """The open requests of newer clients that have named a level, the oldest first."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as self._group:
                yield
                self._group.cancel_scope.cancel()
        finally:
            for session in [*self._sessions]:
                self._forget(session)

    def capabilities(self, client: Client, caller: Caller | None) -> dict[str, Any]:
        """Return the capability: for a caller that sees a server with log messages, or one that is not known yet.

        Args:
            caller: None for a client that may be any caller.
        """
        # A client of the handshake revisions has a session from its next request on.
        if caller is None or (client.modern and not _gets_messages(caller)):
            return {}
        known = {view.name: view.logging for view in self._servers.trusted_views() if view.era is not None}
        seen = self._servers.servers(caller).values()
        # Without any server, a later configuration may have some.
        is_offered = not self._servers.configured() or any(known.get(name, True) for name in seen)
        return {"logging": {}} if is_offered else {}

    async def set_level(self, exchange: Exchange) -> dict[str, Any]:
        """Answer `logging/setLevel` of a client of the handshake revisions.

        Raises:
            JsonRpcError: this client gets no messages.
        """
        if exchange.session.modern or not _gets_messages(exchange.caller):
            raise JsonRpcError(METHOD_NOT_FOUND, "Method not found", "logging/setLevel")
        assert self._group is not None
        session, level = exchange.session, exchange.params["level"]
        subscriber = self._sessions.get(session.connection)
        if subscriber is None:
            send = partial(session.notify, "notifications/message")
            subscriber = _Subscriber(self._servers, exchange.caller, level, send, self._clock)
            self._sessions[session.connection] = subscriber
            session.at_end(lambda: self._forget(session.connection))
            self._group.start_soon(subscriber.outbox.run)
            self._group.start_soon(subscriber.follow)
        subscriber.level = level
        await subscriber.listen_soon()
        return {}

    def _forget(self, session: object) -> None:
        subscriber = self._sessions.pop(session, None)
        if subscriber is not None:
            subscriber.close()

    @asynccontextmanager
    async def open(self, exchange: Exchange, level: LogLevel) -> AsyncIterator[None]:
        """Send messages of a level to the client of a request for the duration of the context."""
        if not _gets_messages(exchange.caller):
            yield
            return
        assert self._group is not None
        subscriber = _Subscriber(self._servers, exchange.caller, level, exchange.report_log, self._clock)
        if exchange.caller.kind == "stdio":
            # One client has sent all requests. It gets each message once.
            subscriber.gets = lambda level: self._first(level) is subscriber
        self._requests.append(subscriber)
        self._group.start_soon(subscriber.outbox.run)
        self._group.start_soon(subscriber.follow)
        try:
            await subscriber.listen_soon()
            yield
        finally:
            self._requests.remove(subscriber)
            subscriber.end()
            try:
                with anyio.move_on_after(LAST_SECONDS):
                    await subscriber.outbox.sent.wait()
            finally:
                subscriber.close()

    def _first(self, level: LogLevel) -> _Subscriber | None:
        at = LEVELS.index(level)
        return next((each for each in self._requests if LEVELS.index(each.level) <= at), None)


def _gets_messages(caller: Caller) -> bool:
    return caller.kind == "stdio" or caller.owner is not None


class _Subscriber:
    """A client of the handshake revisions, or an open request of a newer client, that has named a level.

    Args:
        send: sends the params of one message.

    Attributes:
        level: the level from which on messages are sent. `listen_soon` makes a change effective.
        gets: returns True if a message of a level is for this subscriber.
        outbox: what is sent.
    """

    def __init__(self, servers: App, caller: Caller, level: LogLevel, send: Send, clock: Callable[[], float]) -> None:
        self._servers = servers
        self._caller = caller
        self._clock = clock
        self.level = level
        self.gets: Callable[[LogLevel], bool] = lambda _: True
        self.outbox = Outbox(send, MAX_QUEUED)
        self._heard: tuple[LogLevel, frozenset[str]] | None = None
        """The level and the servers to which it listens."""
        self._ends: list[Callable[[], None]] = []
        self._allowances: dict[str, _Allowance] = {}
        self._following = anyio.CancelScope()
        self._ended = False

    async def listen_soon(self) -> None:
        """Listen to the servers that the caller sees. While they are being opened, wait for a limited time."""
        self._servers.touch()
        with anyio.move_on_after(LISTEN_SECONDS):
            await self._listen()

    async def follow(self) -> None:
        with self._following:
            while not self._ended:
                change = self._servers.change()
                await self._listen()
                await change.wait()

    async def _listen(self) -> None:
        names = frozenset(self._servers.servers(self._caller).values())
        if self._heard == (self.level, names):
            return
        sources = {name: await self._servers.item_source(name, self._caller) for name in sorted(names)}
        if self._ended:
            return
        # Nothing is awaited below, so no message is lost or received twice.
        self._stop_listening()
        is_shared = self._caller.kind != "stdio"
        for name, source in sources.items():
            if source is not None:
                take = partial(self._take, name)
                self._ends.append(source.on_log(take, self.level, self._caller.owner, known_only=is_shared))
        self._heard = self.level, names

    def _stop_listening(self) -> None:
        ends, self._ends, self._heard = self._ends, [], None
        for end in ends:
            end()

    def end(self) -> None:
        self._ended = True
        self._following.cancel()
        self._stop_listening()
        self.outbox.end()

    def close(self) -> None:
        """Receive no more messages, and drop those that are not sent."""
        self.end()
        self.outbox.close()

    def _take(self, server: str, message: JsonObject) -> None:
        if not self.gets(message["level"]):
            return
        params = _forwarded(server, message)
        now, size = self._clock(), len(compact_json(params))
        allowance = self._allowances.setdefault(server, _Allowance(now))
        if not allowance.admits(1 + size / 1024, now, is_full=self.outbox.is_full):
            return
        if allowance.dropped:
            self.outbox.put(_dropped(server, allowance.dropped))
            allowance.dropped = 0
        self.outbox.put(params)


class _Allowance(Struct, eq=False):
    """The messages of one server for one client, at a limited rate.

    Attributes:
        dropped: messages that were dropped since the last one that was admitted.
    """

    at: float
    left: float = BURST
    dropped: int = 0

    def admits(self, cost: float, now: float, *, is_full: bool) -> bool:
        """Return True if a message may be sent, and count it.

        Args:
            now: monotonic seconds.
            is_full: True if no message can wait.
        """
        self.left = min(BURST, self.left + (now - self.at) * RATE)
        self.at = now
        if is_full or self.left < (max(cost, RATE) if self.dropped else cost):
            self.dropped += 1
            return False
        self.left -= cost
        return True


def _forwarded(server: str, message: JsonObject) -> JsonObject:
    logger = message.get("logger")
    name = drop_hidden(server if not logger else f"{server}/{logger}")
    try:
        data = _without_hidden(message["data"])
    except RecursionError:
        data = "(a value with too many levels)"
    return {"level": message["level"], "logger": name, "data": data}


def _without_hidden(value: Any) -> Any:
    match value:
        case str():
            return drop_hidden(value, keep="\n\t")
        case list():
            return [_without_hidden(each) for each in value]
        case dict():
            return {drop_hidden(key): _without_hidden(each) for key, each in value.items()}
    return value


def _dropped(server: str, count: int) -> JsonObject:
    data = (
        f"{count} log messages of server {server!r} were left out: it sent more than {RATE:.0f} per second, or the "
        "client did not read them. codemode-mcp servers logs shows the latest ones"
    )
    return {"level": "warning", "logger": OWN_LOGGER, "data": data}
