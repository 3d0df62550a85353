"""The HTTP client of one API: credentials, redirects, retries, and limits of what is read.

Rules:

- An address that the configuration names may be anywhere, also on this machine. An address that only the document or a
  redirect names must be public, which is checked when the connection is made (`address_guard`).
- Credentials and configured headers are sent to the origin of `Base` if it allows that, and to no other. A redirect to
  another origin is followed for GET and HEAD, without them and without the headers of the call. A call that has left
  its origin gets no credentials any more, even if it is sent back.
- A request is repeated only as `retries` says, within the time limit of its call.
- No cookie of an answer is kept.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import anyio
import httpx2

from upstream_clients.address_guard import NotPublic
from upstream_clients.http import NEVER_SENT
from upstream_clients.openapi.exchanges import USER_AGENT, Address, Http, Outgoing
from upstream_clients.openapi.redirects import MAX_REDIRECTS, SAFE_METHODS, following, origin_of
from upstream_clients.openapi.response_body import ACCEPTED_ENCODINGS, UnreadableBody
from upstream_clients.openapi.retries import RETRIED_STATUSES, pause_before_retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.openapi.api import ApiRequest, ApiResponse


class Credentials(Protocol):
    """An addition to requests that tells the API who sends them."""

    async def apply(self, request: Outgoing) -> None:
        """Add the credentials to a request. Raises `LoginError` if there are none now."""
        ...

    async def renew(self, refused: Outgoing) -> bool:
        """Renew the credentials after a 401. Return True if the request can succeed now. Raises `LoginError`."""
        ...

    async def note_forbidden(self, challenge: str | None) -> None:
        """Take notice of an answer 403 with this `WWW-Authenticate`. Raises `LoginError` if it wants another login."""
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
    """The base address of an API, or of operations with a server of their own.

    Attributes:
        address: the address before the path of each operation, without a slash at its end.
        shown: the address for messages, without secrets.
        base_url: the base address of the API for messages, without secrets.
        entry: the name of the entry in the configuration.
        is_configured: True if the configuration names its origin, so that it may be anywhere.
        gets_credentials: True if credentials and configured headers may be sent there.
    """

    address: Address
    shown: str
    base_url: str
    entry: str
    is_configured: bool
    gets_credentials: bool


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
        self._given_headers = headers
        self._given_credentials = credentials
        self._now = now
        self._sleep = sleep
        self._by_guard: dict[bool, Http] = {}
        self._elsewhere = Http(guarded=True, keeps=False)
        self._begin_at(base)

    def at(self, base: Base) -> ApiClient:
        """Return a client with another base address, and with the HTTP connections of this one.

        This one can still be used, and its context closes the connections of both.
        """
        moved = copy.copy(self)
        moved._begin_at(base)
        return moved

    def _begin_at(self, base: Base) -> None:
        self._base = base
        self._headers = _lower(self._given_headers) if base.gets_credentials else {}
        self._credentials = self._given_credentials if base.gets_credentials else None
        is_guarded = not base.is_configured
        if is_guarded not in self._by_guard:
            self._by_guard[is_guarded] = Http(guarded=is_guarded)
        self._http = self._by_guard[is_guarded]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for http in self._by_guard.values():
            await http.close()
        await self._elsewhere.close()

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
            f'if you trust it, write "baseUrl": "{self._base.base_url}" in mcpServers.{self._base.entry}'
        )

    async def send(
        self,
        request: ApiRequest,
        *,
        is_repeatable: bool,
        deadline: Callable[[], float] | None = None,
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

    def _outgoing(self, request: ApiRequest) -> Outgoing:
        headers = {**self._defaults, **_lower(request.headers), **self._headers}
        return Outgoing(request.method, self._base.address.followed_by(request.target), headers, request.body)

    async def _send_once(self, request: ApiRequest) -> ApiResponse:
        """Send a request and follow its redirects."""
        outgoing = self._outgoing(request)
        response: ApiResponse | None = None
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = await self._exchange(outgoing)
            except NEVER_SENT as error:
                if response is None:
                    raise
                raise _after_redirect(error) from None
            method, address = outgoing.method, outgoing.address
            next_one = _following(method, address, response)
            if next_one is None:
                return response
            if next_one.address.endpoint != address.endpoint:
                return await self._follow_elsewhere(next_one, response)
            headers, body = outgoing.headers, outgoing.body
            if next_one.method != method:
                body = None
                headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
            outgoing = Outgoing(next_one.method, next_one.address, headers, body)
        assert response is not None
        return response

    async def _exchange(self, request: Outgoing) -> ApiResponse:
        """Send one request with the credentials; after a 401 once more with renewed ones."""
        credentials = self._credentials
        if credentials is None:
            return await self._http.exchange(request)
        sent = await with_credentials(credentials, request)
        response = await self._http.exchange(sent)
        if response.status == HTTPStatus.UNAUTHORIZED and await credentials.renew(sent):
            response = await self._http.exchange(await with_credentials(credentials, request))
        if response.status == HTTPStatus.FORBIDDEN:
            await credentials.note_forbidden(response.headers.get("www-authenticate"))
        return response

    async def _follow_elsewhere(self, next_one: _Following, redirect: ApiResponse) -> ApiResponse:
        """Follow a redirect to another origin, if that is safe; otherwise return the redirect."""
        response, following = redirect, next_one
        for _ in range(MAX_REDIRECTS):
            method, address = following
            if method not in SAFE_METHODS:
                break
            try:
                response = await self._elsewhere.exchange(Outgoing(method, address, self._defaults))
            except NotPublic:
                break
            except NEVER_SENT as error:
                raise _after_redirect(error) from None
            next_found = _following(method, address, response)
            if next_found is None:
                break
            following = next_found
        return response


class _Following(NamedTuple):
    """The next request after a redirect."""

    method: str
    address: Address


def _following(method: str, address: Address, response: ApiResponse) -> _Following | None:
    """Return the request after a redirect; None if the answer is none that can be followed."""
    found = following(method, address.url, response.status, response.headers.get("location"))
    if found is None:
        return None
    try:
        read = Address.read(found.url)
    except httpx2.InvalidURL:
        return None
    # The request goes to the host that httpx2 reads, so both have to read the same one.
    return _Following(found.method, read) if origin_of(found.url) == read.endpoint else None


async def with_credentials(credentials: Credentials, request: Outgoing) -> Outgoing:
    """Return a request with credentials. Raises `LoginError`."""
    added = Outgoing(request.method, request.address, dict(request.headers), request.body)
    await credentials.apply(added)
    return added


def _after_redirect(error: httpx2.TransportError) -> httpx2.ReadError:
    """Return the error for a redirect that got no connection: the request before it may have acted."""
    return httpx2.ReadError(f"it redirects to another address, which got no connection ({_describe(error)})")


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _describe(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.LocalProtocolError):
        return "the request is not valid HTTP"  # the exception's text may quote a header's value
    return str(error) or type(error).__name__
