"""Limits on requests before they are served: hosts, origins, rates, proxies and sessions."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections import Counter, OrderedDict, deque
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse

from codemode_mcp.server.sdk_server import CONNECTION, Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.server.lowlevel import Server
    from starlette.types import Message, Receive, Scope, Send


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_MAX_BUCKETS = 10_000


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host in the form that it has in a URL: IPv6 addresses have brackets."""
    return f"[{host}]" if ":" in host else host


class HostRules(Struct, frozen=True):
    """The allowed `Host` and `Origin` headers.

    A web page can make its own name resolve to this machine (DNS rebinding), but it cannot forge these headers.
    Therefore only known names of this server are allowed. An IP address cannot be rebound.

    Attributes:
        port: the port of the listener.
        addresses: every IP address is allowed, because the listener listens on all addresses.
        hosts: lower-case names. `host` allows every port, `host:port` one port.
        origins: lower-case `scheme://host[:port]`.
    """

    port: int
    addresses: bool
    hosts: frozenset[str]
    origins: frozenset[str]

    def admits_host(self, value: str) -> bool:
        value = value.lower()
        return _split(value)[0] in self.hosts or self._is_ours(value)

    def _is_ours(self, value: str) -> bool:
        if value in self.hosts:
            return True
        host, port = _split(value)
        if port != self.port and not (port is None and self.port == 80):
            return False
        return host in LOOPBACK_NAMES or (self.addresses and is_address(host))

    def admits_origin(self, value: str, host: str) -> bool:
        """Return True if a page with this `Origin` may send requests to a `host`.

        The page must come from the `host` that it calls or from our port, or the operator has named its origin. An
        allowed name with another port is not enough, because another program may listen on that port.
        """
        value = value.lower()
        if value in self.origins:
            return True
        scheme, _, rest = value.partition("://")
        return scheme in ("http", "https") and bool(rest) and (rest == host.lower() or self._is_ours(rest))

    def shares_with(self, origin: str) -> bool:
        """Return True if pages of an origin may read responses, because the operator has named the origin."""
        return origin.lower() in self.origins


def host_rules(
    host: str, port: int, hosts: tuple[str, ...], origins: tuple[str, ...], resource: str | None
) -> HostRules:
    """Return the rules for a listener on `host`.

    Args:
        hosts, origins: allowed by the operator.
        resource: the URL that clients use; None if it is not configured.
    """
    known = {name.lower() for name in hosts}
    wildcard = host in ("", "0.0.0.0", "::")
    if not wildcard:
        known.add(f"{bracketed(host)}:{port}".lower())
    if resource is not None:
        known.add(urlsplit(resource).netloc.lower())
    return HostRules(port, wildcard, frozenset(known), frozenset(origin.lower() for origin in origins))


def _split(value: str) -> tuple[str, int | None]:
    """Return the host and the port of a `Host` header. The port is None without one, and -1 if it is invalid."""
    host, colon, port = value.rpartition(":")
    if not colon or value.endswith("]"):
        return value, None
    return host, int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1


def peer(address: str) -> str:
    """Return the peer to which an address belongs. All addresses of an IPv6 network of 64 bits are one peer."""
    # One household or machine usually has such a network, so it could use a new address for each request.
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address


class TrustedProxies(Struct, frozen=True):
    """The proxies whose `X-Forwarded-For` header is used.

    Attributes:
        networks: addresses or networks from the configuration.
    """

    networks: tuple[str, ...]

    def origin(self, sender: str, forwarded: str) -> str:
        """Return the address of the client: the last hop that is not a trusted proxy.

        Args:
            sender: address of the other end of the connection.
            forwarded: the header. Each proxy appends the address from which it got the request. A client can forge
                everything to the left of the last untrusted address.
        """
        hops = [hop.strip() for hop in forwarded.split(",")] if forwarded else []
        address = sender
        while hops and self._trusts(address):
            hop = _without_port(hops.pop())
            if not is_address(hop):
                break
            address = hop
        return address

    def _trusts(self, address: str) -> bool:
        if not self.networks:
            return False
        parsed = ipaddress.ip_address(peer_address(address))
        return any(parsed in ipaddress.ip_network(network) for network in self.networks)


def peer_address(address: str) -> str:
    """Return an address without its zone. An IPv4-mapped address is returned as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


class RateLimiter(Struct):
    """Token buckets of a bounded number of keys. The least recently used key is forgotten first.

    Attributes:
        per_second: tokens that are added to a bucket.
        burst: tokens of a full bucket.
    """

    per_second: float
    burst: float
    _buckets: OrderedDict[str, tuple[float, float]] = msgspec.field(default_factory=OrderedDict)

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until there is one."""
        level = self._level(key, now)
        wait = 0.0 if level >= 1 else (1 - level) / self.per_second
        self._store(key, level if wait else level - 1, now)
        return wait

    def take_on_credit(self, key: str, now: float, max_wait: float, tokens: float = 1.0) -> float:
        """Take tokens, even if there are too few. Return the seconds until there would have been enough of them.

        The result, and what the key owes, are limited by `max_wait`.
        """
        level = self._level(key, now) - tokens
        self._store(key, max(level, -max_wait * self.per_second), now)
        return min(max_wait, max(0.0, -level / self.per_second))

    def _level(self, key: str, now: float) -> float:
        level, at = self._buckets.pop(key, (float(self.burst), now))
        return min(self.burst, level + (now - at) * self.per_second)

    def _store(self, key: str, level: float, now: float) -> None:
        self._buckets[key] = level, now
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)


class RoundRobin:
    """An order of requests. One request begins in each round of the event loop, and callers take turns.

    Without this order, a request would wait for all earlier requests of other callers.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._scheduled = False

    async def wait(self, caller: str) -> None:
        start = anyio.Event()
        self._waiting.setdefault(caller, deque()).append(start)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start_next)
        await start.wait()

    def _start_next(self) -> None:
        caller, waiting = self._waiting.popitem(last=False)
        waiting.popleft().set()
        if waiting:
            self._waiting[caller] = waiting
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._start_next)


# Sessions of clients of the handshake revisions, shared fairly between callers: principals or peers.
#
# At the limit, a new session replaces the longest idle session of the caller that has the most sessions. The client of
# a session that has ended gets 404 and opens a new session, as MCP requires. The SDK's session manager has no option
# for this, so it only gets the requests of revisions without sessions.


logger = logging.getLogger(__name__)

SHARE: Final = "codemode_mcp.share"
"""Key of an ASGI scope: the caller whose share of the server the request uses."""


@dataclass(eq=False)
class _Session:
    """A session.

    Attributes:
        caller: the value of `SHARE` of the request that opened it.
        requestor: the credential that opened it, without which it is not found.
    """

    id: str
    caller: str
    requestor: AuthorizationContext | None
    transport: StreamableHTTPServerTransport
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = Connection(self.id)

    @property
    def idle_deadline(self) -> float:
        """A number that orders sessions by their last use: the deadline of an idle one, infinity if in use."""
        scope = self.transport.idle_scope
        return math.inf if scope is None else scope.deadline

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONNECTION] = self.connection
        await self.transport.handle_request(scope, receive, send)


class FairSessions:
    """The requests of all clients over HTTP. The scope of a request needs `SHARE`."""

    def __init__(
        self, server: Server[Any], *, max_request_bytes: int, idle_seconds: float | None, max_sessions: int
    ) -> None:
        self._server = server
        self._idle_seconds = idle_seconds
        self._max_sessions = max_sessions
        self._sessions: dict[str, _Session] = {}
        self._group: TaskGroup | None = None
        self._modern = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=max_request_bytes)
        self._legacy = RequestBodyLimitMiddleware(self._handle, max_request_bytes)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve sessions for the duration of the context. It can be entered once."""
        async with self._modern.run(), anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                self._group.cancel_scope.cancel()

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        version = Request(scope).headers.get(MCP_PROTOCOL_VERSION_HEADER)
        if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._legacy(scope, receive, send)
            return
        with Connection() as scope[CONNECTION]:
            await self._modern.handle_request(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        session_id = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if session_id is None:
            await self._open(scope.get(SHARE, ""), requestor, scope, receive, send)
            return
        session = self._sessions.get(session_id)
        if session is None or session.requestor != requestor:
            await _refusal("Session not found", HTTPStatus.NOT_FOUND, INVALID_REQUEST)(scope, receive, send)
            return
        await session.handle(scope, receive, send)
        if session.transport.is_terminated:  # the client has ended it
            await self._discard(session)

    async def _open(
        self, caller: str, requestor: AuthorizationContext | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Open a session for a request, and keep it if the request succeeds: only `initialize` does."""
        assert self._group is not None
        if len(self._sessions) >= self._max_sessions and not self._make_room(caller, self._group):
            refused = _refusal("Too many open sessions", HTTPStatus.SERVICE_UNAVAILABLE, INTERNAL_ERROR)
            await refused(scope, receive, send)
            return
        transport = StreamableHTTPServerTransport(uuid4().hex, idle_timeout=self._idle_seconds)
        assert transport.mcp_session_id is not None
        session = _Session(transport.mcp_session_id, caller, requestor, transport)
        self._sessions[session.id] = session
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._group.start(self._serve, session)
            await session.handle(scope, receive, send_noting_status)
        finally:
            if status >= HTTPStatus.BAD_REQUEST:
                await self._discard(session)

    async def _serve(self, session: _Session, *, task_status: TaskStatus[None]) -> None:
        async with session.transport.connect() as streams:
            task_status.started()
            try:
                # The transport cancels this scope when the session was idle for too long.
                with session.transport.idle_scope or nullcontext(), session.connection:
                    # The server has no state of its lifespan.
                    await serve_loop(self._server, *streams, lifespan_state={}, session_id=session.id)
            except Exception:
                logger.exception("a session ended with an error")
            finally:
                await self._discard(session)

    def _make_room(self, caller: str, group: TaskGroup) -> bool:
        """End one session. Return False if the caller itself has the most sessions and uses all of them."""
        counts = Counter(each.caller for each in self._sessions.values())
        ((largest, count),) = counts.most_common(1)
        if counts[caller] == count:
            largest = caller  # a caller with as many sessions as any other replaces its own, not another caller's
        session = min(
            (each for each in self._sessions.values() if each.caller == largest), key=lambda each: each.idle_deadline
        )
        # A session in use may end too, if it belongs to another caller that has the most sessions. Otherwise that
        # caller could keep all others out by open streams.
        if largest == caller and session.idle_deadline == math.inf:
            return False
        # The session is removed now, so that there is room. Its tasks end later.
        del self._sessions[session.id]
        group.start_soon(self._discard, session)
        return True

    async def _discard(self, session: _Session) -> None:
        """Forget a session now, so that its id answers 404, and end its transport, also while this is cancelled."""
        self._sessions.pop(session.id, None)
        if not session.transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await session.transport.terminate()


def _refusal(message: str, status: HTTPStatus, code: int) -> JSONResponse:
    error = {"code": code, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=status)
