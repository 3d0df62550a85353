"""Authentication by bearer tokens of the operator, and challenges for refused requests."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.settings import StaticToken


WHERE = "send the header Authorization: Bearer <token>, set under headers in your client's entry for this server"
"""Instruction for the person who has set up a client."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The principal of a request.

    Attributes:
        owner: whom runs and stored values belong to; stable, and no two principals share one.
        groups: that policy may name.
        client: what the SDK tells sessions apart by, beside issuer and subject.
    """

    owner: str
    client: str
    issuer: str | None = None
    subject: str | None = None
    groups: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return what policy knows it by: the subject of an access token, else the name of a token of the
        configuration."""
        return self.subject or self.client


class Refused(Exception):
    """The credentials do not do.

    Attributes:
        status: 401 or 403; 503 when it cannot be known now.
        error: the code of RFC 6750; None where no credentials were given.
        message: for a person.
    """

    def __init__(self, status: int, error: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message


class Verifier(Protocol):
    """Knows a principal by a bearer token."""

    async def principal(self, token: str) -> Principal:
        """Raises `Refused`."""
        ...


class StaticTokens:
    """Tokens from the configuration, of which only digests are kept."""

    def __init__(self, tokens: Sequence[StaticToken]) -> None:
        self._tokens = tuple(tokens)

    def __repr__(self) -> str:
        return f"<StaticTokens: {len(self._tokens)}>"

    async def principal(self, token: str) -> Principal:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        # All are compared, so that the time taken says nothing.
        known = [known for known in self._tokens if hmac.compare_digest(known.digest, digest)]
        if not known:
            raise Refused(401, "invalid_token", f"the bearer token is not one of this server; {WHERE}")
        (first, *_) = known
        return Principal(owner_string("token", first.name), first.name, groups=frozenset(first.groups))


def owner_string(kind: str, *parts: str | None) -> str:
    """Return an owner from its parts; injective, whatever they hold."""
    return f"http:{kind}:" + compact_json(parts)


def session_owner(session_id: str) -> str:
    """Return the owner of what a legacy session without authentication does; the id itself is a secret."""
    return owner_string("session", hashlib.sha256(session_id.encode("latin-1", "replace")).hexdigest())


def bearer_token(headers: Sequence[tuple[bytes, bytes]], query: bytes) -> str:
    """Return the token of a request. Raises `Refused`."""
    if any(part.partition(b"=")[0].lower() == b"access_token" for part in query.split(b"&")):
        raise Refused(400, "invalid_request", "a token in the URL ends up in logs; send it in the Authorization header")
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        raise Refused(401, None, f"this server needs a bearer token; {WHERE}")
    if len(given) > 1:
        raise Refused(400, "invalid_request", "there is more than one Authorization header")
    scheme, _, token = given[0].decode("latin-1").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Refused(401, None, f"this server needs a bearer token; {WHERE}")
    return token


def challenge(refused: Refused, scopes: Sequence[str], metadata_url: str | None) -> str:
    """Return the `WWW-Authenticate` header (RFC 6750, RFC 9728)."""
    parts = {} if refused.error is None else {"error": refused.error, "error_description": refused.message}
    if scopes:
        parts["scope"] = " ".join(scopes)
    if metadata_url is not None:
        parts["resource_metadata"] = metadata_url
    shown = ", ".join(f'{key}="{value}"' for key, value in parts.items())
    return f"Bearer {shown}" if shown else "Bearer"
