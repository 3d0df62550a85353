"""Checks of the policy: unused rules, hidden tools, contexts without callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import counted
from codemode_mcp.plugins.api import EXEC_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config
    from codemode_mcp.policy.effects import Effects
    from codemode_mcp.policy.unused_rules import Known
    from upstream_clients.tools import UpstreamView


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The tools that rules can match.

    Attributes:
        tools: the effects of each tool, by the id of the tool. The tools of all callers are included.
        unknown: prefixes of the ids of tools that are not known. Each is for a server or plugin, such as `mcp:down:`.
    """

    tools: Mapping[str, Effects]
    unknown: Sequence[str]

    def may_match(self, glob: str) -> bool:
        """Return True if a glob matches `exec` or a known tool, or may match an unknown tool."""
        from codemode_mcp.policy.effects import Effects
        from codemode_mcp.policy.rules import matches, reaches

        nothing = Effects.of(None)
        ids = (EXEC_ID, *self.tools)
        return any(matches(glob, each, nothing) for each in ids) or any(reaches(glob, each) for each in self.unknown)


def hidden(tools: Sequence[Known], name: str, app: App, config: Config) -> Iterable[Check]:
    """Report the number of tools of one server or plugin that the policy denies, and that need an approval.

    Args:
        name: the name of the check.
    """
    from codemode_mcp.policy.policy import Ask, Policies
    from codemode_mcp.policy.unused_rules import out_of_reach

    denied = out_of_reach(config.tools, tools)
    everyone = " from all callers" if config.tools.contexts else ""
    if denied and len(denied) == len(tools):
        advice = 'check "tools.allow" and "tools.deny"'
        yield Check(name, "warn", f"policy hides all {len(denied)} tools{everyone}", advice)
    elif denied:
        yield Check(name, "info", f"policy hides {len(denied)} of {len(tools)} tools{everyone}")
    policy = Policies(config.tools).of(app.operator)
    asked = sum(isinstance(policy.decide(tool_id, effects), Ask) for tool_id, effects in tools)
    if asked:
        detail = f"{asked} of {len(tools)} tools need an approval: you are asked when a program calls them"
        yield Check(name, "info", detail)


async def known_tools(app: App, config: Config) -> KnownTools:
    """Return the tools of all servers and plugins. The servers have to be connected."""
    from codemode_mcp.catalog import client_tools
    from codemode_mcp.catalog.build import build
    from codemode_mcp.catalog.program_set import EFFECTS as PROGRAM_EFFECTS
    from codemode_mcp.policy.effects import Effects
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.settings import PolicyRules

    views = (await app.pool()).views()
    rules = config.tools.policy
    annotating = PolicyRules(distrusted_servers=rules.distrusted_servers, annotations=rules.annotations)
    everything = build(views, Policy(annotating))
    known = {entry.id: entry.effects for server in everything.servers for entry in server.entries}
    plugins = await app.plugins()
    # Tools that a plugin's factory does not give to the operator are included, because rules may be about them.
    for plugin in plugins.loaded:
        names = (name for group in plugin.groups for name in group.names)
        known |= {f"{plugin.source}:{plugin.name}:{name}": Effects.of(None) for name in names}
    offered = (*await plugins.offered(app.operator), *client_tools.offered_by_client(client_tools.ALL_QUESTIONS))
    known |= {each.id: Effects.of(each.tool.annotations) for each in offered}
    known |= {each.id: PROGRAM_EFFECTS for each in app.library().programs}
    unknown = [f"mcp:{view.name}:" for view in views if view.state != "ready"]
    unknown += [f"mcp:{name}:" for name in config.disabled]
    unknown += [f"plugin:{each.name}:" for each in config.plugins if plugins.find(each.name) is None]
    return KnownTools(known, unknown)


async def check(app: App, config: Config, known: KnownTools) -> Iterable[Check]:
    """Check for unused rules, contexts without callers, and hidden tools of plugins."""
    from codemode_mcp.policy.unused_rules import empty_contexts, unused_rules

    checks: list[Check] = []
    for each in config.plugins:
        own = f"plugin:{each.name}:"
        tools = [(tool_id, effects) for tool_id, effects in known.tools.items() if tool_id.startswith(own)]
        checks += hidden(tools, f"plugin {each.name}", app, config)
    advice = "correct or remove it; codemode-mcp tools --json lists the ids"
    for idle in unused_rules(config.tools, tuple(known.tools.items()), known.unknown):
        why = "matches no tool" if idle.why is None else f"has no effect: {idle.why}"
        checks.append(Check("policy", "warn", f"{idle.rule!r} in {idle.key} {why}", advice))
    for name, why in empty_contexts(config.tools, config.http, app.operator):
        advice = f"correct tools.contexts.{name}.for, or write [] there if only serve --context chooses the context"
        checks.append(Check("policy", "warn", f"no caller can be in tools.contexts.{name}: {why}", advice))
    if not any(check.name == "policy" for check in checks):
        rules = config.tools.policy
        count = sum(len(each or ()) for each in (rules.allow, rules.deny, rules.ask, rules.approved))
        detail = f"{counted(count, 'rule')}, each with an effect" if count else "no rules: programs may call every tool"
        checks.append(Check("policy", "ok", detail))
    return checks


def known_of(view: UpstreamView, config: Config) -> list[Known]:
    """Return the ids and effects of the tools of a server."""
    from codemode_mcp.catalog.entries import mcp_id
    from codemode_mcp.policy.policy import Policy

    policy = Policy(config.tools.policy)
    ids = ((mcp_id(view.name, tool.name), tool.annotations) for tool in view.tools)
    return [(tool_id, policy.effects(tool_id, annotations)) for tool_id, annotations in ids]
