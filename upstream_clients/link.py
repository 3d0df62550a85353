"""One live connection: raw requests to the server, stamped as its protocol era wants it.

Results are not modelled: the SDK's `ClientSession` would validate each of them twice, which costs more than the rest
of a call. So this talks to the session's dispatcher, dicts in and dicts out, and puts on what the session would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HEADER_MISMATCH,
    PROTOCOL_VERSION_META_KEY,
    Implementation,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from upstream_clients.faults import call_error, is_session_lost, is_transport_failure
from upstream_clients.listing import Listing, list_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import anyio
    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, ProgressFn


class WatchedDispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, which also says when its stream has ended."""

    over: anyio.Event
    """Set then; to be put in before `run`."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **options: Any,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, **options)
        finally:
            self.over.set()


class Link:
    """Satisfies `upstream.Link`. Made after negotiation, from a session that is entered."""

    def __init__(
        self,
        spec: UpstreamSpec,
        session: ClientSession,
        dispatcher: WatchedDispatcher,
        client_info: Implementation,
        *,
        over: anyio.Event,
        on_stale: Callable[[], None],
    ) -> None:
        """`over`: the connection has no future; set here too. `on_stale`: a tool is not what it was when listed."""
        version = session.protocol_version
        assert version is not None
        self.protocol_version = version
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self._spec = spec
        self._dispatcher = dispatcher
        self._over = over
        self._on_stale = on_stale
        self._envelope = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._in_flight = 0

    @property
    def alive(self) -> bool:
        return not self._over.is_set()

    async def send(self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None = None) -> JsonObject:
        """The raw result of one request. No timeout of its own.

        Raises:
            UpstreamCallError: any other end.
        """
        options: CallOptions = {"headers": self._headers(method, params)}
        if on_progress is not None:
            options["on_progress"] = _as_sdk_callback(on_progress)
        if self.modern:
            params = {**params, "_meta": {**params.get("_meta", {}), **self._envelope}}
        self._in_flight += 1
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            # An unreachable server ends the connection, unless another request may still get its answer.
            if is_session_lost(error) or (is_transport_failure(error) and self._in_flight == 1):
                self._over.set()
            elif error.code == HEADER_MISMATCH:
                self._on_stale()
            raise call_error(self._spec, method, error) from error
        finally:
            self._in_flight -= 1

    async def list_tools(self) -> Listing:
        """All tools. Raises `UpstreamCallError`."""
        listing = await list_tools(self.send)
        if not self.modern:
            return listing
        # The modern revision obliges clients to drop a tool whose header annotations are invalid.
        invalid = {
            tool.name: reason
            for tool in listing.tools
            if (reason := find_invalid_x_mcp_header(tool.input_schema)) is not None
        }
        tools = tuple(tool for tool in listing.tools if tool.name not in invalid)
        maps = ((tool.name, x_mcp_header_map(tool.input_schema)) for tool in tools)
        self._param_headers = {name: header_map for name, header_map in maps if header_map}
        problems = tuple(f"tool {name!r}: {reason}; dropped" for name, reason in invalid.items())
        return Listing(tools, listing.problems + problems)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """For HTTP; other transports ignore them."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.protocol_version}
        if not self.modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        name_key = NAME_BEARING_METHODS.get(method)
        name = params.get(name_key) if name_key is not None else None
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (header_map := self._param_headers.get(name)):
                headers.update(mcp_param_headers(header_map, params.get("arguments") or {}))
        return headers


def _as_sdk_callback(on_progress: ProgressFn) -> ProgressFnT:
    async def callback(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return callback
