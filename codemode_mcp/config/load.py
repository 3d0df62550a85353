"""The loading of the configuration file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
import re
import shlex
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode_mcp.audit.redaction import Known, Secretive
from codemode_mcp.base.config_path import printable
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import (
    AuditSettings,
    HttpSettings,
    InstanceSettings,
    IssuerSettings,
    LogSettings,
    PluginSettings,
    StaticToken,
    StoreKind,
    StoreSettings,
    ToolSettings,
    UiSettings,
    keys_of,
    setting,
)
from codemode_mcp.config import nodes
from codemode_mcp.config.expand import Expander, Reading
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import ROOT_KEYS, read_servers
from codemode_mcp.config.source import FileState, SourceError, file_states, parse, read_file
from codemode_mcp.config.tools import read_clients, read_expose, read_tools
from upstream_clients.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
        raise ConfigError((f"{printable(path)} contains {nodes.describe(value, secret=True)}; expected an object",))

    check_kind(path, value)
    report, secrets = nodes.Report(), SecretValues()
    fields = nodes.Node(value, "", report).fields(_KEYS, foreign=FOREIGN_KEYS)
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
    given = {key: fields.get(key) or nodes.Node(None, key, report) for key in _KEYS}
    tools = replace(tools, clients=read_clients(given["clients"]), expose=read_expose(given["expose"]))
    log = nodes.section(given["log"], LogSettings, file=expander.unexpanded_path)
    instance = nodes.section(given["instance"], InstanceSettings)
    ui = nodes.section(given["ui"], UiSettings)
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
    unknown = [
        key for key in value if key not in _KEYS and key not in FOREIGN_KEYS and nodes.nearest(key, _KEYS) is None
    ]
    if len(unknown) > 1 and any(key in value for key in ROOT_KEYS):
        shown = ", ".join(map(nodes.quote, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
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
    report, secrets, store = nodes.Report(), SecretValues(), StoreSection()
    store.read(nodes.Node(value["store"], "store", report), Expander(environ, path.parent), secrets)
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
    report = nodes.Report()
    given = value.get("audit") if isinstance(value, dict) else None
    settings = _audit(nodes.Node(given, "audit", report), Expander({}, path.parent))
    report.raise_problems()
    return settings


def _audit(node: nodes.Node, expander: Expander) -> AuditSettings:
    def file(node: nodes.Node) -> str | None:
        return None if node.value is None else expander.unexpanded_path(node)

    return nodes.section(node, AuditSettings, trajectory=file, recordings=file)


# The sections `store`, `http` and `plugins`.


MIN_KEY_BYTES = 32
"""Minimum number of bytes of an encryption key."""

MAKE_A_KEY = "make one with `openssl rand -base64 32`"

_HEX = re.compile(r"[0-9A-Fa-f]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_MIN_VALUES = 16
"""Minimum number of different bytes in a random key."""

_MIN_STEPS = 8
"""Minimum number of different steps between neighbouring bytes in a random key."""


@dataclass(slots=True)
class StoreSection:
    """The section `store`. Its settings are complete after `SecretValues.run`.

    Attributes:
        settings: None if the configuration does not choose a store.
        secrets: values that must never be shown.
    """

    settings: StoreSettings | None = None
    secrets: list[str] = field(default_factory=list)

    def read(self, node: nodes.Node, expander: Expander, secrets: SecretValues) -> None:
        if node.value is None:
            return
        fields = node.fields(keys_of(StoreSettings))
        if not fields:
            return
        if "kind" not in fields:
            node.fail('needs `kind`: "memory", "sqlite" or "postgres"')
            return
        kind = cast("StoreKind | None", fields["kind"].choice(*get_args(StoreKind)))
        if kind is None:
            return
        self.settings = StoreSettings(kind)
        path, url, key = (fields.get(name) for name in ("path", "url", "encryptionKey"))
        if path is not None and path.value is not None:
            self._read_path(path, expander, kind)
        if url is not None and kind != "postgres":
            url.fail(f'is only for "postgres"; "{kind}" has no address')
        elif url is not None:
            secrets.read(replace(url, secret=True), expander, self._take_url)
        elif kind == "postgres":
            node.fail('needs `url` too: "postgresql://user@host/database", or a variable with it: "${VAR}"')
        if key is not None and kind == "memory":
            key.fail('"memory" writes nothing to a disk, so nothing can be encrypted; remove `encryptionKey`')
        elif key is not None:
            key = replace(key, secret=True)
            if key.value == []:
                key.fail("must not be empty; to store without encryption, remove it")
            for item in key.items() if isinstance(key.value, list) else (key,):
                secrets.read(item, expander, self._take_key)

    def _read_path(self, node: nodes.Node, expander: Expander, kind: StoreKind) -> None:
        if kind != "sqlite":
            node.fail(f'is only for "sqlite"; "{kind}" has no file')
            return
        text = expander.nonblank(node).strip()
        if text == ":memory:" or text.startswith("file:"):
            node.fail('expected the path of a file; to keep nothing on disk, use "kind": "memory"')
        elif node.valid:
            self.settings = StoreSettings(kind, path=str(expander.path(node)))

    def _take_url(self, node: nodes.Node, text: str) -> None:
        # Most configurations have no such address, so most processes do not import this module.
        from codemode_mcp.stores.schema import BadAddress, address

        text = text.strip()
        try:
            address(text)
        except BadAddress as error:
            node.fail(f"is not the address of a database: {error}")
            return
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query))
        passwords = (parts.password, unquote(parts.password or ""), options.get("password"), options.get("sslpassword"))
        self.secrets += (text, *dict.fromkeys(filter(None, passwords)))
        assert self.settings is not None
        self.settings = replace(self.settings, url=text)

    def _take_key(self, node: nodes.Node, text: str) -> None:
        text = text.strip()
        key = key_of(text)
        if key is None:
            node.fail(f"expected random bytes in base64 or hexadecimal; {MAKE_A_KEY}")
        elif len(key) < MIN_KEY_BYTES:
            node.fail(f"a key needs at least {MIN_KEY_BYTES} bytes, but this key has {len(key)}; {MAKE_A_KEY}")
        elif not is_random(text, key):
            node.fail(f"this key is not random: it repeats itself, or consists of words; {MAKE_A_KEY}")
        else:
            self.secrets.append(text)
            assert self.settings is not None
            if key in self.settings.encryption_keys:
                node.fail("this key is given more than once; keep one")
            self.settings = replace(self.settings, encryption_keys=(*self.settings.encryption_keys, key))


def key_of(text: str) -> bytes | None:
    """Return the bytes of a key in hexadecimal or in base64, standard or URL-safe; None for another text."""
    if _HEX.fullmatch(text) and len(text) % 2 == 0:
        return bytes.fromhex(text)
    if not _BASE64.fullmatch(text):
        return None
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return None


def is_random(text: str, key: bytes) -> bool:
    """Return True if a key may be random. Fewer than one random key in a billion is rejected."""
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(set(key)) < _MIN_VALUES or len(steps) < _MIN_STEPS:
        return False
    # Words can be read as base64, but all their letters have the same case.
    return bool(_HEX.fullmatch(text)) or not (text.islower() or text.isupper())


MIN_TOKEN = 16
"""Minimum number of characters of a bearer token. Shorter tokens can be guessed."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_AUTHORITY = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?"
_HOST = nodes.text_that(
    re.compile(_AUTHORITY).fullmatch, 'expected "host" or "host:port", without wildcards, a scheme or a path'
)
_ORIGIN = nodes.text_that(
    re.compile(f"https?://{_AUTHORITY}").fullmatch,
    'expected an origin such as "https://app.example", without wildcards or a path',
)


@dataclass(slots=True)
class HttpSection:
    """The section `http`. The tokens in its settings are complete after `SecretValues.run`."""

    settings: HttpSettings = field(default_factory=HttpSettings)

    def read(self, node: nodes.Node, expander: Expander, secrets: SecretValues) -> None:
        if node.value is None:
            return
        lists = {
            "allowed_hosts": nodes.array_of(_HOST),
            "allowed_origins": nodes.array_of(_ORIGIN),
            "trusted_proxies": nodes.array_of(_network),
        }
        given = node.settings(nodes.readers_of(HttpSettings, oauth=lambda node: node, **lists))
        auth = given.pop("auth", None)
        self.settings = HttpSettings(**given)
        if auth is not None and auth.value is not None:
            self._read_auth(replace(auth, secret=True), expander, secrets)

    def _read_auth(self, node: nodes.Node, expander: Expander, secrets: SecretValues) -> None:
        fields = node.fields(("tokens", *keys_of(IssuerSettings)))
        oauth = {key: fields[key] for key in keys_of(IssuerSettings) if key in fields}
        if "tokens" in fields and oauth:
            node.fail(f"has `tokens` and `{next(iter(oauth))}`; keep either the tokens or the authorization server")
        elif "tokens" in fields:
            self._read_tokens(fields["tokens"], expander, secrets)
        elif oauth:
            self._read_oauth(node, oauth, expander)

    def _read_tokens(self, node: nodes.Node, expander: Expander, secrets: SecretValues) -> None:
        if not isinstance(node.value, list) or not node.value:
            node.fail_type('a non-empty array of {"name": ..., "token": ...}')
            return
        names: set[str] = set()
        for entry in node.items():
            fields = entry.fields(keys_of(StaticToken))
            missing = [key for key in ("name", "token") if key not in fields]
            if missing:
                if isinstance(entry.value, dict):
                    entry.fail(f"needs `{missing[0]}`")
                continue
            name = fields["name"].nonblank()
            if name in names:
                fields["name"].fail("another token has this name; give each token its own name")
            names.add(name)
            # Messages quote nothing of `auth` except groups, which are not secret.
            groups = (
                nodes.array_of(nodes.Node.nonblank)(replace(fields["groups"], secret=False))
                if "groups" in fields
                else ()
            )
            secrets.read(
                fields["token"], expander, partial(self._add, StaticToken(name, b"", tuple(dict.fromkeys(groups))))
            )

    def _add(self, principal: StaticToken, node: nodes.Node, token: str) -> None:
        if len(token) < MIN_TOKEN:
            node.fail(f"a token needs at least {MIN_TOKEN} characters; make one with `openssl rand -hex 32`")
        elif not _TOKEN.fullmatch(token):
            node.fail("a token may contain only letters, digits and -._~+/, and may end with =")
        else:
            digest = hashlib.sha256(token.encode()).digest()
            if any(other.digest == digest for other in self.settings.tokens):
                node.fail("another name has the same token; give each name its own token")
            tokens = (*self.settings.tokens, replace(principal, digest=digest))
            self.settings = replace(self.settings, tokens=tokens)

    def _read_oauth(self, node: nodes.Node, fields: Mapping[str, nodes.Node], expander: Expander) -> None:
        for key in ("issuer", "audience"):
            if key not in fields:
                node.fail(f"needs `{key}` too")
        given = nodes.read_fields(
            fields,
            {
                **dict.fromkeys(("issuer", "resource", "jwksUrl"), expander.text),
                "audience": expander.nonblank,
                "scopes": nodes.array_of(nodes.scope),
                "groupsClaim": nodes.Node.nonblank,
            },
        )
        if not node.valid:
            return
        for key, field_name in (("issuer", "issuer"), ("jwksUrl", "jwks_url")):
            if key in fields and fields[key].valid and not nodes.is_safe_url(given[field_name]):
                fields[key].fail("expected a URL with https; http is allowed for localhost only")
        resource = fields.get("resource", fields["audience"])
        given.setdefault("resource", given["audience"])
        if resource.valid and not nodes.is_resource_url(given["resource"]):
            resource.fail(
                "expected the URL that clients use for this server"
                if "resource" in fields
                else "is not a URL; add `resource`, the URL that clients use for this server"
            )
        self.settings = replace(self.settings, oauth=IssuerSettings(**given))


def _network(node: nodes.Node) -> str:
    text = node.text()
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        if node.valid:
            node.fail('expected an address or a network such as "10.0.0.7" or "10.0.0.0/8"')
        return text


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DEFAULT_ATTRIBUTE = "register"


def read_plugins(node: nodes.Node, expander: Expander) -> tuple[PluginSettings, ...]:
    """Return the plugins in the order of the file, including disabled ones."""
    if node.value is None:
        return ()
    return tuple(_plugin(name, replace(entry, secret=True), expander.fresh()) for name, entry in node.entries().items())


def _plugin(name: str, node: nodes.Node, expander: Expander) -> PluginSettings:
    if not _NAME.fullmatch(name):
        node.fail("the name of a plugin must begin with a letter, and have at most 64 letters, digits, `_` and `-`")
    missing: dict[str, dict[str, None]] = {}
    node = replace(node, report=replace(node.report, missing=missing))
    given = node.settings(
        nodes.readers_of(
            PluginSettings,
            module=lambda node: None if node.value is None else _module(node),
            config=lambda node: _config(node, expander),
            hooks=nodes.array_of(_grant),
            middleware=nodes.array_of(_grant),
        )
    )
    if "config" in given:
        given["secrets"] = (*expander.used, *_secrets(given["config"]))
    return PluginSettings(name, **given, unusable=nodes.missing_reasons(missing))


def _config(node: nodes.Node, expander: Expander) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        node.fail_type("an object with settings of the plugin")
        return {}
    return expander.value(node)  # type: ignore[no-any-return]


def _secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts under names such as `password`, which are secret."""
    match value:
        case str() if is_secret:
            yield value
        case dict():
            for key, item in value.items():
                yield from _secrets(item, is_secret=is_secret_name(key))
        case list():
            for item in value:
                yield from _secrets(item, is_secret=is_secret)


def _module(node: nodes.Node) -> str | None:
    """Return `module:attribute` or `path/file.py:attribute`, with `register` as the default attribute."""
    text = node.nonblank().strip()
    if not node.valid:
        return None
    module, colon, attribute = text.rpartition(":")
    if text.endswith(".py") or not colon:
        module, attribute = text, _DEFAULT_ATTRIBUTE
    if not _MODULE.fullmatch(attribute) or not (module.endswith(".py") or _MODULE.fullmatch(module)):
        node.fail(f'{nodes.quote(text)} is neither "package.module:function" nor "folder/file.py:function"')
    return f"{module}:{attribute}"


def _grant(node: nodes.Node) -> str:
    pattern = nodes.id_pattern(node)
    if pattern in nodes.ANNOTATION_TESTS:
        node.fail(f"{nodes.quote(pattern)} is an annotation test; grants are ids or globs of ids")
    return pattern
