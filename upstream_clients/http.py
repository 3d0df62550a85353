"""The HTTP client under the SDK's two HTTP transports.

The SDK lets one failed POST tear down the whole client, and tells an HTTP error status as "Server returned an error
response". Here every POST gets an answer: what is no MCP answer becomes a JSON-RPC error that carries an `HttpFault`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from mcp_types import INTERNAL_ERROR

from upstream_clients.faults import HttpFault, http_reason, unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from upstream_clients.spec import UpstreamSpec

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""One answer or SSE event; above it the request fails, not the process."""

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0, read=None, pool=None)
"""No read timeout: a tool may compute for an hour and a stream of events may be silent. Calls have their own limit."""

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Unlimited, for each pending call holds one connection and callers bound their own concurrency."""

_MAX_ERROR_BODY = 64 * 1024
_ERROR_BODY_TIMEOUT = 5.0
_SESSION_HEADER = "mcp-session-id"
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(slots=True)
class HttpWatch:
    """What the client saw, for the task that owns the connection.

    Attributes:
        on_lost: called when the connection has no future and no call can be told so.
        refused_status: HTTP status of the latest POST that was refused.
        failure: what was wrong with the latest POST that failed, for a person.
    """

    on_lost: Callable[[], None]
    refused_status: int | None = None
    failure: str | None = None


@dataclass(slots=True)
class _Failure:
    """An answer in the place of the one that did not come."""

    status: int
    message: str
    fault: HttpFault
    code: int = INTERNAL_ERROR
    headers: dict[str, str] = field(default_factory=dict)

    def response(self, request: httpx2.Request) -> httpx2.Response:
        error = {"code": self.code, "message": self.message, "data": self.fault.to_data()}
        return httpx2.Response(
            self.status, json={"jsonrpc": "2.0", "id": None, "error": error}, headers=self.headers, request=request
        )


class McpHttpClient(httpx2.AsyncClient):
    """An `AsyncClient` whose POSTs never raise `TransportError`.

    `answers_in_body` is false for HTTP+SSE, where answers come on the event stream: there a failed POST can be told
    to nobody, so it counts as the loss of the connection.
    """

    def __init__(self, spec: UpstreamSpec, watch: HttpWatch, *, answers_in_body: bool = True) -> None:
        super().__init__(headers=dict(spec.headers), timeout=_TIMEOUT, limits=_LIMITS)
        self._spec = spec
        self._watch = watch
        self._answers_in_body = answers_in_body

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            response = await super().send(request, **options)
            if (
                request.method == "GET"
                and response.status_code == HTTPStatus.NOT_FOUND
                and _SESSION_HEADER in request.headers
            ):
                self._watch.on_lost()
            return response
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            self._watch.failure = unreachable(self._spec, error)
            fault = HttpFault(None, sent=not isinstance(error, _NEVER_SENT))
            return self._fail(request, _Failure(HTTPStatus.BAD_GATEWAY, self._watch.failure, fault))
        if response.status_code >= 400:
            self._watch.refused_status = response.status_code
            self._watch.failure = http_reason(self._spec, response.status_code)
            return self._fail(request, await _read_failure(request, response))
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _BoundedBody(response.stream)
        return response

    def _fail(self, request: httpx2.Request, failure: _Failure) -> httpx2.Response:
        if self._answers_in_body:
            return failure.response(request)
        self._watch.on_lost()
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)


async def _read_failure(request: httpx2.Request, response: httpx2.Response) -> _Failure:
    """What an HTTP error status means: the JSON-RPC error in its body, if there is one."""
    status = response.status_code
    body = await _read_some(response)
    code, message = _json_rpc_error(body)
    # The specification says 404; several servers say 400 and name the session in their text.
    session_lost = _SESSION_HEADER in request.headers and (
        (status == HTTPStatus.NOT_FOUND and code in (None, -32600, -32000, -32001))
        or (status == HTTPStatus.BAD_REQUEST and b"session" in body.lower())
    )
    # Kept for OAuth, which reads the challenge.
    headers = {key: value for key, value in response.headers.items() if key == "www-authenticate"}
    if code is not None:
        fault = HttpFault(status, sent=True, answered=True, session_lost=session_lost)
        return _Failure(status, message, fault, code, headers)
    # Without a JSON-RPC answer nobody but a proxy or a gatekeeper has seen the request, except when a server failed.
    fault = HttpFault(status, sent=status >= 500, session_lost=session_lost)
    return _Failure(status, f"HTTP {status} {response.reason_phrase}".strip(), fault, headers=headers)


async def _read_some(response: httpx2.Response) -> bytes:
    body = b""
    with anyio.move_on_after(_ERROR_BODY_TIMEOUT):
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_ERROR_BODY:
                    break
        except (httpx2.TransportError, httpx2.DecodingError):
            pass  # the status alone says enough
    await response.aclose()
    return body


def _json_rpc_error(body: bytes) -> tuple[int | None, str]:
    try:
        match json.loads(body):
            case {"error": {"code": int() as code, "message": str() as message}}:
                return code, message
    except (ValueError, RecursionError):
        pass
    return None, ""


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body whose failures are those that the SDK expects: `StreamError`, which costs one request."""

    def __init__(self, inner: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE_BYTES} bytes")
                yield chunk
        except httpx2.TransportError as error:
            raise httpx2.StreamError("the connection broke while the answer was being read") from error

    async def aclose(self) -> None:
        await self._inner.aclose()
