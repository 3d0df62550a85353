"""Verification of access tokens of an OAuth authorization server: signed JWTs with issuer, audience, time and scope.

Keys come from the issuer's key set over HTTPS, with limits on time and size. They are cached. A token with an unknown
key makes them be fetched again, at most once every `RETRY_SECONDS`. `jwt.PyJWKClient` is not used, because it blocks
the event loop, and has no limits on the size of a key set and on the number of attempts.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt

from codemode_mcp.server.http.auth import CredentialsRefused, Principal, owner_string
from upstream_clients.fetch import GuardedClient, is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from codemode_mcp.base.settings import IssuerSettings

log = logging.getLogger("codemode_mcp.http")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms that are accepted. All are asymmetric: with a symmetric key, this server could also make tokens."""

LEEWAY_SECONDS = 30
"""Largest accepted difference between the clocks of the issuer and this server, in seconds."""

FRESH_SECONDS = 3600.0
"""Seconds after which the keys are fetched again."""

STALE_SECONDS = 86_400.0
"""Age at which keys are dropped, in seconds. Until then, they are used if the authorization server does not answer."""

RETRY_SECONDS = 10.0
"""Shortest time between two attempts to fetch keys, in seconds."""

FETCH_SECONDS = 10.0
MAX_DOCUMENT_BYTES = 512 * 1024
MAX_KEYS = 100

MIN_RSA_BITS = 2048
"""Shortest RSA key that is accepted (RFC 7518, 3.3)."""

MAX_GROUPS = 1000
"""Most groups in a token."""

_MAX_CANDIDATES = 8
"""Most keys that are tried for one token. A token without a key id may be signed with any key."""

_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key types by the first letters of an algorithm."""


class Keys:
    """The cached keys of one issuer. Each key has the algorithm that its entry declares, if any."""

    def __init__(self, settings: IssuerSettings, client: httpx2.AsyncClient, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._lock = anyio.Lock()
        self._keys: list[tuple[jwt.PyJWK, str | None]] = []
        self._fetched = self._tried = float("-inf")

    async def candidates(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return the keys that may have signed a token.

        Raises:
            CredentialsRefused: the issuer's keys are not available.
        """
        if self._clock() - self._fetched > FRESH_SECONDS:
            await self._refresh()
        if self._clock() - self._fetched > STALE_SECONDS:
            self._keys = []
        found = self._matching(key_id, algorithm)
        if not found and key_id is not None:
            await self._refresh()
            found = self._matching(key_id, algorithm)
        if not self._keys:
            raise CredentialsRefused(503, None, "the keys of the authorization server are not available now; try again")
        return found

    def _matching(self, key_id: str | None, algorithm: str) -> list[Any]:
        return [
            key.key
            for key, declared in self._keys
            if key.key_type == _FAMILIES[algorithm[:2]]
            and (key_id is None or key.key_id == key_id)
            and declared in (None, algorithm)
        ][:_MAX_CANDIDATES]

    async def _refresh(self) -> None:
        seen = self._tried
        async with self._lock:
            if self._tried != seen or self._clock() - self._tried < RETRY_SECONDS:
                return  # another request has fetched them while this one waited for the lock, or a moment ago
            self._tried = self._clock()
            try:
                with anyio.fail_after(FETCH_SECONDS):
                    document = await self._document(self._settings.jwks_url or await self._discover())
                self._keys = _usable_keys(document)
            except (OSError, TimeoutError, ValueError, httpx2.HTTPError, httpx2.InvalidURL) as error:
                log.warning(
                    "the keys of %s cannot be fetched: %s", self._settings.issuer, error or type(error).__name__
                )
                return
            self._fetched = self._clock()

    async def _discover(self) -> str:
        """Return the URL of the key set from the issuer's metadata (RFC 8414, OpenID Connect Discovery)."""
        issuer = self._settings.issuer
        parts = urlsplit(issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        problem = "no metadata document"
        for url in dict.fromkeys(
            (
                f"{origin}/.well-known/oauth-authorization-server{path}",
                f"{origin}/.well-known/openid-configuration{path}",
                f"{origin}{path}/.well-known/openid-configuration",
            )
        ):
            try:
                found = await self._document(url)
            except (ValueError, httpx2.HTTPError) as error:
                problem = str(error) or type(error).__name__
                continue
            if found.get("issuer") != issuer:
                raise ValueError(f"the metadata at {url} is of another issuer")
            where = found.get("jwks_uri")
            if not isinstance(where, str) or not is_safe_url(where):
                raise ValueError(f"the metadata at {url} names no jwks_uri with https")
            return where
        raise ValueError(problem)

    async def _document(self, url: str) -> dict[str, Any]:
        async with self._client.stream("GET", url, headers={"accept": "application/json"}) as response:
            if response.status_code != 200:
                raise ValueError(f"{url} answered {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise ValueError(f"{url} is larger than {MAX_DOCUMENT_BYTES // 1024} KiB")
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(body), dict):
                return found
        raise ValueError(f"{url} is not a JSON object")


class AccessTokens:
    """The verifier of one issuer's tokens for this server."""

    def __init__(self, settings: IssuerSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    async def principal(self, token: str) -> Principal:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise CredentialsRefused(401, "invalid_token", "the bearer token is not a signed JWT") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise CredentialsRefused(
                401, "invalid_token", "the token is not signed with an algorithm that is allowed here"
            )
        if key_id is not None and not isinstance(key_id, str):
            raise CredentialsRefused(401, "invalid_token", "the key id (kid) of the token is not a string")
        claims = self._claims(token, algorithm, await self._keys.candidates(key_id, algorithm))
        missing = [scope for scope in self._settings.scopes if scope not in _scopes(claims)]
        if missing:
            raise CredentialsRefused(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")
        return self._principal_of(claims)

    def _claims(self, token: str, algorithm: str, keys: list[Any]) -> dict[str, Any]:
        problem = "the token is signed with a key that the authorization server does not have"
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self._settings.audience,
                    issuer=self._settings.issuer,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iss", "aud"]},
                )
            except jwt.InvalidSignatureError:
                problem = "the signature of the token is wrong"
            except jwt.ExpiredSignatureError:
                problem = "the token has expired"
            except jwt.InvalidAudienceError:
                problem = "the token was made for another audience"
            except jwt.InvalidIssuerError:
                problem = "the token is of another issuer"
            except (jwt.PyJWTError, TypeError, ValueError, OverflowError):
                problem = "the token is not valid"
        raise CredentialsRefused(401, "invalid_token", problem)

    def _principal_of(self, claims: Mapping[str, Any]) -> Principal:
        subject = _text(claims.get("sub"))
        client = _text(claims.get("client_id", claims.get("azp")))
        issuer = self._settings.issuer
        if subject is None and client is None:
            raise CredentialsRefused(401, "invalid_token", "the token names neither a subject nor a client")
        kind, name = ("client", client) if subject is None else ("subject", subject)
        return Principal(owner_string(kind, issuer, name), client or "", issuer, subject, self._groups(claims))

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """Return the groups of the subject, for policy.

        Raises:
            CredentialsRefused: the groups are incomplete or invalid. Rules for a group would otherwise be skipped.
        """
        name = self._settings.groups_claim
        # Some issuers leave out too long a list of groups, and name the claim here (OpenID Connect Core 5.6.2).
        distributed = claims.get("_claim_names")
        if isinstance(distributed, dict) and name in distributed:
            problem = (
                f"the token does not contain the groups of its user ({name}), probably because there are too many; "
                "configure the authorization server to send fewer groups"
            )
            raise CredentialsRefused(401, "invalid_token", problem)
        given = claims.get(name)
        if given is None:
            return frozenset()
        values = given if isinstance(given, list) else [given]
        # A group is a string or an object (RFC 9068, 2.2.3.1, and RFC 7643).
        groups: list[Any] = [
            value.get("value") if isinstance(value, dict) else value for value in values[: MAX_GROUPS + 1]
        ]
        if len(groups) > MAX_GROUPS or not all(isinstance(group, str) for group in groups):
            problem = f"the groups of the token ({name}) are not a list of at most {MAX_GROUPS} names"
            raise CredentialsRefused(401, "invalid_token", problem)
        return frozenset(groups)


def _usable_keys(document: Mapping[str, Any]) -> list[tuple[jwt.PyJWK, str | None]]:
    """Return the signature keys of a key set. Raises `ValueError` if there are none."""
    entries = document.get("keys")
    found = []
    for entry in entries[:MAX_KEYS] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in _FAMILIES.values() or entry.get("use") == "enc":
            continue
        with suppress(jwt.PyJWTError, ValueError, TypeError):  # an invalid key does not affect the others
            key = jwt.PyJWK(entry)
            if key.key_type == "RSA" and key.key.key_size < MIN_RSA_BITS:
                log.warning("an RSA key of %d bits in the key set is ignored: use %d", key.key.key_size, MIN_RSA_BITS)
                continue
            found.append((key, entry.get("alg")))
    if not found:
        raise ValueError("the key set has no usable key")
    return found


def is_safe_url(url: str) -> bool:
    """Return True if keys may be fetched from a URL: it uses HTTPS, or is on this machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        return False


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: `scope` of RFC 9068, or `scp` of some servers, as text or as a list."""
    found: set[str] = set()
    for key in ("scope", "scp"):
        value = claims.get(key)
        if isinstance(value, str):
            found.update(value.split())
        elif isinstance(value, list):
            found.update(item for item in value if isinstance(item, str))
    return frozenset(found)


def _text(claim: object) -> str | None:
    return claim if isinstance(claim, str) and claim else None


@asynccontextmanager
async def access_tokens(issuer: IssuerSettings) -> AsyncIterator[AccessTokens]:
    """Open the verifier of an issuer's tokens for the duration of the context.

    The metadata of the issuer may name public addresses for the keys, or addresses of the issuer's own network. With
    `jwksUrl`, the operator has chosen the address.
    """
    trusted = issuer.jwks_url or issuer.issuer
    async with GuardedClient(trusted, trust_named_by=True, timeout=FETCH_SECONDS) as client:
        yield AccessTokens(issuer, Keys(issuer, client, time.monotonic))
