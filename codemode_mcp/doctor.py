"""Checks of an installation, as data: what was looked at, how it is, what to do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from codemode_mcp.errors import CodeModeError, ConfigError
from codemode_mcp.plugins.api import EXEC_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.app import App
    from codemode_mcp.callers import Caller
    from codemode_mcp.config import Config
    from codemode_mcp.entries import Offered
    from codemode_mcp.plugins.host import Plugins
    from codemode_mcp.plugins.registry import Plugin
    from codemode_mcp.policy import Effects
    from codemode_mcp.rule_effects import Known
    from upstream_clients.tools import UpstreamView

CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        status: `ok`, `warn` (works, but look at it) or `fail`.
        advice: what to do about it; empty when there is nothing to do.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    advice: str = ""


def check_config(path: str | None, environ: Mapping[str, str]) -> tuple[Config | None, list[Check]]:
    """Find and load the configuration; None when it is invalid."""
    from codemode_mcp.app import config_dir
    from codemode_mcp.config import find_config, load_config

    try:
        found = find_config(path, environ=environ, cwd=Path.cwd(), user_config_dir=config_dir())
        config = load_config(found, environ=environ)
    except ConfigError as error:
        return None, [Check("config", "fail", problem, "correct the configuration file") for problem in error.problems]
    if found is None:
        advice = "write codemode-mcp.json with your mcpServers, or name a file with --config"
        return config, [Check("config", "warn", "no file found, nothing is configured", advice)]
    count = len(config.upstreams)
    checks = [Check("config", "ok", f"{found}, {count} server{'' if count == 1 else 's'}")]
    checks += [Check("config", "warn", note) for note in config.notes]
    return config, checks


def _trajectory(config: Config) -> Iterable[Check]:
    if config.audit.trajectory is None:
        return
    from codemode_mcp.audit.trajectory import problem_with

    problem = problem_with(Path(config.audit.trajectory))
    if problem is not None:
        yield Check("trajectory", "fail", problem, 'correct "audit.trajectory", or make its folder')
    else:
        what = "with inputs" if config.audit.include_inputs else "without inputs"
        yield Check("trajectory", "ok", f"written to {config.audit.trajectory}, {what}")


async def check_everything(config: Config) -> list[Check]:
    """Engine, esbuild and every server."""
    from codemode_mcp.app import open_app

    # A check is nothing that programs did.
    async with open_app(replace(config, audit=replace(config.audit, trajectory=None))) as app:
        checks = [
            *_trajectory(config),
            await _engine(app),
            await _esbuild(app, config),
            *await _servers(app, config),
        ]
        there = await _there(app, config)
        return [*checks, *await _plugins(app, config, there), *await _policy(app, config, there)]


async def _engine(app: App) -> Check:
    from codemode_mcp.sandbox.binary import VERSION

    try:
        await app.engine()
    except CodeModeError as error:
        return Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")
    try:
        outcome = await app.execute("return 6 * 7", "javascript", app.operator)
    except CodeModeError as error:  # a plugin that has to see every program, or forbids this one
        detail = f"starts, but a trivial program was refused: {error.message}"
        return Check("engine", "warn", detail, "see the plugins below")
    if outcome.value != 42 and (await app.plugins()).interceptors.hooks(EXEC_ID):
        given = outcome.error or repr(outcome.value)
        advice = "a plugin may change programs (core:code_mode:exec in its hooks): look there first"
        return Check("engine", "warn", f"a trivial program gave {given}", advice)
    if outcome.value != 42:
        return Check(
            "engine", "fail", f"a trivial program gave {outcome.error or outcome.value!r}", "reinstall codemode-mcp"
        )
    return Check("engine", "ok", f"QuickJS-NG (qjs-wasi-reactor {VERSION}) runs programs")


async def _esbuild(app: App, config: Config) -> Check:
    if "typescript" not in config.tools.code_mode.languages:
        return Check("esbuild", "ok", "not needed: TypeScript is not enabled")
    try:
        await app.transform("const x: number = 1; return x")
    except CodeModeError as error:
        return Check("esbuild", "warn", error.message, "run codemode-mcp setup; JavaScript works without it")
    return Check("esbuild", "ok", "transforms TypeScript")


@dataclass(frozen=True, slots=True)
class _There:
    """What rules can be about.

    Attributes:
        tools: all that there are, whoever may call them, as far as that is known.
        unknown: what ids begin with that nobody knows now, such as `mcp:down:`.
    """

    tools: Mapping[str, Effects]
    unknown: Sequence[str]

    def has(self, glob: str) -> bool:
        """Whether there is, or may be, anything that a glob matches. The outer `exec` counts."""
        from codemode_mcp.policy import Effects, matches, reaches

        nothing = Effects.of(None)
        ids = (EXEC_ID, *self.tools)
        return any(matches(glob, each, nothing) for each in ids) or any(reaches(glob, each) for each in self.unknown)


async def _plugins(app: App, config: Config, there: _There) -> Iterable[Check]:
    from codemode_mcp.plugins.loading import installed

    plugins = await app.plugins()
    offered = await plugins.offered(app.operator)
    checks = []
    for each in config.plugins:
        name = f"plugin {each.name}"
        plugin = plugins.find(each.name)
        if not each.enabled:
            checks.append(Check(name, "ok", "disabled in the configuration"))
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
            checks.append(Check(f"plugin {entry}", "ok", detail, f'to load it, add "{entry}": {{}} to "plugins"'))
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
    for names in plugins.failed_factories(plugin, caller):
        detail = f"the factory of {', '.join(names)} has failed"
        yield Check(name, "fail", detail, "codemode-mcp serve --log-level debug shows where")


def _grants(plugin: Plugin, name: str, there: _There) -> Iterable[Check]:
    from codemode_mcp.policy import may_overlap

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
    from codemode_mcp.policy import Policy

    policy = Policy(config.tools.policy)
    off = [tool.id for tool in own if tool.optional and not policy.names(tool.id)]
    if off:
        detail = f"optional, and no rule names {'it' if len(off) == 1 else 'them'}: {', '.join(off[:5])}"
        yield Check(name, "ok", detail, 'to have them, name them in "tools.allow" or "tools.approved"')


async def _servers(app: App, config: Config) -> Iterable[Check]:
    pool = await app.pool()
    await pool.connect(None, CONNECT_SECONDS)
    checks = []
    for view in pool.views():
        name = f"server {view.name}"
        if view.login_required:
            checks.append(Check(name, "fail", "needs a login", f"run codemode-mcp login {shlex.quote(view.name)}"))
            continue
        if view.state != "ready":
            # What to do is in the message, where anybody knows.
            checks.append(Check(name, "fail", view.error or f"still {view.state} after {CONNECT_SECONDS:.0f} s"))
            continue
        count = len(view.tools)
        detail = f"{count} tool{'' if count == 1 else 's'}, protocol {view.protocol_version}"
        checks.append(Check(name, "ok", detail))
        checks += [Check(name, "warn", problem, "tell the server's maintainers") for problem in view.problems]
        checks += [*_schemas(view, name), *_hidden(_known(view, config), name, app, config)]
    checks += [Check(f"server {name}", "ok", "disabled in the configuration") for name in config.disabled]
    return checks


def _schemas(view: UpstreamView, name: str) -> Iterable[Check]:
    from upstream_clients.schemas import UnusableSchema, compile_schema

    for tool in view.tools:
        try:
            compile_schema(tool.input_schema)
        except UnusableSchema as error:
            detail = f"arguments of {tool.name!r} are not checked before they are sent: {error}"
            yield Check(name, "warn", detail, "tell the server's maintainers")


def _hidden(tools: Sequence[Known], name: str, app: App, config: Config) -> Iterable[Check]:
    """What policy makes of the tools of one server or plugin."""
    from codemode_mcp.policy import Ask, Policies
    from codemode_mcp.rule_effects import out_of_reach

    denied = out_of_reach(config.tools, tools)
    everybody = " from everybody" if config.tools.contexts else ""
    if denied and len(denied) == len(tools):
        yield Check(
            name, "warn", f"policy hides all {len(denied)} tools{everybody}", 'see "tools.allow" and "tools.deny"'
        )
    elif denied:
        yield Check(name, "ok", f"policy hides {len(denied)} of {len(tools)} tools{everybody}")
    policy = Policies(config.tools).of(app.operator)
    asked = sum(isinstance(policy.decide(tool_id, effects), Ask) for tool_id, effects in tools)
    if asked:
        detail = f"{asked} of {len(tools)} tools need an approval: you are asked when a program calls them"
        yield Check(name, "ok", detail)


async def _there(app: App, config: Config) -> _There:
    from codemode_mcp import client_tools
    from codemode_mcp.catalog import build
    from codemode_mcp.policy import Effects, Policy
    from codemode_mcp.settings import PolicyRules

    views = (await app.pool()).views()
    everything = build(views, Policy(PolicyRules(distrusted_servers=config.tools.policy.distrusted_servers)))
    known = {entry.id: entry.effects for server in everything.servers for entry in server.entries}
    plugins = await app.plugins()
    # Who does not get a tool from a factory may still have a rule about it.
    for plugin in plugins.loaded:
        names = (name for group in plugin.groups for name in group.names)
        known |= {f"{plugin.source}:{plugin.name}:{name}": Effects.of(None) for name in names}
    offered = (*await plugins.offered(app.operator), *client_tools.offered(client_tools.EVERYTHING))
    known |= {each.id: Effects.of(each.tool.annotations) for each in offered}
    unknown = [f"mcp:{view.name}:" for view in views if view.state != "ready"]
    unknown += [f"mcp:{name}:" for name in config.disabled]
    unknown += [f"plugin:{each.name}:" for each in config.plugins if plugins.find(each.name) is None]
    return _There(known, unknown)


async def _policy(app: App, config: Config, there: _There) -> Iterable[Check]:
    from codemode_mcp.rule_effects import empty_contexts, idle_rules

    checks: list[Check] = []
    for each in config.plugins:
        own = f"plugin:{each.name}:"
        tools = [(tool_id, effects) for tool_id, effects in there.tools.items() if tool_id.startswith(own)]
        checks += _hidden(tools, f"plugin {each.name}", app, config)
    advice = "correct or remove it; codemode-mcp tools --json lists the ids"
    for idle in idle_rules(config.tools, tuple(there.tools.items()), there.unknown):
        why = "matches no tool" if idle.why is None else f"has no effect: {idle.why}"
        checks.append(Check("policy", "warn", f"{idle.rule!r} in {idle.key} {why}", advice))
    for name, why in empty_contexts(config.tools, config.http, app.operator):
        advice = f"correct tools.contexts.{name}.for, or remove the context"
        checks.append(Check("policy", "warn", f"nobody can be in tools.contexts.{name}: {why}", advice))
    return checks


def _known(view: UpstreamView, config: Config) -> list[Known]:
    from codemode_mcp.policy import Policy

    policy = Policy(config.tools.policy)
    return [(f"mcp:{view.name}:{tool.name}", policy.effects(view.name, tool.annotations)) for tool in view.tools]
