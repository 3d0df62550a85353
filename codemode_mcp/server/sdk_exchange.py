"""Sessions and requests of the MCP SDK, as `exchange.Session` and `exchange.Exchange`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

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


class SdkSession:
    """A session of the SDK, as an `exchange.Session`."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session

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
        return self._session._connection.session_id

    @property
    def connection(self) -> object:
        return self._session._connection

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self._session._connection.notify(method, params)

    def at_end(self, callback: Callable[[], None]) -> None:
        self._session._connection.exit_stack.callback(callback)

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
        self.session = SdkSession(context.session)
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
        # The SDK's own function would leave out data that is null.
        await self._context.session._request_outbound.notify("notifications/message", params)
