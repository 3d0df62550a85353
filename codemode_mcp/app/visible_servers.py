"""The effects of policy on servers: those that each caller may see, and rules that deny nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from codemode_mcp.policy.policy import Policies

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import anyio

    from codemode_mcp.config import Config
    from codemode_mcp.policy.policy import Caller, Policy
    from upstream_clients.tools import UpstreamView


class VisibleServers:
    """The servers of one configuration that its policies show: configured names by identifier.

    Args:
        identifiers: returns the identifiers of all servers.
    """

    def __init__(self, config: Config, identifiers: Callable[[], Mapping[str, str]]) -> None:
        self.policies = Policies(config.tools)
        self._identifiers = identifiers
        self._names = [spec.name for spec in config.upstreams]
        self._by_policy: dict[Policy, dict[str, str]] = {}

    def under(self, policy: Policy) -> dict[str, str]:
        """Return the servers with a tool, resource or prompt that the policy may admit."""
        found = self._by_policy.get(policy)
        if found is None:
            identifier_of = self._identifiers()
            found = self._by_policy[policy] = {
                identifier_of[name]: name for name in self._names if policy.may_admit(f"mcp:{name}:")
            }
        return found

    def of(self, caller: Caller | None) -> dict[str, str]:
        """Return the servers that a caller may see.

        Args:
            caller: None for the servers that every caller may see.
        """
        policies = self.policies.all if caller is None else (self.policies.of(caller),)
        first, *others = map(self.under, policies)
        return {
            identifier: name
            for identifier, name in first.items()
            if all(each.get(identifier) == name for each in others)
        }

    def named(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Return the configured names of servers that a program names; see `runs.manager.Upstreams.servers_for`."""
        visible = self.of(caller)
        if names is None:
            return None if len(visible) == len(self._names) else set(visible.values())
        known = {name: name for name in visible.values()} | visible
        return {known[name] for name in names if name in known}

    def admits_nothing(self, caller: Caller) -> bool:
        """Return True if the policy denies the caller every tool of every source."""
        policy = self.policies.of(caller)
        return not self.under(policy) and not any(map(policy.may_admit, ("plugin:", "core:", "client:")))


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
