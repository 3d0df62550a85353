"""The login that a server offers: its answer to an anonymous client, and the metadata of its authorization server.

Sources: RFC 9728 (protected resource metadata), RFC 8414 and OpenID Connect Discovery (authorization server metadata),
and the fixed addresses of MCP 2025-03-26. `oauth` makes a login from an `Offer`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import BaseModel, ValidationError

from upstream_clients.challenge import Challenge, read_challenge
from upstream_clients.errors import LoginError
from upstream_clients.fetch import Fetcher, check_address, describe_url, is_local
from upstream_clients.jsonrpc import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    PROTOCOL_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from upstream_clients.spec import UpstreamSpec

PROBE_TIMEOUT = 15.0
"""Seconds to find out whether a server requires a login."""

_METADATA_HEADERS = {"MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Offer:
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
_MODERN, _LEGACY = MODERN_VERSIONS[-1], HANDSHAKE_VERSIONS[-1]
_METHODS: tuple[tuple[str, dict[str, Any], dict[str, str]], ...] = (
    (
        "server/discover",
        {"_meta": {PROTOCOL_VERSION: _MODERN, CLIENT_INFO: _INFO, CLIENT_CAPABILITIES: {}}},
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
    """Return the login at the endpoints that the configuration names."""
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
    """Return the first valid document at one of the addresses, which are tried in order."""
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
