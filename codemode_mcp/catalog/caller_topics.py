"""Topics of servers for each policy, without words of tools that the policy denies.

Topics change only while no server is connecting. At the start, servers without cached tool lists become ready one after
another. If topics changed each time, the tool list would change and clients would be notified each time.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from codemode_mcp.catalog.apps import is_for_apps_only
from codemode_mcp.catalog.entries import mcp_id
from codemode_mcp.catalog.overrides import NO_OVERRIDES
from codemode_mcp.catalog.topics import MAX_SERVERS, MAX_TOOLS, topics
from codemode_mcp.policy.policy import Deny

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.catalog.overrides import Overrides
    from codemode_mcp.policy.policy import Policy
    from upstream_clients.tools import Tool, UpstreamView


class CallerTopics:
    """The topics of each policy.

    Args:
        views: returns the servers as they are now, in the order of the configuration.
    """

    def __init__(self, views: Callable[[], Sequence[UpstreamView]], overrides: Overrides = NO_OVERRIDES) -> None:
        self._views = views
        self._overrides = overrides
        # The mutable state: topics with the tool lists that they were made from. The lists are compared by identity.
        self._found: dict[Policy, tuple[tuple[tuple[Tool, ...], ...], tuple[str, ...]]] = {}

    def of(self, policy: Policy) -> tuple[str, ...]:
        """Return the topics for callers of a policy, the most specific first."""
        views = [view for view in self._views() if policy.may_admit(f"mcp:{view.name}:")]
        listed = tuple(view.tools for view in views)
        found = self._found.get(policy)
        if found is not None and (_identical(found[0], listed) or any(view.state == "connecting" for view in views)):
            return found[1]
        shown: tuple[str, ...] = ()
        if len(views) <= MAX_SERVERS:
            shown = topics({view.name: _read(policy, view, self._overrides.shown(view)) for view in views})
        self._found[policy] = listed, shown
        return shown


def _read(policy: Policy, view: UpstreamView, shown: Mapping[str, Tool]) -> list[Tool]:
    """Return the first `MAX_TOOLS` tools that policy admits. The others, perhaps 10,000, are not judged.

    Args:
        shown: the tools that an override changes, by the names that the server lists.
    """

    def is_admitted(tool: Tool) -> bool:
        if is_for_apps_only(tool):
            return False
        tool_id = mcp_id(view.name, tool.name)
        return not isinstance(policy.decide(tool_id, policy.effects(tool_id, tool.annotations)), Deny)

    read = islice(filter(is_admitted, sorted(view.tools, key=lambda tool: tool.name)), MAX_TOOLS)
    return [shown.get(tool.name, tool) for tool in read]


def _identical(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
