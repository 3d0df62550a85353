"""Each configured plugin: what it has registered, why it was refused, what it is granted in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.entries import Offered
    from codemode_mcp.cli.doctor.policy import There
    from codemode_mcp.config import Config
    from codemode_mcp.plugins.host import Plugins
    from codemode_mcp.plugins.registry import Plugin
    from codemode_mcp.policy.callers import Caller


async def check(app: App, config: Config, there: There) -> Iterable[Check]:
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
            why = plugins.refused.get(each.name, "it is not there")
            advice = f'correct it, or set "enabled": false in plugins.{each.name}'
            checks.append(Check(name, "fail", f"refused: {why}", advice))
        else:
            declared = sum(len(group.names) for group in plugin.groups)
            own = [tool for tool in offered if tool.source == "plugin" and tool.source_name == each.name]
            checks.append(Check(name, "ok", _parts(plugin, declared, len(own))))
            checks += [*_failed_factories(plugins, plugin, app.operator, name), *_grants(plugin, name, there)]
            checks += _optional(own, config, name)
    known = {each.name for each in config.plugins}
    for entry, packages in installed().items():
        if entry not in known:
            detail = f"the package {packages[0]} has it, the configuration does not name it: not loaded"
            checks.append(Check(f"plugin {entry}", "info", detail, f'to load it, add "{entry}": {{}} to "plugins"'))
    return checks


def _parts(plugin: Plugin, declared: int, offered: int) -> str:
    counts = {
        "tool": declared,
        "hook": len(plugin.hooks),
        "middleware": len(plugin.middleware),
        "namespace": len(plugin.namespaces),
    }
    plural = {"middleware": "middleware"}
    parts = [
        f"{count} {what if count == 1 else plural.get(what, what + 's')}" for what, count in counts.items() if count
    ]
    less = f"; {offered} of the tools for you" if offered != declared else ""
    return (", ".join(parts) or "it has registered nothing") + less


def _failed_factories(plugins: Plugins, plugin: Plugin, caller: Caller, name: str) -> Iterable[Check]:
    for names, why in plugins.failed_factories(plugin, caller):
        detail = f"the factory of {', '.join(names)} has failed: {why}"
        yield Check(name, "fail", detail, "correct the plugin; codemode-mcp serve --log-level debug shows the line")


def _grants(plugin: Plugin, name: str, there: There) -> Iterable[Check]:
    from codemode_mcp.policy.rules import may_overlap

    own = f"plugin:{plugin.name}:"
    for key, what, wanting, granted in (
        ("hooks", "hooks", plugin.hooks, plugin.hook_grants),
        ("middleware", "middleware", plugin.middleware, plugin.middleware_grants),
    ):
        wanted = sorted({tool for each in wanting for tool in each.tools if not tool.startswith(own)})
        where = f"plugins.{plugin.name}.{key}"
        useful = [each for each in granted if any(may_overlap(each, tool) for tool in wanted)]
        if wanted and not useful:
            detail = f"its {what} want to see calls of {', '.join(wanted[:5])}, and it is granted none"
            yield Check(name, "warn", detail, f"grant what you agree to in {where}")
        for each in granted:
            if each not in useful:
                yield Check(
                    name, "warn", f"{each!r} in {where} has no effect: its {what} want none of them", "remove it"
                )
            elif not there.has(each):
                advice = "correct or remove it; codemode-mcp tools --json lists the ids"
                yield Check(name, "warn", f"{each!r} in {where} matches no tool", advice)


def _optional(own: Sequence[Offered], config: Config, name: str) -> Iterable[Check]:
    from codemode_mcp.policy.policy import Policy

    policy = Policy(config.tools.policy)
    off = [tool.id for tool in own if tool.optional and not policy.names(tool.id)]
    if off:
        detail = f"optional, and no rule names {'it' if len(off) == 1 else 'them'}: {', '.join(off[:5])}"
        yield Check(name, "info", detail, 'to have them, name them in "tools.allow" or "tools.approved"')
