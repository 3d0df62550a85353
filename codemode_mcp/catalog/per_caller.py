"""The construction of catalogs, one for each policy and each set of tools that are not MCP tools.

The MCP tools under one policy are chosen, named and indexed once, for all these sets.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from codemode_mcp.base.text import one_line
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.client_tools import offered_by_client
from codemode_mcp.catalog.entries import (
    Entry,
    app_tools_alone,
    mcp_id,
    operation_entry,
    operation_id,
    without_app_tools,
    words_of,
)
from codemode_mcp.catalog.overrides import NO_OVERRIDES, Overrides
from codemode_mcp.catalog.saved_programs.folder import EMPTY, Library
from codemode_mcp.catalog.servers import Server, ServerIndex
from codemode_mcp.catalog.toolset import NO_TOOLS, select_tools
from codemode_mcp.rules.policy.policy import Ask, Caller, Deny, Policies, Policy
from codemode_mcp.rules.policy.rule_patterns import READ_ONLY
from declarations.names import aliases, identifiers
from declarations.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.base.settings import ToolSettings
    from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
    from codemode_mcp.catalog.search.finder import Meaning
    from upstream_clients.tools import QuestionMethod, UpstreamView


# The construction of a catalog from the tools of upstreams, plugins and clients.


_GUEST_STATUS = {"idle": "ready", "connecting": "connecting", "ready": "ready", "down": "down", "stopped": "down"}
"""The status in programs, by the state of the upstream."""


class Names(Protocol):
    """The identifiers that servers and tools have in programs. `rules.trust.service.Trust` remembers them."""

    @property
    def server_names(self) -> Mapping[str, str]:
        """The identifiers of servers, also of servers that are disabled."""
        ...

    def tool_names(self, server: str) -> Mapping[str, str]:
        """Return the identifiers of the tools of a server, also of tools that are not listed now."""
        ...


class _NoNames:
    """Names when nothing is remembered."""

    server_names: Mapping[str, str] = {}

    def tool_names(self, server: str) -> Mapping[str, str]:
        return {}


NO_NAMES: Final[Names] = _NoNames()


def build(
    views: Iterable[UpstreamView],
    policy: Policy,
    meaning: Meaning | None = None,
    previous: Catalog | None = None,
    offered: Sequence[OfferedTool] = (),
    namespaces: Sequence[OfferedNamespace] = (),
    overrides: Overrides = NO_OVERRIDES,
    names: Names = NO_NAMES,
) -> Catalog:
    """Return the catalog of all tools and namespaces that policy does not deny.

    Args:
        meaning: a sentence model for searches, if there is one.
        previous: the catalog before this one. Unchanged declarations and an unchanged search index are reused.
        names: the identifiers that servers and tools have already. They are the same for every policy. Otherwise a
            program would call another server when a rule denies the one that it has called so far.
    """
    shown = [view for view in views if policy.may_admit(f"mcp:{view.name}:")]
    kept = names.server_names
    server_names = identifiers([view.name for view in shown], kind="server", kept=kept)
    server_aliases = aliases([view.name for view in shown], server_names, set(kept.values()))
    servers = []
    for view in shown:
        identifier = server_names[view.name]
        tool_names = _tool_names(view, names.tool_names(view.name), overrides)
        tools = tuple(_tool_entries(view, identifier, policy, overrides, tool_names))
        groups = tuple(_groups(view, identifier, policy))
        held = _held(view, policy)
        if not tools and not groups and not view.withheld and (view.tools or view.resources or view.prompts):
            continue  # policy denies everything that the server has
        servers.append(
            Server(
                identifier=identifier,
                alias=view.name if view.name in server_aliases else None,
                name=view.name,
                status=_GUEST_STATUS[view.state],
                error=_without_paths(view.error or "") if _GUEST_STATUS[view.state] == "down" else None,
                description=one_line(view.description or ""),
                tools=tools,
                groups=groups,
                login_required=view.login_required and _GUEST_STATUS[view.state] == "down",
                withheld=_withheld(view.name, held, tools, overrides, tool_names),
                held=len(held),
            )
        )
    index = ServerIndex(tuple(servers), meaning, None if previous is None else previous.index)
    return Catalog(index, select_tools(offered, namespaces, policy, meaning) if offered else NO_TOOLS)


def _tool_names(view: UpstreamView, kept: Mapping[str, str], overrides: Overrides) -> Mapping[str, str]:
    """Return the identifiers of all tools, by the names that programs see, also of tools that policy denies."""
    shown = overrides.shown(view)
    renamed = {name for name, tool in shown.items() if tool.name != name}
    kept = {name: identifier for name, identifier in kept.items() if name not in renamed} if renamed else kept
    return {**kept, **identifiers([shown.get(each.name, each).name for each in view.tools], kept=kept)}


def _tool_entries(
    view: UpstreamView, identifier: str, policy: Policy, overrides: Overrides, names: Mapping[str, str]
) -> Iterable[Entry]:
    shown = overrides.shown(view)
    allowed = []
    for listed in view.tools:
        entry_id = mcp_id(view.name, listed.name)
        declared = policy.effects(entry_id, listed.annotations)
        decision = policy.decide(entry_id, declared)
        if not isinstance(decision, Deny):
            counted = policy.counted(entry_id, listed.annotations)
            words = words_of(declared, counted, asks=isinstance(decision, Ask))
            allowed.append((entry_id, listed, shown.get(listed.name, listed), declared, words))
    for entry_id, listed, tool, declared, words in allowed:
        name = names[tool.name]
        yield Entry(
            id=entry_id,
            source="mcp",
            source_name=view.name,
            path=f"MCP.{identifier}.{name}",
            identifier=name,
            tool=tool,
            effects=declared,
            listed=None if tool is listed else listed,
            effect_words=words,
        )


def _held(view: UpstreamView, policy: Policy) -> dict[str, str]:
    # Effects of held tools are not known. A tool that no annotation could make callable stays invisible.
    return {
        name: reason
        for name, reason in view.withheld.items()
        if not isinstance(policy.decide(mcp_id(view.name, name), READ_ONLY), Deny)
    }


def _withheld(
    server: str, held: dict[str, str], tools: Sequence[Entry], overrides: Overrides, names: Mapping[str, str]
) -> dict[str, str]:
    """Return the reasons for held tools, by identifier and by original name, unless a callable tool has that name."""
    if not held:
        return {}
    shown = {overrides.name_of(mcp_id(server, name)) or name: reason for name, reason in held.items()}
    named = {identifier: shown[name] for name, identifier in identifiers(shown, kept=names).items()} | shown | held
    taken = {entry.identifier for entry in tools} | {entry.tool.name for entry in tools}
    return {name: reason for name, reason in named.items() if name not in taken}


def _groups(view: UpstreamView, identifier: str, policy: Policy) -> Iterable[tuple[str, tuple[Entry, ...]]]:
    for group, operations in OPERATIONS.items():
        if not (view.resources if group == "resources" else view.prompts):
            continue
        declared = policy.operation_effects(view.name)
        entries = []
        for operation in operations:
            if operation.method == "completion/complete" and not view.completions:
                continue
            decision = policy.decide(operation_id(view.name, operation), declared)
            if isinstance(decision, Deny):
                continue
            words = words_of(declared, None, asks=isinstance(decision, Ask))
            entries.append(operation_entry(identifier, view.name, group, operation, declared, words))
        if entries:
            yield group, tuple(entries)


_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:[/\\][^\s'\"/\\:;,]+)+[/\\]([^\s'\"/\\:;,]+)")


def _without_paths(text: str) -> str:
    """Return a text in which each path is reduced to its last part: programs must not see paths."""
    return _PATH.sub(r"…/\1", text)


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
