"""The catalogs of all callers: one for each policy and each set of tools that are not MCP tools, made on demand.

The MCP tools under one policy are chosen, named and indexed once, for all these sets.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from codemode_mcp.catalog.apps import app_tools_alone, without_app_tools
from codemode_mcp.catalog.build import NO_NAMES, build
from codemode_mcp.catalog.client_tools import offered_by_client
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.policy.policy import Policies
from codemode_mcp.saved_programs.folder import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from codemode_mcp.catalog.build import Names
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.saved_programs.folder import Library
    from codemode_mcp.search.finder import Meaning
    from codemode_mcp.settings import ToolSettings
    from upstream_clients.tools import QuestionMethod, UpstreamView

MAX_VARIANTS: Final = 256
"""Maximum number of catalogs with tools that are not MCP tools. The least recently used one is dropped first."""


class AskedClient(Protocol):
    """The part of a client that its catalog depends on."""

    @property
    def supported(self) -> frozenset[QuestionMethod]:
        """The questions that the client answers."""


class Offers(Protocol):
    """The source of tools and namespaces of plugins."""

    async def offered(self, caller: Caller) -> Sequence[OfferedTool]:
        """Return the tools that plugins offer to a caller. If nothing has changed, the result is the same object."""

    def namespaces(self) -> Sequence[OfferedNamespace]:
        """Return the namespaces of all plugins."""


class Catalogs:
    """The catalogs of all callers.

    Args:
        views: returns the upstreams as they are now, with the tools that only apps may call.
        offers: tools and namespaces of plugins, if there are plugins.
        library: returns the saved programs as they are now.
        names: the identifiers of servers and tools.
    """

    def __init__(
        self,
        views: Callable[[], Iterable[UpstreamView]],
        tools: ToolSettings,
        meaning: Meaning | None,
        offers: Offers | None = None,
        library: Callable[[], Library] = lambda: EMPTY,
        names: Names = NO_NAMES,
    ) -> None:
        self._views = views
        self._offers = offers
        self._library = library
        self._names = names
        self._policies = Policies(tools)
        self._meaning = meaning
        self._overrides = Overrides(tools.overrides)
        # The mutable state.
        self._built: dict[Policy, Catalog] = {}
        self._of_apps: dict[Policy, Catalog] = {}
        self._outdated: dict[Policy, Catalog] = {}  # earlier catalogs, whose unchanged parts new ones reuse
        # The keys have the `id` of each offer. The offers are stored with the catalog, so that no other object gets the
        # same `id`.
        self._variants: OrderedDict[tuple[Policy, tuple[int, ...]], tuple[list[object], Catalog]] = OrderedDict()

    def apply(self, tools: ToolSettings) -> None:
        """Use these settings from now on."""
        before = self._policies.default
        built = self._built.get(before) or self._outdated.get(before)
        self._policies = Policies(tools)
        self._overrides = Overrides(tools.overrides)
        self._outdated = {} if built is None else {self._policies.default: built}
        self._built, self._of_apps = {}, {}
        self._variants.clear()

    def invalidate(self) -> None:
        """Have all catalogs made again on demand, because their sources may have changed."""
        self._outdated |= self._built
        self._built, self._of_apps = {}, {}
        self._variants.clear()

    async def of(self, caller: Caller, client: AskedClient | None) -> Catalog:
        """Return the catalog for a new program of a caller, with the tools of its client."""
        offered: Sequence[OfferedTool] = () if self._offers is None else await self._offers.offered(caller)
        namespaces: Sequence[OfferedNamespace] = () if self._offers is None else self._offers.namespaces()
        own = offered_by_client(frozenset() if client is None else client.supported)
        base = self.servers_of(caller)
        library = self._library()
        programs, problems = library.programs, library.problems
        if not offered and not own and not programs and not problems:
            return base
        # Settings and servers may have changed while plugins made their tools, so the policy is read only now.
        policy = self._policies.of(caller)
        parts: list[object] = [offered, own, programs, problems, *namespaces]
        key = policy, tuple(id(part) for part in parts)
        found = self._variants.get(key)
        if found is None:
            toolset = select_tools((*offered, *own), namespaces, policy, self._meaning, programs, library.broken)
            found = self._variants[key] = parts, self._reused(policy, base.with_tools(toolset))
            while len(self._variants) > MAX_VARIANTS:
                self._variants.popitem(last=False)
        self._variants.move_to_end(key)
        return found[1]

    async def namespaces_of(self, caller: Caller) -> Sequence[OfferedNamespace]:
        """Return the namespaces in programs of a caller, without making a catalog."""
        if self._offers is None:
            return ()
        offered = await self._offers.offered(caller)
        return select_tools(offered, self._offers.namespaces(), self._policies.of(caller)).namespaces

    def servers_of(self, caller: Caller) -> Catalog:
        """Return the catalog of a caller with MCP tools only."""
        policy = self._policies.of(caller)
        found = self._built.get(policy)
        if found is None:
            previous = self._outdated.pop(policy, None)
            views = map(without_app_tools, self._views())
            found = build(views, policy, self._meaning, previous, overrides=self._overrides, names=self._names)
            self._built[policy] = found
        return found

    def app_tools_of(self, caller: Caller) -> Catalog:
        """Return the catalog of the tools that only apps may call. Programs and searches never see them."""
        policy = self._policies.of(caller)
        found = self._of_apps.get(policy)
        if found is None:
            views = map(app_tools_alone, self._views())
            found = self._of_apps[policy] = build(views, policy, overrides=self._overrides, names=self._names)
        return found

    def _reused(self, policy: Policy, catalog: Catalog) -> Catalog:
        """Return an equal catalog that was made before, or else this one. So equal catalogs are one object."""
        for (its_policy, _), (_, other) in self._variants.items():
            if its_policy is policy and other.toolset.same_as(catalog.toolset):
                return other
        return catalog
