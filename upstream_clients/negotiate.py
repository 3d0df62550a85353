"""The agreement on a protocol version with a server of either era.

First `server/discover` is sent. Unless the answer shows a modern server, `initialize` follows. There are two
differences to the SDK. The first request gets less time, since a slow server answers the following `initialize` anyway.
And a failed transport is not used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from msgspec import Struct

from upstream_clients import jsonrpc
from upstream_clients.error_mapping import InvalidAnswer, is_logged_out, is_transport_failure
from upstream_clients.list_repair import ICONS, MAX_METADATA_BYTES, MetadataReader

if TYPE_CHECKING:
    from upstream_clients.dispatcher import Dispatcher
    from upstream_clients.list_state import ListName
    from upstream_clients.tools import JsonObject

PROBE_TIMEOUT = 5.0
"""Seconds for `server/discover`. A legacy server that does not answer unknown methods delays each start by this."""

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
"""Names of headers of requests over HTTP."""

_APPS: Final = {jsonrpc.APPS_EXTENSION: {"mimeTypes": [jsonrpc.APP_MIME_TYPE]}}
_QUESTIONS: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}

_WITHOUT_QUESTIONS: Final[dict[str, Any]] = {"extensions": _APPS}
CAPABILITIES: Final[dict[str, Any]] = {**_QUESTIONS, **_WITHOUT_QUESTIONS}
"""Client capabilities: the questions that a server may ask during a call, and the extension for apps.

Modern servers get them with each call for which a person can be asked; legacy ones once, at `initialize`. The extension
is always declared, since servers offer tools with apps only to clients that have it."""

_WITH_TASKS: Final[dict[str, Any]] = {"extensions": {**_APPS, jsonrpc.TASKS_EXTENSION: {}}}
_ALL: Final[dict[str, Any]] = {**_QUESTIONS, **_WITH_TASKS}


def request_capabilities(method: str, *, askable: bool) -> dict[str, Any]:
    """Return the client capabilities for a request to a modern server.

    Only calls and requests about tasks have the extension for tasks. No other request may be answered with a task.

    Args:
        askable: True if a person can be asked during the request.
    """
    if method == "tools/call" or method.startswith("tasks/"):
        return _ALL if askable else _WITH_TASKS
    return CAPABILITIES if askable else _WITHOUT_QUESTIONS


class Capabilities(msgspec.Struct):
    """Capabilities of a server (`ServerCapabilities` of MCP)."""

    tools: dict[str, Any] | None = None
    resources: dict[str, Any] | None = None
    prompts: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    tasks: Any = None


class _ServerInfo(msgspec.Struct):
    name: str
    version: str


_INFO_TEXTS: Final = ("name", "title", "version", "description", "websiteUrl")


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: Capabilities
    server_info: _ServerInfo
    instructions: str | None = None


class _DiscoverResult(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: Capabilities
    instructions: str | None = None
    meta: Any = msgspec.field(default=None, name="_meta")


class Agreement(Struct, frozen=True):
    """The outcome of the negotiation with a server.

    Attributes:
        server_name, server_version: the name and version of the server program, as the server states them.
        server_info: the server's description of itself, as JSON.
    """

    protocol_version: str
    modern: bool
    capabilities: Capabilities
    server_name: str | None
    server_version: str | None
    instructions: str | None
    server_info: JsonObject | None = None

    @property
    def has_task_calls(self) -> bool:
        """True if a server of MCP 2025-11-25 accepts calls as tasks."""
        match self.capabilities.tasks:
            case {"requests": {"tools": {"call": dict()}}}:
                return not self.modern
        return False

    @property
    def announced_lists(self) -> list[ListName]:
        capabilities: dict[ListName, dict[str, Any] | None] = {
            "tools": self.capabilities.tools,
            "prompts": self.capabilities.prompts,
            "templates": self.capabilities.resources,
            "resources": self.capabilities.resources,
        }
        return [name for name, of in capabilities.items() if of is not None and of.get("listChanged")]


async def negotiate(dispatcher: Dispatcher, client_info: JsonObject) -> Agreement:
    """Agree on a version of either era.

    Raises:
        JsonRpcError: there is no common version, the handshake was refused, or the transport failed.
        InvalidAnswer: the answer to `initialize` is not valid, or names an unknown version.
    """
    try:
        return await _discover(dispatcher, client_info, jsonrpc.MODERN_VERSIONS[-1]) or await _initialize(
            dispatcher, client_info
        )
    except jsonrpc.JsonRpcError as error:
        # Two errors show a modern server. With `HEADER_MISMATCH`, it has accepted `server/discover` after
        # `PROBE_TIMEOUT`, and refuses the `initialize` that followed, which has no headers of a modern request. The
        # other error names the revisions that the server supports.
        version = jsonrpc.MODERN_VERSIONS[-1] if error.code == jsonrpc.HEADER_MISMATCH else _common_version(error)
        found = None if version is None else await _discover(dispatcher, client_info, version)
        if found is None:
            raise
        return found


async def _initialize(dispatcher: Dispatcher, client_info: JsonObject) -> Agreement:
    capabilities = {**CAPABILITIES, "roots": {"listChanged": True}}
    params = {
        "protocolVersion": jsonrpc.HANDSHAKE_VERSIONS[-1],
        "capabilities": capabilities,
        "clientInfo": client_info,
    }
    result = await dispatcher.request("initialize", params, tell_given_up=False)
    try:
        answer = msgspec.convert(result, _InitializeResult)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"its answer to initialize is not valid MCP: {error}") from None
    version = answer.protocol_version
    if version not in jsonrpc.HANDSHAKE_VERSIONS:
        raise InvalidAnswer(f"its protocol version {version!r} is not supported")
    await dispatcher.notify("notifications/initialized", headers={VERSION_HEADER: version})
    info = answer.server_info
    return Agreement(
        version,
        False,
        answer.capabilities,
        info.name,
        info.version,
        answer.instructions,
        _server_info(result.get("serverInfo")),
    )


async def _discover(dispatcher: Dispatcher, client_info: JsonObject, version: str) -> Agreement | None:
    """Return the agreement with a modern server; None if the server is not modern, or too slow.

    Raises:
        JsonRpcError: the server names other versions, requires a login, or is gone.
    """
    result: JsonObject | None = None
    meta = {
        jsonrpc.PROTOCOL_VERSION: version,
        jsonrpc.CLIENT_INFO: client_info,
        jsonrpc.CLIENT_CAPABILITIES: _WITHOUT_QUESTIONS,
    }
    headers = {VERSION_HEADER: version, METHOD_HEADER: "server/discover"}
    with anyio.move_on_after(PROBE_TIMEOUT):
        try:
            result = await dispatcher.request("server/discover", {"_meta": meta}, headers=headers, tell_given_up=False)
        except jsonrpc.JsonRpcError as error:
            if (
                is_transport_failure(error)
                or is_logged_out(error)
                or _common_version(error) is not None
                or _modern_only(error)
            ):
                raise
    return None if result is None else _agreement(result)


def _agreement(result: JsonObject) -> Agreement | None:
    try:
        answer = msgspec.convert(result, _DiscoverResult)
    except msgspec.ValidationError:
        return None
    common = [version for version in jsonrpc.MODERN_VERSIONS if version in answer.supported_versions]
    if not common:
        return None
    info = answer.meta.get(jsonrpc.SERVER_INFO) if isinstance(answer.meta, dict) else None
    name, version = (info.get("name"), info.get("version")) if isinstance(info, dict) else (None, None)
    if not isinstance(name, str):
        name = version = None
    version = version if isinstance(version, str) else None
    return Agreement(common[-1], True, answer.capabilities, name, version, answer.instructions, _server_info(info))


def _server_info(info: Any) -> JsonObject | None:
    if not isinstance(info, dict):
        return None
    texts = {key: info[key] for key in _INFO_TEXTS if isinstance(info.get(key), str)}
    if sum(map(len, texts.values())) > MAX_METADATA_BYTES:
        return None
    return {**texts, **MetadataReader().read(info, "the server", [], (ICONS,))} or None


def _supported(error: jsonrpc.JsonRpcError) -> list[str] | None:
    """Return the versions that an "unsupported protocol version" error names."""
    if error.code != jsonrpc.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(error.data, dict):
        return None
    supported = error.data.get("supported")
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else None


def _common_version(error: jsonrpc.JsonRpcError) -> str | None:
    supported = _supported(error) or ()
    common = [version for version in jsonrpc.MODERN_VERSIONS if version in supported]
    return common[-1] if common else None


def _modern_only(error: jsonrpc.JsonRpcError) -> bool:
    supported = _supported(error)
    return supported is not None and not any(version in jsonrpc.HANDSHAKE_VERSIONS for version in supported)
