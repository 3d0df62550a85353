"""The MCP surface of pass-through mode: the tools of all upstreams and plugins, without `exec` and `wait`.

A tool of an upstream is named `<server>__<tool>`, a tool of a plugin `<plugin>__<tool>`. Every call takes the dispatch
path. A tool that policy denies is not listed. A call of its name gets the same answer as a call of an unknown name.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError

from codemode_mcp.audit import sizes
from codemode_mcp.audit.events import Auditor
from codemode_mcp.json_text import json_text
from codemode_mcp.server import descriptions
from codemode_mcp.server.client import roots_of
from codemode_mcp.server.direct_calls import DirectCalls, Target
from codemode_mcp.server.direct_forms import TOOL, tool_result
from codemode_mcp.server.exposed_tools import CallerListings, Tools
from codemode_mcp.server.profiles import ConnectedClient
from codemode_mcp.server.sdk_server import AnnouncingServer, SdkExchange, SdkSession, guard_state
from declarations.untrusted_text import escape_line
from upstream_clients.jsonrpc import JsonRpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.policy import Caller
    from upstream_clients.tools import RootsFn


class Upstreams(Tools, Protocol):
    """The part of the composition root that the surface needs."""

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None: ...

    def roots_changed(self, client: str | None) -> None: ...

    def touch(self) -> None: ...

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """Return the servers of which a caller may see a tool; for None, all servers."""

    def has_nothing(self) -> bool:
        """Return True if neither a server nor a plugin is configured."""

    def remembers(self) -> RememberFn | None:
        """Return the function that keeps approvals for later calls; None if they cannot be kept."""


class Passthrough:
    """The handlers of one MCP server, over any transport.

    Args:
        caller_of: returns the caller of a request.
        user: the caller of all requests; None if there are several callers.
        lasting: one client is connected for as long as the server runs.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        caller_of: Callable[[ServerRequestContext[Any]], Caller],
        auditor: Auditor | None = None,
        user: Caller | None = None,
        *,
        lasting: bool = False,
    ) -> None:
        self._upstreams = upstreams
        self._user = user
        self._auditor = auditor or Auditor()
        self._caller_of = caller_of
        self._calls = DirectCalls(upstreams, self._auditor)
        self._lasting = lasting
        self._listings = CallerListings(upstreams, self._set_instructions)
        self.client: ConnectedClient | None = None
        """The client of the latest request; None before the first one."""
        self.server = AnnouncingServer(
            "codemode-mcp",
            announcer=self._listings.announcer,
            lifespan=self._lifespan,
            version=metadata.version("codemode-mcp"),
            title="Tools of several servers",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._note_changed_roots
        )
        self._set_instructions()
        guard_state(self.server, upstreams.settings().code_mode.snapshot_ttl_seconds)

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with self._listings.announcer.running(), self._calls.running():
            yield {}

    def _set_instructions(self) -> None:
        self.server.instructions = (
            descriptions.NOTHING_CONFIGURED
            if self._upstreams.has_nothing()
            else descriptions.passthrough_instructions(self._upstreams.server_names(self._user))
        )

    def _note_client(self, context: ServerRequestContext[Any]) -> None:
        session = SdkSession(context)
        self.client = ConnectedClient.of(session)
        if self._lasting:
            self._upstreams.offer_roots(self._caller_of(context).client, roots_of(session))
        self._upstreams.touch()

    async def _note_changed_roots(
        self, context: ServerRequestContext[Any], params: types.NotificationParams | None
    ) -> None:
        if self._lasting:
            self._upstreams.roots_changed(self._caller_of(context).client)

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._note_client(context)
        listing = await self._listings.listed(self._caller_of(context))
        listed = listing.of_version(context.protocol_version)
        sizes.log_listing(listed)
        return types.ListToolsResult(tools=[TOOL(tool, by_name=False) for tool in listed])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        self._note_client(context)
        version = context.protocol_version
        exchange = SdkExchange(context, self._caller_of(context))

        async def find() -> Target:
            try:
                listing, entry = await self._listings.find(params.name, exchange.caller)
            except JsonRpcError as error:
                raise MCPError(error.code, error.message) from None
            return Target(entry, listing.catalog, json_text(params.arguments or {}))

        answer = await self._calls.answer(exchange, find)
        if answer.questions is not None:
            return answer.questions
        result = tool_result(params.name, answer, version)
        sizes.log_answer(escape_line(params.name), result["content"], result.get("structuredContent"))
        return result
