"""The construction of a catalog from the tools of upstreams, plugins and clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import Entry, mcp_id, one_line, operation_entry, operation_id, words_of
from codemode_mcp.catalog.overrides import NO_OVERRIDES
from codemode_mcp.catalog.servers import Server, ServerIndex
from codemode_mcp.catalog.toolset import NO_TOOLS, select_tools
from codemode_mcp.policy.effects import READ_ONLY
from codemode_mcp.policy.policy import Ask, Deny
from declarations.names import aliases, identifiers
from declarations.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
    from codemode_mcp.catalog.overrides import Overrides
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.search.finder import Meaning
    from upstream_clients.tools import UpstreamView

_GUEST_STATUS = {"idle": "ready", "connecting": "connecting", "ready": "ready", "down": "down", "stopped": "down"}
"""The status in programs, by the state of the upstream."""


class Names(Protocol):
    """The identifiers that servers and tools have in programs. `trust.service.Trust` remembers them."""

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
    """Return the reasons for held tools, by original name."""
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
