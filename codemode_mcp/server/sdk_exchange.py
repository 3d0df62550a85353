"""Sessions and requests of the MCP SDK, as `exchange.Session` and `exchange.Exchange`."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from codemode_mcp.server.client_questions import REQUESTS, RESULTS
from codemode_mcp.server.path_mode import path_mode_of
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import LOG_LEVEL
from upstream_clients.log_listeners import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

    from codemode_mcp.policy.callers import Caller
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.tools import JsonObject, LogLevel


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
    """Return the connection of a request."""
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
