"""The MCP SDK's server for HTTP and pass-through mode, with its sessions and requests."""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.methods import CACHEABLE_METHODS, is_input_required
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.server.client import knows_tasks
from codemode_mcp.server.client_messages import NOT_INITIALIZED, invalid_params, read_or_refuse
from codemode_mcp.server.client_questions import REQUESTS, RESULTS
from codemode_mcp.server.client_tasks import not_declared
from codemode_mcp.server.exchange import METHODS, TASK_METHODS
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, LOG_LEVEL, JsonRpcError, RequestId
from upstream_clients.server_log import LEVELS

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.shared.subscriptions import ServerEvent

    from codemode_mcp.base.settings import ExposeMode
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.code_mode import Surface
    from codemode_mcp.server.line_stream import Lines
    from codemode_mcp.server.notifications import ListKind
    from upstream_clients.tools import JsonObject, LogLevel

    StateKeys = Callable[[], Awaitable[Sequence[bytes]]]


def surface_server(surface: Surface, caller_of: Callable[[ServerRequestContext[Any]], Caller]) -> Server[Any]:
    """Return an SDK server for code mode.

    Args:
        caller_of: returns the caller of a request.
    """

    async def answer(context: ServerRequestContext[Any], params: types.RequestParams) -> dict[str, Any]:
        if context.method in TASK_METHODS:
            _check_task_header(context)
        try:
            result = await surface.answer(SdkExchange(context, caller_of(context)), context.method)
        except JsonRpcError as error:
            raise MCPError(error.code, error.message, error.data) from None
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS or "resultType" in result:
            return result
        # Lists depend on the caller's policy and on the client's profile.
        hints = {"ttlMs": 0, "cacheScope": "private"} if context.method in CACHEABLE_METHODS else {}
        return {"resultType": "complete", **hints, **result}

    async def describe(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        context, result = ctx, await call_next(ctx)
        if context.method not in ("initialize", "server/discover") or not isinstance(result, dict):
            return result
        client = _Greeting(context.params or {}) if context.method == "initialize" else SdkSession(context)
        path = path_mode_of(context)
        return {
            **result,
            "capabilities": surface.capabilities(client, path, caller_of(context)),
            "instructions": surface.instructions(client, path),
        }

    @asynccontextmanager
    async def running(server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with surface.running():
            yield {}

    bus = InMemorySubscriptionBus()
    streams: set[ListenHandler] = set()

    async def listen(
        context: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        wanted = (context.params or {}).get("notifications")
        if isinstance(wanted, dict) and wanted.get("taskIds") and not knows_tasks(SdkSession(context)):
            missing = not_declared()
            raise MCPError(missing.code, missing.message, missing.data)
        if len(streams) >= MAX_STREAMS:
            raise MCPError(types.INTERNAL_ERROR, f"{MAX_STREAMS} streams are open already; close one first")
        own = _StreamBus(bus)
        handler = ListenHandler(own)
        streams.add(handler)

        async def publish(uri: str) -> None:
            await own.publish(ResourceUpdated(uri=uri))

        try:
            uris = params.notifications.resource_subscriptions or []
            async with surface.updates.stream(SdkExchange(context, caller_of(context)), uris, publish) as honored:
                wanted = params.notifications.model_copy(update={"resource_subscriptions": honored or None})
                return await handler(context, params.model_copy(update={"notifications": wanted}))
        finally:
            streams.discard(handler)

    async def initialized(context: ServerRequestContext[Any], params: types.NotificationParams | None) -> None:
        connection = connection_of(context)
        if connection not in surface.announcer:
            sees = partial(surface.sees, SdkSession(context), path_mode_of(context), caller_of(context))
            connection.session = context.session
            connection.callback(surface.announcer.add(connection, sees))

    surface.announcer.publish = lambda kind: bus.publish(_EVENTS[kind]())
    server = Server[Any](
        surface.name, version=surface.version, title=surface.title, lifespan=running, on_subscriptions_listen=listen
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    for method in (*METHODS, *TASK_METHODS):
        server.add_request_handler(method, types.RequestParams, answer)
    server.middleware += [_name_invalid_params, describe, _Boundary(surface.state_seconds, surface.state_keys)]
    return server


def _check_task_header(context: ServerRequestContext[Any]) -> None:
    """Raise an error if a request over HTTP has another task in its header `Mcp-Name` than in its params.

    The SDK checks this header for the methods of the specification only.
    """
    headers = getattr(context.request, "headers", None)
    if headers is None or context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    task_id = (context.params or {}).get("taskId")
    if task_id is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != task_id:
        raise MCPError(HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} does not match taskId in the request's params")


class _Greeting:
    """The client of an `initialize` request, as an `exchange.Client`."""

    modern: Final = False

    def __init__(self, params: Mapping[str, Any]) -> None:
        info = params.get("clientInfo") or {}
        self.client_name: str | None = info.get("name")
        self.client_version: str | None = info.get("version")
        requested = params.get("protocolVersion")
        self.protocol_version: str = requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        self.capabilities: Mapping[str, Any] | None = params.get("capabilities")


_EVENTS: Final[Mapping[ListKind, Callable[[], ServerEvent]]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


MAX_STREAMS: Final = 1024
"""Maximum number of open streams of changes."""


class _StreamBus(InMemorySubscriptionBus):
    """The events of one stream: those of all streams, and updates of its own resources."""

    def __init__(self, shared: InMemorySubscriptionBus) -> None:
        super().__init__()
        self._shared = shared

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        ends = self._shared.subscribe(listener), super().subscribe(listener)

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe


async def _name_invalid_params(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer a request. If its params are not valid, name those that are wrong, which the SDK does not."""
    params = ctx.params or {}
    try:
        return await call_next(replace(ctx, params=params))
    except ValidationError as error:
        found = invalid_params(error, params)
        raise MCPError(found.code, found.message) from None
    except MCPError as error:
        if (error.code, error.data) == (INVALID_PARAMS, ""):  # the SDK's answer before `initialize`
            raise MCPError(INVALID_PARAMS, NOT_INITIALIZED) from None
        raise


class _Boundary(RequestStateBoundary):
    """The SDK's sealing of the `requestState` that clients send back with their answers, so that none can forge one.

    Args:
        seconds: lifetime of a state.
        keys: returns keys of 32 bytes that all processes of the store share. It is called for the first state that is
            sent or received, and raises `StoreUnavailable` while the store does not answer.
    """

    def __init__(self, seconds: float, keys: StateKeys) -> None:
        self._own = os.urandom(32)
        self._keys: StateKeys | None = keys
        self._state_security = RequestStateSecurity(keys=[self._own], ttl=seconds)
        super().__init__(self._state_security, default_audience="codemode-mcp")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        async def answer(context: ServerRequestContext[Any, Any]) -> HandlerResult:
            result = await call_next(context)
            if is_input_required(result):
                await self._load_keys()
            return result

        if (ctx.params or {}).get("requestState") is not None:
            await self._load_keys()
        return await super().__call__(ctx, answer)

    async def _load_keys(self) -> None:
        if self._keys is None:
            return
        # While the store is unavailable, programs are suspended in this process, so its own key is enough.
        with suppress(StoreUnavailable):
            shared = await self._keys()
            self._state_security.codec = AESGCMRequestStateCodec([*shared, self._own])
            self._keys = None


async def serve_lines(server: Server[Any], lines: Lines) -> None:
    stream = _MessageStream(lines)
    with Connection() as connection:
        OF_LINES.set(connection)
        await server.run(stream, stream, server.create_initialization_options())


class _MessageStream:
    """The messages of one client in both directions, as streams for the SDK. Closing them does not close the lines."""

    last_context: contextvars.Context | None = None

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def receive(self) -> SessionMessage | Exception:
        while (line := await self._lines.receive()) is not None:
            if (message := await read_or_refuse(line, self._lines.send)) is not None:
                return SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage, /) -> None:
        await self._lines.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Do nothing: the owner of the lines closes them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# Sessions and requests of the MCP SDK, as `exchange.Session` and `exchange.Exchange`.


CONNECTION: Final = "codemode_mcp.connection"
"""Key of the `Connection` in the ASGI scope of a request."""

OF_LINES: ContextVar[Connection] = ContextVar("codemode_mcp.server.connection")
"""The connection over lines whose messages the present task handles."""


class Connection(ExitStack):
    """The connection of a client, which the SDK does not show. It ends with its context.

    Attributes:
        session_id: the id of its session over HTTP; None if it has none.
        session: the first session of the SDK of a client that has said that it is initialized.
    """

    def __init__(self, session_id: str | None = None) -> None:
        super().__init__()
        self.session_id = session_id
        self.session: ServerSession | None = None

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        if self.session is not None:
            await _notify(self.session, method, params)


def connection_of(context: ServerRequestContext[Any]) -> Connection:
    found = OF_LINES.get(None) if context.request is None else context.request.scope.get(CONNECTION)
    return found or Connection()


class _Notification(BaseModel):
    """A notification with members that are null, which the SDK's own models leave out."""

    method: str
    params: dict[str, Any] | None


async def _notify(
    session: ServerSession, method: str, params: Mapping[str, Any] | None, related: RequestId | None = None
) -> None:
    message: Any = _Notification(method=method, params=None if params is None else dict(params))
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await session.send_notification(message, related)


class SdkSession:
    """A session of the SDK, as an `exchange.Session`."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._session = context.session
        self.connection = connection_of(context)

    @property
    def client_name(self) -> str | None:
        params = self._session.client_params
        return None if params is None else params.client_info.name

    @property
    def client_version(self) -> str | None:
        params = self._session.client_params
        return None if params is None else params.client_info.version

    @property
    def protocol_version(self) -> str:
        return self._session.protocol_version

    @property
    def modern(self) -> bool:
        return self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> Mapping[str, Any] | None:
        declared = self._session.client_capabilities
        return None if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def session_id(self) -> str | None:
        return self.connection.session_id

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        await _notify(self._session, method, params)

    def at_end(self, callback: Callable[[], None]) -> None:
        self.connection.callback(callback)

    async def request(self, method: str, params: JsonObject, related: RequestId | None = None) -> JsonObject:
        request = REQUESTS[method].model_validate({"method": method, "params": params}, by_name=False)
        metadata = None if related is None else ServerMessageMetadata(related_request_id=related)
        try:
            answer = await self._session.send_request(request, RESULTS[method], metadata=metadata)
        except MCPError as error:
            raise QuestionRefused(f"the client answered with error {error.code}: {error.message[:200]}") from error
        except ValidationError as error:
            raise QuestionRefused("the client's answer is not valid MCP") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise QuestionRefused("the client has disconnected") from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


class SdkExchange:
    """A request that the SDK has received, as an `exchange.Exchange`."""

    def __init__(self, context: ServerRequestContext[Any], caller: Caller) -> None:
        self._context = context
        self.session = SdkSession(context)
        self.caller = caller
        self.path_mode = path_mode_of(context)

    @property
    def request_id(self) -> RequestId:
        request_id = self._context.request_id
        assert request_id is not None  # only notifications have none
        return request_id

    @property
    def params(self) -> Mapping[str, Any]:
        return self._context.params or {}

    @property
    def wants_progress(self) -> bool:
        meta = self._context.meta or {}
        return meta.get("progressToken", meta.get("progress_token")) is not None

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        # If the client has disconnected, its request is about to be cancelled.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._context.session.report_progress(progress, total, message)

    @property
    def log_level(self) -> LogLevel | None:
        level = (self._context.meta or {}).get(LOG_LEVEL) if self.session.modern else None
        return level if level in LEVELS else None

    async def report_log(self, params: JsonObject) -> None:
        await _notify(self._context.session, "notifications/message", params, self.request_id)


PATH_MODE: Final = "codemode_mcp.path_mode"
"""Key of the mode in an ASGI scope."""


def path_mode_of(context: ServerRequestContext[Any]) -> ExposeMode | None:
    """Return the mode that the path of a request names; None over stdio and on the main path."""
    mode: ExposeMode | None = None if context.request is None else context.request.scope.get(PATH_MODE)
    return mode
