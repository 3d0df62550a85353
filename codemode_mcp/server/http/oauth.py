"""Access tokens of an OAuth authorization server: signed JWTs, by issuer, audience, time and scope.

Keys come from the issuer's key set over HTTPS, with bounds on time and size; they are kept, and asked for again when a
token names a key that is not among them, but not more often than every few seconds, whatever tokens are sent.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt

from codemode_mcp.server.http.auth import Principal, Refused, owner_string
from upstream_clients.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.settings import IssuerSettings

log = logging.getLogger("codemode_mcp.http")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric ones alone: with a symmetric one, who can verify a token can make one."""

LEEWAY_SECONDS = 30
"""Seconds by which clocks may differ."""

FRESH_SECONDS = 3600.0
"""After which the keys are fetched again."""

STALE_SECONDS = 86_400.0
"""Seconds for which old keys are used while the authorization server is away."""

RETRY_SECONDS = 10.0
"""Least time between two attempts."""

FETCH_SECONDS = 10.0
MAX_DOCUMENT = 512 * 1024
MAX_KEYS = 100

MIN_RSA_BITS = 2048
"""Length of an RSA key (RFC 7518, 3.3)."""

MAX_GROUPS = 1000
"""Groups in a token."""

_WITHOUT_ID = 8
"""Keys that are tried for a token that names none."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A public key, and what its entry says of it."""

    key: Any
    family: str
    key_id: str | None
    algorithm: str | None


class Keys:
    """The keys of one issuer."""

    def __init__(self, settings: IssuerSettings, client: httpx2.AsyncClient, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._lock = anyio.Lock()
        self._keys: tuple[_Key, ...] = ()
        self._fetched = self._tried = float("-inf")

    async def candidates(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return the keys that may have signed a token. Raises `Refused` when there are no keys at all."""
        if self._clock() - self._fetched > FRESH_SECONDS:
            await self._refresh()
        if self._clock() - self._fetched > STALE_SECONDS:
            self._keys = ()
        found = self._matching(key_id, algorithm)
        if not found and key_id is not None:
            await self._refresh()
            found = self._matching(key_id, algorithm)
        if not self._keys:
            raise Refused(503, None, "the keys of the authorization server cannot be had now; try again")
        return found

    def _matching(self, key_id: str | None, algorithm: str) -> list[Any]:
        family = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[algorithm[:2]]
        return [
            key.key
            for key in self._keys
            if key.family == family and (key_id is None or key.key_id == key_id) and key.algorithm in (None, algorithm)
        ][:_WITHOUT_ID]

    async def _refresh(self) -> None:
        seen = self._tried
        async with self._lock:
            if self._tried != seen or self._clock() - self._tried < RETRY_SECONDS:
                return  # another request has just done so
            self._tried = self._clock()
            try:
                with anyio.fail_after(FETCH_SECONDS):
                    document = await self._document(self._settings.jwks_url or await self._discover())
                self._keys = _usable(document)
            except (OSError, TimeoutError, ValueError, httpx2.HTTPError, httpx2.InvalidURL) as error:
                log.warning("the keys of %s cannot be had: %s", self._settings.issuer, error or type(error).__name__)
                return
            self._fetched = self._clock()

    async def _discover(self) -> str:
        """Return where the issuer says its keys are (RFC 8414, OpenID Connect Discovery)."""
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
                if len(body) > MAX_DOCUMENT:
                    raise ValueError(f"{url} is larger than {MAX_DOCUMENT // 1024} KiB")
        try:
            found = json.loads(bytes(body))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"{url} is no JSON object")
        return found


class AccessTokens:
    """Verifies the tokens of one issuer for this server."""

    def __init__(self, settings: IssuerSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    async def principal(self, token: str) -> Principal:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Refused(401, "invalid_token", "the bearer token is no signed JWT") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise Refused(401, "invalid_token", "the token is not signed with an algorithm that is allowed here")
        if key_id is not None and not isinstance(key_id, str):
            raise Refused(401, "invalid_token", "the token names its key in a wrong way")
        claims = self._claims(token, algorithm, await self._keys.candidates(key_id, algorithm))
        missing = [scope for scope in self._settings.scopes if scope not in _scopes(claims)]
        if missing:
            raise Refused(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")
        return self._named(claims)

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
        raise Refused(401, "invalid_token", problem)

    def _named(self, claims: Mapping[str, Any]) -> Principal:
        subject = claims.get("sub")
        client = claims.get("client_id", claims.get("azp"))
        subject = subject if isinstance(subject, str) and subject else None
        client = client if isinstance(client, str) and client else None
        issuer = self._settings.issuer
        if subject is None and client is None:
            raise Refused(401, "invalid_token", "the token names neither a subject nor a client")
        if subject is None:
            return Principal(owner_string("client", issuer, client), client or "", issuer, None, self._groups(claims))
        return Principal(owner_string("subject", issuer, subject), client or "", issuer, subject, self._groups(claims))

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """Return what policy knows the subject as a member of. Raises `Refused` where that cannot be told: rules for a
        group would otherwise be left out."""
        name = self._settings.groups_claim
        elsewhere = claims.get("_claim_names")  # OpenID Connect Core 5.6.2; what is too much for a token
        if isinstance(elsewhere, dict) and name in elsewhere:
            problem = "the token says that its user is in more groups than are in it; put fewer into it"
            raise Refused(401, "invalid_token", problem)
        given = claims.get(name)
        if given is None:
            return frozenset()
        values = given if isinstance(given, list) else [given]
        # RFC 9068, 2.2.3.1: also as RFC 7643 has them.
        groups: list[Any] = [
            value.get("value") if isinstance(value, dict) else value for value in values[: MAX_GROUPS + 1]
        ]
        if len(groups) > MAX_GROUPS or not all(isinstance(group, str) for group in groups):
            raise Refused(401, "invalid_token", f"the groups of the token are no list of up to {MAX_GROUPS} names")
        return frozenset(groups)


def _usable(document: Mapping[str, Any]) -> tuple[_Key, ...]:
    """Return the keys for signatures that a set holds. Raises `ValueError` when there are none."""
    entries = document.get("keys")
    found = []
    for entry in entries[:MAX_KEYS] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use") == "enc":
            continue
        with suppress(jwt.PyJWTError, ValueError, TypeError):  # another's mistake in one key does not cost the others
            key = jwt.PyJWK(entry).key
            if entry["kty"] == "RSA" and key.key_size < MIN_RSA_BITS:
                log.warning("a key of %d bits in the key set is not used; RSA takes %d", key.key_size, MIN_RSA_BITS)
                continue
            found.append(_Key(key, entry["kty"], entry.get("kid"), entry.get("alg")))
    if not found:
        raise ValueError("the key set has no usable key")
    return tuple(found)


def is_safe_url(url: str) -> bool:
    """Return True if keys may come from there: HTTPS, or this very machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        return False


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """`scope` of RFC 9068; some servers call it `scp`, or make it a list."""
    found: set[str] = set()
    for key in ("scope", "scp"):
        value = claims.get(key)
        if isinstance(value, str):
            found.update(value.split())
        elif isinstance(value, list):
            found.update(item for item in value if isinstance(item, str))
    return frozenset(found)
