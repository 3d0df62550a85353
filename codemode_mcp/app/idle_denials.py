"""Warnings about deny rules that deny nothing, such as a rule with a misspelt tool."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import anyio

    from codemode_mcp.config import Config
    from upstream_clients.tools import UpstreamView

log = logging.getLogger("codemode_mcp.app")


async def warn_of_idle_denials(
    config: Callable[[], Config], views: Callable[[], Sequence[UpstreamView]], change: Callable[[], anyio.Event]
) -> None:
    """Warn once about each deny rule that denies nothing, as soon as the tools of its server are listed.

    Args:
        change: returns an event for the next change of the configuration or of the tools.
    """
    warned: set[str] = set()
    while True:
        changed, current = change(), config()
        tools = current.tools
        if any(rules.deny for rules in (tools.policy, *(each.rules for each in tools.contexts))):
            from codemode_mcp.policy.unused_rules import idle_denials  # most configurations have no such rules

            listed = {
                view.name: [tool.name for tool in view.tools] for view in views() if view.state in ("ready", "idle")
            }
            servers = (*(spec.name for spec in current.upstreams), *current.disabled, *current.left_out)
            for sentence in idle_denials(tools, servers, listed):
                if sentence not in warned:
                    log.warning("%s", sentence)
                warned.add(sentence)
        await changed.wait()
