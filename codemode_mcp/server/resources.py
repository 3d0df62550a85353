"""Resources for clients: requests, and stored results of programs.

The list of resources has the resources of servers, then apps, then results.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from codemode_mcp.audit.events import name_to_record, request_id
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.rules.policy.policy import Allow, Caller, Deny
from codemode_mcp.rules.policy.rule_patterns import READ_ONLY
from codemode_mcp.runs.calls.rules import HeldResource
from codemode_mcp.runs.values import ResultContents, contents_of
from codemode_mcp.server.direct_calls import unknown_resource
from codemode_mcp.server.exposure import apps
from codemode_mcp.server.exposure.apps import RESULTS, number_before
from declarations.untrusted_text import escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.exposed_apps import ExposedApps
    from codemode_mcp.server.exposed_items import ExposedItems
    from codemode_mcp.server.exposure.items import Located
    from codemode_mcp.server.exposure.selection import Exposure
    from codemode_mcp.server.profiles import ClientExposure
    from codemode_mcp.server.resource_updates import ResourceUpdates
    from codemode_mcp.server.services import App


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


# The resources to whose updates a client can subscribe: those that it can read without an approval.
#
# A subscription is not a call, so it does not take the dispatch path. The rules for reads are applied here: `deny` and
# `ask`, `expose.resources`, and pins.


class ReadableResources:
    """The resources of all servers that clients can read.

    Args:
        items: returns the resources of servers.
    """

    def __init__(self, servers: App, exposures: ClientExposure, items: Callable[[], ExposedItems]) -> None:
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


# Stored results of programs, as resources that the client of their owner lists and reads.
#
# A result belongs to its owner. A read is like `load` in a program: it needs the random key, and no rule of the policy
# is asked. The list is like `core:results:list`, so a client gets it only if policy allows this tool. Two clients of
# one owner may have different rules. All other callers get the answer for a resource that does not exist. Each read is
# recorded.
#
# A read takes the memory of a few copies of the result. So each owner has one read at a time, and others wait for it.


log = logging.getLogger("codemode_mcp.server")

LIST_TOOL: Final = "core:results:list"
"""The tool by which programs list results."""

PAGE_RESULTS: Final = 200
"""Results of one page of a list."""

MAX_READ: Final = 32 * 1024 * 1024
"""Maximum characters of the JSON of a result that is read. The values of programs are smaller."""


class ResultResources:
    """The stored results of the callers of a surface."""

    def __init__(self, runs: App, exposures: ClientExposure) -> None:
        self._runs = runs
        self._exposures = exposures
        self._reading: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def shown(self, exposure: Exposure, caller: Caller | None) -> bool:
        """Return True if a client sees its results. `caller`: None if the client may be any caller."""
        if caller is not None and (caller.owner is None or self._runs.admits_nothing(caller)):
            return False  # results of unknown callers are not stored
        return exposure.resources

    async def read(self, exchange: Exchange) -> dict[str, Any]:
        """Answer `resources/read` of the URI of a result. Await this only if the client sees its results.

        Raises:
            JsonRpcError: the caller has no such result, or it cannot be read now.
        """
        uri, began = exchange.params["uri"], time.monotonic()
        fields: dict[str, Any] = {"status": "failed"}
        try:
            found = await self._found(exchange.caller, apps.ref_of(uri))
            if found is None:
                fields["status"] = "not_found"
                raise unknown_resource(exchange, uri)
            fields.update(status="completed", bytes=found.form.size, mime_type=found.form.mime_type)
        finally:
            elapsed = round((time.monotonic() - began) * 1000)
            request = name_to_record(str(exchange.request_id))
            self._runs.auditor.emit(
                "result_read", request_id(), request=request, uri=name_to_record(uri), ms=elapsed, **fields
            )
        return {"contents": [apps.contents(uri, found)]}

    async def _found(self, caller: Caller, ref: str | None) -> ResultContents | None:
        if ref is None or caller.owner is None:
            return None
        reading = self._reading.get(caller.owner) or self._reading.setdefault(caller.owner, anyio.Lock())
        async with reading:
            try:
                text = await (await self._runs.values()).load(caller.owner, ref)
            except CodeModeError as error:
                raise JsonRpcError(INTERNAL_ERROR, error.message) from None
            if text is not None and len(text) > MAX_READ:
                message = f"the result has {len(text)} characters, more than {MAX_READ}; load a part of it in a program"
                raise JsonRpcError(INVALID_PARAMS, message)
            return None if text is None else await anyio.to_thread.run_sync(contents_of, text)

    async def page(self, caller: Caller, before: int | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return entries of `resources/list`, the latest result first, and the cursor of the next page, if any.

        Args:
            before: the number in the cursor of the request; None for the first page.
        """
        allowed = self._exposures.policy_of(caller).decide(LIST_TOOL, READ_ONLY)
        if caller.owner is None or not isinstance(allowed, Allow):
            return [], None
        try:
            found = await (await self._runs.values()).results(caller.owner, before, PAGE_RESULTS + 1)
        except CodeModeError as error:
            log.warning("stored results are left out of a list: %s", error.message)
            return [], None
        listed = [apps.entry(each) for each in found[:PAGE_RESULTS] if each.ref]
        return listed, apps.cursor_after(found[PAGE_RESULTS - 1]) if len(found) > PAGE_RESULTS else None
