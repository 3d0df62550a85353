"""Checks of an installation, as data: what was looked at, how it is, what to do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from codemode_mcp.errors import CodeModeError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.app import App
    from codemode_mcp.config import Config
    from codemode_mcp.policy import Effects
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


async def check_everything(config: Config) -> list[Check]:
    """Engine, esbuild and every server."""
    from codemode_mcp.app import open_app

    async with open_app(config) as app:
        return [await _engine(app), await _esbuild(app, config), *await _servers(app, config)]


async def _engine(app: App) -> Check:
    from codemode_mcp.sandbox.binary import VERSION

    try:
        await app.engine()
        outcome = await app.execute("return 6 * 7", "javascript", app.operator)
    except CodeModeError as error:
        return Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")
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
        checks += [*_schemas(view, name), *_hidden(view, name, config)]
    checks += _rules_without_effect(pool.views(), config)
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


def _hidden(view: UpstreamView, name: str, config: Config) -> Iterable[Check]:
    from codemode_mcp.policy import Ask, Deny, Policy

    policy = Policy(config.tools.policy)
    decisions = [policy.decide(tool_id, tool) for tool_id, tool in _known(view, config)]
    denied = sum(isinstance(decision, Deny) for decision in decisions)
    asked = sum(isinstance(decision, Ask) for decision in decisions)
    if denied and denied == len(decisions):
        yield Check(name, "warn", f"policy hides all {denied} tools", 'see "tools.allow" and "tools.deny"')
    elif denied:
        yield Check(name, "ok", f"policy hides {denied} of {len(decisions)} tools")
    if asked:
        detail = f"{asked} of {len(decisions)} tools need an approval, which this version cannot ask for: denied"
        yield Check(name, "warn", detail, 'add them to "tools.approved", or take them out of "tools.ask"')


def _rules_without_effect(views: Sequence[UpstreamView], config: Config) -> Iterable[Check]:
    from codemode_mcp.policy import matches

    if any(view.state != "ready" for view in views):
        return  # a rule may be about a tool that nobody knows now
    known = [each for view in views for each in _known(view, config)]
    rules = config.tools.policy
    listed = {"allow": rules.allow or (), "deny": rules.deny, "ask": rules.ask, "approved": rules.approved}
    patterns = [(f"tools.{key}", pattern) for key, given in listed.items() for pattern in given]
    patterns += [(f"mcpServers.{server}.allow", glob) for server, globs in rules.server_allow for glob in globs]
    for key, pattern in patterns:
        if not any(matches(pattern, tool_id, tool) for tool_id, tool in known):
            detail = f"{pattern!r} in {key} matches no tool"
            yield Check("policy", "warn", detail, "correct or remove it; codemode-mcp tools --json lists the ids")


def _known(view: UpstreamView, config: Config) -> list[tuple[str, Effects]]:
    from codemode_mcp.policy import Policy

    policy = Policy(config.tools.policy)
    return [(f"mcp:{view.name}:{tool.name}", policy.effects(view.name, tool.annotations)) for tool in view.tools]
