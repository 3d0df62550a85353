"""The HTTP client of one API: credentials, redirects, retries, and limits of what is read.

Rules:

- An address that the configuration names may be anywhere, also on this machine. An address that only the document or a
  redirect names must be public, which is checked when the connection is made (`address_guard`).
- Credentials and configured headers are sent to the origins that `Base` allows, and to no other. A redirect to another
  origin is followed for GET and HEAD, without them and without the headers of the call. A call that has left its origin
  gets no credentials any more, even if it is sent back.
- A request is repeated only as `retries` says, within the time limit of its call.
- No cookie of an answer is kept.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import urlsplit

import anyio
import httpx2

from upstream_clients.address_guard import GuardedClient, NotPublic, may_be_public
from upstream_clients.http import LIMITS, NEVER_SENT, TIMEOUT, socket_options
from upstream_clients.line_messages import MAX_MESSAGE_BYTES
from upstream_clients.openapi.api import ApiRequest, ApiResponse
from upstream_clients.openapi.redirects import MAX_REDIRECTS, SAFE_METHODS, following, origin_of
from upstream_clients.openapi.response_body import ACCEPTED_ENCODINGS, UnreadableBody, read_body
from upstream_clients.openapi.retries import RETRIED_STATUSES, pause_before_retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.openapi.redirects import Following

USER_AGENT: Final = "codemode-mcp"
"""Value of `User-Agent`, until the client has named itself. Some APIs refuse requests without one."""

_EXTENSIONS: Final = {"timeout": TIMEOUT.as_dict()}


class Credentials(Protocol):
    """An addition to requests that tells the API who sends them."""

    async def apply(self, request: httpx2.Request) -> None:
        """Add the credentials to a request. Raises `LoginError` if there are none now."""
        ...

    async def renew(self, refused: httpx2.Request) -> bool:
        """Renew the credentials after a 401. Return True if the request can succeed now. Raises `LoginError`."""
        ...


class NoAnswer(Exception):
    """A request got no answer that can be used. The text says why, for a person.

    Attributes:
        sent: True if the request may have reached the API.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Base:
    """The base address of an API.

    Attributes:
        url: the address before the path of each operation, without a slash at its end.
        shown: the address for messages, without secrets.
        entry: the name of the entry in the configuration.
        is_configured: True if the configuration names its origin, so that it may be anywhere.
        gets_credentials: True if credentials and configured headers may be sent there.
    """

    url: str
    shown: str
    entry: str
    is_configured: bool
    gets_credentials: bool


class HttpConnections(httpx2.AsyncClient):
    """The connections of an HTTP client, with the proxies of the environment and without a cookie jar."""

    def __init__(self) -> None:
        super().__init__(timeout=TIMEOUT, limits=LIMITS)

    # Not passed as the argument `transport`: with it, httpx2 ignores the proxies of the environment.
    def _init_transport(self, *, transport: None = None, **options: Any) -> httpx2.AsyncHTTPTransport:  # type: ignore[override]
        return httpx2.AsyncHTTPTransport(**options, socket_options=socket_options())


async def exchange(connections: httpx2.AsyncClient, request: httpx2.Request) -> ApiResponse:
    """Send one request, and return its whole answer. No redirect is followed.

    Raises:
        httpx2.TransportError: there was no answer, or it broke off.
        UnreadableBody: the answer is too large, or is encoded in another way than it says.
    """
    # Past `AsyncClient.send`, which follows redirects, keeps cookies, and takes as long as the rest of the exchange.
    response = await connections._transport_for_url(request.url).handle_async_request(request)
    try:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        headers = dict(response.headers)
        body = await read_body(response.stream, headers, MAX_MESSAGE_BYTES)
    finally:
        await response.aclose()
    return ApiResponse(response.status_code, response.reason_phrase, headers, body)


class ApiClient:
    """The requests to one API, inside an async context.

    Args:
        headers: configured headers, which may be secret.
        now: seconds since the epoch.
        sleep: the pause before a retry, in seconds.
    """

    def __init__(
        self,
        base: Base,
        *,
        headers: Mapping[str, str],
        credentials: Credentials | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._defaults = {"accept": "*/*", "accept-encoding": ACCEPTED_ENCODINGS, "user-agent": USER_AGENT}
        self._base = base
        self._headers = _lower(headers) if base.gets_credentials else {}
        self._credentials = credentials if base.gets_credentials else None
        self._now = now
        self._sleep = sleep
        self._stack = AsyncExitStack()
        # A guarded client for one host may keep its connections: each was opened for the name of this host.
        self._client = HttpConnections() if base.is_configured else GuardedClient(None, timeout=TIMEOUT, limits=LIMITS)
        self._elsewhere: GuardedClient | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def set_user_agent(self, user_agent: str) -> None:
        """Name the client in requests from now on."""
        self._defaults["user-agent"] = user_agent

    @property
    def address(self) -> str:
        """The base address, for messages."""
        return self._base.shown

    @property
    def _not_public(self) -> str:
        return (
            "only its document names this address, which is not public; "
            f'if you trust it, write "baseUrl": "{self._base.shown}" in mcpServers.{self._base.entry}'
        )

    async def send(
        self, request: ApiRequest, *, is_repeatable: bool, deadline: Callable[[], float] | None = None
    ) -> ApiResponse:
        """Send a request of an operation, and return its answer after redirects and retries.

        Args:
            is_repeatable: True if the operation has the same effect when it is done twice.
            deadline: returns the end of the call's time, in seconds on the clock of the event loop.

        Raises:
            NoAnswer: there is no answer that can be used.
            LoginError: there are no credentials now.
        """
        retries = 0
        while True:
            failure: NoAnswer | None = None
            response: ApiResponse | None = None
            try:
                response = await self._send_once(request)
            except NotPublic:
                raise NoAnswer(self._not_public, sent=False) from None
            except httpx2.InvalidURL as error:
                raise NoAnswer(f"its address is not valid ({error})", sent=False) from None
            except httpx2.TransportError as error:
                sent = not isinstance(error, (*NEVER_SENT, httpx2.LocalProtocolError, httpx2.UnsupportedProtocol))
                failure = NoAnswer(_describe(error), sent=sent)
                if isinstance(error, httpx2.LocalProtocolError) or (sent and not is_repeatable):
                    raise failure from None
            except UnreadableBody as error:
                raise NoAnswer(str(error), sent=True) from None
            if response is not None and not (is_repeatable and response.status in RETRIED_STATUSES):
                return response
            retry_after = None if response is None else response.headers.get("retry-after")
            pause = pause_before_retry(retries, retry_after, self._now())
            if pause is None or (deadline is not None and anyio.current_time() + pause >= deadline()):
                if response is not None:
                    return response
                assert failure is not None
                raise failure
            await self._sleep(pause)
            retries += 1

    async def _send_once(self, request: ApiRequest) -> ApiResponse:
        """Send a request and follow its redirects."""
        headers = {**self._defaults, **_lower(request.headers), **self._headers}
        method, url, body = request.method, self._base.url + request.target, request.body
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._exchange(method, url, headers, body)
            next_one = _following(method, url, response)
            if next_one is None:
                return response
            if origin_of(next_one.url) != origin_of(url):
                return await self._follow_elsewhere(next_one.method, next_one.url, response)
            if next_one.method != method:
                body = None
                headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
            method, url = next_one
        return response

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiResponse:
        """Send one request with the credentials; after a 401 once more with renewed ones."""
        request = _request(method, url, headers, body)
        credentials = self._credentials
        if credentials is None:
            return await exchange(self._client, request)
        await credentials.apply(request)
        response = await exchange(self._client, request)
        if response.status == HTTPStatus.UNAUTHORIZED and await credentials.renew(request):
            request = _request(method, url, headers, body)
            await credentials.apply(request)
            response = await exchange(self._client, request)
        return response

    async def _follow_elsewhere(self, method: str, url: str, redirect: ApiResponse) -> ApiResponse:
        """Follow a redirect to another origin, if that is safe; otherwise return the redirect."""
        response = redirect
        for _ in range(MAX_REDIRECTS):
            # Through a proxy of the environment, only what the address itself shows is checked.
            if method not in SAFE_METHODS or not may_be_public(urlsplit(url).hostname or ""):
                return response
            request = _request(method, url, self._defaults, None)
            try:
                response = await exchange(await self._guarded(), request)
            except NotPublic:
                return response
            next_one = _following(method, url, response)
            if next_one is None:
                return response
            method, url = next_one
        return response

    async def _guarded(self) -> GuardedClient:
        if self._elsewhere is None:
            client = GuardedClient(None, timeout=TIMEOUT)
            self._elsewhere = await self._stack.enter_async_context(client)
        return self._elsewhere


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _request(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> httpx2.Request:
    # A header of the call may have any characters. UTF-8 is what most servers expect.
    encoded = [(name.encode("ascii"), value.encode("utf-8", "replace")) for name, value in headers.items()]
    return httpx2.Request(method, url, headers=encoded, content=body, extensions=_EXTENSIONS)


def _following(method: str, url: str, response: ApiResponse) -> Following | None:
    """Return the request after a redirect; None if the answer is none that can be followed."""
    found = following(method, url, response.status, response.headers.get("location"))
    if found is None:
        return None
    try:
        read = httpx2.URL(found.url)
    except httpx2.InvalidURL:
        return None
    # The request goes to the host that httpx2 reads, so that one has to be the host that is checked.
    same = origin_of(found.url) == origin_of(f"{read.scheme}://{read.raw_host.decode()}:{read.port or ''}")
    return found if same or ":" in read.host else None


def _describe(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.LocalProtocolError):
        return "the request is not valid HTTP"  # the exception's text may quote a header's value
    return str(error) or type(error).__name__
