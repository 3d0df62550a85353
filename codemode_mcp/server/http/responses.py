"""Responses to requests that the MCP SDK does not answer, and errors of the SDK as JSON instead of plain text."""

from __future__ import annotations

import json
import math
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Send

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
    """Return the refusal of a caller that has to wait for `wait` seconds."""
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
        """Send the response to a CORS preflight request."""
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
