"""JSON-RPC 2.0 messages as dicts, and the keys, error codes and protocol versions of MCP. Pure.

Sources: https://www.jsonrpc.org/specification; the schemas of MCP 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeGuard

from upstream_clients.json_values import map_json

RequestId = int | str

Message = dict[str, Any]
"""A message for which `form_of` returns a form."""

Form = Literal["request", "notification", "result", "error"]

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of MCP that begin with `initialize`, the latest last."""
MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions in which each request has the version, the client and its capabilities in `_meta`, the latest last."""

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""Key in `_meta` of each modern request, like the next two."""
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""Key in `_meta` of a modern request: the lowest level of log messages about the request."""
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
"""Key in `_meta` of a modern result."""
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""Key in `_meta` of messages of a modern server on a subscription."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""Key of the extension for tasks in capabilities."""
APPS_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""Key of the extension for apps (user interfaces of tools) in capabilities."""
APP_MIME_TYPE: Final = "text/html;profile=mcp-app"
"""The MIME type of apps."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CONNECTION_CLOSED: Final = -32000
SERVER_ERROR: Final = -32000
"""The code of an error that a server sends without an integer as code."""
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042


class JsonRpcError(Exception):
    """An error in the answer to a request.

    Attributes:
        data: the member `data` of the error; None without one.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> dict[str, Any]:
        """Return the error as the member `error` of an answer."""
        found: dict[str, Any] = {"code": self.code, "message": self.message}
        return found if self.data is None else {**found, "data": self.data}


def form_of(value: Any) -> Form | None:
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
    """Return True if a value can be the id of a request. `7.0` can, since some peers write `7` so."""
    return isinstance(value, str) or _is_integer(value) or (isinstance(value, float) and value.is_integer())


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def key_of(request_id: RequestId) -> RequestId:
    """Return the key of a request id in tables.

    `7`, `7.0` and `"7"` have one key, since some peers answer `7` as `7.0` or `"7"`.
    """
    try:
        return int(request_id)
    except ValueError:
        return request_id


def with_whole_id(message: Any) -> Any:
    """Return a message whose id is the integer that it equals, such as `7` for `7.0`."""
    if isinstance(message, dict) and isinstance(message.get("id"), float) and is_id(message["id"]):
        return {**message, "id": int(message["id"])}
    return message


def readable_error(error: Any) -> dict[str, Any]:
    """Return the `error` of an answer with an integer as code and a text as message.

    Some servers send other forms: a text alone, a code such as `"ENOENT"`, no message. All that they say is kept.
    """
    members: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    code, message = members.get("code"), members.get("message")
    is_text = isinstance(message, str) and bool(message.strip())
    if _is_integer(code) and is_text:
        return members
    number = key_of(code) if is_id(code) else None
    said = [] if isinstance(number, int) or not code else [code]
    if is_text:
        said.append(message)
    else:
        others = {name: each for name, each in members.items() if name != "code" and each not in (None, "", {}, [])}
        said += [next(iter(others.values())) if len(others) == 1 else others] if others else []
    found = {
        "code": number if isinstance(number, int) else SERVER_ERROR,
        "message": ": ".join(map(text_of, said)) or "an error without a message",
    }
    return {**found, "data": members["data"]} if "data" in members else found


def text_of(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "a value that cannot be written as JSON"


def has_envelope(params: Any) -> bool:
    """Return True if the params of a request are those of a modern revision."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta


_SURROGATE = re.compile("[\ud800-\udfff]")


def sendable(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a JSON object that UTF-8 can encode. It is copied only if `without_surrogates` has to repair it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        repaired: dict[str, Any] = without_surrogates(dict(value))
        return repaired
    except (TypeError, ValueError, RecursionError):
        pass  # sending it fails with the reason
    return value


def without_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD for halves of surrogate pairs, which strings can have and UTF-8 cannot."""
    return map_json(value, lambda text: _SURROGATE.sub("\ufffd", text))


def finite(value: object) -> float | None:
    """Return a JSON number as a float; None for any other value and for numbers that are too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
