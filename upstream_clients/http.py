"""The HTTP client under the SDK's two HTTP transports, and the token for each of its requests.

Every POST gets an answer. If the server gives no MCP answer, it is a JSON-RPC error with an `HttpFault`.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import httpx2
from msgspec import Struct, field, structs

from upstream_clients import error_mapping
from upstream_clients.errors import LoginError, LoginRefused, StoreError
from upstream_clients.fetch import same_origin
from upstream_clients.jsonrpc import INTERNAL_ERROR, readable_error
from upstream_clients.line_messages import MAX_MESSAGE_BYTES
from upstream_clients.spec import UpstreamSpec, read_challenge
from upstream_clients.token_store import Login, LoginStore, Stamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


logger = logging.getLogger(__name__)

TIMEOUT = httpx2.Timeout(30.0, connect=10.0, read=None, pool=None)
"""No read timeout: a tool may take an hour, and a stream of events may be silent. Each call has its own limit."""

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0)
"""Unlimited: each pending call uses one connection, and callers limit their own concurrency.

Uvicorn and Node close a connection that was idle for five seconds. A request that is sent in that moment is lost.
"""

_NOTIFICATION_TIMEOUT = 5.0
"""Seconds for the HTTP answer to a notification. Nothing else is sent meanwhile."""

_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPALIVE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A server that vanishes with its network or machine is noticed within 30 s. The second name is macOS's for the first.
A system without these options uses its own times, mostly of hours."""

_MAX_ERROR_BODY = 64 * 1024
_ERROR_BODY_TIMEOUT = 5.0
SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
_MAX_REDIRECTS = 20
WANTS_ANSWER = "upstream_clients/wants_answer"
"""Extension of an HTTP request whose body is known to be a JSON-RPC request, so that the body need not be parsed."""

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
"""Errors of requests of which no byte was sent."""


class _Failure(Struct):
    """A replacement for a missing answer."""

    status: int
    message: str
    fault: error_mapping.HttpFault
    code: int = INTERNAL_ERROR
    headers: dict[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def response(self, request: httpx2.Request) -> httpx2.Response:
        error = {"code": self.code, "message": self.message, "data": {**self.data, **self.fault.to_data()}}
        return httpx2.Response(
            self.status, json={"jsonrpc": "2.0", "id": None, "error": error}, headers=self.headers, request=request
        )


class McpHttpClient(httpx2.AsyncClient):
    """An `AsyncClient` whose POSTs never raise `TransportError`.

    Args:
        bearer: the login, for servers that may have one.
        is_session: True for HTTP+SSE, where the URL of each POST names the session.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        watch: error_mapping.HttpWatch,
        bearer: Bearer | None = None,
        *,
        is_session: bool = False,
    ) -> None:
        super().__init__(headers=dict(spec.headers), timeout=TIMEOUT, limits=LIMITS)
        self._bearer = bearer
        self._spec = spec
        self._watch = watch
        self._is_session = is_session
        self._has_stream = False
        """True once the server has opened the stream of its own messages in this session."""

    # Not passed as the argument `transport`: with it, httpx2 ignores the proxies of the environment. Proxies have
    # transports of their own, which take no socket options.
    def _init_transport(self, *, transport: None = None, **options: Any) -> httpx2.AsyncHTTPTransport:  # type: ignore[override]
        return httpx2.AsyncHTTPTransport(**options, socket_options=socket_options())

    @asynccontextmanager
    async def exchange(self, method: str, url: str, **parts: Any) -> AsyncIterator[httpx2.Response]:
        """Send a request and open its response. Redirects are followed within the origin of the request alone.

        Headers and body were configured for this origin. For any other redirect, the redirect is the response.
        """
        request = self.build_request(method, url, **parts)
        for followed in count():
            response = await self.send(request, stream=True, follow_redirects=False)
            following = response.next_request
            if following is None or followed == _MAX_REDIRECTS or not _may_follow(request, following):
                break
            try:
                await response.aread()  # so that the connection can be used again
            finally:
                await response.aclose()
            request = following
        try:
            yield response
        finally:
            await response.aclose()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            try:
                response = await self._send_logged_in(request, **options)
            except LoginError:
                return httpx2.Response(HTTPStatus.UNAUTHORIZED, request=request)
            # The stream of a legacy server's own messages is optional, so a refusal says nothing. But if the server has
            # opened it before, the session may be lost. The next request shows that.
            if request.method == "GET" and SESSION_HEADER in request.headers:
                if response.status_code >= 400 and self._has_stream:
                    self._watch.on_doubt()
                self._has_stream = self._has_stream or response.is_success
            return response
        in_session = self._watch.in_session = self._is_session or SESSION_HEADER in request.headers
        if not _wants_answer(request):
            timeout = {**request.extensions.get("timeout", {}), "read": _NOTIFICATION_TIMEOUT}
            request.extensions = {**request.extensions, "timeout": timeout}
        try:
            response = await self._send_logged_in(request, **options)
        except LoginError as error:
            fault = error_mapping.HttpFault(None, sent=False)
            return _Failure(HTTPStatus.BAD_GATEWAY, error_mapping.login_trouble(self._spec, error), fault).response(
                request
            )
        except httpx2.TransportError as error:
            fault = error_mapping.HttpFault(None, sent=not isinstance(error, NEVER_SENT))
            return _Failure(HTTPStatus.BAD_GATEWAY, error_mapping.unreachable(self._spec, error), fault).response(
                request
            )
        if response.status_code >= 400:
            self._watch.refused_status = response.status_code
            if (refusal := await self._login_refusal(response)) is not None:
                await response.aclose()
                return refusal.response(request)
            return (await _read_failure(response, in_session=in_session)).response(request)
        self._watch.refused_status = None
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _BoundedBody(response.stream)
            # Read the body whatever its media type is: the request may have had an effect.
            response.headers["content-type"] = "application/json"
        return response

    async def _send_logged_in(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send with the login, if there is one; after a 401 once more with a renewed one. Raises `LoginError`."""
        bearer = self._bearer
        # The server's token must not reach another server.
        if bearer is None or not same_origin(request.url, self._spec.url or ""):
            return await super().send(request, **options)
        token = await bearer.token()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        response = await super().send(request, **options)
        if response.status_code == HTTPStatus.UNAUTHORIZED and token is not None:
            # The token may be revoked before it expires, so the server's answer decides.
            try:
                renewed = await bearer.renew_token(token)
            except BaseException:
                await response.aclose()
                raise
            if renewed is not None:
                await response.aclose()
                token = renewed
                request.headers["Authorization"] = f"Bearer {token}"
                response = await super().send(request, **options)
        self._watch.logged_out = response.status_code == HTTPStatus.UNAUTHORIZED and (
            token is not None
            or self._spec.oauth is not None
            or read_challenge(response.headers.get("www-authenticate")) is not None
        )
        self._watch.logged_in = token is not None
        self._watch.login = bearer.stamp
        return response

    async def _login_refusal(self, response: httpx2.Response) -> _Failure | None:
        if self._watch.logged_out:
            fault = error_mapping.HttpFault(HTTPStatus.UNAUTHORIZED, sent=False, login=True)
            return _Failure(HTTPStatus.UNAUTHORIZED, error_mapping.login_needed(self._spec), fault)
        if self._bearer is None or response.status_code != HTTPStatus.FORBIDDEN:
            return None
        challenge = read_challenge(response.headers.get("www-authenticate"))
        if challenge is None or challenge.error != "insufficient_scope":
            return None
        if challenge.scope is not None:
            try:
                await self._bearer.request_scope(challenge.scope)
            except LoginError as error:
                logger.warning("server %r: %s", self._spec.name, error_mapping.login_trouble(self._spec, error))
        fault = error_mapping.HttpFault(HTTPStatus.FORBIDDEN, sent=False, login=True)
        return _Failure(HTTPStatus.FORBIDDEN, error_mapping.more_rights_needed(self._spec, challenge.scope), fault)


def _may_follow(sent: httpx2.Request, following: httpx2.Request) -> bool:
    """Return True for a redirect with the same method and credentials to the same origin, or from HTTP to its HTTPS."""
    one, other = sent.url, following.url
    is_upgrade = (one.scheme, other.scheme, one.host, one.port, other.port) == ("http", "https", other.host, None, None)
    return (
        following.method == sent.method
        and other.userinfo in (b"", one.userinfo)
        and (is_upgrade or same_origin(one, other))
    )


def socket_options() -> list[tuple[int, int, int]]:
    """Return the options by which a connection notices that its server has vanished."""
    known = [(getattr(socket, name, None), seconds) for name, seconds in _KEEPALIVE]
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, option, value) for option, value in known if option is not None),
    ]


def _wants_answer(request: httpx2.Request) -> bool:
    """Return True unless the body is a notification or an answer: a JSON-RPC request may take any time."""
    if WANTS_ANSWER in request.extensions:
        return True
    try:
        match json.loads(request.content):
            case {"method": str(), "id": _}:
                return True
            case dict():
                return False
    except (ValueError, RecursionError, httpx2.RequestNotRead):
        pass
    return True


async def _read_failure(response: httpx2.Response, *, in_session: bool) -> _Failure:
    status = response.status_code
    body = await _read_beginning(response)
    answer = _error_in(body)
    error: dict[str, Any] = readable_error(answer["error"]) if answer else {"code": INTERNAL_ERROR, "message": ""}
    # An error status without a JSON-RPC answer comes from a proxy in front of the server, which has not passed the
    # request on. With 5xx, the server itself may have failed while it handled the request.
    is_answer = "jsonrpc" in answer or error is answer.get("error")
    session_lost = in_session and error_mapping.is_session_refused(
        status, error["code"] if is_answer else None, body.decode("utf-8", "replace")
    )
    fault = error_mapping.HttpFault(
        status,
        sent=status >= HTTPStatus.INTERNAL_SERVER_ERROR or (is_answer and not session_lost),
        answered=is_answer,
        session_lost=session_lost,
    )
    # The challenge stays readable in the replacement.
    headers = {key: value for key, value in response.headers.items() if key == "www-authenticate"}
    data = error.get("data")
    data = data if isinstance(data, dict) else {"data": data} if data else {}
    return _Failure(status, error["message"], fault, error["code"], headers, data)


async def _read_beginning(response: httpx2.Response) -> bytes:
    body = b""
    with anyio.move_on_after(_ERROR_BODY_TIMEOUT):
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_ERROR_BODY:
                    break
        except (httpx2.TransportError, httpx2.DecodingError):
            pass  # the status alone is enough
    await response.aclose()
    return body


def _error_in(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return value if isinstance(value, dict) and value.get("error") is not None else {}


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body that fails with `StreamError`, which becomes the failure of one request."""

    def __init__(self, inner: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE_BYTES} bytes")
                yield chunk
        except httpx2.TransportError as error:
            raise httpx2.StreamError("the connection broke while the answer was being read") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


# The token for each request to one server. It is renewed in time, and shared with other processes.
#
# No person is asked here. Without a valid login, there is no token.


RENEW_EARLY = 30.0
"""Seconds before its expiry that a token is renewed."""

RENEW_TIMEOUT = 10.0
CLOSING_TIMEOUT = 2.0
"""Seconds for a renewal in flight after its caller was cancelled: its answer may have the only valid token."""

STORE_TIMEOUT = 20.0
"""Seconds for the keyring, which may wait for a person to unlock it."""

RETRY_AFTER = 5.0
"""Seconds between a failed renewal and the next attempt."""

T = TypeVar("T")


class Bearer:
    """The login of one connection, for all its requests."""

    def __init__(
        self, spec: UpstreamSpec, store: LoginStore | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """`now`: seconds since the epoch."""
        self._spec = spec
        self._store = store or LoginStore(spec)
        self._now = now
        # The mutable state.
        self._lock = anyio.Lock()
        self._login: Login | None = None
        self._stamp: Stamp = None
        self._failure: tuple[float, str] | None = None
        """Time and reason of the last failed renewal."""

    @property
    def stamp(self) -> Stamp:
        """The stamp of the login of the latest request."""
        return self._stamp

    async def token(self) -> str | None:
        """Return the current token; None without a login. Raises `LoginError` if the login cannot be used now."""
        if self._store.stamp() != self._stamp:  # there is a new login, perhaps from another process
            async with self._lock:
                await self._read()
        login = self._login
        if login is None or login.access_token is None:
            return None
        if login.expires_at is None or self._now() < login.expires_at - RENEW_EARLY or login.refresh_token is None:
            return login.access_token
        try:
            return await self.renew_token(login.access_token)
        except LoginError:
            # The renewal began before the expiry, so the old token may still be valid.
            if self._now() < login.expires_at:
                return login.access_token
            raise

    async def renew_token(self, rejected: str) -> str | None:
        """Return a token other than `rejected`; None if a person has to log in.

        Raises:
            LoginError: the renewal failed; a later attempt may succeed.
        """
        async with self._lock:
            if self._failure is not None and self._now() - self._failure[0] < RETRY_AFTER:
                raise LoginError(self._failure[1])
            outcome: list[Login | LoginError | None] = []
            over = anyio.Event()
            # A server that rotates refresh tokens has made the old ones invalid when it answers. If a cancelled caller
            # also cancelled the renewal, the new tokens would be lost, and a person would have to log in again.
            guard = anyio.CancelScope(shield=True)

            async def work() -> None:
                with guard:
                    try:
                        outcome.append(await self._renew(rejected))
                    except LoginError as error:
                        outcome.append(error)
                over.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                try:
                    await over.wait()
                except anyio.get_cancelled_exc_class():
                    guard.deadline = anyio.current_time() + CLOSING_TIMEOUT
                    raise
            match outcome:
                case [LoginError() as error]:
                    self._failure = (self._now(), str(error))
                    raise error
                case [Login(access_token=str() as token)]:
                    return token
                case _:
                    return None

    async def request_scope(self, scope: str) -> None:
        """Store a scope that the server requires and the login does not have. The next login requests it."""
        async with self._lock, self._store.locked():
            await self._read()
            if self._login is not None:
                wanted = " ".join(dict.fromkeys([*(self._login.wanted or "").split(), *scope.split()]))
                if wanted != self._login.wanted:
                    await self._write(structs.replace(self._login, wanted=wanted))

    async def _renew(self, rejected: str) -> Login | None:
        # A refresh token may be used once. So one process renews at a time, and reads the login after it has the lock.
        async with self._store.locked():
            await self._read()
            login = self._login
            if login is None or login.access_token != rejected:
                return login  # another process has renewed it
            if login.refresh_token is None:
                return None
            from upstream_clients import oauth

            try:
                renewed = await oauth.renew(self._spec, login, timeout=RENEW_TIMEOUT)
            except LoginRefused as error:
                logger.warning("the login to server %r has ended: %s", self._spec.name, error)
                await self._write(structs.replace(login, access_token=None, refresh_token=None))
                return None
            await self._write(renewed)
            return renewed

    async def _read(self) -> None:
        # Taken before the login is loaded: if the login changes in between, the next request reads it again.
        stamp = self._store.stamp()
        login = await _in_thread(self._store.load)
        if login is not None:
            self._spec.learn(login.secrets)
        self._login, self._stamp, self._failure = login, stamp, None

    async def _write(self, login: Login) -> None:
        self._spec.learn(login.secrets)
        self._login = login
        await _in_thread(partial(self._store.save, login))
        self._stamp = self._store.stamp()


async def _in_thread(function: Callable[[], T]) -> T:
    # The keyring may wait for a person for any time, so the thread is left alone after the timeout.
    try:
        with anyio.fail_after(STORE_TIMEOUT):
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
    except TimeoutError:
        raise StoreError(f"the keyring did not answer within {STORE_TIMEOUT:g} s; unlock it") from None
