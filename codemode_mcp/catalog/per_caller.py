"""The catalogs of all callers: one for each policy and what is offered under it, made when it is first asked for.

The MCP tools under one policy are chosen, named and indexed once, whatever else a caller is offered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from codemode_mcp.catalog.build import build
from codemode_mcp.catalog.client_tools import offered as offered_by_client
from codemode_mcp.catalog.toolset import select
from codemode_mcp.policy.policy import Policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Offered, OfferedNamespace
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.search.finder import Meaning
    from codemode_mcp.settings import ToolSettings
    from upstream_clients.tools import QuestionMethod, UpstreamView

MAX_VARIANTS: Final = 256
"""Catalogs of callers who are offered different tools; the one longest not asked for goes first."""


class AskedClient(Protocol):
    """The client of a request, as far as its catalog is concerned."""

    @property
    def supported(self) -> frozenset[QuestionMethod]:
        """Return the questions that it answers."""
        ...


class Offers(Protocol):
    """Who offers tools that are no MCP tools."""

    async def offered(self, caller: Caller) -> Sequence[Offered]:
        """To this caller, now; the same object again while nothing has changed, so that nothing is made anew."""
        ...

    def namespaces(self) -> Sequence[OfferedNamespace]: ...


class Catalogs:
    """See the module.

    Args:
        views: what the upstreams offer now.
        offers: what others do; None: nobody does.
    """

    def __init__(
        self,
        views: Callable[[], Iterable[UpstreamView]],
        tools: ToolSettings,
        meaning: Meaning | None,
        offers: Offers | None = None,
    ) -> None:
        self._views = views
        self._offers = offers
        self._policies = Policies(tools)
        self._meaning = meaning
        # The mutable state.
        self._built: dict[Policy, Catalog] = {}
        self._outdated: dict[Policy, Catalog] = {}
        # By identity of what was offered, which is kept with the catalog so that the identity stays its own.
        self._variants: OrderedDict[tuple[Policy, tuple[int, ...]], tuple[list[object], Catalog]] = OrderedDict()

    def apply(self, tools: ToolSettings) -> None:
        """Decide by these rules from now on."""
        before = self._policies
        self._policies = Policies(tools)
        self._outdated = {self._policies.default: built} if (built := self._latest(before.default)) is not None else {}
        self._built = {}
        self._variants.clear()

    def changed(self) -> None:
        """Something that they were made from may be another now."""
        self._outdated |= self._built
        self._built = {}
        self._variants.clear()

    async def of(self, caller: Caller, client: AskedClient | None) -> Catalog:
        """What a program of this caller sees that begins now, the tools that its client offers itself included."""
        offered: Sequence[Offered] = () if self._offers is None else await self._offers.offered(caller)
        namespaces: Sequence[OfferedNamespace] = () if self._offers is None else self._offers.namespaces()
        own = offered_by_client(frozenset() if client is None else client.supported)
        base = self.servers_of(caller)
        if not offered and not own:
            return base
        # Rules and servers may have changed while the plugins were asked: decided by what counts now.
        policy = self._policies.of(caller)
        parts: list[object] = [offered, own, *namespaces]
        key = policy, tuple(id(part) for part in parts)
        found = self._variants.get(key)
        if found is None:
            toolset = select((*offered, *own), namespaces, policy, self._meaning)
            found = self._variants[key] = parts, self._alike(policy, base.with_tools(toolset))
            while len(self._variants) > MAX_VARIANTS:
                self._variants.popitem(last=False)
        self._variants.move_to_end(key)
        return found[1]

    async def namespaces_of(self, caller: Caller) -> Sequence[OfferedNamespace]:
        """Those that programs of this caller have. No catalog is made for it."""
        if self._offers is None:
            return ()
        offered = await self._offers.offered(caller)
        return select(offered, self._offers.namespaces(), self._policies.of(caller)).namespaces

    def servers_of(self, caller: Caller) -> Catalog:
        """Likewise, without the tools that are no MCP tools."""
        policy = self._policies.of(caller)
        found = self._built.get(policy)
        if found is None:
            found = self._built[policy] = build(self._views(), policy, self._meaning, self._outdated.pop(policy, None))
        return found

    def _alike(self, policy: Policy, catalog: Catalog) -> Catalog:
        """The catalog, or one that is there already and the same in every respect."""
        for (its_policy, _), (_, other) in self._variants.items():
            if its_policy is policy and other.toolset.same_as(catalog.toolset):
                return other
        return catalog

    def _latest(self, policy: Policy) -> Catalog | None:
        return self._built.get(policy) or self._outdated.get(policy)
