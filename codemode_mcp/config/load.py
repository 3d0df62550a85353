"""The loading of the configuration file."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.redaction import Known
from codemode_mcp.base.config_path import printable
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import (
    AuditSettings,
    HttpSettings,
    InstanceSettings,
    LogSettings,
    PluginSettings,
    StoreSettings,
    ToolSettings,
    UiSettings,
    keys_of,
    setting,
)
from codemode_mcp.config.expand import Expander, Reading
from codemode_mcp.config.nodes import Node, Report, describe, nearest, quote, section
from codemode_mcp.config.process_sections import HttpSection, StoreSection, read_plugins
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import ROOT_KEYS, read_servers
from codemode_mcp.config.source import FileState, SourceError, file_states, parse, read_file
from codemode_mcp.config.tools import read_clients, read_expose, read_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.audit.redaction import Secretive
    from codemode_mcp.rules.trust.comparison import Mode
    from codemode_mcp.rules.trust.pins_file import LockFile
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject

    Admit = Callable[[Path, Any, os.stat_result], None]


@dataclass(init=False, repr=False, eq=False)
class RootKeys:
    """The keys of the file."""

    mcp_servers: Any = setting("object", "`{}`")
    """Upstream servers by name; see [below](#mcpserversname)."""
    servers: Any = setting("object", "`{}`")
    """The same, as VS Code calls it."""
    plugins: Any = setting("object", "`{}`")
    """Plugins by name; see [below](#pluginsname)."""
    tools: Any = setting("object")
    """Rules and limits of programs; see [below](#tools)."""
    store: Any = setting("object")
    """The store of suspended programs; see [below](#store)."""
    expose: Any = setting("object")
    """Tools and items that clients see directly; see [below](#expose)."""
    clients: Any = setting("object", "`{}`")
    """Changes to profiles of clients; see [below](#clientsglob)."""
    http: Any = setting("object")
    """Settings of `serve --transport http`; see [below](#http)."""
    instance: Any = setting("object")
    """The process that all clients share; see [below](#instance)."""
    ui: Any = setting("object")
    """The page in a browser; see [below](#ui)."""
    audit: Any = setting("object")
    """Records of events and programs; see [below](#audit)."""
    log: Any = setting("object")
    """The log; see [below](#log)."""


_KEYS = keys_of(RootKeys)

FOREIGN_KEYS = {"$schema": None, "inputs": "environment variables", "globalShortcut": "", "preferences": ""}
"""Keys of other clients; see `foreign` of `Node.fields`."""


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """A valid configuration.

    Attributes:
        path: the absolute path of the file. If there is no file, the path is None and all settings have their defaults.
        upstreams: the enabled servers, in the order of the file. One that lacks a value, such as an unset variable, is
            not usable; see `UpstreamSpec.unusable`.
        trust: the values of `trust` in server entries, by the names of servers.
        written: the command lines and URLs of the enabled servers, as they are written; see `literals`.
        store: None if the file does not choose a store.
        secrets: secret values of the section `store`, which must never be shown.
        notes: warnings for `doctor`: clamped values, ignored keys of other clients, disabled servers.
        disabled: names of servers with `disabled: true`.
        enabled: names of all other servers in the order of the file, also of those that a command does not start.
        left_out: names of enabled servers that a command does not start.
        files: other files that were read because the file refers to them.
        file_state: the state of the file directly before it was read; see `source.file_states`.
        lock: the content of the lock file, which replaces the pins of all servers; None without `serve --locked`.
    """

    path: Path | None = None
    upstreams: tuple[UpstreamSpec, ...] = ()
    tools: ToolSettings = field(default_factory=ToolSettings)
    log: LogSettings = field(default_factory=LogSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    plugins: tuple[PluginSettings, ...] = ()
    audit: AuditSettings = field(default_factory=AuditSettings)
    instance: InstanceSettings = field(default_factory=InstanceSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    trust: Mapping[str, Mode] = field(default_factory=dict)
    written: Mapping[str, JsonObject] = field(default_factory=dict)
    store: StoreSettings | None = None
    secrets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    file_state: FileState = None
    lock: LockFile | None = None

    @property
    def secretive(self) -> list[Secretive]:
        """The objects that know secret values, for the redaction of logs and records."""
        plugins = (Known(each.secrets, each.name) for each in self.plugins if each.secrets)
        return [*self.upstreams, *plugins, *([Known(self.secrets, "store")] if self.secrets else [])]

    def __repr__(self) -> str:
        return f"<Config {self.path}: {len(self.upstreams)} upstreams, {len(self.disabled)} disabled>"


def load_config(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    reading: Reading | None = None,
    admit: Admit | None = None,
    locked: bool = False,
) -> Config:
    """Load the configuration file. Without a file, return the defaults.

    Programs that print values (`{"command": [...]}`) run last, and only if the rest of the file is valid.

    Args:
        admit: called with the path, the value of the file, and the status of the file; raises `ConfigError` to refuse
            the file. The same value is used afterwards, even if the file is replaced meanwhile.
        locked: True to read the lock file beside it, too.

    Raises:
        ConfigError: a file is unreadable, invalid or refused. The error has a message for each problem.
    """
    if path is None:
        if locked:
            raise ConfigError(
                ("--locked needs a configuration file with a lock file beside it; name one with --config",)
            )
        return Config()
    path = Path(os.path.abspath(path))
    (file_state,) = file_states((path,))
    value = _read(path, admit)
    if not isinstance(value, dict):
        raise ConfigError((f"{printable(path)} contains {describe(value, secret=True)}; expected an object",))

    check_kind(path, value)
    report, secrets = Report(), SecretValues()
    fields = Node(value, "", report).fields(_KEYS, foreign=FOREIGN_KEYS)
    expander = Expander(environ, path.parent, reading or Reading())
    lock = None
    if locked:
        from codemode_mcp.rules.trust.pins_file import lock_path, read_lock_file

        expander.reading.files.append(lock_path(path))
        lock = read_lock_file(lock_path(path))
    roots = {key: fields[key] for key in ROOT_KEYS if key in fields}
    servers = read_servers(roots, expander, secrets, sets_aside=True)
    tools = read_tools(fields["tools"], expander) if "tools" in fields else ToolSettings()
    # Null stands for the defaults here, as a missing key does.
    given = {key: fields.get(key) or Node(None, key, report) for key in _KEYS}
    tools = replace(tools, clients=read_clients(given["clients"]), expose=read_expose(given["expose"]))
    log = section(given["log"], LogSettings, file=expander.unexpanded_path)
    instance = section(given["instance"], InstanceSettings)
    ui = section(given["ui"], UiSettings)
    audit = _audit(given["audit"], expander)
    http, store = HttpSection(), StoreSection()
    http.read(given["http"], expander, secrets)
    plugins = read_plugins(given["plugins"], expander)
    store.read(given["store"], expander, secrets)
    report.raise_problems()
    secrets.run()  # adds secret values to `servers`, `http` and `store`, and may find more problems
    report.raise_problems()
    servers.set_aside()
    return Config(
        path=path,
        upstreams=tuple(servers.specs.values()),
        tools=replace(
            tools,
            overrides=servers.overrides,
            expose_servers=servers.expose,
            policy=servers.add_to(tools.policy),
            contexts=tuple(replace(each, rules=servers.add_to(each.rules)) for each in tools.contexts),
        ),
        log=log,
        http=http.settings,
        plugins=plugins,
        audit=audit,
        instance=instance,
        ui=ui,
        trust=servers.trust,
        written=servers.written,
        store=store.settings,
        secrets=tuple(store.secrets),
        notes=tuple(report.notes),
        disabled=tuple(servers.disabled),
        enabled=tuple(servers.specs),
        file_state=file_state,
        files=tuple(dict.fromkeys(expander.reading.files)),
        lock=lock,
    )


def _read(path: Path, admit: Admit | None) -> Any:
    try:
        text, status = read_file(path)
        value = parse(text)
    except SourceError as error:
        raise ConfigError((f"{printable(path)} {error}",)) from None
    if admit is not None:
        admit(path, value, status)
    return value


def check_kind(path: Path, value: Mapping[str, Any]) -> None:
    """Refuse the settings file of an MCP client: it has servers and many other keys. Raises `ConfigError`."""
    unknown = [key for key in value if key not in _KEYS and key not in FOREIGN_KEYS and nearest(key, _KEYS) is None]
    if len(unknown) > 1 and any(key in value for key in ROOT_KEYS):
        shown = ", ".join(map(quote, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
        raise ConfigError(
            (
                f"{printable(path)} looks like the settings of an MCP client: besides servers, it has {shown}; "
                f"to import the servers, run: codemode-mcp import --from {shlex.quote(printable(path))} --write",
            )
        )


def load_store(path: Path | None, *, environ: Mapping[str, str], admit: Admit | None = None) -> StoreSettings | None:
    """Load only the section `store`. No variable of a server is expanded, and no program of a server is run.

    Args:
        admit: see `load_config`.

    Raises:
        ConfigError: the file is unreadable or refused, or the section is invalid.
    """
    if path is None:
        return None
    path = Path(os.path.abspath(path))
    value = _read(path, admit)
    if not isinstance(value, dict) or "store" not in value:
        return None
    report, secrets, store = Report(), SecretValues(), StoreSection()
    store.read(Node(value["store"], "store", report), Expander(environ, path.parent), secrets)
    report.raise_problems()
    secrets.run()
    report.raise_problems()
    return store.settings


def load_audit(path: Path, *, admit: Admit | None = None) -> AuditSettings:
    """Load only the section `audit`. No variable is expanded, and no program is run. Raises as `load_store`.

    Args:
        admit: see `load_config`.
    """
    path = Path(os.path.abspath(path))
    value = _read(path, admit)
    report = Report()
    given = value.get("audit") if isinstance(value, dict) else None
    settings = _audit(Node(given, "audit", report), Expander({}, path.parent))
    report.raise_problems()
    return settings


def _audit(node: Node, expander: Expander) -> AuditSettings:
    def file(node: Node) -> str | None:
        return None if node.value is None else expander.unexpanded_path(node)

    return section(node, AuditSettings, trajectory=file, recordings=file)
