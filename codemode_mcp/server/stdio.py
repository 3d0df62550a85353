"""The standard streams of `serve`, and the server over them for clients of the handshake revisions.

The streams are reserved before most modules are imported, because an imported module may print. So this module imports
the SDK inside functions.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.audit import listeners
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.server.client_messages import NOT_INITIALIZED, invalid_params, read_or_refuse
from codemode_mcp.server.exchange import METHODS
from codemode_mcp.server.line_stream import Lines, open_line_stream
from codemode_mcp.server.profiles import ConnectedClient
from upstream_clients import jsonrpc
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import TaskGroup

    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.code_mode import Surface
    from upstream_clients.tools import JsonObject


Streams = tuple[int, int]
"""Descriptors to read from and to write to."""

MAX_OPENING: Final = 8
"""Messages kept until the first request, which decides the protocol era. The SDK keeps the same number."""

_STREAMS = (0, 1, 2)


def reserve() -> Streams:
    """Return private copies of standard input and output, which no child inherits.

    Afterwards descriptor 0 is empty and descriptor 1 is standard error, until the process exits. So output of a plugin
    or library cannot get between the messages, even if it is flushed at exit. If the parent process has closed a
    stream, return descriptors 0 and 1 unchanged.
    """
    if sys.stdin is None or sys.stdout is None:
        return 0, 1
    try:
        client_in, client_out = _duplicate(0), _duplicate(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        sys.stdout.flush()  # earlier output goes to standard error too
    except OSError:
        return 0, 1
    if sys.platform == "win32":
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        for stream in (0, 1):
            rebind_std_handle_to_fd(stream)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return client_in, client_out


def _duplicate(stream: int) -> int:
    """Return a copy that children do not inherit, with a number other than those of the standard streams."""
    # The system gives the lowest free number. If the parent has closed standard error, that is 2, and everything that
    # writes to standard error would write to the client.
    copies = [os.dup(stream)]
    while copies[-1] in _STREAMS:
        copies.append(os.dup(stream))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


async def serve_surface(surface: Surface, caller: Caller, streams: Streams, over: anyio.Event) -> None:
    """Answer one client on its streams, in the era of its first request, until it closes its end. Then set `over`."""
    async with open_line_stream(*streams) as lines:
        await serve_surface_lines(surface, caller, lines)
    over.set()


async def serve_surface_lines(surface: Surface, caller: Caller, lines: Lines) -> None:
    opening: list[str] = []
    handshake = not listeners.is_configured()  # only the SDK makes spans of requests
    while handshake and (line := await lines.receive()) is not None:
        if (message := await read_or_refuse(line, lines.send)) is None:
            continue
        is_request = jsonrpc.form_of(message) == "request"
        if is_request or len(opening) < MAX_OPENING:
            opening.append(line)
        if is_request:
            handshake = message["method"] == "initialize" or not jsonrpc.has_envelope(message.get("params"))
            break
    lines.unread(opening)
    if handshake:
        await HandshakeSession(surface, lines, caller).serve()
    else:
        from codemode_mcp.server.sdk_server import serve_lines, surface_server

        await serve_lines(surface_server(surface, lambda _: caller), lines)


# A server over stdio for clients of the handshake revisions (2024-11-05 to 2025-11-25), without the MCP SDK.
#
# Importing the SDK takes longer than some clients wait for their first answer, and the SDK builds several models for
# each message. Here a message stays a dict. Params in an unusual form are validated by the SDK's models, so that this
# server and the SDK's server accept the same requests. `tests/server/test_handshake.py` compares the two.
#
# Source: https://modelcontextprotocol.io/specification/2025-11-25/basic, and its pages on lifecycle and cancellation.


log = logging.getLogger("codemode_mcp.server")

LAST_MESSAGE_SECONDS: Final = 1.0
"""Seconds for sending the last message about a cancelled request."""


# Params in their common form are valid. The SDK's models validate all others.


def is_plain_call(params: Mapping[str, Any]) -> bool:
    return (
        params.keys() <= {"name", "arguments", "_meta"}
        and isinstance(params.get("name"), str)
        and isinstance(params.get("arguments", _EMPTY), dict)
        and _is_plain_meta(params)
    )


def is_plain_listing(params: Mapping[str, Any]) -> bool:
    """Return True if params of `tools/list`, or of a request that needs none, have the common form."""
    return params.keys() <= {"cursor", "_meta"} and isinstance(params.get("cursor", ""), str) and _is_plain_meta(params)


def is_plain_greeting(params: Mapping[str, Any]) -> bool:
    info, declared = params.get("clientInfo"), params.get("capabilities")
    return (
        params.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
        and isinstance(params.get("protocolVersion"), str)
        and isinstance(info, dict)
        and info.keys() <= {"name", "version", "title", "description", "websiteUrl"}
        and {"name", "version"} <= info.keys()
        and all(isinstance(value, str) for value in info.values())
        and isinstance(declared, dict)
        and not declared.keys() & {"tasks", "extensions"}
        and all(_is_plain_capability(name, declared[name]) for name in declared.keys() & _CAPABILITIES.keys())
        and _is_plain_meta(params)
    )


_IS_PLAIN: Final = {
    **dict.fromkeys(("ping", "tools/list", "prompts/list", "resources/list"), is_plain_listing),
    "tools/call": is_plain_call,
}
_EMPTY: Final[Mapping[str, Any]] = {}
_CAPABILITIES: Final[Mapping[str, frozenset[str] | None]] = {
    "roots": frozenset({"listChanged"}),
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    "experimental": None,
}
"""The capabilities that the SDK knows, with the names of their members; None for any names. It ignores others."""


def _is_plain_capability(name: str, value: object) -> bool:
    if not isinstance(value, dict):
        return False
    members = _CAPABILITIES[name]
    if members is None:
        return all(isinstance(each, dict) for each in value.values())
    return value.keys() <= members and all(
        isinstance(each, bool) if member == "listChanged" else each == {} for member, each in value.items()
    )


def _is_plain_meta(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta", _EMPTY)
    return isinstance(meta, dict) and type(meta.get("progressToken", 0)) in (str, int)


class HandshakeSession:
    """The session of one client, as an `exchange.Session`."""

    modern: Final = False
    session_id: Final = None

    @property
    def connection(self) -> object:
        return self

    def __init__(self, surface: Surface, lines: Lines, caller: Caller) -> None:
        self._surface = surface
        self._lines = lines
        self._caller = caller
        self._group: TaskGroup | None = None
        self._exchanges: dict[jsonrpc.RequestId, _Exchange] = {}
        self._sent_requests: dict[jsonrpc.RequestId, _SentRequest] = {}
        self._last_id = 0
        self._at_end: list[Callable[[], None]] = []
        self._is_initialized = False
        self.client_name: str | None = None
        self.client_version: str | None = None
        self.capabilities: Mapping[str, Any] | None = None
        self.protocol_version = jsonrpc.HANDSHAKE_VERSIONS[-1]

    @property
    def _is_greeted(self) -> bool:
        return self.capabilities is not None

    async def serve(self) -> None:
        try:
            async with self._surface.running(), anyio.create_task_group() as self._group:
                while (line := await self._lines.receive()) is not None:
                    if (message := await read_or_refuse(line, self._lines.send)) is None:
                        continue
                    match jsonrpc.form_of(message):
                        case "request":
                            await self._take_request(message["id"], message["method"], message.get("params"))
                        case "notification":
                            self._take_notification(message["method"], message.get("params") or {})
                        case "result" | "error" if message.get("id") is not None:
                            self._take_response(message["id"], message)
                # Requests that wait for an answer of the client fail with a refusal, before they are cancelled.
                self._refuse_questions()
                self._group.cancel_scope.cancel()
        finally:
            # Questions may be open outside of requests, and `serve` may have been cancelled.
            self._refuse_questions()
            for callback in self._at_end:
                callback()

    # Requests of the client

    async def _take_request(self, request_id: jsonrpc.RequestId, method: str, params: dict[str, Any] | None) -> None:
        assert self._group is not None
        exchange = _Exchange(self, request_id, params or {})
        self._exchanges[jsonrpc.key_of(request_id)] = exchange
        if method == "initialize":
            # Later messages need the result. A client may send them without waiting for the answer, so no other message
            # is read before the answer is written.
            await self._answer(exchange, method)
        else:
            self._group.start_soon(self._answer, exchange, method)

    async def _answer(self, exchange: _Exchange, method: str) -> None:
        is_writing = False
        try:
            with exchange.scope:
                try:
                    line = _encode_answer(exchange.request_id, result=await self._result(exchange, method))
                except jsonrpc.JsonRpcError as error:
                    line = _encode_answer(exchange.request_id, error=error.as_json())
                except Exception:
                    log.exception("a request failed in an unexpected way: %s", method[:100])
                    fault = jsonrpc.JsonRpcError(jsonrpc.INTERNAL_ERROR, "Internal error")
                    line = _encode_answer(exchange.request_id, error=fault.as_json())
                finally:
                    exchange.ended = True  # no progress may follow the answer
                    # A client may have used the id again, for a request that is still open.
                    if self._exchanges.get(jsonrpc.key_of(exchange.request_id)) is exchange:
                        del self._exchanges[jsonrpc.key_of(exchange.request_id)]
                if not exchange.cancelled:
                    is_writing = True
                    await self._write(line)
        except anyio.get_cancelled_exc_class():
            # The connection is closing. The client gets an error, unless a part of the answer may be written.
            if not is_writing and not exchange.cancelled:
                with anyio.move_on_after(LAST_MESSAGE_SECONDS, shield=True):
                    closed = jsonrpc.JsonRpcError(jsonrpc.CONNECTION_CLOSED, "Connection closed").as_json()
                    await self.send({"id": exchange.request_id, "error": closed})
            raise

    async def _result(self, exchange: _Exchange, method: str) -> JsonObject:
        params = exchange.params
        if method != "initialize" and jsonrpc.has_envelope(params):
            raise jsonrpc.JsonRpcError(
                jsonrpc.INVALID_REQUEST,
                "this connection serves the handshake protocol era; "
                "requests carrying the 2026-07-28 envelope are not accepted on it",
            )
        if method == "initialize":
            return self._initialize(params)
        if method != "ping" and method not in METHODS:
            raise jsonrpc.JsonRpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", method)
        is_plain = _IS_PLAIN.get(method)
        if is_plain is None or not is_plain(params):
            # As the SDK: before `initialize`, only the form of the revision is checked.
            _check_params(method, self.protocol_version, params, parses=method == "ping" or self._is_greeted)
        if method == "ping":
            return {}
        if not self._is_greeted:
            raise jsonrpc.JsonRpcError(jsonrpc.INVALID_PARAMS, NOT_INITIALIZED)
        # In these revisions, clients answer questions by responses. A newer client's `requestState` and
        # `inputResponses` are not sealed or checked here, so they are dropped.
        exchange.params = {
            name: value for name, value in params.items() if name not in ("_meta", "requestState", "inputResponses")
        }
        return await self._surface.answer(exchange, method)

    def _initialize(self, params: Mapping[str, Any]) -> JsonObject:
        if is_plain_greeting(params):
            declared = {name: params["capabilities"][name] for name in params["capabilities"] if name in _CAPABILITIES}
        else:
            params = _checked_greeting(params)
            declared = params["capabilities"]
        requested = params["protocolVersion"]
        self.protocol_version = requested if requested in jsonrpc.HANDSHAKE_VERSIONS else jsonrpc.HANDSHAKE_VERSIONS[-1]
        self.client_name, self.client_version = params["clientInfo"]["name"], params["clientInfo"]["version"]
        self.capabilities = declared
        surface = self._surface
        surface.client = ConnectedClient.of(self)
        return {
            "protocolVersion": self.protocol_version,
            "capabilities": surface.capabilities(self, None, self._caller),
            "serverInfo": {"name": surface.name, "title": surface.title, "version": surface.version},
            "instructions": surface.instructions(self, None),
        }

    # Notifications and responses of the client

    def _take_notification(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "notifications/cancelled":
                request_id = params.get("requestId", "")
                if (
                    jsonrpc.is_id(request_id)
                    and (exchange := self._exchanges.get(jsonrpc.key_of(request_id))) is not None
                ):
                    exchange.cancelled = True
                    exchange.scope.cancel()
            case "notifications/roots/list_changed":
                self._surface.roots_changed(self._caller)
            case "notifications/initialized" if not self._is_initialized:
                self._is_initialized = True
                sees = partial(self._surface.sees, self, None, self._caller)
                self.at_end(self._surface.announcer.add(self, sees))

    def _take_response(self, request_id: jsonrpc.RequestId, message: Mapping[str, Any]) -> None:
        sent = self._sent_requests.get(jsonrpc.key_of(request_id))
        if sent is None:
            log.debug("the client sent a response to no open request")
            return
        if isinstance(message.get("result"), dict):
            sent.result = message["result"]
        else:
            error = message["error"]
            sent.refusal = f"the client answered with error {error['code']}: {error['message'][:200]}"
        sent.answered.set()

    # Messages to the client

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. It is dropped if the client has disconnected."""
        await self._write(_encode(message))

    async def _write(self, line: bytes) -> None:
        try:
            await self._lines.send(line)
        except anyio.BrokenResourceError:
            log.debug("a message was dropped: the client has disconnected")

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self.send({"method": method, **({} if params is None else {"params": params})})

    def at_end(self, callback: Callable[[], None]) -> None:
        self._at_end.append(callback)

    async def request(self, method: str, params: JsonObject, related: jsonrpc.RequestId | None = None) -> JsonObject:
        """Send a request; see `exchange.Session`. `related` is ignored, because all messages share one connection."""
        self._last_id += 1
        number, sent = self._last_id, _SentRequest()
        self._sent_requests[number] = sent
        try:
            await self.send({"id": number, "method": method, **({"params": params} if params else {})})
            await sent.answered.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LAST_MESSAGE_SECONDS, shield=True):
                cancelled = {"requestId": number, "reason": "caller cancelled"}
                await self.send({"method": "notifications/cancelled", "params": cancelled})
            raise
        finally:
            del self._sent_requests[number]
        if sent.result is None:
            raise QuestionRefused(sent.refusal)
        return _checked_answer(method, self.protocol_version, sent.result)

    def _refuse_questions(self) -> None:
        for sent in self._sent_requests.values():
            sent.refusal = "the client has disconnected"
            sent.answered.set()


def _encode_answer(request_id: jsonrpc.RequestId, **answer: JsonObject) -> bytes:
    return _encode({"id": request_id, **answer})


def _encode(message: Mapping[str, Any]) -> bytes:
    # Texts of programs and servers may have single surrogates, which cannot be encoded. Numbers of servers may be
    # infinite: `1e999` is JSON.
    return json_text({"jsonrpc": "2.0", **message}).encode("utf-8", "replace")


class _SentRequest:
    """A request to the client that waits for its response."""

    __slots__ = ("answered", "refusal", "result")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.result: JsonObject | None = None
        self.refusal = ""


class _Exchange:
    """A request of the client, as an `exchange.Exchange`."""

    path_mode: Final = None
    log_level: Final = None
    __slots__ = ("_token", "caller", "cancelled", "ended", "params", "request_id", "scope", "session")

    def __init__(self, session: HandshakeSession, request_id: jsonrpc.RequestId, params: Mapping[str, Any]) -> None:
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._token = token if jsonrpc.is_id(token) or isinstance(token, bool) else None  # the SDK takes these, too
        self.session = session
        self.caller = session._caller
        self.request_id = request_id
        self.params = params
        self.scope = anyio.CancelScope()
        self.cancelled = False
        self.ended = False

    @property
    def wants_progress(self) -> bool:
        return self._token is not None

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._token is None or self.ended:
            return
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.session.send({"method": "notifications/progress", "params": params})

    async def report_log(self, params: JsonObject) -> None:
        await self.session.notify("notifications/message", params)


# Validation by the SDK's models


def _check_params(method: str, version: str, params: Mapping[str, Any], *, parses: bool = True) -> None:
    from mcp_types import methods
    from pydantic import ValidationError

    check = methods.parse_client_request if parses else methods.validate_client_request
    try:
        check(method, version, params)
    except ValidationError as error:
        raise invalid_params(error, params) from None


def _checked_greeting(params: Mapping[str, Any]) -> dict[str, Any]:
    from mcp_types import InitializeRequestParams

    _check_params("initialize", jsonrpc.HANDSHAKE_VERSIONS[-1], params)
    read = InitializeRequestParams.model_validate(params, by_name=False)
    return read.model_dump(by_alias=True, mode="json", exclude_none=True)


def _checked_answer(method: str, version: str, result: JsonObject) -> JsonObject:
    from mcp_types import methods
    from pydantic import ValidationError

    from codemode_mcp.server.client_questions import RESULTS

    try:
        methods.validate_client_result(method, version, result)
        read = RESULTS[method].model_validate(result, by_name=False)
    except ValidationError as error:
        raise QuestionRefused("the client's answer is not valid MCP") from error
    return read.model_dump(by_alias=True, mode="json", exclude_none=True)
