"""Checks of the configuration: the file, policy, plugins and saved programs."""

from __future__ import annotations

import re
import shlex
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from msgspec import Struct

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.base.display import counted, plain
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.text import listed
from codemode_mcp.catalog.plugins.api import EXEC_ID
from codemode_mcp.catalog.saved_programs.folder import folder_of, read_folder
from codemode_mcp.catalog.saved_programs.program_state import StateUnavailable, state_of
from codemode_mcp.cli.check import CORRECT, Check
from codemode_mcp.config.literals import secret_args
from upstream_clients.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.catalog.entries import OfferedTool
    from codemode_mcp.catalog.plugins.host import Plugins
    from codemode_mcp.catalog.plugins.loading import Plugin
    from codemode_mcp.config import Config
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.rules.policy.rule_patterns import Effects
    from codemode_mcp.rules.policy.unused_rules import Known
    from codemode_mcp.server.services import App
    from upstream_clients.tools import UpstreamView


_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-[^}]*)?\}")
_EDITOR_VARIABLES: Final = ("workspaceFolder", "userHome", "pathSeparator")
"""Variables that editors replace. They are not in the environment."""


def check_config(path: str | None, environ: Mapping[str, str], gate: Gate) -> tuple[Config | None, list[Check]]:
    """Load the configuration and check its file.

    Args:
        path: the value of `--config`.
        gate: decides whether a file in the working directory may be used.

    Returns:
        The configuration, or None if it is invalid, and the results of the checks.
    """
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.config import find_config, load_config
    from codemode_mcp.config.confirmation import NotConfirmedError

    found = None
    try:
        found = find_config(path, environ=environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=gate.remember)
        config = load_config(found, environ=environ, admit=gate.admit)
    except NotConfirmedError as error:
        return None, [Check("config", "fail", error.problem, error.advice)]
    except ConfigError as error:
        checks = [Check("config", "fail", problem, _advice(problem, found)) for problem in error.problems]
        return None, [*checks, *_file(found, environ)]
    if found is None:
        advice = (
            "write codemode-mcp.json with mcpServers, name a file with --config, or see codemode-mcp import and add"
        )
        return config, [Check("config", "warn", "no file found, so nothing is configured", advice)]
    checks = [Check("config", "ok", f"{found}, {counted(len(config.upstreams), 'server')}")]
    if not config.upstreams and not config.plugins:
        detail = "no server is enabled and no plugin is configured, so programs can call nothing"
        checks.append(
            Check("config", "warn", detail, 'add servers to "mcpServers", or see codemode-mcp import and add')
        )
    checks += [Check("config", "info" if note.endswith(": disabled") else "warn", note) for note in config.notes]
    return config, [*checks, *_file(found, environ)]


def _advice(problem: str, found: Path | None) -> str:
    if found is None:
        return "give the path of an existing file"
    unset = re.search(r"the variable (\w+) is not set", problem)
    return CORRECT if unset is None else f"export {unset[1]}=... where codemode-mcp is started, or correct the file"


def _file(path: Path | None, environ: Mapping[str, str]) -> Iterable[Check]:
    from codemode_mcp.config.source import SourceError, parse, read_text

    if path is None:
        return
    try:
        value = parse(read_text(path))
        mode = path.stat().st_mode
    except (SourceError, OSError):
        return  # The failure to load the configuration is reported already.
    if isinstance(value, dict):
        yield from permissions(path, mode, list(literal_secrets(value)), sys.platform)
        yield from variables(value, environ)


def permissions(path: Path, mode: int, literal: list[str], system: str) -> Iterable[Check]:
    """Check if other users can read or write the configuration file.

    Args:
        mode: the mode of the file, as from `os.stat`.
        literal: the keys of secrets that are written out in the file.
        system: the value of `sys.platform`.
    """
    move = "put them into environment variables, as ${NAME}, or the keyring: docs/configuration.md"
    if system != "win32" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        detail = f"others can write {path}, and so start programs as you"
        yield Check("config", "warn", detail, f"chmod go-w {path}")
    if not literal:
        return
    secrets = f"{counted(len(literal), 'secret')} written out in it: {listed(literal)}"
    if system != "win32" and mode & (stat.S_IRGRP | stat.S_IROTH):
        detail = f"others can read {path}, which has {secrets}"
        yield Check("config", "warn", detail, f"chmod 600 {path}; and better, {move}")
    else:
        yield Check("config", "info", f"only you can read {path}, but it has {secrets}", move)


def literal_secrets(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of values that are secrets, and not references to variables."""
    for keys, text in strings(value):
        if _REFERENCE.search(text) or text.startswith(("/", "~")):
            continue
        name = next((key for key in reversed(keys) if not key.startswith("[")), "")
        in_secret_section = any(key in ("env", "headers", "auth", "http", "store") for key in keys[:-1])
        is_secret = keys[-2:] == ["auth", "value"] or (is_secret_name(name) and not name.endswith("Url"))
        has_secret_name = in_secret_section and len(text) >= 8 and is_secret
        if without_tokens(text) != text or has_secret_name or _is_secret_arg(value, keys):
            yield _path(keys)


def _is_secret_arg(value: Mapping[str, Any], keys: list[str]) -> bool:
    if len(keys) != 4 or keys[2] != "args":
        return False
    args = value[keys[0]][keys[1]]["args"]
    return isinstance(args, list) and int(keys[3].strip("[]")) in secret_args(args)


def variables(value: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Check]:
    """Check for empty variables, and for unset variables with a default. The values of variables are never shown."""
    names = set()
    for keys, text in strings(value):
        for match in _REFERENCE.finditer(text):
            name, has_default = match[1], match[2] is not None
            if name in _EDITOR_VARIABLES:
                continue
            names.add(name)
            if name not in environ and has_default:
                detail = f"{name} is not set, so its default is used in {_path(keys)}"
                advice = f"export {name}=... where the client is started, if you want another value"
                yield Check("variables", "info", detail, advice)
            elif environ.get(name) == "" and not has_default:
                detail = f"{name} is set, but empty, in {_path(keys)}"
                yield Check("variables", "warn", detail, f"export {name}=... with its value")
    if not names:
        yield Check("variables", "ok", "the file refers to no variables")
    elif all(map(environ.get, names)):
        yield Check("variables", "ok", f"all {len(names)} are set" if len(names) > 1 else f"{min(names)} is set")


def _path(keys: list[str]) -> str:
    return ".".join(keys).replace(".[", "[")


def strings(value: Mapping[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Yield each string in which references are allowed, with the keys that lead to it. Skip disabled entries."""
    rest: list[tuple[list[str], Any]] = [
        ([part], value[part]) for part in ("mcpServers", "servers", "plugins", "http", "store") if part in value
    ]
    while rest:
        keys, found = rest.pop(0)
        match found:
            case str():
                yield keys, found
            case dict():
                if len(keys) == 2 and (found.get("disabled") is True or found.get("enabled") is False):
                    continue
                rest += [([*keys, str(key)], item) for key, item in found.items()]
            case list():
                rest += [([*keys, f"[{number}]"], item) for number, item in enumerate(found)]


# Checks of the policy: unused rules, hidden tools, contexts without callers.


class KnownTools(Struct, frozen=True):
    """The tools that rules can match.

    Attributes:
        tools: the effects of each tool, by the id of the tool. The tools of all callers are included.
        unknown: prefixes of the ids of tools that are not known. Each is for a server or plugin, such as `mcp:down:`.
    """

    tools: Mapping[str, Effects]
    unknown: Sequence[str]

    def may_match(self, glob: str) -> bool:
        """Return True if a glob matches `exec` or a known tool, or may match an unknown tool."""
        from codemode_mcp.rules.policy.rule_patterns import Effects, matches, reaches

        nothing = Effects.of(None)
        ids = (EXEC_ID, *self.tools)
        return any(matches(glob, each, nothing) for each in ids) or any(reaches(glob, each) for each in self.unknown)


def hidden(tools: Sequence[Known], name: str, app: App, config: Config) -> Iterable[Check]:
    """Report the number of tools of one server or plugin that the policy denies, and that need an approval.

    Args:
        name: the name of the check.
    """
    from codemode_mcp.rules.policy.policy import Ask, Policies
    from codemode_mcp.rules.policy.unused_rules import out_of_reach

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
    from codemode_mcp.base.settings import PolicyRules
    from codemode_mcp.catalog import client_tools
    from codemode_mcp.catalog.per_caller import build
    from codemode_mcp.catalog.toolset import EFFECTS as PROGRAM_EFFECTS
    from codemode_mcp.rules.policy.policy import Policy
    from codemode_mcp.rules.policy.rule_patterns import Effects

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


async def check_policy(app: App, config: Config, known: KnownTools) -> Iterable[Check]:
    """Check for unused rules, contexts without callers, and hidden tools of plugins."""
    from codemode_mcp.rules.policy.unused_rules import empty_contexts, unused_rules

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
    from codemode_mcp.catalog.entries import mcp_id
    from codemode_mcp.rules.policy.policy import Policy

    policy = Policy(config.tools.policy)
    ids = ((mcp_id(view.name, tool.name), tool.annotations) for tool in view.tools)
    return [(tool_id, policy.effects(tool_id, annotations)) for tool_id, annotations in ids]


async def check_plugins(app: App, config: Config, known: KnownTools) -> Iterable[Check]:
    """Check each configured plugin, and report installed plugins that are not configured."""
    from codemode_mcp.catalog.plugins.loading import installed

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
    from codemode_mcp.rules.policy.rule_patterns import may_overlap

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
    from codemode_mcp.rules.policy.policy import Policy

    policy = Policy(config.tools.policy)
    off = [tool.id for tool in own if tool.optional and not policy.names(tool.id)]
    if off:
        detail = f"optional tools are off, because no rule names them: {listed(off)}"
        yield Check(name, "info", detail, 'to turn them on, add their ids to "tools.allow" or "tools.approved"')


_NAME = "saved programs"


async def check_saved_programs(app: App, config: Config) -> Iterable[Check]:
    """Check the saved programs. The lists of servers are known already."""
    folder = folder_of(config.path)
    if config.path is None or folder is None:
        return ()
    option = f" --config {shlex.quote(plain(str(config.path)))}"
    library = await anyio.to_thread.run_sync(read_folder, folder)
    found = [
        Check(_NAME, "warn", str(each), f"correct the file; codemode-mcp programs check{option}")
        for each in library.problems
    ]
    try:
        proposals = await anyio.to_thread.run_sync(state_of(config.path).proposals)
        for program in library.programs:
            changes = await app.look_at_program(program)
            if changes:
                detail = f"programs.{program.name}: {listed([str(each) for each in changes])}"
                advice = f"read it, then: codemode-mcp programs accept {plain(program.name)}{option}"
                found.append(Check(_NAME, "warn", detail, advice))
    except StateUnavailable as error:
        return [*found, Check(_NAME, "warn", str(error), "correct the permissions, or remove the file")]
    if proposals.waiting:
        detail = f"{counted(len(proposals.waiting), 'proposal')}: {listed([each.name for each in proposals.waiting])}"
        found.append(Check(_NAME, "info", detail, f"decide about it: codemode-mcp programs list{option}"))
    if library.programs and not found:
        found.append(Check(_NAME, "ok", f"{counted(len(library.programs), 'program')} in {folder}"))
    return found
