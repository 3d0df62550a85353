"""Find the file, check it as a whole, compose `Config`."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.redaction import Known
from codemode_mcp.config.clients import read_clients
from codemode_mcp.config.contexts import RULE_KEYS, read_contexts, rules_of
from codemode_mcp.config.expand import Reading, resolve
from codemode_mcp.config.http import HttpSection
from codemode_mcp.config.nodes import Node, Report, describe, nearest, quote
from codemode_mcp.config.plugins import read_plugins
from codemode_mcp.config.servers import ROOT_KEYS, read_servers
from codemode_mcp.config.source import Seen, SourceError, look, parse, read_file
from codemode_mcp.config.store import StoreSection
from codemode_mcp.errors import ConfigError
from codemode_mcp.settings import (
    AUDIT_CLAMPS,
    CLAMPS,
    DUPLICATE_CLAMPS,
    ApprovalSettings,
    AuditSettings,
    CodeModeSettings,
    DuplicateSettings,
    HttpSettings,
    LogSettings,
    PluginSettings,
    PolicyRules,
    StoreSettings,
    ToolSettings,
)
from upstream_clients.private_files import belongs_to_another

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.audit.redaction import Secretive
    from upstream_clients.spec import UpstreamSpec

    Admit = Callable[[Path, Any, os.stat_result], None]

FILE_NAME = "codemode-mcp.json"
"""Looked for in the working directory and in the user config directory."""

PATH_VARIABLE = "CODEMODE_MCP_CONFIG"

_KEYS = (*ROOT_KEYS, "plugins", "tools", "clients", "store", "http", "audit", "log")
FOREIGN_KEYS = {"$schema": None, "inputs": "environment variables", "globalShortcut": "", "preferences": ""}


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """A valid configuration.

    Attributes:
        path: the absolute path of the file; `None` when there is none and everything is at its default.
        upstreams: the enabled servers, in the order of the file.
        notes: what `doctor` reports: clamped values, ignored keys of other clients, disabled servers.
        disabled: the names of the servers with `disabled: true`.
        left_out: the names of enabled servers that a command does not start.
        store: None: the file says nothing of it.
        secrets: values that must never be shown, of the sections whose settings have none that could say so.
        files: what the file refers to and was read too.
        seen: how the file was just before it was read, as `source.look` has it.
    """

    path: Path | None = None
    upstreams: tuple[UpstreamSpec, ...] = ()
    tools: ToolSettings = field(default_factory=ToolSettings)
    log: LogSettings = field(default_factory=LogSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    plugins: tuple[PluginSettings, ...] = ()
    audit: AuditSettings = field(default_factory=AuditSettings)
    store: StoreSettings | None = None
    secrets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    seen: Seen = None

    @property
    def secretive(self) -> list[Secretive]:
        """Return what knows secret values, which are hidden wherever something is logged or recorded."""
        plugins = (Known(each.secrets) for each in self.plugins if each.secrets)
        return [*self.upstreams, *plugins, *([Known(self.secrets)] if self.secrets else [])]

    def __repr__(self) -> str:
        return f"<Config {self.path}: {len(self.upstreams)} upstreams, {len(self.disabled)} disabled>"


def find_config(
    explicit: str | None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    user_config_dir: Path,
    admit: Callable[[Path], None],
) -> Path | None:
    """Return the file to use: `--config`, `$CODEMODE_MCP_CONFIG`, `./codemode-mcp.json`, or the one of the user.

    `None` when nothing was asked for and nothing is there.

    Args:
        admit: called with a file of the working directory, which may have come with a repository; raises
            `ConfigError` where it must not be used. The file may change until it is loaded, so `load_config` asks too.

    Raises:
        ConfigError: a file that was asked for does not exist, or the one in the working directory is another user's
            or is not admitted.
    """
    for source, name in (("--config", explicit), (f"${PATH_VARIABLE}", environ.get(PATH_VARIABLE))):
        if name:
            path = resolve(name, cwd)
            if not os.path.exists(path):
                raise ConfigError((f"{source}: the file {_printable(path)} does not exist",))
            return path
    for folder in (cwd, user_config_dir):
        path = folder / FILE_NAME
        if os.path.exists(path):
            if folder == cwd and cwd != user_config_dir:
                _check_owner(path)
                admit(path)
            return path
    return None


def _check_owner(path: Path) -> None:
    """Refuse a file, or a link to one, that another user has put into the working directory: it starts programs."""
    for about in (os.lstat(path), os.stat(path)):
        check_owner(path, about)


def check_owner(path: Path, about: os.stat_result) -> None:
    """Refuse a file of another user that was found in the working directory. Raises `ConfigError`."""
    if belongs_to_another(about):
        raise ConfigError(
            (
                f"{_printable(path)} belongs to another user, and a configuration starts programs as you; "
                f"read it, and pass --config {_printable(path)} if you trust it",
            )
        )


def load_config(
    path: Path | None, *, environ: Mapping[str, str], reading: Reading | None = None, admit: Admit | None = None
) -> Config:
    """Read the file at `path`; `None` gives the defaults.

    Raises `ConfigError` with all problems, one message each. Programs that print values (`{"command": [...]}`) run
    last, and only when there is no other problem.

    Args:
        admit: called with the path, what was read and whose file that was; raises `ConfigError` where it must not be
            used. What it is asked about is what is used, whatever is put in the file's place meanwhile.
    """
    if path is None:
        return Config()
    path = Path(os.path.abspath(path))
    (seen,) = look((path,))
    value = _read(path, admit)
    if not isinstance(value, dict):
        raise ConfigError((f"{_printable(path)} holds {describe(value, secret=True)}; expected an object",))

    _check_kind(path, value)
    report = Report()
    fields = Node(value, "", report).fields(_KEYS, foreign=FOREIGN_KEYS)
    roots = {key: fields[key] for key in ROOT_KEYS if key in fields}
    reading = reading or Reading()
    servers = read_servers(roots, environ=environ, folder=path.parent, reading=reading)
    tools = _tools(fields["tools"], path.parent) if "tools" in fields else ToolSettings()
    if "clients" in fields:
        tools = replace(tools, clients=read_clients(fields["clients"]))
    log = _log(fields["log"], path.parent) if "log" in fields else LogSettings()
    audit = _audit(fields["audit"], path.parent) if "audit" in fields else AuditSettings()
    http = HttpSection()
    if "http" in fields:
        http.read(fields["http"], environ=environ, folder=path.parent, reading=reading)
    plugins: tuple[PluginSettings, ...] = ()
    if "plugins" in fields:
        plugins = read_plugins(fields["plugins"], environ=environ, folder=path.parent, reading=reading)
    store = StoreSection()
    if "store" in fields:
        store.read(fields["store"], environ=environ, folder=path.parent, reading=reading)
    report.raise_problems()

    servers.run_programs()
    http.run_programs()
    store.run_programs()
    report.raise_problems()
    return Config(
        path=path,
        upstreams=tuple(servers.specs.values()),
        tools=replace(
            tools,
            policy=servers.add_to(tools.policy),
            contexts=tuple(replace(each, rules=servers.add_to(each.rules)) for each in tools.contexts),
        ),
        log=log,
        http=http.settings,
        plugins=plugins,
        audit=audit,
        store=store.settings,
        secrets=tuple(store.secrets),
        notes=tuple(report.notes),
        disabled=tuple(servers.disabled),
        seen=seen,
        files=tuple(dict.fromkeys(servers.reading.files)),
    )


def _read(path: Path, admit: Admit | None) -> Any:
    try:
        text, about = read_file(path)
        value = parse(text)
    except SourceError as error:
        raise ConfigError((f"{_printable(path)} {error}",)) from None
    if admit is not None:
        admit(path, value, about)
    return value


def _check_kind(path: Path, value: Mapping[str, Any]) -> None:
    """Refuse the settings of a client, which have servers among much else."""
    strange = [key for key in value if key not in _KEYS and key not in FOREIGN_KEYS and nearest(key, _KEYS) is None]
    if len(strange) > 1 and any(key in value for key in ROOT_KEYS):
        shown = ", ".join(map(quote, strange[:3])) + (", ..." if len(strange) > 3 else "")
        raise ConfigError(
            (
                f"{_printable(path)} looks like the settings of a client: it has {shown} beside its servers; "
                f"to take these servers over: codemode-mcp import --from {shlex.quote(_printable(path))} --write",
            )
        )


def load_store(path: Path | None, *, environ: Mapping[str, str], admit: Admit | None = None) -> StoreSettings | None:
    """Return what the file at `path` says of the store, and nothing else of it: no server's variable is expanded and no
    program is run for one. Raises `ConfigError`. `admit`: as `load_config` has it.
    """
    if path is None:
        return None
    path = Path(os.path.abspath(path))
    value = _read(path, admit)
    if not isinstance(value, dict) or "store" not in value:
        return None
    report, store = Report(), StoreSection()
    store.read(Node(value["store"], "store", report), environ=environ, folder=path.parent, reading=Reading())
    report.raise_problems()
    store.run_programs()
    report.raise_problems()
    return store.settings


def _tools(node: Node, folder: Path) -> ToolSettings:
    fields = node.fields(("codeMode", *RULE_KEYS, "contexts", "resultFormat", "duplicates", "approval", "esbuild"))
    settings: dict[str, Any] = {"policy": PolicyRules(**rules_of(fields))}
    if "contexts" in fields:
        settings["contexts"] = read_contexts(fields["contexts"], settings["policy"])
    if "codeMode" in fields:
        settings["code_mode"] = _code_mode(fields["codeMode"])
    if "resultFormat" in fields:
        settings["result_format"] = fields["resultFormat"].choice("markdown", "plain")
    if "duplicates" in fields:
        settings["duplicates"] = _duplicates(fields["duplicates"])
    if "approval" in fields:
        settings["approval"] = _approval(fields["approval"])
    if "esbuild" in fields:
        settings["esbuild"] = str(resolve(fields["esbuild"].filled(), folder))
    return ToolSettings(**settings)


def _code_mode(node: Node) -> CodeModeSettings:
    """`tools.codeMode`: an object, or its `enabled` alone."""
    if isinstance(node.value, bool):
        return CodeModeSettings(enabled=node.value)
    if not isinstance(node.value, dict):
        node.fail_type("an object, true or false")
        return CodeModeSettings()
    fields = node.fields(("enabled", "runtime", "mode", "languages", *CLAMPS, "onOutputLimit", "telemetry"))
    settings: dict[str, Any] = {}
    if "enabled" in fields:
        settings["enabled"] = fields["enabled"].flag()
    if "runtime" in fields:
        fields["runtime"].choice("quickjs-wasi")
    if "mode" in fields:
        fields["mode"].choice("only")
    if "onOutputLimit" in fields:
        settings["on_output_limit"] = fields["onOutputLimit"].choice("offload", "fail")
    if "telemetry" in fields:
        settings["telemetry"] = fields["telemetry"].choice("meta", "result", "off")
    if "languages" in fields:
        languages = dict.fromkeys(item.choice("javascript", "typescript") for item in fields["languages"].items())
        if not languages and fields["languages"].sound:
            fields["languages"].fail('must not be empty; allowed: "javascript", "typescript"')
        settings["languages"] = tuple(languages)
    for key, clamp in CLAMPS.items():
        if key in fields and (value := fields[key].integer()) is not None:
            settings[_snake(key)] = inside = min(max(value, clamp.lowest), clamp.highest)
            if inside != value:
                fields[key].note(f"{describe(value)} is outside {clamp.lowest} - {clamp.highest}; {inside} is used")
    return _agree(CodeModeSettings(**settings), node)


def _duplicates(node: Node) -> DuplicateSettings:
    if node.value is None:
        return DuplicateSettings()
    fields = node.fields(("max", "action", "windowSeconds"))
    settings: dict[str, Any] = {}
    if "action" in fields:
        settings["action"] = fields["action"].choice("warn", "deny", "off")
    for key, clamp in DUPLICATE_CLAMPS.items():
        if key in fields and (value := fields[key].integer()) is not None:
            settings[_snake(key)] = inside = min(max(value, clamp.lowest), clamp.highest)
            if inside != value:
                fields[key].note(f"{describe(value)} is outside {clamp.lowest} - {clamp.highest}; {inside} is used")
    return DuplicateSettings(**settings)


def _approval(node: Node) -> ApprovalSettings:
    if node.value is None:
        return ApprovalSettings()
    fields = node.fields(("via", "notify"))
    settings: dict[str, Any] = {}
    if "via" in fields:
        settings["via"] = fields["via"].choice("client", "terminal", "auto")
    if "notify" in fields:
        words = list(fields["notify"].items())
        settings["notify"] = tuple(each.filled() if number == 0 else each.text() for number, each in enumerate(words))
        if not words and fields["notify"].sound:
            fields["notify"].fail("must not be empty; the first string is the program to run")
    return ApprovalSettings(**settings)


def _agree(settings: CodeModeSettings, node: Node) -> CodeModeSettings:
    """Cut what one field says to the limit that another one sets."""
    if settings.timeout_ms > settings.max_request_ms:
        node.note(f"timeoutMs is cut to maxRequestMs, {settings.max_request_ms}")
        settings = replace(settings, timeout_ms=settings.max_request_ms)
    if settings.search_default_limit > settings.max_search_limit:
        node.note(f"searchDefaultLimit is cut to maxSearchLimit, {settings.max_search_limit}")
        settings = replace(settings, search_default_limit=settings.max_search_limit)
    return settings


def _log(node: Node, folder: Path) -> LogSettings:
    fields = node.fields(("level", "file"))
    settings: dict[str, Any] = {}
    if "level" in fields:
        settings["level"] = fields["level"].choice("debug", "info", "warning", "error")
    if "file" in fields:
        settings["file"] = str(resolve(fields["file"].filled(), folder))
    return LogSettings(**settings)


def _audit(node: Node, folder: Path) -> AuditSettings:
    if node.value is None:
        return AuditSettings()
    fields = node.fields(("trajectory", "includeInputs", *AUDIT_CLAMPS))
    settings: dict[str, Any] = {}
    if "trajectory" in fields and fields["trajectory"].value is not None:
        settings["trajectory"] = str(resolve(fields["trajectory"].filled(), folder))
    if "includeInputs" in fields:
        settings["include_inputs"] = fields["includeInputs"].flag()
    for key, clamp in AUDIT_CLAMPS.items():
        if key in fields and (value := fields[key].integer()) is not None:
            settings[_snake(key)] = inside = min(max(value, clamp.lowest), clamp.highest)
            if inside != value:
                fields[key].note(f"{describe(value)} is outside {clamp.lowest} - {clamp.highest}; {inside} is used")
    return AuditSettings(**settings)


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), key)


def _printable(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else json.dumps(text)
