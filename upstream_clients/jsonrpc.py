"""JSON-RPC 2.0 messages as dicts, and the names that MCP gives to what is in them. Pure.

Sources: https://www.jsonrpc.org/specification; the schemas of MCP 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeGuard

RequestId = int | str

Message = dict[str, Any]
"""A message whose form `form_of` knows."""

Form = Literal["request", "notification", "result", "error"]

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of MCP that begin with `initialize`, the latest last."""
MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions in which each request carries what `initialize` told before, the latest last."""

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""Key in `_meta` of each modern request, with the next two."""
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
"""Key in `_meta` of a modern result."""
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""Key in `_meta` of messages of a modern server on a subscription."""

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CONNECTION_CLOSED: Final = -32000
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042


class JsonRpcError(Exception):
    """A request was answered with an error.

    Attributes:
        data: what the answer has beside code and message.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> dict[str, Any]:
        """Return the `error` of an answer."""
        found: dict[str, Any] = {"code": self.code, "message": self.message}
        return found if self.data is None else {**found, "data": self.data}


def form_of(value: Any) -> Form | None:
    """Return what a message is; None for what is none."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return None
    if isinstance(value.get("method"), str):
        if not isinstance(value.get("params"), dict | None):
            return None
        return "request" if is_id(value.get("id")) else "notification"
    if isinstance(value.get("result"), dict):
        return "result" if is_id(value.get("id")) else None
    error = value.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str) and _is_integer(error.get("code")):
        return "error" if value.get("id") is None or is_id(value["id"]) else None
    return None


def is_id(value: object) -> TypeGuard[RequestId]:
    """Tell whether a value can be the id of a request."""
    return isinstance(value, str) or _is_integer(value)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def key_of(request_id: RequestId) -> RequestId:
    """Return the id that a request is known by: some peers answer and cancel `7` as `"7"`."""
    if isinstance(request_id, str):
        try:
            return int(request_id)
        except ValueError:
            return request_id
    return request_id


def has_envelope(params: Any) -> bool:
    """Tell whether the params of a request are those of a modern revision."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta
