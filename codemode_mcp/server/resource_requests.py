"""Requests about resources: those of servers, apps, and stored results of programs.

The list of resources has the resources of servers, then apps, then results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.exposure.results import RESULTS, number_before
from codemode_mcp.server.direct_calls import unknown_resource
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.exposed_apps import ExposedApps
    from codemode_mcp.server.exposed_items import ExposedItems
    from codemode_mcp.server.resource_updates import ResourceUpdates
    from codemode_mcp.server.result_resources import ResultResources

LIST_TTL_MS: Final = 10_000
"""Longest time in milliseconds for which a client may use a list with results again. New results are not announced."""


class ResourceRequests:
    """The answers to `resources/*`.

    Args:
        items: returns the resources of servers.
        sees_servers: returns True if the client of a request sees resources of servers.
        sees_results: returns True if it sees results.
    """

    def __init__(
        self,
        items: Callable[[], ExposedItems],
        apps: ExposedApps,
        updates: ResourceUpdates,
        results: ResultResources,
        sees_servers: Callable[[Exchange], bool],
        sees_results: Callable[[Exchange], bool],
    ) -> None:
        self._items = items
        self._apps = apps
        self._updates = updates
        self._results = results
        self._sees_servers = sees_servers
        self._sees_results = sees_results

    async def answer(self, exchange: Exchange, method: str) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            JsonRpcError: the client does not see what it asks for.
        """
        match method:
            case "resources/list":
                return await self._list(exchange)
            case "resources/templates/list" if self._has_others(exchange) and not self._sees_servers(exchange):
                return {"resourceTemplates": []}
            case "resources/read":
                return await self._read(exchange, exchange.params["uri"])
            case "resources/subscribe" if self._sees_servers(exchange):
                return await self._updates.subscribe(exchange, exchange.params["uri"])
            case "resources/unsubscribe" if self._sees_servers(exchange):
                return self._updates.unsubscribe(exchange, exchange.params["uri"])
        return await self._items().answer(exchange, method)

    def _has_others(self, exchange: Exchange) -> bool:
        """Return True if the client may see resources that are not those of servers."""
        return bool(self._apps.capabilities(exchange.session)) or self._sees_results(exchange)

    async def _read(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        if uri.startswith("ui://"):
            return await self._apps.read(exchange)
        if self._sees_results(exchange):
            if uri.startswith(RESULTS):
                return await self._results.read(exchange)
            if not self._sees_servers(exchange):
                raise unknown_resource(exchange, uri)
        return await self._items().answer(exchange, "resources/read")

    async def _list(self, exchange: Exchange) -> dict[str, Any]:
        cursor = exchange.params.get("cursor")
        has_results = self._sees_results(exchange)
        before = number_before(cursor) if has_results else None
        result: dict[str, Any] = {"resources": []}
        if before is None:
            if self._sees_servers(exchange) or not self._has_others(exchange):
                result = await self._items().answer(exchange, "resources/list")
            elif cursor is not None:
                raise JsonRpcError(INVALID_PARAMS, "unknown cursor; request the list again without a cursor")
            if "nextCursor" in result:
                return result
            result["resources"] = [*result["resources"], *await self._apps.resources(exchange)]
        if not has_results:
            return result
        listed, following = await self._results.page(exchange.caller, before)
        result["resources"] = [*result["resources"], *listed]
        if following is not None:
            result["nextCursor"] = following
        if "ttlMs" in result:
            result["ttlMs"] = min(result["ttlMs"], LIST_TTL_MS)
        return result
