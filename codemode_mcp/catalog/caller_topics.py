"""Topics of servers for each policy: words of tools that a policy denies are not shown to its callers.

Topics change only while no server is connecting. At a start without kept listings, servers list one after the other,
and each new topic would be a change of the tool list that clients are told about.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from codemode_mcp.catalog.entries import mcp_id
from codemode_mcp.catalog.topics import MAX_SERVERS, MAX_TOOLS, topics
from codemode_mcp.policy.policy import Deny

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.policy.policy import Policy
    from upstream_clients.tools import Tool, UpstreamView


class CallerTopics:
    """The topics of each policy.

    Args:
        views: what is known of the servers now, in the order of the configuration.
    """

    def __init__(self, views: Callable[[], Sequence[UpstreamView]]) -> None:
        self._views = views
        # The mutable state. Lists of tools are kept with what was made of them, so their identity stays their own.
        self._found: dict[Policy, tuple[tuple[tuple[Tool, ...], ...], tuple[str, ...]]] = {}

    def of(self, policy: Policy) -> tuple[str, ...]:
        """Return the topics for callers of a policy, the most telling first."""
        views = [view for view in self._views() if policy.may_admit(f"mcp:{view.name}:")]
        listed = tuple(view.tools for view in views)
        found = self._found.get(policy)
        if found is not None and (_identical(found[0], listed) or any(view.state == "connecting" for view in views)):
            return found[1]
        shown: tuple[str, ...] = ()
        if len(views) <= MAX_SERVERS:
            shown = topics({view.name: _read(policy, view) for view in views})
        self._found[policy] = listed, shown
        return shown


def _read(policy: Policy, view: UpstreamView) -> list[Tool]:
    """Return the admitted tools that topics are read from. The policy decides on no more: there may be 10,000."""
    ordered = sorted(view.tools, key=lambda tool: tool.name)
    return list(islice((tool for tool in ordered if _admits(policy, view, tool)), MAX_TOOLS))


def _admits(policy: Policy, view: UpstreamView, tool: Tool) -> bool:
    effects = policy.effects(view.name, tool.annotations)
    return not isinstance(policy.decide(mcp_id(view.name, tool.name), effects), Deny)


def _identical(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
