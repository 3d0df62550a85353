"""OAuth 2.1 as a client: discovery, registration, the authorization request, and the token endpoint.

The SDK's `OAuthClientProvider` is not used. It holds a lock while a request is answered, so calls would queue. It
starts a login at every 401, also without a person at a browser. After a restart, it would send a refresh token to a
guessed address. Two processes would invalidate each other's rotated tokens. Only the SDK's models and pure functions
are used.

`oauth` finds the authorization server. `codemode_mcp.cli.browser_login` talks to the browser and the person.
`http` uses the tokens.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import anyio
import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp_types import LATEST_PROTOCOL_VERSION
from msgspec import Struct, structs
from pydantic import BaseModel, ValidationError

from upstream_clients import jsonrpc
from upstream_clients.errors import LoginError, LoginRefused
from upstream_clients.fetch import Fetcher, check_address, describe_url, is_local
from upstream_clients.spec import Challenge, ClientCredentials, UpstreamSpec, read_challenge
from upstream_clients.token_store import Login

# The login that a server offers: its answer to an anonymous client, and the metadata of its authorization server.
#
# Sources: RFC 9728 (protected resource metadata), RFC 8414 and OpenID Connect Discovery (authorization server
# metadata), and the fixed addresses of MCP 2025-03-26. `oauth` makes a login from an `Offer`.


PROBE_TIMEOUT = 15.0
"""Seconds to find out whether a server requires a login."""

_METADATA_HEADERS = {"MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}

M = TypeVar("M", bound=BaseModel)


class Offer(Struct, frozen=True):
    """A login that a server offers.

    Attributes:
        scope: scopes to request, separated by spaces; None leaves them to the authorization server.
        resource: the resource indicator (RFC 8707); None for servers without resource metadata.
        guessed: True if the server has no metadata, so that the addresses are the fixed ones of MCP 2025-03-26.
        written: True if the addresses are written in the configuration, so that the issuer is not known.
    """

    metadata: OAuthMetadata
    scope: str | None
    resource: str | None
    guessed: bool = False
    written: bool = False


async def probe(spec: UpstreamSpec) -> tuple[int, Challenge | None]:
    """Return the HTTP status and the challenge that a server answers to an anonymous client.

    Raises:
        LoginError: the server does not answer.
    """
    assert spec.url is not None
    headers = dict(spec.headers) | {"Accept": "application/json, text/event-stream"}
    answer: tuple[int, Challenge | None] = (0, None)
    try:
        with anyio.fail_after(PROBE_TIMEOUT):
            async with httpx2.AsyncClient(timeout=PROBE_TIMEOUT, headers=headers) as client:
                # Some servers need no login for the handshake, and send a challenge only at the first request after it.
                for message, version in [(None, {})] if spec.transport == "sse" else _PROBES:
                    method = "GET" if message is None else "POST"
                    request = client.build_request(method, spec.url, json=message, headers=version)
                    response = await client.send(request, stream=True, follow_redirects=False)
                    try:
                        answer = response.status_code, read_challenge(response.headers.get("www-authenticate"))
                        if response.status_code in (401, 403):
                            return answer
                        if session := response.headers.get("mcp-session-id"):
                            client.headers["mcp-session-id"] = session
                    finally:
                        await response.aclose()
                return answer
    except (TimeoutError, httpx2.TransportError, httpx2.InvalidURL) as error:
        raise LoginError(f"{spec.address} cannot be reached ({type(error).__name__})") from None


_INFO = {"name": "codemode-mcp", "version": "0"}
_MODERN, _LEGACY = jsonrpc.MODERN_VERSIONS[-1], jsonrpc.HANDSHAKE_VERSIONS[-1]
_METHODS: tuple[tuple[str, dict[str, Any], dict[str, str]], ...] = (
    (
        "server/discover",
        {"_meta": {jsonrpc.PROTOCOL_VERSION: _MODERN, jsonrpc.CLIENT_INFO: _INFO, jsonrpc.CLIENT_CAPABILITIES: {}}},
        {"MCP-Protocol-Version": _MODERN, "Mcp-Method": "server/discover"},
    ),
    ("initialize", {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _INFO}, {}),
    ("tools/list", {}, {"MCP-Protocol-Version": _LEGACY}),
)
_PROBES: list[tuple[dict[str, Any] | None, dict[str, str]]] = [
    ({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, headers)
    for number, (method, params, headers) in enumerate(_METHODS, 1)
]
"""Requests of `probe`, with their headers."""


async def discover(spec: UpstreamSpec, fetcher: Fetcher, challenge: Challenge | None) -> Offer | None:
    """Return the login that the server offers.

    Returns:
        The offer; None if the server names no authorization server and has sent no challenge.

    Raises:
        LoginError: the offer cannot be used or trusted.
    """
    assert spec.login_url is not None
    if spec.names_endpoints:
        return _written_offer(spec)
    url = spec.login_url
    if urlsplit(url).scheme != "https" and not is_local(url):
        raise LoginError(f"{spec.address} is not https: anyone on the network path could read the login")
    resource = await _resource_metadata(url, fetcher, challenge)
    server = None if resource is None else str(resource.authorization_servers[0])
    metadata = await _server_metadata(url, fetcher, server)
    guessed = metadata is None
    if metadata is None:
        if server is not None:
            raise LoginError(f"the authorization server {describe_url(server)} publishes no metadata")
        if challenge is None:
            return None
        metadata = _default_metadata(url)
    elif "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise LoginError("the authorization server does not offer PKCE with S256, without which a login is not safe")
    for what, endpoint in (
        ("the authorization endpoint", metadata.authorization_endpoint),
        ("the token endpoint", metadata.token_endpoint),
        ("the registration endpoint", metadata.registration_endpoint),
        ("the revocation endpoint", metadata.revocation_endpoint),
    ):
        if endpoint is not None:
            await check_address(str(endpoint), url, what)
    return Offer(
        metadata,
        _scope(spec, challenge, resource, metadata),
        None if resource is None else str(resource.resource),
        guessed,
    )


def _written_offer(spec: UpstreamSpec) -> Offer:
    settings = spec.oauth
    assert settings is not None
    assert settings.authorization_url is not None
    metadata = OAuthMetadata.model_validate(
        {
            "issuer": _origin(settings.authorization_url),
            "authorization_endpoint": settings.authorization_url,
            "token_endpoint": settings.token_url,
        }
    )
    return Offer(metadata, " ".join(settings.scopes or ()) or None, None, written=True)


async def _resource_metadata(
    server_url: str, fetcher: Fetcher, challenge: Challenge | None
) -> ProtectedResourceMetadata | None:
    what = "the metadata of the server"
    named = None if challenge is None else challenge.resource_metadata
    urls = build_protected_resource_metadata_discovery_urls(named, server_url)
    found = await _first_document(ProtectedResourceMetadata, fetcher, urls, what)
    if found is not None and not check_resource_allowed(resource_url_from_server_url(server_url), str(found.resource)):
        # RFC 9728, section 3.3. Otherwise a server could get tokens that are meant for another one.
        raise LoginError(f"{what} is about another server, {describe_url(str(found.resource))}")
    return found


async def _server_metadata(server_url: str, fetcher: Fetcher, issuer: str | None) -> OAuthMetadata | None:
    what = "the metadata of the authorization server"
    expected = issuer or _origin(server_url)
    urls = build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url)
    found = await _first_document(OAuthMetadata, fetcher, urls, what)
    if found is not None and not issuers_match(str(found.issuer), expected):
        raise LoginError(
            f"{what} names another issuer, {describe_url(str(found.issuer))} and not {describe_url(expected)}"
        )
    return found


async def _first_document(model: type[M], fetcher: Fetcher, urls: Iterable[str], what: str) -> M | None:
    for url in urls:
        status, document = await fetcher.get(url, what, headers=_METADATA_HEADERS)
        if status >= 500 or status == 429:
            raise LoginError(f"{what} cannot be read, HTTP {status}: {describe_url(url)}")
        if status == 200:
            with suppress(ValidationError):
                return model.model_validate(document)
    return None


def _default_metadata(url: str) -> OAuthMetadata:
    origin = _origin(url)
    return OAuthMetadata.model_validate(
        {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
        }
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _scope(
    spec: UpstreamSpec,
    challenge: Challenge | None,
    resource: ProtectedResourceMetadata | None,
    metadata: OAuthMetadata,
) -> str | None:
    if spec.oauth is not None and spec.oauth.scopes is not None:
        return " ".join(spec.oauth.scopes) or None
    scope = None if challenge is None else challenge.scope
    if scope is None and resource is not None and resource.scopes_supported:
        scope = " ".join(resource.scopes_supported)
    if scope is not None and "offline_access" in (metadata.scopes_supported or ()):
        # Without this scope, many authorization servers issue no refresh token.
        scope = union_scopes(scope, "offline_access")
    return scope


_MAX_LIFETIME = 10 * 365 * 86400
"""Maximum lifetime of a token in seconds. A server may name any number."""
_REFUSALS = ("invalid_grant", "invalid_client", "unauthorized_client")
"""Error codes of the token endpoint that no repetition can change (RFC 6749, section 5.2)."""
_ANY_METHOD = "any"
"""The authentication method of a client whose authorization server has no metadata: both methods are tried."""
_BOTH_METHODS = ("client_secret_basic", "client_secret_post")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Our registration at the authorization server."""

    id: str
    secret: str | None
    auth_method: str


@dataclass(frozen=True, slots=True, repr=False)
class Attempt:
    """One authorization request. The browser opens `url`. `state` and `verifier` are secret."""

    offer: Offer
    client: Client
    redirect_uri: str
    state: str
    verifier: str
    url: str


async def become_client(spec: UpstreamSpec, fetcher: Fetcher, offer: Offer, redirect_uri: str) -> Client:
    """Return the configured client or one with a metadata document, else register one for this login (RFC 7591).

    Raises:
        LoginError: the authorization server does not register clients, or only ones that cannot be used.
    """
    metadata, settings = offer.metadata, spec.oauth
    methods = metadata.token_endpoint_auth_methods_supported
    if settings is not None and settings.client_id is not None:
        if spec.names_endpoints and settings.client_secret is not None:
            return Client(settings.client_id, settings.client_secret, _ANY_METHOD)
        return Client(settings.client_id, settings.client_secret, _auth_method(settings.client_secret, methods))
    if settings is not None and settings.client_metadata_url and metadata.client_id_metadata_document_supported:
        return Client(settings.client_metadata_url, None, "none")
    if metadata.registration_endpoint is None:
        raise LoginError(
            "the authorization server does not register clients automatically; register one there and set its id: "
            f'"auth": {{"type": "oauth", "clientId": "..."}} in mcpServers.{spec.name}'
        )
    # A public client, if the server allows it: PKCE protects the login, and there is no secret to store.
    requested = "none" if methods is None or "none" in methods else _auth_method("a secret", methods)
    request: dict[str, Any] = {
        "client_name": "codemode-mcp",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": requested,
        "application_type": "native",
    }
    if offer.scope is not None:
        request["scope"] = offer.scope
    status, answer = await fetcher.post_json(str(metadata.registration_endpoint), "the registration endpoint", request)
    if status not in (200, 201):
        if offer.guessed:  # nothing has shown yet that the server supports OAuth at all
            raise LoginError(
                "no OAuth login was found; if the server takes a fixed token, give it "
                f'in "headers" of mcpServers.{spec.name}'
            )
        raise LoginError(f"the authorization server did not register this client: {_reason(status, answer)}")
    match answer:
        case {"client_id": str(client_id)} if client_id:
            secret = answer.get("client_secret")
            method = answer.get("token_endpoint_auth_method") or requested
        case _:
            raise LoginError("the answer of the registration endpoint is not a registration")
    if method == "none":
        return Client(client_id, None, method)
    if method in ("client_secret_post", "client_secret_basic") and secret and isinstance(secret, str):
        return Client(client_id, secret, method)
    raise LoginError(
        "the authorization server registered this client with an authentication method that is not supported, or "
        "without a secret"
    )


def _auth_method(secret: str | None, supported: list[str] | None) -> str:
    if secret is None:
        return "none"
    # RFC 8414, section 2: without the list, the default is client_secret_basic.
    return "client_secret_post" if supported and "client_secret_basic" not in supported else "client_secret_basic"


def begin(offer: Offer, client: Client, redirect_uri: str) -> Attempt:
    """Return an authorization request with PKCE (RFC 7636) and a state."""
    verifier = secrets.token_urlsafe(64)
    state = secrets.token_urlsafe(32)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    if offer.resource is not None:
        query["resource"] = offer.resource
    if offer.scope is not None:
        query["scope"] = offer.scope
        if "offline_access" in offer.scope.split():
            query["prompt"] = "consent"  # required for this scope by OpenID Connect Core, section 11
    endpoint = str(offer.metadata.authorization_endpoint)
    url = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"
    return Attempt(offer, client, redirect_uri, state, verifier, url)


def is_answer_to(attempt: Attempt, answer: Mapping[str, str]) -> bool:
    """Return True if the query of a redirect belongs to this attempt. Any page can redirect a browser here."""
    return secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode())


def read_code(attempt: Attempt, answer: Mapping[str, str]) -> str:
    """Return the authorization code in an answer that `is_answer_to` accepts.

    Raises:
        LoginRefused: the user or the authorization server refused.
        LoginError: another issuer has answered (RFC 9207), or there is no code.
    """
    issuer, metadata = answer.get("iss"), attempt.offer.metadata
    if issuer is None and metadata.authorization_response_iss_parameter_supported:
        raise LoginError("the answer does not name its issuer, although this authorization server promises that")
    if issuer is not None and not attempt.offer.written and issuer != str(metadata.issuer):
        raise LoginError(f"the answer comes from another issuer, {describe_url(issuer)}")
    if "error" in answer:
        raise LoginRefused(f"the login was refused: {_reason(None, answer)}")
    if not answer.get("code"):
        raise LoginError("the answer has no authorization code")
    return answer["code"]


async def redeem(fetcher: Fetcher, attempt: Attempt, code: str) -> Login:
    """Exchange an authorization code for tokens. Raises `LoginError`."""
    metadata = attempt.offer.metadata
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
    }
    login = Login(
        scope=attempt.offer.scope,
        issuer=str(metadata.issuer),
        token_endpoint=str(metadata.token_endpoint),
        revocation_endpoint=None if metadata.revocation_endpoint is None else str(metadata.revocation_endpoint),
        client_id=attempt.client.id,
        client_secret=attempt.client.secret,
        auth_method=attempt.client.auth_method,
        resource=attempt.offer.resource,
    )
    return await _request_token(fetcher, login, attempt.client.secret, form)


async def client_login(
    settings: ClientCredentials, before: Login | None, *, timeout: float, now: Callable[[], float] = time.time
) -> Login:
    """Get a token for a client itself (RFC 6749, section 4.4), within `timeout` seconds.

    Args:
        before: the latest login, which knows the authentication method that the endpoint accepts.
        now: seconds since the epoch.

    Raises:
        LoginError: there was no usable answer; a later attempt may succeed.
    """
    form = {"grant_type": "client_credentials"}
    if settings.scopes:
        form["scope"] = " ".join(settings.scopes)
    if settings.audience is not None:
        form["audience"] = settings.audience
    login = Login(
        token_endpoint=settings.token_url,
        client_id=settings.client_id,
        auth_method=_ANY_METHOD if before is None else before.auth_method,
    )
    async with Fetcher(settings.token_url, timeout=timeout, trusted=True) as fetcher:
        return await _request_token(fetcher, login, settings.client_secret, form, now)


async def renew(spec: UpstreamSpec, login: Login, *, timeout: float) -> Login:
    """Exchange the refresh token for new tokens, within `timeout` seconds.

    Raises:
        LoginRefused: the login has ended; a person has to log in again.
        LoginError: there was no usable answer; a later attempt may succeed.
    """
    assert spec.login_url is not None
    if login.refresh_token is None or login.token_endpoint is None:
        raise LoginRefused("the login has no refresh token")
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
    async with Fetcher(spec.login_url, timeout=timeout, trusted=spec.names_endpoints) as fetcher:
        return await _request_token(fetcher, login, _client_secret(spec, login), form)


async def revoke(spec: UpstreamSpec, login: Login, *, timeout: float = 5.0) -> bool:
    """Revoke the tokens at the authorization server (RFC 7009). Return True if it has confirmed that."""
    token = login.refresh_token or login.access_token
    if token is None or login.revocation_endpoint is None or spec.login_url is None:
        return False
    form, headers = _authenticated({"token": token}, login, _client_secret(spec, login))
    try:
        async with Fetcher(spec.login_url, timeout=timeout) as fetcher:
            status, _ = await fetcher.post_form(
                login.revocation_endpoint, "the revocation endpoint", form, headers=headers
            )
    except LoginError:
        return False
    return status == 200


def _client_secret(spec: UpstreamSpec, login: Login) -> str | None:
    if spec.oauth is not None and spec.oauth.client_id is not None:
        return spec.oauth.client_secret
    return login.client_secret


def _authenticated(form: Mapping[str, str], login: Login, secret: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers with the client's credentials (RFC 6749, section 2.3)."""
    client_id = login.client_id or ""
    fields, headers = {**form, "client_id": client_id}, {}
    if login.auth_method == "client_secret_basic" and secret:
        # Section 2.3.1: both parts are form-encoded before they are joined, so that a colon in one is no separator.
        both = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
    elif login.auth_method == "client_secret_post" and secret:
        fields["client_secret"] = secret
    return fields, headers


async def _request_token(
    fetcher: Fetcher, login: Login, secret: str | None, form: dict[str, str], now: Callable[[], float] = time.time
) -> Login:
    if login.resource is not None:
        form["resource"] = login.resource
    status, answer, login = await _post_form(fetcher, login, secret, form)
    if status not in (200, 201):
        refused = isinstance(answer, dict) and answer.get("error") in _REFUSALS
        error = LoginRefused if refused else LoginError
        raise error(f"the token endpoint refused: {_reason(status, answer)}")
    try:
        token = OAuthToken.model_validate(answer)
    except ValidationError:
        raise LoginError("the answer of the token endpoint is not a token") from None
    if not _HEADER_VALUE.fullmatch(token.access_token):
        raise LoginError("the token endpoint gave an access token with characters that a header cannot have")
    lifetime = None if token.expires_in is None else min(max(token.expires_in, 0), _MAX_LIFETIME)
    return structs.replace(
        login,
        access_token=token.access_token,
        # Without a new refresh token, the old one stays valid. Without a scope, the requested one is granted (RFC 6749,
        # sections 6 and 5.1).
        refresh_token=token.refresh_token or login.refresh_token,
        expires_at=None if lifetime is None else now() + lifetime,
        scope=token.scope if token.scope is not None else login.scope,
        wanted=None,
    )


async def _post_form(
    fetcher: Fetcher, login: Login, secret: str | None, form: Mapping[str, str]
) -> tuple[int, Any, Login]:
    endpoint, tried = login.token_endpoint, login
    assert endpoint is not None
    status, answer = 0, None
    for method in _BOTH_METHODS if login.auth_method == _ANY_METHOD else (login.auth_method,):
        tried = structs.replace(login, auth_method=method)
        fields, headers = _authenticated(form, tried, secret)
        status, answer = await fetcher.post_form(endpoint, "the token endpoint", fields, headers=headers)
        refused = isinstance(answer, dict) and answer.get("error") == "invalid_client"
        if status != HTTPStatus.UNAUTHORIZED and not refused:
            break
    return status, answer, tried


def _reason(status: int | None, answer: object) -> str:
    """Return the HTTP status and the OAuth error code. The error's description is left out: it may quote a secret."""
    parts = [] if status is None else [f"HTTP {status}"]
    if isinstance(answer, dict):
        code = answer.get("error")
        if isinstance(code, str):
            parts.append(code if _ERROR_CODE.fullmatch(code) else "an error code that is not valid")
    return ", ".join(parts) or "no reason given"
