"""The catalogs of all callers: one for each policy, made when it is first asked for, until something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.catalog import build
from codemode_mcp.policy import Policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.callers import Caller
    from codemode_mcp.catalog import Catalog
    from codemode_mcp.finder import Meaning
    from codemode_mcp.policy import Policy
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.settings import ToolSettings
    from upstream_clients.tools import UpstreamView


class Catalogs:
    """See the module.

    Args:
        views: what the upstreams offer now.
    """

    def __init__(
        self, views: Callable[[], Iterable[UpstreamView]], tools: ToolSettings, meaning: Meaning | None
    ) -> None:
        self._views = views
        self._policies = Policies(tools)
        self._meaning = meaning
        # The mutable state.
        self._built: dict[Policy, Catalog] = {}
        self._outdated: dict[Policy, Catalog] = {}

    def apply(self, tools: ToolSettings) -> None:
        """Decide by these rules from now on."""
        before = self._policies
        self._policies = Policies(tools)
        self._outdated = {self._policies.default: built} if (built := self._latest(before.default)) is not None else {}
        self._built = {}

    def changed(self) -> None:
        """Something that they were made from may be another now."""
        self._outdated |= self._built
        self._built = {}

    async def of(self, caller: Caller, client: Client | None) -> Catalog:
        """What a program of this caller sees that begins now."""
        return self.servers_of(caller)

    def servers_of(self, caller: Caller) -> Catalog:
        """Likewise, without the tools that are no MCP tools."""
        policy = self._policies.of(caller)
        found = self._built.get(policy)
        if found is None:
            found = self._built[policy] = build(self._views(), policy, self._meaning, self._outdated.pop(policy, None))
        return found

    def _latest(self, policy: Policy) -> Catalog | None:
        return self._built.get(policy) or self._outdated.get(policy)
