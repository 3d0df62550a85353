"""The HTTP client of one API: credentials, redirects, retries, and limits of what is read.

Rules:

- An address that the configuration names may be anywhere, also on this machine. An address that only the document or a
  redirect names must be public, which is checked when the connection is made (`address_guard`).
- Credentials and configured headers are sent to the origin of `Base` if it allows that, and to no other. A redirect to
  another origin is followed for GET and HEAD, without them and without the headers of the call. A call that has left
  its origin gets no credentials any more, even if it is sent back.
- A request is repeated only as `next_request` says, within the time limit of its call.
- No cookie of an answer is kept.
"""

from __future__ import annotations

import copy
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, Self
from urllib.parse import quote

import anyio
import httpx2
from msgspec import Struct

from upstream_clients.error_mapping import login_needed, more_rights_needed
from upstream_clients.errors import LoginError
from upstream_clients.fetch import NotPublic
from upstream_clients.http import NEVER_SENT, RENEW_EARLY, RENEW_TIMEOUT, RETRY_AFTER, Bearer
from upstream_clients.openapi.connections import ACCEPTED_ENCODINGS, UnreadableBody
from upstream_clients.openapi.exchanges import USER_AGENT, Address, Http, Outgoing
from upstream_clients.openapi.next_request import (
    MAX_REDIRECTS,
    RETRIED_STATUSES,
    SAFE_METHODS,
    following,
    origin_of,
    pause_before_retry,
)
from upstream_clients.redaction import is_named_secret
from upstream_clients.spec import ApiKey, BasicLogin, BearerToken, ClientCredentials, UpstreamSpec, read_challenge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.openapi.api import ApiRequest, ApiResponse
    from upstream_clients.token_store import Login


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


class Base(Struct, frozen=True):
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
            next_method, next_address = next_one
            if next_address.endpoint != address.endpoint:
                return await self._follow_elsewhere(next_one, response)
            headers, body = outgoing.headers, outgoing.body
            if next_method != method:
                body = None
                headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
            outgoing = Outgoing(next_method, next_address, headers, body)
        assert response is not None
        return response

    async def _exchange(self, request: Outgoing) -> ApiResponse:
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

    async def _follow_elsewhere(self, next_one: tuple[str, Address], redirect: ApiResponse) -> ApiResponse:
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


def _following(method: str, address: Address, response: ApiResponse) -> tuple[str, Address] | None:
    found = following(method, address.url, response.status, response.headers.get("location"))
    if found is None:
        return None
    try:
        read = Address.read(found.url)
    except httpx2.InvalidURL:
        return None
    # The request goes to the host that httpx2 reads, so both have to read the same one.
    return (found.method, read) if origin_of(found.url) == read.endpoint else None


async def with_credentials(credentials: Credentials, request: Outgoing) -> Outgoing:
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


# The credentials that are added to each request to an API: fixed ones, tokens of a login, and tokens of a client.
#
# `client` decides to which origins they are sent. No person is asked here.


_SCHEME: Final = "Bearer "


def credentials_of(spec: UpstreamSpec, *, now: Callable[[], float] = time.time) -> Credentials | None:
    """Return the credentials of an entry; None if it has none.

    Args:
        now: seconds since the epoch.
    """
    match spec.credentials:
        case None:
            return LoginToken(spec) if spec.may_log_in else None
        case ClientCredentials() as client:
            return ClientToken(spec, client, now=now)
        case fixed:
            return FixedCredentials(fixed)


def has_credentials(spec: UpstreamSpec) -> bool:
    """Return True if an entry has a login, credentials, or a header that is probably one."""
    return (
        spec.credentials is not None
        or spec.oauth is not None
        or any(is_named_secret(name, value) for name, value in spec.headers.items())
    )


def advice_after_refusal(spec: UpstreamSpec, address: str, *, are_sent: bool) -> str:
    """Return advice for an answer 401.

    Args:
        address: the base address of the API.
        are_sent: True if the credentials of the entry are sent to this address.
    """
    entry = f"mcpServers.{spec.name}"
    if not has_credentials(spec):
        return f'Server {spec.name!r} has no credentials. Ask the user to write "auth" in {entry}.'
    if are_sent:
        return f"The credentials of server {spec.name!r} were sent and refused. Ask the user to check them in {entry}."
    return (
        f"The credentials of server {spec.name!r} were not sent, because only its document names {address}. "
        f'Ask the user to write this address as "baseUrl" in {entry}, if it can be trusted.'
    )


class FixedCredentials:
    """Credentials that are the same for each request."""

    def __init__(self, settings: BearerToken | BasicLogin | ApiKey) -> None:
        self._header: tuple[str, str] | None = None
        self._parameter = ""
        self._cookie = ""
        match settings:
            case BearerToken():
                self._header = "authorization", _SCHEME + settings.token
            case BasicLogin():
                self._header = "authorization", settings.header
            case ApiKey(place="header"):
                self._header = settings.name.lower(), settings.value
            case ApiKey(place="query"):
                self._parameter = f"{quote(settings.name, safe='')}={quote(settings.value, safe='')}"
            case ApiKey():
                self._cookie = f"{settings.name}={settings.value}"

    async def apply(self, request: Outgoing) -> None:
        if self._header is not None:
            name, value = self._header
            request.headers[name] = value
        elif self._parameter:
            request.address = request.address.with_parameter(self._parameter)
        else:
            name = self._cookie.partition("=")[0]
            before = request.headers.get("cookie", "").split("; ")
            others = [each for each in before if each and each.partition("=")[0] != name]
            request.headers["cookie"] = "; ".join([*others, self._cookie])

    async def renew(self, refused: Outgoing) -> bool:
        return False

    async def note_forbidden(self, challenge: str | None) -> None:
        pass


class LoginToken:
    """The tokens of the login that `codemode-mcp login` has stored."""

    def __init__(self, spec: UpstreamSpec, bearer: Bearer | None = None) -> None:
        self._spec = spec
        self._bearer = bearer or Bearer(spec)

    async def apply(self, request: Outgoing) -> None:
        token = await self._bearer.token()
        if token is None:
            raise LoginError(login_needed(self._spec))
        request.headers["authorization"] = _SCHEME + token

    async def renew(self, refused: Outgoing) -> bool:
        if await self._bearer.renew_token(_token_of(refused)) is None:
            raise LoginError(login_needed(self._spec))
        return True

    async def note_forbidden(self, challenge: str | None) -> None:
        found = read_challenge(challenge)
        if found is None or found.error != "insufficient_scope":
            return
        if found.scope is not None:
            await self._bearer.request_scope(found.scope)  # the next login requests it, too
        raise LoginError(more_rights_needed(self._spec, found.scope))


class ClientToken:
    """The tokens that a client gets for itself (RFC 6749, section 4.4). They live in memory only.

    One request for a token is in flight at a time. Calls that have a valid token do not wait for it. After a failed
    request, calls fail with the same reason for `RETRY_AFTER` seconds.
    """

    def __init__(
        self, spec: UpstreamSpec, settings: ClientCredentials, *, now: Callable[[], float] = time.time
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._now = now
        # The mutable state.
        self._lock = anyio.Lock()
        self._login: Login | None = None
        self._since = 0.0
        self._failure: tuple[float, str] | None = None
        """Time and reason of the last failed request."""

    async def apply(self, request: Outgoing) -> None:
        request.headers["authorization"] = _SCHEME + await self._token()

    async def renew(self, refused: Outgoing) -> bool:
        token = _token_of(refused)
        async with self._lock:
            if self._login is not None and self._login.access_token == token:
                if self._now() - self._since < RETRY_AFTER:
                    return False  # another new token would be refused too
                self._login = None
        await self._token()
        return True

    async def note_forbidden(self, challenge: str | None) -> None:
        pass

    async def _token(self) -> str:
        token = self._valid_token(self._renew_at())
        if token is not None:
            return token
        if self._lock.locked() and (token := self._valid_token(self._ends_at())) is not None:
            return token
        async with self._lock:
            token = self._valid_token(self._renew_at())
            if token is not None:
                return token
            try:
                return await self._request()
            except LoginError as error:
                self._failure = self._now(), str(error)
                # The request began before the end of the old token.
                if (token := self._valid_token(self._ends_at())) is not None:
                    return token
                raise

    def _ends_at(self) -> float:
        login = self._login
        return float("inf") if login is None or login.expires_at is None else login.expires_at

    def _renew_at(self) -> float:
        """Return the time to get the next token: before the end, but at least after half of the lifetime."""
        end = self._ends_at()
        return max(end - RENEW_EARLY, (self._since + end) / 2)

    def _valid_token(self, until: float) -> str | None:
        login = self._login
        return None if login is None or self._now() >= until else login.access_token

    async def _request(self) -> str:
        if self._failure is not None and self._now() - self._failure[0] < RETRY_AFTER:
            raise LoginError(self._failure[1])
        from upstream_clients import oauth  # takes longer to import than all the rest, and most APIs need no token

        try:
            login = await oauth.client_login(self._settings, self._login, timeout=RENEW_TIMEOUT, now=self._now)
        except LoginError as error:
            key = f"mcpServers.{self._spec.name}.auth"
            raise LoginError(
                f"no token for server {self._spec.name!r}: {self._spec.redact(str(error))}; check {key}"
            ) from None
        self._spec.learn(login.secrets)
        self._login, self._since, self._failure = login, self._now(), None
        assert login.access_token is not None
        return login.access_token


def _token_of(request: Outgoing) -> str:
    return request.headers.get("authorization", "").removeprefix(_SCHEME)
