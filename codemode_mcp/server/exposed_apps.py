"""MCP Apps of servers, for clients that show apps: their tools, their resources, and the apps that programs show.

`exposure.apps` has the forms. Calls and reads take the dispatch path, so that policy, approvals, pins and budgets hold.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio
from msgspec.structs import replace

from codemode_mcp.base.settings import UI_TOOLS, PolicyRules
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.entries import Entry, app_uri, is_for_apps
from codemode_mcp.runs.rendering import VISIBLE_TOOLS
from codemode_mcp.server.direct_calls import DirectCalls, Target, unknown_resource
from codemode_mcp.server.exposure import apps
from declarations.untrusted_text import escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INTERNAL_ERROR, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.server.exchange import Client, Exchange
    from codemode_mcp.server.exposure.selection import Exposure
    from codemode_mcp.server.notifications import Announcer
    from codemode_mcp.server.services import App
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.server")

LIST_SECONDS: Final = 5.0
"""Seconds that a request waits for each server to list its apps."""

MAX_CALLERS: Final = 200
"""Maximum number of callers whose lists are compared for announcements. The oldest one is dropped first."""


class ExposedApps:
    """The apps of all servers.

    Args:
        exposure: returns what the client of a request sees directly.
        announcer: reports changes of the tool list.
    """

    def __init__(
        self, servers: App, direct: DirectCalls, exposure: Callable[[Exchange], Exposure], announcer: Announcer
    ) -> None:
        self._servers = servers
        self._direct = direct
        self._exposure = exposure
        self._announcer = announcer
        self._listings: WeakKeyDictionary[Catalog, tuple[Catalog, _AppListing]] = WeakKeyDictionary()
        self._listed: dict[Caller, None] = {}
        """The callers that receive lists with tools of apps, the latest last."""
        self._deadline: float | None = None

    def capabilities(self, client: Client) -> dict[str, Any]:
        if not apps.shows_apps(client.capabilities):
            return {}
        # Hosts pass reads of apps on only if the server has resources.
        return {"resources": {}, "extensions": dict(apps.DECLARATION)}

    def are_listed(self, exchange: Exchange) -> bool:
        """Return True if the client shows apps, and gets the tools that have some."""
        return UI_TOOLS in self._exposure(exchange).direct and apps.shows_apps(exchange.session.capabilities)

    async def ready(self, exchange: Exchange) -> None:
        """Wait until a list of tools can be made, if it has tools with apps."""
        if not self.are_listed(exchange):
            return
        await self._wait_for_servers()
        if exchange.caller not in self._listed:
            # The fingerprint differs only because there is one more caller. No list has changed.
            before = self._announcer.describe()
            self._listed[exchange.caller] = None
            if len(self._listed) > MAX_CALLERS:
                del self._listed[next(iter(self._listed))]
            self._announcer.redescribe(before, self._announcer.describe())

    async def _wait_for_servers(self) -> None:
        """Wait for servers whose tools are unknown. All requests together wait for at most `connectWaitMs`."""
        await self._servers.dispatcher()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._servers.settings().code_mode.connect_wait_ms / 1000
        await self._servers.wait_settled(None, max(0.0, self._deadline - time.monotonic()))

    def added(
        self, exchange: Exchange, own: Sequence[dict[str, Any]], exposed: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return a list of tools with the tools that have apps, and those that only apps may call.

        Await `ready` before.

        Args:
            own: the tools of this server. A client that shows apps also shows those of programs.
            exposed: other tools. Those with apps are replaced, since clients find their apps in their metadata.
        """
        if not self.are_listed(exchange):
            return [*own, *exposed]
        found = self._listing(exchange.caller).tools(exchange.session.protocol_version)
        names = {tool["name"] for tool in found}
        shown = [apps.marked(tool) if tool["name"] in VISIBLE_TOOLS else tool for tool in own]
        return [*shown, *(tool for tool in exposed if tool["name"] not in names), *found]

    def fingerprint(self) -> Hashable:
        """Return a value that changes when the tools of a caller change who has received them."""
        return frozenset(self._listing(caller).fingerprint for caller in self._listed)

    async def call(self, exchange: Exchange) -> dict[str, Any] | None:
        """Return the result of a call; None if the client sees no tool with this name here."""
        if not self.are_listed(exchange):
            return None
        await self._servers.dispatcher()
        name = exchange.params["name"]
        found = self._listing(exchange.caller).callable.get(name)
        if found is None:
            await self.ready(exchange)
            found = self._listing(exchange.caller).callable.get(name)
        if found is None:
            return None
        entry, catalog = found

        async def find() -> Target:
            return Target(entry, catalog, json_text(exchange.params.get("arguments") or {}))

        return await self._direct.call_tool(exchange, name, find)

    async def resources(self, exchange: Exchange) -> list[dict[str, Any]]:
        if not apps.shows_apps(exchange.session.capabilities):
            return []
        await self._servers.dispatcher()
        caller, catalog = exchange.caller, self._servers.catalog_of(exchange.caller)
        found: dict[str, list[dict[str, Any]]] = {}

        async def add(server: str) -> None:
            listed = await self._listed_resources(server, caller)
            found[server] = [app for each in listed if (app := apps.exposed_resource(server, each)) is not None]

        async with anyio.create_task_group() as group:
            for server in self._listing(caller).names:
                if all(catalog.get(f"mcp:{server}:resources/{name}") is not None for name in ("list", "read")):
                    group.start_soon(add, server)
        return [app for _, listed in sorted(found.items()) for app in listed]

    async def _listed_resources(self, server: str, caller: Caller) -> Sequence[JsonObject]:
        """Return the resources that a server lists; none if it does not answer in time."""
        try:
            source = await self._servers.item_source(server, caller)
            with anyio.move_on_after(LIST_SECONDS):
                return () if source is None else (await source.list_resources()).items
            log.warning("server %r did not list its apps within %g s", escape_line(server), LIST_SECONDS)
        except UpstreamClientError as error:
            log.warning("server %r did not list its apps: %s", escape_line(server), error)
        return ()

    async def read(self, exchange: Exchange) -> dict[str, Any]:
        """Return the result of `resources/read` for a URI that begins with `ui://`.

        Raises:
            JsonRpcError: the client does not see an app under this URI, or the app cannot be read.
        """
        uri = exchange.params["uri"]
        unknown = unknown_resource(exchange, uri)
        if not apps.shows_apps(exchange.session.capabilities):
            raise unknown
        if uri == apps.SHOWN_URI:
            return apps.shown_page()
        found = apps.original_uri(uri)
        if found is None:
            raise unknown
        server, original = found
        await self._servers.dispatcher()
        catalog = self._servers.catalog_of(exchange.caller)
        entry = catalog.get(f"mcp:{server}:resources/read")
        if entry is None:
            await self._wait_for_servers()
            catalog = self._servers.catalog_of(exchange.caller)
            entry = catalog.get(f"mcp:{server}:resources/read")
        listing = self._listing(exchange.caller)
        is_app = not uri.startswith(apps.RESOURCES)
        if entry is None or not (is_app or server in listing.names):
            raise unknown

        async def find() -> Target:
            return Target(entry, catalog, json_text({"uri": original}), reads_apps=is_app)

        answer = await self._direct.request(exchange, find)
        if answer.questions is not None:
            return answer.questions
        result = json.loads(answer.value)
        if not is_app:
            return {"contents": result.get("contents", [])}
        # Metadata may be in the list only. Clients could not take it from there, since our page is around the app.
        listed = await self._listed_resources(server, exchange.caller) if apps.lacks_metadata(result) else ()
        entry_of_app = next((each for each in listed if each.get("uri") == original), None)
        try:
            return apps.exposed_contents(server, original, result, listing.names.get(server, {}), entry_of_app)
        except apps.AppError as error:
            message = f"the app {escape_line(uri)} cannot be shown: {error}"
            raise JsonRpcError(INTERNAL_ERROR, message, {"uri": uri}) from None

    def attach(self, outcome: Outcome, exchange: Exchange) -> tuple[Outcome, dict[str, Any]]:
        shown = [item for item in outcome.outputs if item["type"] == "app"]
        target = shown[-1]["target"]
        entry = self._servers.catalog_of(exchange.caller).get(target)
        uri = None if entry is None else app_uri(entry.original)
        meta: dict[str, Any] = {}
        if not apps.shows_apps(exchange.session.capabilities):
            note = f"show() did nothing, because this client shows no apps. {_ADVICE}"
        elif not self.are_listed(exchange):
            note = f'show() did nothing, because "ui" is not in expose.direct for this client. {_ADVICE}'
        elif entry is None or uri is None:
            note = f"show() did nothing, because {escape_line(target)} has no app now. {_ADVICE}"
        else:
            meta = apps.shown_meta(shown[-1], apps.exposed_uri(entry.source_name, uri))
            note = f"The app of {escape_line(target)} is attached to this answer."
            if len(shown) > 1:
                note += f" show() was called {len(shown)} times, and an answer has one app."
        return replace(outcome, notes=(*outcome.notes, note)), meta

    def _listing(self, caller: Caller) -> _AppListing:
        catalog, of_apps = self._servers.catalog_of(caller), self._servers.app_tools_of(caller)
        found = self._listings.get(catalog)
        if found is None or found[0] is not of_apps:
            listing = _AppListing(catalog, of_apps, self._servers.settings().policy)
            found = self._listings[catalog] = of_apps, listing
        return found[1]


_ADVICE: Final = "Return or print what the user needs to know."


class _AppListing:
    """The tools of servers with apps, for one policy.

    Attributes:
        callable: the tools of these servers by their names for clients, each with its catalog. Apps may call tools of
            their server that are not listed.
        names: for each of these servers, the names for clients of the tools that its apps may call, by the names that
            the server uses.
    """

    def __init__(self, catalog: Catalog, of_apps: Catalog, rules: PolicyRules) -> None:
        from codemode_mcp.catalog.catalog import Catalog
        from codemode_mcp.server.direct_forms import Listing  # imports the SDK

        servers = {entry.source_name for entry in catalog.index.tools if app_uri(entry.original) is not None}
        servers |= {entry.source_name for entry in of_apps.index.tools}
        self._parts = [Listing(Catalog(catalog.index.only(servers)), rules), Listing(of_apps, rules)]
        self.callable: dict[str, tuple[Entry, Catalog]] = {}
        self.names: dict[str, dict[str, str]] = {server: {} for server in servers}
        self._meta: dict[str, dict[str, Any]] = {}
        for part in self._parts:
            for name, entry in part.entries.items():
                self.callable[name] = entry, part.catalog
                if is_for_apps(entry.original):
                    self.names[entry.source_name][entry.original.name] = name
                meta = apps.tool_meta(entry.source_name, entry.original)
                if meta is not None:
                    self._meta[name] = meta
        self.fingerprint: Final = (*(part.fingerprint for part in self._parts), json_text(self._meta))

    def tools(self, version: str) -> list[dict[str, Any]]:
        """Return the tools with apps, and those that only apps may call, in the form of a protocol revision."""
        return [
            {**tool, "_meta": {**tool.get("_meta", {}), **self._meta[tool["name"]]}}
            for part in self._parts
            for tool in part.of_version(version)
            if tool["name"] in self._meta
        ]
