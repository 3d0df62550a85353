"""Authentication by bearer tokens from the configuration, and challenges for refused requests."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.settings import StaticToken


HOW_TO_SEND_A_TOKEN = (
    "send the header Authorization: Bearer <token>, set under headers in your client's entry for this server"
)
"""Instruction for the person who configures a client, as the end of a message."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The principal of a request.

    Attributes:
        owner: the owner of the principal's runs and stored values; stable and unique.
        client, issuer, subject: the identity to which the SDK binds sessions.
        groups: groups that policy may name.
    """

    owner: str
    client: str
    issuer: str | None = None
    subject: str | None = None
    groups: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name for policy: the subject of an access token, else the name of a configured token."""
        return self.subject or self.client


class CredentialsRefused(Exception):
    """Credentials that are missing, invalid or insufficient.

    Attributes:
        status: the HTTP status: 400, 401 or 403; 503 if the credentials cannot be verified now.
        error: the code of RFC 6750; None if the request had no credentials.
        message: text for a person.
    """

    def __init__(self, status: int, error: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message


class Verifier(Protocol):
    """A verifier of bearer tokens."""

    async def principal(self, token: str) -> Principal:
        """Return the principal of a token. Raises `CredentialsRefused`."""


class StaticTokens:
    """The verifier of tokens from the configuration. It keeps only their digests."""

    def __init__(self, tokens: Sequence[StaticToken]) -> None:
        self._tokens = tuple(tokens)

    def __repr__(self) -> str:
        return f"<StaticTokens: {len(self._tokens)}>"

    async def principal(self, token: str) -> Principal:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        # The token is compared with every digest, so that the time does not reveal which one is equal.
        known = [each for each in self._tokens if hmac.compare_digest(each.digest, digest)]
        if not known:
            message = f"this server does not know the bearer token; {HOW_TO_SEND_A_TOKEN}"
            raise CredentialsRefused(401, "invalid_token", message)
        first = known[0]
        return Principal(owner_string("token", first.name), first.name, groups=frozenset(first.groups))


def owner_string(kind: str, *parts: str | None) -> str:
    """Return an owner that is made of parts. Different parts give different owners."""
    return f"http:{kind}:" + compact_json(parts)


def session_owner(session_id: str) -> str:
    """Return the owner for a legacy session without authentication. It contains a hash, because the id is a secret."""
    return owner_string("session", hashlib.sha256(session_id.encode("latin-1", "replace")).hexdigest())


def bearer_token(headers: Sequence[tuple[bytes, bytes]], query: bytes) -> str:
    """Return the token of a request. Raises `CredentialsRefused`."""
    if any(part.partition(b"=")[0].lower() == b"access_token" for part in query.split(b"&")):
        message = "a token in the URL ends up in logs; send the token in the Authorization header"
        raise CredentialsRefused(400, "invalid_request", message)
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        raise CredentialsRefused(401, None, f"this server needs a bearer token; {HOW_TO_SEND_A_TOKEN}")
    if len(given) > 1:
        raise CredentialsRefused(400, "invalid_request", "there is more than one Authorization header")
    scheme, _, token = given[0].decode("latin-1").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise CredentialsRefused(401, None, f"this server needs a bearer token; {HOW_TO_SEND_A_TOKEN}")
    return token


def challenge(refusal: CredentialsRefused, scopes: Sequence[str], metadata_url: str | None) -> str:
    """Return the `WWW-Authenticate` header (RFC 6750, RFC 9728)."""
    parts = {} if refusal.error is None else {"error": refusal.error, "error_description": refusal.message}
    if scopes:
        parts["scope"] = " ".join(scopes)
    if metadata_url is not None:
        parts["resource_metadata"] = metadata_url
    shown = ", ".join(f'{key}="{value}"' for key, value in parts.items())
    return f"Bearer {shown}" if shown else "Bearer"
