"""The resources to whose updates a client can subscribe: those that it can read without an approval.

A subscription is not a call, so it does not take the dispatch path. The rules for reads are applied here: `deny` and
`ask`, `expose.resources`, and pins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.calls.held_items import HeldResource
from codemode_mcp.errors import CodeModeError
from codemode_mcp.policy.policy import Allow, Deny
from codemode_mcp.server.direct_calls import unknown_resource
from declarations.untrusted_text import escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.exposure.items import Located
    from codemode_mcp.server.client_exposure import ClientExposure
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.exposed_items import ExposedItems
    from codemode_mcp.server.services import Runs


class ReadableResources:
    """The resources of all servers that clients can read.

    Args:
        items: returns the resources of servers.
    """

    def __init__(self, servers: Runs, exposures: ClientExposure, items: Callable[[], ExposedItems]) -> None:
        self._servers = servers
        self._exposures = exposures
        self._items = items

    async def locate(self, exchange: Exchange, uri: str) -> Located:
        """Return the server of a resource to which the client of a request can subscribe.

        Raises:
            JsonRpcError: the client does not see the resource, or cannot read it without an approval, or it is held.
        """
        located = await self._items().located_resource(exchange, uri)
        server = located.server
        if not self.may_read(exchange, server):
            message = f"{escape_line(uri)}: reads from server {server!r} need an approval, so its updates are not sent"
            raise JsonRpcError(INVALID_PARAMS, message, {"uri": uri})
        dispatcher = await self._servers.dispatcher()
        entry = self._servers.catalog_of(exchange.caller).get(f"mcp:{server}:resources/read")
        source = await self._servers.item_source(server, exchange.caller)
        if entry is None or source is None:
            raise unknown_resource(exchange, uri)
        arguments = {"uri": located.identifier}
        try:
            try:
                dispatcher.refuse_held(entry, arguments, source.view(), ())
            except HeldResource:  # nothing is held of the resources that the server lists
                listed = {resource["uri"] for resource in (await source.list_resources()).items}
                dispatcher.refuse_held(entry, arguments, source.view(), listed)
        except (CodeModeError, UpstreamClientError) as error:
            raise JsonRpcError(INVALID_PARAMS, error.message, {"uri": uri}) from None
        return located

    def may_read(self, exchange: Exchange, server: str) -> bool:
        """Return True if the client of a request can read resources of a server without an approval now."""
        caller = exchange.caller
        exposure = self._exposures.of(caller, exchange.session.client_name, exchange.path_mode)
        policy = self._exposures.policy_of(caller)
        effects = policy.operation_effects(server)
        listing = policy.decide(f"mcp:{server}:resources/list", effects)
        reading = policy.decide(f"mcp:{server}:resources/read", effects)
        is_shown = exposure.shows("resources", self._exposures.server_settings(server))
        return is_shown and isinstance(reading, Allow) and not isinstance(listing, Deny)
