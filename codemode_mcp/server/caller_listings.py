"""The lists of the tools that callers get with their own schemas, and the changes of these lists.

Callers with the same rules share a list. Plugins load later than servers, so there is also a list without their tools.
Changes are found by comparing that list and the registered plugin tools.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from codemode_mcp.did_you_mean import nearest
from codemode_mcp.server.list_changed import Announcer
from codemode_mcp.server.passthrough_tools import Listing
from upstream_clients.jsonrpc import INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    import anyio

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import ToolSettings


class Tools(Protocol):
    """The part of the composition root from which tool lists are made."""

    def settings(self) -> ToolSettings: ...

    def catalog_of(self, caller: Caller) -> Catalog:
        """Return the caller's MCP tools."""

    async def catalog_for(self, caller: Caller, client: None) -> Catalog:
        """Return the caller's tools, including those of plugins, once plugins are loaded."""

    async def plugins_loaded(self) -> bool:
        """Wait, for a bounded time, for plugins to load. Return False if some are still loading."""

    def plugin_tools(self) -> Hashable:
        """Return a value that changes when a plugin is loaded, changed or removed."""

    def change(self) -> anyio.Event:
        """Return an event for the next change of the catalog."""

    async def dispatcher(self) -> Dispatcher:
        """Return the dispatcher once everything is open."""

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        """Wait until servers have listed their tools; None stands for all servers."""


class CallerListings:
    """The tool lists of all callers.

    Args:
        on_change: called when a list may have changed.
        announcer: reports changes of an answer that the lists are part of; None to report changes of the lists alone.
        is_listed: returns False for tools that are left out.

    Attributes:
        announcer: reports changes of the lists to clients.
    """

    def __init__(
        self,
        tools: Tools,
        on_change: Callable[[], None],
        announcer: Announcer | None = None,
        is_listed: Callable[[Entry], bool] = lambda _: True,
    ) -> None:
        self._tools = tools
        self._on_change = on_change
        self._is_listed = is_listed
        # The lists without plugin tools that clients have received, each with one of its callers.
        self._listings: dict[Catalog, tuple[Caller, Listing]] = {}
        self._with_plugins: WeakKeyDictionary[Catalog, Listing] = WeakKeyDictionary()
        # True while a list without plugin tools is recorded as sent, although plugins are still loading.
        self._incomplete = False
        self._deadline: float | None = None
        self.announcer = announcer or Announcer(self.fingerprint, tools.change)

    async def listed(self, caller: Caller) -> Listing:
        """Return the list for an answer to `tools/list`."""
        await self._wait_for_servers()
        loaded = await self._tools.plugins_loaded()
        listing = await self._with_plugin_tools(caller) if loaded else self._without_plugins(caller)
        self._incomplete = not loaded
        self.announcer.listed()  # nothing is awaited after this, so the recorded list is the one that is sent
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
            near = nearest(name, listing.entries)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise JsonRpcError(INVALID_PARAMS, f"Unknown tool: {json.dumps(name[:100])}.{hint}")
        return listing, entry

    async def _wait_for_servers(self, names: Collection[str] | None = None) -> None:
        """Wait for servers whose tools are unknown. All requests together wait for at most `connectWaitMs`."""
        await self._tools.dispatcher()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._tools.settings().code_mode.connect_wait_ms / 1000
        await self._tools.wait_settled(names, max(0.0, self._deadline - time.monotonic()))

    async def _with_plugin_tools(self, caller: Caller) -> Listing:
        """Return the caller's list, with the tools of plugins."""
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
            before = self.announcer.describe()
            if catalog not in self._listings:  # this updates the lists, and may have added this one
                self._listings[catalog] = caller, self._listing(catalog)
                if len(self._listings) > 1:
                    # The fingerprint differs only because there is one more list. No list has changed, so clients must
                    # not be notified.
                    self.announcer.redescribe(before, self.announcer.describe())
            self._on_change()
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
        self._on_change()
        return rules, frozenset(listing.fingerprint for _, listing in current.values()), plugins
