"""The tools that clients get with their own schemas, and the changes of these lists."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from codemode_mcp.base.did_you_mean import hint, nearest
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.server import search_tools
from codemode_mcp.server.descriptions import prompt_bytes
from codemode_mcp.server.direct_calls import DirectCalls, Target
from codemode_mcp.server.direct_forms import Listing, failure
from codemode_mcp.server.exposure.selection import ALL_TOOLS, DirectPatterns, Exposure, Mode, choose_mode, listed_tools
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.notifications import Announcer
    from codemode_mcp.server.services import App


MAX_CALLERS: Final = 1024
"""Maximum number of callers whose choice of the mode `auto` is remembered."""

MAX_LISTS: Final = 64
"""Maximum number of different values of `expose.direct` whose lists are watched for changes."""


class ExposedTools:
    """The tools of all clients of a surface.

    Args:
        announcer: reports changes of the tool list.
    """

    def __init__(self, tools: App, direct: DirectCalls, announcer: Announcer) -> None:
        self._tools = tools
        self._direct = direct
        self._announcer = announcer
        self._listings: dict[tuple[str, ...], CallerListings] = {}
        self._patterns: dict[tuple[str, ...], DirectPatterns] = {}
        self._decisions: dict[Caller, Mode] = {}
        self._sizes: WeakKeyDictionary[Catalog, int] = WeakKeyDictionary()

    def fingerprint(self) -> Hashable:
        """Return a value that changes when a list changes that a client has got."""
        decided = tuple(self._decide(caller) for caller in [*self._decisions])
        return decided, tuple(each.fingerprint() for each in self._listings.values())

    # the mode `auto`

    async def decided(self, caller: Caller, exposure: Exposure) -> Exposure:
        """Return what a client sees, with the mode that `auto` stands for now."""
        if exposure.mode != "auto":
            return exposure
        await self._catalog(caller)
        mode = self._decide(caller)
        direct = exposure.direct or (ALL_TOOLS if mode == "direct" else ())
        return replace(exposure, mode=mode, direct=direct)

    def _decide(self, caller: Caller) -> Mode:
        catalog = self._tools.catalog_of(caller)
        size = self._sizes.get(catalog)
        if size is None:
            size = self._sizes[catalog] = prompt_bytes(listed_tools(catalog.index.tools))
        if caller not in self._decisions and len(self._decisions) >= MAX_CALLERS:
            del self._decisions[next(iter(self._decisions))]
        mode = self._decisions[caller] = choose_mode(size, self._decisions.get(caller))
        return mode

    # the tools of `direct`

    async def listed(self, exchange: Exchange, patterns: tuple[str, ...]) -> list[dict[str, Any]]:
        if not patterns:
            return []
        listing = await self._listings_for(patterns).listed(exchange.caller)
        chosen = self._patterns[patterns]
        if not all(chosen.choose(entry) for entry in listing.entries.values()):
            raise RuntimeError("the tool list has a tool that expose.direct does not choose")  # fails closed
        return listing.of_version(exchange.session.protocol_version)

    async def call_listed(self, exchange: Exchange, patterns: tuple[str, ...], name: str) -> dict[str, Any]:
        """Call one of the tools that patterns choose. Return a `CallToolResult` or an `InputRequiredResult`.

        Raises:
            JsonRpcError: there is no such tool.
        """
        listings, arguments = self._listings_for(patterns), exchange.params.get("arguments") or {}

        async def find() -> Target:
            listing, entry = await listings.find(name, exchange.caller)
            return Target(entry, listing.catalog, json_text(arguments))

        return await self._direct.call_tool(exchange, name, find)

    def _listings_for(self, patterns: tuple[str, ...]) -> CallerListings:
        found = self._listings.get(patterns)
        if found is None:
            while len(self._listings) >= MAX_LISTS:
                oldest = next(iter(self._listings))
                del self._listings[oldest], self._patterns[oldest]
            chosen = self._patterns[patterns] = DirectPatterns(patterns)
            found = self._listings[patterns] = CallerListings(self._tools, self._announcer, chosen.choose)
        return found

    # `search` and `call`

    async def call_searching(self, exchange: Exchange, name: str) -> dict[str, Any]:
        version, arguments = exchange.session.protocol_version, exchange.params.get("arguments") or {}
        try:
            if name == "search":
                return _text_result(await self._search(exchange.caller, arguments), version)

            async def find() -> Target:
                catalog = await self._catalog(exchange.caller)
                entry, given = search_tools.called_entry(catalog, arguments)
                return Target(entry, catalog, json_text(given))

            return await self._direct.call_tool(exchange, str(arguments.get("name", name))[:200], find)
        except CodeModeError as error:
            return failure(f"{error.code}: {error.message}", version)

    async def _search(self, caller: Caller, arguments: Mapping[str, Any]) -> str:
        settings = self._tools.settings().code_mode
        catalog = await self._catalog(caller)
        return search_tools.found_tools(catalog, arguments, settings.search_default_limit, settings.max_search_limit)

    async def _catalog(self, caller: Caller) -> Catalog:
        """Return the catalog of a caller, after its servers have listed their tools or have had time to."""
        await self._tools.dispatcher()
        await self._tools.wait_settled(None, self._tools.settings().code_mode.connect_wait_ms / 1000)
        return await self._tools.catalog_for(caller, None)


def _text_result(text: str, version: str) -> dict[str, Any]:
    return {**failure(text, version), "isError": False}


# The lists of the tools that callers get with their own schemas, and the changes of these lists.
#
# Callers with the same rules share a list. Plugins load later than servers, so there is also a list without their
# tools. Changes are found by comparing that list and the registered plugin tools.


class CallerListings:
    """The tool lists of all callers.

    Args:
        announcer: reports changes of the answer that the lists are part of.
        is_listed: returns False for tools that are left out.
    """

    def __init__(self, tools: App, announcer: Announcer, is_listed: Callable[[Entry], bool]) -> None:
        self._tools = tools
        self._is_listed = is_listed
        # The lists without plugin tools that clients have received, each with one of its callers.
        self._listings: dict[Catalog, tuple[Caller, Listing]] = {}
        self._with_plugins: WeakKeyDictionary[Catalog, Listing] = WeakKeyDictionary()
        # True while a list without plugin tools is recorded as sent, although plugins are still loading.
        self._incomplete = False
        self._deadline: float | None = None
        self._announcer = announcer

    async def listed(self, caller: Caller) -> Listing:
        await self._wait_for_servers()
        loaded = await self._tools.plugins_loaded()
        listing = await self._with_plugin_tools(caller) if loaded else self._without_plugins(caller)
        self._incomplete = not loaded
        self._announcer.listed()  # nothing is awaited after this, so the recorded list is the one that is sent
        self._incomplete = False
        return listing

    async def find(self, name: str, caller: Caller) -> tuple[Listing, Entry]:
        """Return a tool that the caller may see, and the list that has it.

        Raises:
            JsonRpcError: there is no such tool, or it is held. The message has the nearest names, or the reason.
        """
        await self._tools.dispatcher()
        listing = self._without_plugins(caller)
        if name not in listing.entries:
            await self._tools.plugins_loaded()
            listing = await self._with_plugin_tools(caller)
        if name not in listing.entries:
            holder = listing.holders.get(name)
            with suppress(KeyError):  # the configuration has changed, and has no such server now
                await self._wait_for_servers(None if holder is None else [holder])
            listing = await self._with_plugin_tools(caller)
        entry = listing.entries.get(name)
        if entry is None and name in listing.withheld:
            raise JsonRpcError(INVALID_PARAMS, f"{name} {listing.withheld[name]}.")
        if entry is None:
            near = hint(nearest(name, listing.entries))
            raise JsonRpcError(INVALID_PARAMS, f"Unknown tool: {json.dumps(name[:100])}.{near}")
        return listing, entry

    async def _wait_for_servers(self, names: Collection[str] | None = None) -> None:
        """Wait for servers whose tools are unknown. All requests together wait for at most `connectWaitMs`."""
        await self._tools.dispatcher()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._tools.settings().code_mode.connect_wait_ms / 1000
        await self._tools.wait_settled(names, max(0.0, self._deadline - time.monotonic()))

    async def _with_plugin_tools(self, caller: Caller) -> Listing:
        catalog = await self._tools.catalog_for(caller, None)
        listing = self._without_plugins(caller)
        if not any(entry.source == "plugin" for entry in catalog.toolset.entries):
            return listing
        found = self._with_plugins.get(catalog)
        if found is None:
            found = self._with_plugins[catalog] = self._listing(catalog)
        return found

    def _without_plugins(self, caller: Caller) -> Listing:
        catalog = self._tools.catalog_of(caller)
        if catalog not in self._listings:
            before = self._announcer.describe()
            if catalog not in self._listings:  # this updates the lists, and may have added this one
                self._listings[catalog] = caller, self._listing(catalog)
                if len(self._listings) > 1:
                    # The fingerprint differs only because there is one more list. No list has changed, so clients must
                    # not be notified.
                    self._announcer.redescribe(before, self._announcer.describe())
        return self._listings[catalog][1]

    def _listing(self, catalog: Catalog) -> Listing:
        return Listing(catalog, self._tools.settings().policy, self._is_listed)

    def fingerprint(self) -> Hashable:
        """Return the fingerprint of the current lists of all callers to whom a list was sent."""
        current: dict[Catalog, tuple[Caller, Listing]] = {}
        for before, (caller, listing) in self._listings.items():
            catalog = self._tools.catalog_of(caller)
            if catalog not in current:
                current[catalog] = caller, listing if catalog is before else self._listing(catalog)
        self._listings = current
        tools = self._tools.settings()
        # If rules change, a caller may get the list of another caller, although the lists are the same as before.
        rules = (tools.policy, tools.contexts) if tools.contexts else ()
        plugins = None if self._incomplete else self._tools.plugin_tools()
        return rules, frozenset(listing.fingerprint for _, listing in current.values()), plugins
