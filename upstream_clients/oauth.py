"""OAuth 2.1 towards a server, step by step: who is to be asked, as whom, for what, and what came of it.

Not the SDK's `OAuthClientProvider`: it holds a lock while a request is answered, so that calls would queue; it opens a
flow wherever a 401 turns up, also without a person at a browser; after a restart it would send a refresh token to a
guessed address; and two processes would burn each other's rotated tokens. Its models and pure rules are used.

What is sent to a browser or told to a person is made by `codemode_mcp.cli.browser_login`; `bearer` puts tokens to use.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
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
from pydantic import ValidationError

from upstream_clients.challenge import Challenge, read_challenge
from upstream_clients.errors import LoginError, LoginRefused
from upstream_clients.fetch import Fetcher, check_address, describe_url, is_local
from upstream_clients.token_store import Login

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.spec import UpstreamSpec

PROBE_TIMEOUT = 15.0
"""Seconds for the question whether a server wants a login at all."""

_LONGEST = 10 * 365 * 86400
_REFUSALS = ("invalid_grant", "invalid_client", "unauthorized_client")
_METADATA_HEADERS = {"MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}
_FIT_FOR_A_HEADER = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True)
class Offer:
    """A login that a server offers.

    Attributes:
        scope: what to ask for, separated by spaces; `None` leaves it to the authorization server.
        resource: the resource indicator; `None` for servers from before there was one.
        guessed: nothing describes itself; these are the addresses of servers from before there was metadata.
    """

    metadata: OAuthMetadata
    scope: str | None
    resource: str | None
    guessed: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Our registration at the authorization server."""

    id: str
    secret: str | None
    auth_method: str


@dataclass(frozen=True, slots=True, repr=False)
class Attempt:
    """One way through the browser. `state` and `verifier` are secret."""

    offer: Offer
    client: Client
    redirect_uri: str
    state: str
    verifier: str
    url: str


async def probe(spec: UpstreamSpec) -> tuple[int, Challenge | None]:
    """Return what the server answers to a stranger. Raises `LoginError` when it does not answer."""
    assert spec.url is not None
    headers = dict(spec.headers) | {"Accept": "application/json, text/event-stream"}
    answer: tuple[int, Challenge | None] = (0, None)
    try:
        with anyio.fail_after(PROBE_TIMEOUT):
            async with httpx2.AsyncClient(timeout=PROBE_TIMEOUT, headers=headers) as client:
                # Some admit strangers to the handshake of their era, and name the scope when they are asked for more.
                for message in (None,) if spec.transport == "sse" else _HELLOS:
                    request = client.build_request(
                        "GET" if message is None else "POST", spec.url, json=message, headers=_version_header(message)
                    )
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
_HELLOS: tuple[dict[str, Any], ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "server/discover",
        "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": _INFO,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    },
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _INFO},
    },
    {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {}},
)


def _version_header(message: dict[str, Any] | None) -> dict[str, str]:
    match message:
        case {"method": "server/discover" as method}:
            return {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        case {"method": "tools/list"}:
            return {"MCP-Protocol-Version": "2025-11-25"}
    return {}


async def discover(spec: UpstreamSpec, fetcher: Fetcher, challenge: Challenge | None) -> Offer | None:
    """Return what the server offers (RFC 9728, RFC 8414, OpenID Connect, and the plain addresses of 2025-03-26).

    Returns `None` when it names no authorization server and has not asked for a login either.

    Raises:
        LoginError: what it offers cannot be used or trusted.
    """
    assert spec.url is not None
    if urlsplit(spec.url).scheme != "https" and not is_local(spec.url):
        raise LoginError(f"{spec.address} is not https: everybody on the way could read the login")
    resource = await _resource_metadata(spec, fetcher, challenge)
    server = None if resource is None else str(resource.authorization_servers[0])
    metadata = await _server_metadata(spec, fetcher, server)
    guessed = metadata is None
    if metadata is None:
        if server is not None:
            raise LoginError(f"the authorization server {describe_url(server)} does not describe itself")
        if challenge is None:
            return None
        metadata = _default_metadata(spec.url)
    elif "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise LoginError("the authorization server does not offer PKCE with S256, without which a login is not safe")
    for what, endpoint in (
        ("the authorization endpoint", metadata.authorization_endpoint),
        ("the token endpoint", metadata.token_endpoint),
        ("the registration endpoint", metadata.registration_endpoint),
        ("the revocation endpoint", metadata.revocation_endpoint),
    ):
        if endpoint is not None:
            await check_address(str(endpoint), spec.url, what)
    return Offer(
        metadata,
        _scope(spec, challenge, resource, metadata),
        None if resource is None else str(resource.resource),
        guessed,
    )


async def _resource_metadata(
    spec: UpstreamSpec, fetcher: Fetcher, challenge: Challenge | None
) -> ProtectedResourceMetadata | None:
    assert spec.url is not None
    named = None if challenge is None else challenge.resource_metadata
    what = "the metadata of the server"
    for url in build_protected_resource_metadata_discovery_urls(named, spec.url):
        status, document = await fetcher.get(url, what, headers=_METADATA_HEADERS)
        if status >= 500 or status == 429:
            raise LoginError(f"{what} cannot be read, HTTP {status}: {describe_url(url)}")
        if status != 200:
            continue
        try:
            found = ProtectedResourceMetadata.model_validate(document)
        except ValidationError:
            continue
        if not check_resource_allowed(resource_url_from_server_url(spec.url), str(found.resource)):
            raise LoginError(f"{what} is about another one, {describe_url(str(found.resource))}")
        return found
    return None


async def _server_metadata(spec: UpstreamSpec, fetcher: Fetcher, server: str | None) -> OAuthMetadata | None:
    assert spec.url is not None
    expected = server or _origin(spec.url)
    what = "the metadata of the authorization server"
    for url in build_oauth_authorization_server_metadata_discovery_urls(server, spec.url):
        status, document = await fetcher.get(url, what, headers=_METADATA_HEADERS)
        if status >= 500 or status == 429:
            raise LoginError(f"{what} cannot be read, HTTP {status}: {describe_url(url)}")
        if status != 200:
            continue
        try:
            found = OAuthMetadata.model_validate(document)
        except ValidationError:
            continue
        if not issuers_match(str(found.issuer), expected):
            raise LoginError(
                f"{what} names another issuer, {describe_url(str(found.issuer))} and not {describe_url(expected)}"
            )
        return found
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
        # Without it, many authorization servers give nothing to renew the login with.
        scope = union_scopes(scope, "offline_access")
    return scope


async def become_client(spec: UpstreamSpec, fetcher: Fetcher, offer: Offer, redirect_uri: str) -> Client:
    """Return the configured client, a metadata document, or a client registered for this login. Raises `LoginError`."""
    metadata, settings = offer.metadata, spec.oauth
    methods = metadata.token_endpoint_auth_methods_supported
    if settings is not None and settings.client_id is not None:
        return Client(settings.client_id, settings.client_secret, _auth_method(settings.client_secret, methods))
    if settings is not None and settings.client_metadata_url and metadata.client_id_metadata_document_supported:
        return Client(settings.client_metadata_url, None, "none")
    if metadata.registration_endpoint is None:
        raise LoginError(
            "the authorization server registers no clients by itself; register one there by hand and give its id: "
            f'"auth": {{"type": "oauth", "clientId": "..."}} in mcpServers.{spec.name}'
        )
    wanted = "none" if methods is None or "none" in methods else _auth_method("a secret", methods)
    request: dict[str, Any] = {
        "client_name": "codemode-mcp",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": "native",
    }
    if offer.scope is not None:
        request["scope"] = offer.scope
    status, answer = await fetcher.post_json(str(metadata.registration_endpoint), "the registration endpoint", request)
    if status not in (200, 201):
        if offer.guessed:
            raise LoginError(
                "no OAuth login was found; if the server takes a fixed token, give it "
                f'in "headers" of mcpServers.{spec.name}'
            )
        raise LoginError(f"the authorization server did not register this client: {_said(status, answer)}")
    match answer:
        case {"client_id": str(client_id)} if client_id:
            secret = answer.get("client_secret") or None
            method = answer.get("token_endpoint_auth_method") or wanted
        case _:
            raise LoginError("the answer of the registration endpoint is no registration")
    if method not in ("none", "client_secret_post", "client_secret_basic") or (
        method != "none" and not isinstance(secret, str)
    ):
        raise LoginError("the authorization server registered this client in a way that it cannot act on")
    return Client(client_id, secret if method != "none" else None, method)


def _auth_method(secret: str | None, supported: list[str] | None) -> str:
    if secret is None:
        return "none"
    # RFC 8414: without the list, it is the basic one.
    return "client_secret_post" if supported and "client_secret_basic" not in supported else "client_secret_basic"


def begin(offer: Offer, client: Client, redirect_uri: str) -> Attempt:
    """Return the address for the browser, with PKCE and a state."""
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
            query["prompt"] = "consent"
    endpoint = str(offer.metadata.authorization_endpoint)
    url = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"
    return Attempt(offer, client, redirect_uri, state, verifier, url)


def is_answer_to(attempt: Attempt, answer: Mapping[str, str]) -> bool:
    """Return True if the answer of the browser belongs to this attempt; any page can send a browser here."""
    return secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode())


def read_code(attempt: Attempt, answer: Mapping[str, str]) -> str:
    """Return the code in an answer whose state is right.

    Raises:
        LoginRefused: the user or the authorization server said no.
        LoginError: the answer is another issuer's (RFC 9207) or none.
    """
    issuer, metadata = answer.get("iss"), attempt.offer.metadata
    if issuer is None and metadata.authorization_response_iss_parameter_supported:
        raise LoginError("the answer does not name its issuer, as this authorization server says that it does")
    if issuer is not None and issuer != str(metadata.issuer):
        raise LoginError(f"the answer comes from another issuer, {describe_url(issuer)}")
    if "error" in answer:
        raise LoginRefused(f"the login was refused: {_said(None, answer)}")
    if not answer.get("code"):
        raise LoginError("the answer holds no authorization code")
    return answer["code"]


async def redeem(fetcher: Fetcher, attempt: Attempt, code: str) -> Login:
    """Tokens for a code. Raises `LoginError`."""
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
    return await _ask_for_token(fetcher, login, attempt.client.secret, form)


async def renew(spec: UpstreamSpec, login: Login, *, timeout: float) -> Login:
    """New tokens for the refresh token.

    Raises:
        LoginRefused: the login is over; a person has to log in again.
        LoginError: no usable answer; it may work later.
    """
    assert spec.url is not None
    if login.refresh_token is None or login.token_endpoint is None:
        raise LoginRefused("there is nothing to renew the login with")
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
    async with Fetcher(spec.url, timeout=timeout) as fetcher:
        return await _ask_for_token(fetcher, login, _client_secret(spec, login), form)


async def revoke(spec: UpstreamSpec, login: Login, *, timeout: float = 5.0) -> bool:
    """Tell the authorization server that the login is over, if it can be told; whether it took notice."""
    token = login.refresh_token or login.access_token
    if token is None or login.revocation_endpoint is None or spec.url is None:
        return False
    form, headers = _as_client({"token": token}, login, _client_secret(spec, login))
    try:
        async with Fetcher(spec.url, timeout=timeout) as fetcher:
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


def _as_client(form: Mapping[str, str], login: Login, secret: str | None) -> tuple[dict[str, str], dict[str, str]]:
    client_id = login.client_id or ""
    if login.auth_method == "client_secret_basic" and secret:
        both = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        return {**form, "client_id": client_id}, {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
    if login.auth_method == "client_secret_post" and secret:
        return {**form, "client_id": client_id, "client_secret": secret}, {}
    return {**form, "client_id": client_id}, {}


async def _ask_for_token(fetcher: Fetcher, login: Login, secret: str | None, form: dict[str, str]) -> Login:
    assert login.token_endpoint is not None
    if login.resource is not None:
        form["resource"] = login.resource
    form, headers = _as_client(form, login, secret)
    status, answer = await fetcher.post_form(login.token_endpoint, "the token endpoint", form, headers=headers)
    if status not in (200, 201):
        said = f"the token endpoint refused: {_said(status, answer)}"
        if isinstance(answer, dict) and answer.get("error") in _REFUSALS:
            raise LoginRefused(said)
        raise LoginError(said)
    try:
        token = OAuthToken.model_validate(answer)
    except ValidationError:
        raise LoginError("the answer of the token endpoint is no token") from None
    if not _FIT_FOR_A_HEADER.fullmatch(token.access_token):
        raise LoginError("the answer of the token endpoint is no token that a request can carry")
    lifetime = None if token.expires_in is None else min(max(token.expires_in, 0), _LONGEST)
    return replace(
        login,
        access_token=token.access_token,
        refresh_token=token.refresh_token or login.refresh_token,
        expires_at=None if lifetime is None else time.time() + lifetime,
        scope=token.scope if token.scope is not None else login.scope,
        wanted=None,
    )


def _said(status: int | None, answer: object) -> str:
    """Return what an OAuth error says, as far as it is a plain code: its prose may repeat what was sent to it."""
    parts = [] if status is None else [f"HTTP {status}"]
    if isinstance(answer, dict):
        code = answer.get("error")
        if isinstance(code, str):
            parts.append(code if _ERROR_CODE.fullmatch(code) else "an error that is no plain code")
    return ", ".join(parts) or "no reason given"
