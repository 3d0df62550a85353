"""Checks of plugins: their tools and hooks, the reasons for refusing them, and grants without an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check, listed
from codemode_mcp.control.display import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.entries import OfferedTool
    from codemode_mcp.cli.doctor.policy import KnownTools
    from codemode_mcp.config import Config
    from codemode_mcp.plugins.host import Plugins
    from codemode_mcp.plugins.registry import Plugin
    from codemode_mcp.policy.callers import Caller


async def check(app: App, config: Config, known: KnownTools) -> Iterable[Check]:
    """Check each configured plugin, and report installed plugins that are not configured."""
    from codemode_mcp.plugins.loading import installed

    plugins = await app.plugins()
    offered = await plugins.offered(app.operator)
    checks = []
    for each in config.plugins:
        name = f"plugin {each.name}"
        plugin = plugins.find(each.name)
        if not each.enabled:
            checks.append(Check(name, "info", "disabled in the configuration"))
        elif plugin is None:
            why = plugins.refused.get(each.name, "it was not found")
            advice = f'correct it, or set "enabled": false in plugins.{each.name}'
            checks.append(Check(name, "fail", f"refused: {why}", advice))
        else:
            declared = sum(len(group.names) for group in plugin.groups)
            own = [tool for tool in offered if tool.source == "plugin" and tool.source_name == each.name]
            checks.append(Check(name, "ok", _contents(plugin, declared, len(own))))
            checks += [*_failed_factories(plugins, plugin, app.operator, name), *_grants(plugin, name, known)]
            checks += _optional(own, config, name)
    configured = {each.name for each in config.plugins}
    for entry, packages in installed().items():
        if entry not in configured:
            detail = f"is in the installed package {packages[0]}, but not in the configuration, so it is not loaded"
            checks.append(Check(f"plugin {entry}", "info", detail, f'to load it, add "{entry}": {{}} to "plugins"'))
    return checks


def _contents(plugin: Plugin, declared: int, offered: int) -> str:
    counts = {
        "tool": declared,
        "hook": len(plugin.hooks),
        "middleware": len(plugin.middleware),
        "namespace": len(plugin.namespaces),
    }
    parts = [
        f"{count} {kind}" if kind == "middleware" else counted(count, kind) for kind, count in counts.items() if count
    ]
    fewer = f"; you see {offered} of the tools" if offered != declared else ""
    return (", ".join(parts) or "it has registered nothing") + fewer


def _failed_factories(plugins: Plugins, plugin: Plugin, caller: Caller, name: str) -> Iterable[Check]:
    for names, why in plugins.failed_factories(plugin, caller):
        detail = f"the factory of {', '.join(names)} failed: {why}"
        yield Check(name, "fail", detail, "correct the plugin; codemode-mcp serve --log-level debug shows the line")


def _grants(plugin: Plugin, name: str, known: KnownTools) -> Iterable[Check]:
    """Check for grants without an effect, and for hooks and middleware without a grant."""
    from codemode_mcp.policy.rules import may_overlap

    own = f"plugin:{plugin.name}:"
    for key, registered, granted in (
        ("hooks", plugin.hooks, plugin.hook_grants),
        ("middleware", plugin.middleware, plugin.middleware_grants),
    ):
        wanted = sorted({tool for each in registered for tool in each.tools if not tool.startswith(own)})
        where = f"plugins.{plugin.name}.{key}"
        useful = [each for each in granted if any(may_overlap(each, tool) for tool in wanted)]
        if wanted and not useful:
            detail = f"its {key} want to see calls of {listed(wanted)}, but it is granted none of them"
            yield Check(name, "warn", detail, f"to allow that, add these ids to {where}")
        for each in granted:
            if each not in useful:
                detail = f"{each!r} in {where} has no effect: its {key} want to see no such calls"
                yield Check(name, "warn", detail, "remove it")
            elif not known.may_match(each):
                advice = "correct or remove it; codemode-mcp tools --json lists the ids"
                yield Check(name, "warn", f"{each!r} in {where} matches no tool", advice)


def _optional(own: Sequence[OfferedTool], config: Config, name: str) -> Iterable[Check]:
    from codemode_mcp.policy.policy import Policy

    policy = Policy(config.tools.policy)
    off = [tool.id for tool in own if tool.optional and not policy.names(tool.id)]
    if off:
        detail = f"optional tools are off, because no rule names them: {listed(off)}"
        yield Check(name, "info", detail, 'to turn them on, add their ids to "tools.allow" or "tools.approved"')
