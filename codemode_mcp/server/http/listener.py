"""The listening socket, and the ASGI application with its limits on requests and bodies."""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import Struct

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.rules.policy.policy import PEER, Caller
from codemode_mcp.server.client_messages import Refused, read_body
from codemode_mcp.server.http import auth, guards, sockets
from codemode_mcp.server.sdk_server import PATH_MODE
from upstream_clients.fetch import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from codemode_mcp.base.settings import ExposeMode, HttpSettings
    from codemode_mcp.server.services import App
    from upstream_clients.jsonrpc import Message as RpcMessage


log = logging.getLogger("codemode_mcp.http")


class Listener:
    """A listener for HTTP. Use `listening` to open one."""

    def __init__(self, front: Front, url: str, group: TaskGroup) -> None:
        self.url = url
        self._front = front
        self._group = group
        self._stopped = anyio.Event()

    async def serve(self, server: Server[Any]) -> None:
        """Answer requests with this server from now on. Before that, they are answered with 503."""
        await self._group.start(self._sessions, server)

    async def _sessions(self, server: Server[Any], *, task_status: TaskStatus[None]) -> None:
        settings = self._front.settings
        manager = guards.FairSessions(
            server,
            max_request_bytes=settings.max_request_bytes,
            idle_seconds=settings.session_idle_seconds,
            max_sessions=settings.max_sessions,
        )
        async with manager.running():
            self._front.handler = manager.handle_request
            task_status.started()
            await self._stopped.wait()

    def set_ready(self) -> None:
        """Report at `/readyz` that the server is ready."""
        self._front.ready = True

    async def drain(self) -> bool:
        """Refuse new requests, and wait up to `shutdownGraceMs` for open requests. Return False if some are left."""
        self._front.draining = True
        log.info("no new calls; %d requests are open", self._front.open_requests)
        with anyio.move_on_after(self._front.settings.shutdown_grace_ms / 1000) as scope:
            await self._front.drained()
        self._front.handler = None  # requests that still wait for their turn are answered with 503
        return not scope.cancelled_caught

    async def close(self) -> None:
        """Stop answering, once the open responses are written or `FLUSH_SECONDS` have passed."""
        self._front.draining = True
        with anyio.move_on_after(sockets.FLUSH_SECONDS):
            await self._front.drained()
        self._stopped.set()


@asynccontextmanager
async def listening(settings: HttpSettings, host: str, port: int, path: str) -> AsyncIterator[Listener]:
    """Listen for the duration of the context, then close all connections. Port 0 means any free port.

    Raises:
        CannotListen: the address is invalid or in use.
    """
    opened = sockets.open_socket(host, port)
    async with AsyncExitStack() as stack:
        stack.callback(opened.close)
        port = opened.getsockname()[1]
        url = f"http://{guards.bracketed(host)}:{port}{path}"
        resource = None if settings.oauth is None else settings.oauth.resource
        front = Front(
            settings,
            path,
            guards.host_rules(host, port, settings.allowed_hosts, settings.allowed_origins, resource),
            await _verifier(settings, stack),
            _resource_metadata(settings),
        )
        read_seconds = settings.request_read_ms / 1000
        connections = await stack.enter_async_context(
            sockets.accept_connections(front, opened, settings.max_connections, read_seconds)
        )
        async with anyio.create_task_group() as group:
            listener = Listener(front, url, group)
            try:
                yield listener
            finally:
                # First no new connections are accepted, then the sessions of the SDK end. Connections end last, at the
                # end of `accept_connections`, because the sessions still write answers to them.
                with anyio.CancelScope(shield=True):
                    connections.close()
                    await listener.close()


async def _verifier(settings: HttpSettings, stack: AsyncExitStack) -> auth.Verifier | None:
    if settings.oauth is None:
        return auth.StaticTokens(settings.tokens) if settings.tokens else None
    from codemode_mcp.server.http.oauth import access_tokens

    return await stack.enter_async_context(access_tokens(settings.oauth))


def _resource_metadata(settings: HttpSettings) -> tuple[dict[str, Any], str] | None:
    """Return the metadata of this resource (RFC 9728) and the URL of the metadata."""
    oauth = settings.oauth
    if oauth is None:
        return None
    scheme, _, rest = oauth.resource.partition("://")
    authority, slash, path = rest.partition("/")
    document: dict[str, Any] = {
        "resource": oauth.resource,
        "authorization_servers": [oauth.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "codemode-mcp",
    }
    if oauth.scopes:
        document["scopes_supported"] = list(oauth.scopes)
    return document, f"{scheme}://{authority}{METADATA_PATH}{slash}{path}".rstrip("/")


def refusal_to_listen(settings: HttpSettings, host: str, *, allowed: bool) -> str | None:
    """Return the reason why a server must not be started on this address; None if it may be.

    Args:
        allowed: the user has allowed it with `--allow-unauthenticated`.
    """
    if settings.authenticates or settings.allow_unauthenticated or allowed or is_loopback(host):
        return None
    if not sockets.addresses(host, 0):
        return f"--host {host}: {sockets.UNRESOLVED}"
    return (
        f"--host {host} can be reached from other machines, and there is no authentication: every client there could "
        "run programs with all your servers. Set http.auth in the configuration, or listen on 127.0.0.1. If only "
        "clients that you trust can reach this address, use --allow-unauthenticated or http.allowUnauthenticated"
    )


def notes_for(settings: HttpSettings, host: str) -> list[str]:
    if is_loopback(host):
        return []
    if not settings.authenticates:
        return [
            f"warning: every client that reaches {host} can run programs with all servers: there is no authentication"
        ]
    return [
        "note: without TLS, others on the network can read bearer tokens; put a proxy with TLS in front of this server"
    ]


# The ASGI application. It checks the Host, credentials, rate and size of a request, then passes it to the MCP SDK.
#
# The order of the checks matters. The body of a request is read only after its credentials were verified, and a request
# without valid credentials uses no principal's share.


METADATA_PATH = "/.well-known/oauth-protected-resource"

PATH_MODES: Final[tuple[ExposeMode, ...]] = ("code", "search", "direct")
"""The modes that have a path of their own, below the path of the endpoint."""

_MODE_PATHS: Final = tuple(f"/{mode}" for mode in PATH_MODES)

_JSON: Final = b"application/json"

_CALLER = "codemode_mcp.caller"
"""Key of the caller of a request in an ASGI scope."""

MAX_LOGIN_DELAY = 10.0
"""Longest delay of a failed login in seconds. If it is reached, the client gets 429."""

UNKNOWN = Caller(None, "http")


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """Return the caller of a request: its principal, else its legacy session, else an unknown caller."""
    if context.request is None:
        return UNKNOWN
    caller: Caller = context.request.scope.get(_CALLER, UNKNOWN)
    return caller


def callers_bound_as(restriction: Caller) -> Callable[[ServerRequestContext[Any, Any]], Caller]:
    """Return a function like `caller_of` whose callers have the restrictions of another one; see `Caller.bound_as`."""
    return lambda context: caller_of(context).bound_as(restriction)


@dataclass
class Front:
    """The ASGI application. The listener sets the public attributes while the server starts and stops.

    Attributes:
        protected: the metadata of this resource (RFC 9728) and its URL; None without OAuth.
        handler: the SDK's handler; None until the SDK is ready, and after the server has drained.
        ready: the engine is ready and upstreams were asked for their tools.
        draining: the server is about to stop. It begins no new calls, but accepts requests that open calls need, such
            as answers to their questions.
        open_requests: number of open requests that are answered before the server stops.
    """

    settings: HttpSettings
    path: str
    hosts: guards.HostRules
    verifier: auth.Verifier | None = None
    protected: tuple[dict[str, Any], str] | None = None
    handler: ASGIApp | None = None
    ready: bool = False
    draining: bool = False
    open_requests: int = 0
    _idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        settings = self.settings
        self._limiter = guards.RateLimiter(settings.requests_per_second, settings.request_burst)
        self._failures = guards.RateLimiter(1.0, 60)
        self._turns = guards.RoundRobin()
        self._bodies = BodyReader(settings, self._turns)
        self._proxies = guards.TrustedProxies(settings.trusted_proxies)
        self._metadata_paths = {METADATA_PATH, METADATA_PATH + self.path}
        if self.protected is not None:
            # Clients see the path of the configured URL. A proxy may pass on that path, or ours.
            self._metadata_paths.add(urlsplit(self.protected[1]).path)
        self._sdk = AuthContextMiddleware(self._handle)
        base = self.path.rstrip("/")
        self._modes: dict[str, ExposeMode | None] = {f"{base}/{mode}": mode for mode in PATH_MODES} | {self.path: None}
        if self.protected is not None:
            self._metadata_paths |= {each + path for each in [*self._metadata_paths] for path in _MODE_PATHS}

    async def drained(self) -> None:
        while self.open_requests:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        origin = auth.header(scope["headers"], b"origin")
        answer = auth.JsonSend(send, origin if origin is not None and self.hosts.shares_with(origin) else None)
        try:
            await self._answer(scope, receive, answer)
        except auth.Refusal as refusal:
            await answer.json(refusal.status, refusal.body, refusal.headers)
        except Exception:
            log.exception("a request failed in an unexpected way")
            await answer.json(500, auth.error_body(500, "the request failed inside codemode-mcp; see its log"))

    async def _answer(self, scope: Scope, receive: Receive, answer: auth.JsonSend) -> None:
        path, method = scope["path"], scope["method"]
        headers: auth.Headers = scope["headers"]
        _check_framing(headers)
        if path in ("/healthz", "/readyz"):
            # The Host is not checked: monitors use the address of the server.
            _allow(method, "GET", "HEAD")
            await self._answer_health(path, answer)
            return
        # The HTTP parser measures only headers that it has to keep, not those that come in one piece.
        if sum(len(name) + len(value) for name, value in headers) > sockets.MAX_HEADER_BYTES:
            raise auth.Refusal(431, "the headers are too large", {"connection": "close"})
        self._check_host(headers)
        is_metadata = self.protected is not None and path in self._metadata_paths
        if path not in self._modes and not is_metadata:
            raise auth.Refusal(404, f"there is no such path; the MCP endpoint is {self.path}{self._token_advice()}")
        if method == "OPTIONS" and answer.cors_origin:
            await answer.preflight()
            return
        if is_metadata and self.protected is not None:
            _allow(method, "GET", "HEAD")
            await answer.json(200, json.dumps(self.protected[0]).encode(), {"cache-control": "max-age=300"})
            return
        principal = await self._identify(scope)
        share = PEER + self._peer(scope) if principal is None else principal.owner
        scope[sockets.ADMITTED], scope[guards.SHARE] = True, share
        if wait := self._limiter.take(share, time.monotonic()):
            raise auth.too_many_requests(wait)
        _allow(method, *auth.METHODS)
        if self.handler is None:
            raise self._unavailable()
        body, message = b"", None
        if method == "POST":
            kind = auth.header(headers, b"content-type") or ""
            if kind.partition(";")[0].strip().lower() != _JSON.decode():
                raise auth.Refusal(415, "the Content-Type of the request must be application/json")
            # The SDK knows it in small letters only.
            scope["headers"] = [(name, _JSON if name == b"content-type" else value) for name, value in headers]
            body, message = _message_in(await self._bodies.read(headers, receive, share))
        if self.draining and (method == "GET" or _begins_work(message)):
            raise self._unavailable()
        self._set_caller(scope, principal)
        scope[PATH_MODE] = self._modes[path]
        await self._turns.wait(share)
        # Draining does not wait for a stream of notifications, which ends only with its connection.
        is_waited_for = method != "GET" and auth.header(headers, b"mcp-method") != "subscriptions/listen"
        self.open_requests += is_waited_for
        try:
            await self._sdk(scope, _replayed(body, receive), answer)
        finally:
            self.open_requests -= is_waited_for
            if not self.open_requests:
                self._idle.set()

    def _unavailable(self) -> auth.Refusal:
        state = "shutting down" if self.draining else "starting"
        message = f"this server is {state}; send the request again later"
        return auth.Refusal(503, message, {"retry-after": "1", "connection": "close"})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.handler is None:  # the server has drained while the request waited
            raise self._unavailable()
        await self.handler(scope, receive, send)

    async def _answer_health(self, path: str, answer: auth.JsonSend) -> None:
        if path == "/healthz":
            await answer.json(200, b'{"status":"ok"}')
        elif self.ready and not self.draining:
            await answer.json(200, b'{"status":"ready"}')
        else:
            status = b"ending" if self.draining else b"starting"
            await answer.json(503, b'{"status":"' + status + b'"}', {"retry-after": "1"})

    # The caller of a request

    def _check_host(self, headers: auth.Headers) -> None:
        hosts = [value for name, value in headers if name == b"host"]
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self.hosts.admits_host(host):
            raise auth.Refusal(421, "this Host is not allowed; the operator can add it to http.allowedHosts")
        origins = [value for name, value in headers if name == b"origin"]
        if not all(self.hosts.admits_origin(value.decode("latin-1"), host) for value in origins):
            raise auth.Refusal(403, "this Origin is not allowed; the operator can add it to http.allowedOrigins")

    async def _identify(self, scope: Scope) -> auth.Principal | None:
        if self.verifier is None:
            return None
        try:
            return await self.verifier.principal(auth.bearer_token(scope["headers"], scope["query_string"]))
        except auth.CredentialsRefused as error:
            if error.status == 503:
                raise auth.Refusal(503, error.message, {"retry-after": "10"}) from None
            # Only refused tokens are delayed, so a client with a valid token never waits for the guesses of others. The
            # delay occupies the connection, and the number of connections is limited.
            wait = self._failures.take_on_credit(self._peer(scope), time.monotonic(), MAX_LOGIN_DELAY)
            await anyio.sleep(wait)
            if wait == MAX_LOGIN_DELAY:
                raise auth.too_many_requests(wait) from None
            scopes = () if self.settings.oauth is None else self.settings.oauth.scopes
            url = None if self.protected is None else self.protected[1]
            challenged = {"www-authenticate": auth.challenge(error, scopes, url)}
            raise auth.Refusal(error.status, error.message, challenged) from None

    def _token_advice(self) -> str:
        """Return how to authenticate, for a client that looks for metadata of a login. Empty if there is a login."""
        if self.verifier is None or self.protected is not None:
            return ""
        return f". This server needs a bearer token and has no login or registration; {auth.HOW_TO_SEND_A_TOKEN}"

    def _peer(self, scope: Scope) -> str:
        client = scope.get("client")
        if not client:
            return "unknown"
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return guards.peer(self._proxies.origin(client[0], ",".join(given)))

    def _set_caller(self, scope: Scope, principal: auth.Principal | None) -> None:
        """Store the caller of a request in its scope, for the SDK and for `caller_of`. The SDK binds sessions to it."""
        if principal is not None:
            scope[_CALLER] = Caller(principal.owner, "http", principal.name, principal.groups)
            claims = None if principal.issuer is None else {"iss": principal.issuer}
            token = AccessToken(
                token="", client_id=principal.client, scopes=[], subject=principal.subject, claims=claims
            )
            scope["user"] = AuthenticatedUser(token)
            return
        # The SDK distinguishes the eras in the same way. In the modern era, any client may send any session id, so the
        # id must not become an owner.
        version = auth.header(scope["headers"], b"mcp-protocol-version")
        session = auth.header(scope["headers"], b"mcp-session-id")
        legacy = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        owner = auth.session_owner(session) if legacy and session is not None else None
        scope[_CALLER] = Caller(owner, "http", share=scope[guards.SHARE])


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _message_in(body: bytes) -> tuple[bytes, RpcMessage]:
    """Return a body in the form that the SDK reads, and its message. Raises `Refusal`."""
    read = read_body(body)
    if isinstance(read, Refused):
        request_id = read.ids[0] if len(read.ids) == 1 else None
        raise auth.Refusal(400, read.error.message, code=read.error.code, request_id=request_id)
    return read


def _begins_work(message: RpcMessage | None) -> bool:
    """Return True if a message begins a call, a session or a stream."""
    return message is not None and message.get("method") in ("tools/call", "initialize", "subscriptions/listen")


def _check_framing(headers: auth.Headers) -> None:
    """Refuse a request that states the length of its body twice.

    A proxy may use the other length, and then see other requests in the same bytes (RFC 9112, 6.1).
    """
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        message = "a request must not have both Content-Length and Transfer-Encoding"
        raise auth.Refusal(400, message, {"connection": "close"})


def _allow(method: str, *methods: str) -> None:
    if method not in methods:
        raise auth.Refusal(405, f"method {method[:20]} is not allowed here", {"allow": ", ".join(methods)})


# Bodies of requests, read within limits on size, on time, and on the share of each caller.


FREE_BODY_BYTES: Final = 64 * 1024
"""Bytes of each body that no budget counts, so that small requests are always accepted."""

MIN_BUDGET: Final = 64 * 1024 * 1024
"""Smallest budget of the process for incomplete bodies, in bytes."""

SECONDS_PER_VALUE: Final = 7e-7
"""Seconds for which one JSON value of a request blocks the event loop, while it is parsed and validated."""


class BodyReader:
    """A reader of bodies for one listener.

    Args:
        turns: decides from which caller the next part of a body is read.
    """

    def __init__(self, settings: HttpSettings, turns: guards.RoundRobin) -> None:
        self._limit = settings.max_request_bytes
        self._seconds = settings.request_read_ms / 1000
        self._turns = turns
        self._budget = BodyBudget.for_bodies_of(self._limit)
        # The tokens are seconds of the event loop, which all callers share. One caller gets a quarter of the time.
        self._parsing = guards.RateLimiter(0.25, 0.5)

    async def read(self, headers: auth.Headers, receive: Receive, caller: str) -> bytes:
        """Return the whole body. `caller`: the principal or peer whose share the body uses.

        Raises:
            Refusal: the body is too large or too slow, or the caller sends too much.
        """
        too_large = auth.Refusal(
            413, f"the body is larger than {self._limit} bytes (http.maxRequestBytes)", {"connection": "close"}
        )
        declared = auth.header(headers, b"content-length")
        if declared is not None and declared.isdecimal() and int(declared) > self._limit:
            raise too_large
        body, counted = bytearray(), 0
        try:
            with anyio.move_on_after(self._seconds) as scope:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise auth.Refusal(400, "the request ended before its body")  # the peer has disconnected
                    body += message.get("body", b"")
                    if len(body) > self._limit:
                        raise too_large
                    if not message.get("more_body", False):
                        scope.deadline = math.inf  # the wait that follows is not the client's delay
                        await self._wait_to_parse(caller, body)
                        return bytes(body)
                    more = max(0, len(body) - FREE_BODY_BYTES) - counted
                    if not self._budget.admits(caller, more):
                        raise auth.Refusal(
                            503,
                            "too many large request bodies are being sent at the same time; send this request again",
                            {"retry-after": "1", "connection": "close"},
                        )
                    counted += more
                    # Callers take turns. Meanwhile uvicorn stops reading from the connection when its buffer is full.
                    await self._turns.wait(caller)
        finally:
            self._budget.release(caller, counted)
        late = f"the body did not arrive within {self._seconds:g} s (http.requestReadMs)"
        raise auth.Refusal(408, late, {"connection": "close"})

    async def _wait_to_parse(self, caller: str, body: bytearray) -> None:
        """Wait until the caller's earlier bodies have used up no more than its share. Raises `Refusal`."""
        wait = self._parsing.take_on_credit(caller, time.monotonic(), self._seconds, seconds_to_parse(body))
        if wait >= self._seconds:
            raise auth.too_many_requests(wait)
        if wait:
            await anyio.sleep(wait)


def seconds_to_parse(body: bytes | bytearray) -> float:
    """Return an upper bound of the seconds for which a body of JSON blocks the event loop. Commas in strings count."""
    return (body.count(b",") + body.count(b"[") + body.count(b"{")) * SECONDS_PER_VALUE


class BodyBudget(Struct):
    """Limits on the bytes of incomplete bodies that are in memory.

    Attributes:
        total: limit of the process.
        share: limit of one principal or peer.
    """

    total: int
    share: int
    _held: dict[str, int] = msgspec.field(default_factory=dict)
    _sum: int = 0

    @staticmethod
    def for_bodies_of(largest: int) -> BodyBudget:
        total = max(MIN_BUDGET, 4 * largest)
        return BodyBudget(total, total // 4)

    def admits(self, caller: str, size: int) -> bool:
        """Take `size` more bytes. Return False, and take none, if there is no room for them."""
        held = self._held.get(caller, 0) + size
        if held > self.share or self._sum + size > self.total:
            return False
        self._sum += size
        self._held[caller] = held
        return True

    def release(self, caller: str, size: int) -> None:
        if size:
            self._sum -= size
            self._held[caller] -= size
            if not self._held[caller]:
                del self._held[caller]


async def begin_serving(listener: Listener, opened: App, restriction: Caller) -> None:
    """Serve the clients of a listener from now on.

    Args:
        restriction: see `Caller.bound_as`.
    """
    from codemode_mcp.server.code_mode import Surface
    from codemode_mcp.server.sdk_server import surface_server

    caller_of = callers_bound_as(restriction)
    opened.serves_http = True
    await listener.serve(surface_server(Surface(opened), caller_of))


async def become_ready(listener: Listener, opened: App) -> None:
    """Report readiness as soon as the engine is loaded and the servers are connected, or have had time to be."""
    try:
        if opened.code_mode:
            await opened.engine()
    except CodeModeError:
        return  # logged; without the engine the server never becomes ready
    await opened.wait_settled(None, opened.settings().code_mode.connect_wait_ms / 1000)
    listener.set_ready()
