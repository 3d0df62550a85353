"""The credentials that are added to each request to an API: fixed ones, tokens of a login, and tokens of a client.

`client` decides to which origins they are sent. No person is asked here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio

from upstream_clients.bearer import RENEW_EARLY, RENEW_TIMEOUT, RETRY_AFTER, Bearer
from upstream_clients.challenge import read_challenge
from upstream_clients.credential_settings import ApiKey, BasicLogin, BearerToken, ClientCredentials
from upstream_clients.error_mapping import login_needed, more_rights_needed
from upstream_clients.errors import LoginError
from upstream_clients.secret_values import is_named_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.openapi.client import Credentials
    from upstream_clients.openapi.exchanges import Outgoing
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.token_store import Login

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
        """Return a valid token. Raises `LoginError`."""
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
