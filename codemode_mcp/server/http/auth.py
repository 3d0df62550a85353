"""Authentication by bearer tokens, challenges, and responses that the MCP SDK does not give."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from codemode_mcp.base.strict_json import compact_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Message, Send

    from codemode_mcp.base.settings import StaticToken


HOW_TO_SEND_A_TOKEN = (
    "send the header Authorization: Bearer <token>, set under headers in your client's entry for this server"
)
"""Instruction for the person who configures a client, as the end of a message."""


class Principal(Struct, frozen=True):
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


# Responses to requests that the MCP SDK does not answer, and errors of the SDK as JSON instead of plain text.


Headers = list[tuple[bytes, bytes]]
"""Headers of an ASGI scope or message, with lower-case names."""

METHODS: Final = ("GET", "POST", "DELETE")
"""HTTP methods of the MCP endpoint."""

_CORS_HEADERS = "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version"
_EXPOSED = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"


class Refusal(Exception):
    """A request that is answered with an error.

    Attributes:
        body: a JSON-RPC error.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        code: int | None = None,
        request_id: object = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = error_body(status, message, code, request_id)


def too_many_requests(wait: float) -> Refusal:
    seconds = math.ceil(wait)
    return Refusal(429, f"too many requests; send this one again after {seconds} s", {"retry-after": str(seconds)})


class JsonSend:
    """An ASGI `send` that turns errors in plain text into JSON, and adds the headers of every response.

    Attributes:
        cors_origin: the origin whose pages may read the response; None if no page may.
    """

    def __init__(self, send: Send, cors_origin: str | None) -> None:
        self._send = send
        self.cors_origin = cors_origin
        self._started = False
        self._error: tuple[int, Headers] | None = None
        self._text = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            is_json = (header(headers, b"content-type") or "").startswith("application/json")
            if message["status"] >= 400 and not is_json:
                self._error = message["status"], headers
                return
            await self._start(message["status"], headers)
        elif self._error is None:
            await self._send(message)
        else:
            self._text += message.get("body", b"")
            if not message.get("more_body", False):
                status, headers = self._error
                text = self._text.decode("utf-8", "replace") or HTTPStatus(status).phrase
                kept = {name.decode(): value.decode("latin-1") for name, value in headers if name == b"allow"}
                await self.json(status, error_body(status, text), kept)

    async def json(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response. Do nothing if a response has begun."""
        if self._started:
            return
        given = {"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
        await self._start(
            status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()]
        )
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def preflight(self) -> None:
        headers = {"access-control-allow-methods": ", ".join(METHODS), "access-control-allow-headers": _CORS_HEADERS}
        await self.json(204, b"", {**headers, "access-control-max-age": "600"})

    async def _start(self, status: int, headers: Headers) -> None:
        self._started = True
        headers = [*headers, (b"date", formatdate(usegmt=True).encode()), (b"x-content-type-options", b"nosniff")]
        if self.cors_origin is not None:
            headers += [
                (b"access-control-allow-origin", self.cors_origin.encode("latin-1")),
                (b"access-control-expose-headers", _EXPOSED.encode()),
                (b"vary", b"origin"),
            ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def error_body(status: int, message: str, code: int | None = None, request_id: object = None) -> bytes:
    """Return a JSON-RPC error. Without an id, it answers no particular request."""
    error = {"code": code or (-32603 if status >= 500 else -32600), "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}, ensure_ascii=False).encode()


def header(headers: Headers, name: bytes) -> str | None:
    """Return the first header with a lower-case name; None if there is none."""
    return next((value.decode("latin-1") for each, value in headers if each == name), None)
