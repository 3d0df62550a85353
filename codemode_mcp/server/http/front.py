"""Every request's way in: what it asks for, who asks, how much of it there is; then the SDK, or a refusal in JSON."""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from codemode_mcp.policy.callers import PEER, Caller
from codemode_mcp.server.http.auth import WHERE, Refused, bearer_token, challenge, session_owner
from codemode_mcp.server.http.connection import ADMITTED, MAX_HEADER_BYTES, error_body
from codemode_mcp.server.http.guards import (
    FREE_BODY_BYTES,
    BodyBudget,
    RateLimiter,
    TrustedProxies,
    Turns,
    peer,
    seconds_to_read,
)
from codemode_mcp.server.http.sessions import SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from codemode_mcp.server.http.auth import Principal, Verifier
    from codemode_mcp.server.http.guards import Doors
    from codemode_mcp.settings import HttpSettings

log = logging.getLogger("codemode_mcp.http")

METADATA_PATH = "/.well-known/oauth-protected-resource"

_CALLER = "codemode_mcp.caller"
"""Key of the caller of a request in an ASGI scope."""

MAX_LOGIN_DELAY = 10.0
"""Seconds that a failed login is held up at most, after which it is told to slow down."""

_METHODS = "GET, POST, DELETE"
_CORS_HEADERS = "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version"
_EXPOSED = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """Return the caller of a request: its principal, else its legacy session, else an unknown one."""
    if context.request is None:
        return UNKNOWN
    caller: Caller = context.request.scope.get(_CALLER, UNKNOWN)
    return caller


UNKNOWN = Caller(None, "http")


class _Refusal(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None, **data: Any) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = error_body(status, message, **data)


@dataclass
class Front:
    """The ASGI application. Its public attributes are set by the listener as things come and go.

    Attributes:
        protected: the metadata of this resource (RFC 9728) and its URL, with OAuth.
        handler: the SDK's; None until it is there.
        ready: whether the engine is there and upstreams have been asked for their tools.
        draining: whether the server is about to end: nothing new is begun, but open calls still get what they
            need, like answers to their questions.
        open: requests that are to be answered before the end.
    """

    settings: HttpSettings
    path: str
    doors: Doors
    verifier: Verifier | None = None
    protected: tuple[dict[str, Any], str] | None = None
    handler: ASGIApp | None = None
    ready: bool = False
    draining: bool = False
    open: int = 0
    _idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        settings = self.settings
        self._limiter = RateLimiter(settings.requests_per_second, settings.request_burst)
        self._failures = RateLimiter(1.0, 60)
        self._bodies = BodyBudget.for_bodies_of(settings.max_request_bytes)
        # In seconds of the event loop, on which everybody's requests are: a principal takes a quarter of it at most.
        self._reading = RateLimiter(0.25, 0.5)
        self._turns = Turns()
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._metadata_paths = {METADATA_PATH, METADATA_PATH + self.path}
        if self.protected is not None:
            self._metadata_paths.add(urlsplit(self.protected[1]).path)  # as it is called before a proxy
        self._sdk = AuthContextMiddleware(self._handle)

    async def drained(self) -> None:
        """Wait until no request is open that is to be answered."""
        while self.open:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = _Answer(send, self._cors(scope))
        try:
            await self._answer(scope, receive, answer)
        except _Refusal as refusal:
            await answer.plain(refusal.status, refusal.body, refusal.headers)
        except Exception:
            log.exception("a request failed in an unexpected way")
            await answer.plain(500, error_body(500, "the request failed inside codemode-mcp; see its log"))

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        path, method = scope["path"], scope["method"]
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        _check_framing(headers)
        if path in ("/healthz", "/readyz"):
            # Without a look at Host: who watches over a server asks by its address.
            _allow(method, "GET", "HEAD")
            await self._health(path, answer)
            return
        # The parser measures only what it has to keep; headers that come in one piece are none of that.
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
            raise _Refusal(431, "the headers are too large", {"connection": "close"})
        self._check_doors(headers)
        if self.protected is not None and path in self._metadata_paths:
            if method == "OPTIONS" and answer.shared:
                await answer.preflight()
                return
            _allow(method, "GET", "HEAD")
            await answer.plain(200, json.dumps(self.protected[0]).encode(), {"cache-control": "max-age=300"})
            return
        if path != self.path:
            raise _Refusal(404, f"there is nothing here; MCP is at {self.path}{self._token_advice()}")
        if method == "OPTIONS" and answer.shared:
            await answer.preflight()
            return
        principal = await self._identify(scope)
        scope[ADMITTED] = True
        self._check_rate(scope, principal)
        _allow(method, *_METHODS.split(", "))
        if self.handler is None:
            raise self._unavailable()
        body = b""
        if method == "POST":
            kind = _header(headers, b"content-type") or ""
            if kind.partition(";")[0].strip().lower() != "application/json":
                raise _Refusal(415, "the body has to be application/json")
            body = await self._body(headers, receive, self._who(scope, principal))
        if self.draining and _begins_something(method, body):
            raise self._unavailable()
        scope[SHARE] = self._who(scope, principal)
        self._attribute(scope, principal)
        await self._turns.take(scope[SHARE])
        await self._serve(scope, _replayed(body, receive), answer, headers)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer, headers: list[tuple[bytes, bytes]]) -> None:
        # Streams of notifications never end by themselves.
        ends = scope["method"] != "GET" and _header(headers, b"mcp-method") != "subscriptions/listen"
        self.open += ends
        try:
            await self._sdk(scope, receive, answer)
        finally:
            self.open -= ends
            if not self.open:
                self._idle.set()

    def _unavailable(self) -> _Refusal:
        what = "about to end" if self.draining else "starting"
        return _Refusal(503, f"this server is {what}; try again", {"retry-after": "1", "connection": "close"})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.handler is None:
            raise self._unavailable()
        await self.handler(scope, receive, send)

    async def _health(self, path: str, answer: _Answer) -> None:
        if path == "/healthz":
            await answer.plain(200, b'{"status":"ok"}')
        elif self.ready and not self.draining:
            await answer.plain(200, b'{"status":"ready"}')
        else:
            status = b"ending" if self.draining else b"starting"
            await answer.plain(503, b'{"status":"' + status + b'"}', {"retry-after": "1"})

    # who asks

    def _check_doors(self, headers: list[tuple[bytes, bytes]]) -> None:
        hosts = [value for name, value in headers if name == b"host"]
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self.doors.admits_host(host):
            raise _Refusal(421, "this Host is not let in; the operator can name it in http.allowedHosts")
        origins = [value for name, value in headers if name == b"origin"]
        if not all(self.doors.admits_origin(value.decode("latin-1"), host) for value in origins):
            raise _Refusal(403, "this Origin is not let in; the operator can name it in http.allowedOrigins")

    def _cors(self, scope: Scope) -> str | None:
        if scope["type"] != "http":
            return None
        origin = _header(scope["headers"], b"origin")
        return origin if origin is not None and self.doors.shares_with(origin) else None

    async def _identify(self, scope: Scope) -> Principal | None:
        if self.verifier is None:
            return None
        try:
            return await self.verifier.principal(bearer_token(scope["headers"], scope["query_string"]))
        except Refused as refused:
            if refused.status == 503:
                raise _Refusal(503, refused.message, {"retry-after": "10"}) from None
            # A right token is known by now, and is never slowed. A wrong one costs the time of a connection.
            wait = self._failures.owe(self._peer(scope), time.monotonic(), MAX_LOGIN_DELAY)
            await anyio.sleep(wait)
            if wait == MAX_LOGIN_DELAY:
                raise _too_many(wait) from None
            header = {"www-authenticate": self._challenge(refused)}
            raise _Refusal(refused.status, refused.message, header) from None

    def _token_advice(self) -> str:
        """Say how to authenticate where a client that knows no token tries a login of its own."""
        if self.verifier is None or self.protected is not None:
            return ""
        return f". This server needs a bearer token and has no login or registration; {WHERE}"

    def _challenge(self, refused: Refused) -> str:
        scopes = () if self.settings.oauth is None else self.settings.oauth.scopes
        return challenge(refused, scopes, None if self.protected is None else self.protected[1])

    def _check_rate(self, scope: Scope, principal: Principal | None) -> None:
        wait = self._limiter.take(self._who(scope, principal), time.monotonic())
        if wait:
            raise _too_many(wait)

    def _peer(self, scope: Scope) -> str:
        client = scope.get("client")
        if not client:
            return "unknown"
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return peer(self._proxies.origin(client[0], ",".join(given)))

    def _who(self, scope: Scope, principal: Principal | None) -> str:
        """Return whose share of the server a request uses."""
        return PEER + self._peer(scope) if principal is None else principal.owner

    def _attribute(self, scope: Scope, principal: Principal | None) -> None:
        """Say whose the request is: to the SDK, which binds sessions to it, and to `caller_of`."""
        if principal is not None:
            scope[_CALLER] = Caller(principal.owner, "http", principal.name, principal.groups)
            claims = None if principal.issuer is None else {"iss": principal.issuer}
            token = AccessToken(
                token="", client_id=principal.client, scopes=[], subject=principal.subject, claims=claims
            )
            scope["user"] = AuthenticatedUser(token)
            return
        # As the SDK tells the eras apart: in the modern one a session id means nothing, and proves nothing.
        version = _header(scope["headers"], b"mcp-protocol-version")
        session = _header(scope["headers"], b"mcp-session-id")
        legacy = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        owner = session_owner(session) if legacy and session is not None else None
        scope[_CALLER] = Caller(owner, "http", share=scope[SHARE])

    # how much of it there is

    async def _body(self, headers: list[tuple[bytes, bytes]], receive: Receive, who: str) -> bytes:
        limit = self.settings.max_request_bytes
        too_large = _Refusal(
            413, f"the body is larger than {limit} bytes (http.maxRequestBytes)", {"connection": "close"}
        )
        declared = _header(headers, b"content-length")
        if declared is not None and declared.isdecimal() and int(declared) > limit:
            raise too_large
        body, counted = bytearray(), 0
        try:
            with anyio.move_on_after(self.settings.request_read_ms / 1000) as coming:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _Refusal(400, "the request ended before its body")  # the peer is gone
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        coming.deadline = math.inf
                        await self._take_turn(who, body)
                        return bytes(body)
                    more = max(0, len(body) - FREE_BODY_BYTES) - counted
                    if not self._bodies.admits(who, more):
                        raise _Refusal(
                            503,
                            "too many large bodies are being sent at the same time; send this request again later",
                            {"retry-after": "1", "connection": "close"},
                        )
                    counted += more
                    await self._turns.take(who)  # what is not asked for is not read
        finally:
            self._bodies.release(who, counted)
        raise _Refusal(408, "the body did not come in time", {"connection": "close"})

    async def _take_turn(self, who: str, body: bytearray) -> None:
        """Wait until a principal may have another body read, after one that took long. Raises `_Refusal`."""
        most = self.settings.request_read_ms / 1000
        wait = self._reading.owe(who, time.monotonic(), most, seconds_to_read(body))
        if wait >= most:
            raise _too_many(wait)
        if wait:
            await anyio.sleep(wait)


class _Answer:
    """`send`, as others are to use it: errors become JSON."""

    def __init__(self, send: Send, shared: str | None) -> None:
        self._send = send
        self.shared = shared
        """The origin that may read the answer in a browser."""
        self._started = False
        self._error: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._text = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if message["status"] >= 400 and not (_header(headers, b"content-type") or "").startswith(
                "application/json"
            ):
                self._error = message["status"], headers
                return
            await self._start(message["status"], headers)
        elif self._error is None:
            await self._send(message)
        else:
            self._text += message.get("body", b"")
            if not message.get("more_body", False):
                status, headers = self._error
                text = self._text.decode("utf-8", "replace") or HTTPStatus(status).phrase
                kept = {name.decode(): value.decode("latin-1") for name, value in headers if name == b"allow"}
                await self.plain(status, error_body(status, text), kept)

    async def plain(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer of JSON; nothing where one has begun."""
        if self._started:
            return
        given = {"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
        await self._start(
            status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()]
        )
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def preflight(self) -> None:
        headers = {"access-control-allow-methods": _METHODS, "access-control-allow-headers": _CORS_HEADERS}
        await self.plain(204, b"", {**headers, "access-control-max-age": "600"})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        headers = [*headers, (b"date", formatdate(usegmt=True).encode()), (b"x-content-type-options", b"nosniff")]
        if self.shared is not None:
            headers += [
                (b"access-control-allow-origin", self.shared.encode("latin-1")),
                (b"access-control-expose-headers", _EXPOSED.encode()),
                (b"vary", b"origin"),
            ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _begins_something(method: str, body: bytes) -> bool:
    """Return True if a request is for a call, a session or a stream."""
    if method == "GET":
        return True
    try:
        message = json.loads(body) if body else None
    except (ValueError, RecursionError):
        return False  # the SDK refuses it
    return isinstance(message, dict) and message.get("method") in ("tools/call", "initialize", "subscriptions/listen")


def _check_framing(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse two statements about the length of a body: a proxy may go by the other one (RFC 9112, 6.1)."""
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise _Refusal(400, "Content-Length and Transfer-Encoding exclude each other", {"connection": "close"})


def _allow(method: str, *methods: str) -> None:
    if method not in methods:
        raise _Refusal(405, f"{method[:20]} is not for this", {"allow": ", ".join(methods)})


def _too_many(wait: float) -> _Refusal:
    return _Refusal(429, "too many requests; slow down", {"retry-after": str(math.ceil(wait))})


def _header(headers: list[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)
