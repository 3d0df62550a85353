"""The sections `mcpServers` and `servers`, in the form that Claude Desktop, Cursor and VS Code share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.base.did_you_mean import normalize_name
from codemode_mcp.base.settings import ExposeSettings, PolicyRules, ToolOverride, setting, texts_in
from codemode_mcp.catalog.entries import mcp_id
from codemode_mcp.config.literals import written_entry
from codemode_mcp.config.nodes import Node, array_of, quote, readers_of, text_that, tool_pattern
from codemode_mcp.config.server_entry import KEYS, EntryReader, Table, unusable_spec
from codemode_mcp.config.tools import read_server_expose
from codemode_mcp.rules.trust.comparison import MODES, Mode
from declarations.untrusted_text import HIDDEN
from upstream_clients.json_values import values_in
from upstream_clients.redaction import is_named_secret
from upstream_clients.spec import OAuthSettings, UpstreamSpec
from upstream_clients.tools import Annotations, JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.secret_values import SecretValues

    SetArgument = Callable[[str, Literal["fixed", "default"], str, str], None]
    """A function that takes the id of a tool, `fixed` or `default`, the name of an argument, and its value."""


ROOT_KEYS = ("mcpServers", "servers")

_QUOTED_KEYS = (
    *("type", "transport", "timeoutMs", "disabled", "allow", "deny", "trustAnnotations", "trust"),
    *("start", "share", "idleSeconds", "maxConcurrentCalls", "connectTimeoutMs", "refreshSeconds"),
)
"""Keys whose values cannot be secret, so that messages may quote them."""

FOREIGN_KEYS: Mapping[str, str] = {
    "autoApprove": "`tools.approved`",
    "alwaysAllow": "`tools.approved`",
    "disabledTools": "`deny`",
    "envVars": "`env`",
    **dict.fromkeys(("icon", "gallery", "dev", "version"), ""),
}
"""Keys of other clients, which are ignored. The value is the key to use instead, or an empty string."""

_EXAMPLE = '{"command": "npx", "args": ["-y", "PACKAGE"]}'
_NOT_IN_A_NAME = re.compile("[:*?\0-\x1f\x7f\ud800-\udfff]")
_PROGRAM = re.compile(r"[\s\[]*the\s+program\s*(?:\]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Servers:
    """The server entries. The collections are the mutable state, to which each entry adds.

    Attributes:
        specs: the enabled servers. Their secret values are complete after `SecretValues.run`.
        disabled: the names of servers with `disabled: true`.
        distrusted: the names of servers with `trustAnnotations: false`.
        trust: the values of `trust`, by the names of servers.
        written: the command lines and URLs of the enabled servers; see `literals`.
        expose: the values of `expose`, by the names of servers.
        allow: the names of servers with their lists `allow`, as globs on ids.
        deny: the lists `deny` of all entries, as globs on ids.
        overrides: the overrides of all entries, by the id of the tool. Their values are complete after
            `SecretValues.run`.
        missing: values to which an entry refers and that cannot be had, by the name of the server; see `Report`. The
            messages are complete after `SecretValues.run`.
    """

    specs: dict[str, UpstreamSpec] = field(default_factory=dict)
    disabled: list[str] = field(default_factory=list)
    distrusted: list[str] = field(default_factory=list)
    trust: dict[str, Mode] = field(default_factory=dict)
    written: dict[str, JsonObject] = field(default_factory=dict)
    expose: dict[str, ExposeSettings] = field(default_factory=dict)
    allow: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    overrides: dict[str, ToolOverride] = field(default_factory=dict)
    missing: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)

    def set_aside(self) -> None:
        """Make the servers unusable that lack a value. The others do not depend on it."""
        for name, missing in self.missing.items():
            if missing:
                self.specs[name] = unusable_spec(name, self.specs[name].transport, missing)

    def add_to(self, rules: PolicyRules) -> PolicyRules:
        return replace(
            rules,
            deny=(*rules.deny, *self.deny),
            distrusted_servers=frozenset(self.distrusted),
            server_allow=tuple(self.allow),
            annotations=tuple(
                (tool_id, each.annotations) for tool_id, each in self.overrides.items() if each.annotations is not None
            ),
        )

    def add_rules(self, name: str, fields: Mapping[str, Node]) -> None:
        patterns = array_of(partial(tool_pattern, name))
        if "trustAnnotations" in fields and not fields["trustAnnotations"].flag():
            self.distrusted.append(name)
        if "trust" in fields:
            self.trust[name] = fields["trust"].choice(*MODES) or "pin"
        if "expose" in fields:
            self.expose[name] = read_server_expose(fields["expose"])
        if "allow" in fields:
            self.allow.append((name, patterns(fields["allow"])))
        if "deny" in fields:
            self.deny.extend(patterns(fields["deny"]))

    def set_value(self, name: str, table: Table, key: str, value: str) -> None:
        """Add a value from a program or from the keyring to the spec of a server. It is secret, whatever it is."""
        spec = self.specs[name]
        match table:
            case "env":
                spec = replace(spec, env={**spec.env, key: value}, secrets=(*spec.secrets, value))
            case "headers":
                secrets = (*spec.secrets, value, *value.split()[1:])
                spec = replace(spec, headers={**spec.headers, key: value}, secrets=secrets)
            case "auth":
                spec = _with_auth_value(spec, key, value)
        self.specs[name] = spec

    def set_argument(self, name: str, tool_id: str, table: Literal["fixed", "default"], key: str, value: str) -> None:
        """Add a value from a program or from the keyring to an override, and to the secrets of its server."""
        override = self.overrides[tool_id]
        if table == "fixed":
            self.overrides[tool_id] = replace(override, fixed={**override.fixed, key: value})
        else:
            self.overrides[tool_id] = replace(override, default={**override.default, key: value})
        self.specs[name] = replace(self.specs[name], secrets=(*self.specs[name].secrets, value))


def read_servers(
    roots: Mapping[str, Node], expander: Expander, secrets: SecretValues, *, sets_aside: bool = False
) -> Servers:
    """Read all entries.

    Args:
        roots: the values of those `ROOT_KEYS` that the file has.
        sets_aside: True to add missing values to `Servers.missing`. Otherwise they are problems.
    """
    servers = Servers()
    names: set[str] = set()
    for root in roots.values():
        for name, node in replace(root, secret=True).entries(f'{{"files": {_EXAMPLE}}}').items():
            if name in names:
                node.fail("`mcpServers` has a server with the same name; keep one of them")
                continue
            names.add(name)
            _check_name(name, node)
            if sets_aside:
                servers.missing[name] = {}
                node = replace(node, report=replace(node.report, missing=servers.missing[name]))
            fields = {
                key: replace(member, secret=key not in _QUOTED_KEYS)
                for key, member in node.fields(KEYS, foreign=FOREIGN_KEYS, example=_EXAMPLE).items()
            }
            if "disabled" in fields and fields["disabled"].flag():
                # The other keys are not checked: a server is often disabled because its variables or files are missing.
                node.note("disabled")
                servers.disabled.append(name)
            elif isinstance(node.value, dict):
                servers.add_rules(name, fields)
                own = expander.fresh()
                if "override" in fields:
                    set_argument = partial(servers.set_argument, name)
                    servers.overrides.update(read_overrides(fields["override"], name, own, secrets, set_argument))
                reader = EntryReader(name, node, fields, own, secrets, partial(servers.set_value, name))
                spec = reader.spec()
                if spec is not None and spec.is_api and servers.trust.get(name) == "follow":
                    spec = replace(spec, is_pinned=False)
                if spec is not None:
                    servers.specs[name] = spec
                    servers.written[name] = written_entry(node.value)
    return servers


def _with_auth_value(spec: UpstreamSpec, key: str, value: str) -> UpstreamSpec:
    if spec.credentials is not None:
        credentials: Any = spec.credentials  # one of several classes; `key` is a field of this one
        return replace(spec, credentials=replace(credentials, **{key: value}))
    return replace(spec, oauth=replace(spec.oauth or OAuthSettings(), client_secret=value))


def _check_name(name: str, node: Node) -> None:
    if not name.strip():
        node.fail("a server needs a name")
    elif _NOT_IN_A_NAME.search(name):
        # These characters have a meaning in ids and patterns. A rule for one server could match tools of another.
        node.fail("a server name cannot contain `:`, `*`, `?` or control characters")
    elif any(_PROGRAM.match(HIDDEN.sub(blank, name)) for blank in ("", " ")):
        # A question of a server begins with the name of the server. A question of a program begins with these words.
        node.fail('a server cannot be named "the program", because questions of programs are shown under this name')


_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A name of a tool (MCP 2025-11-25, server/tools)."""


@dataclass(init=False, repr=False, eq=False)
class OverrideKeys:
    """The keys of the override of one tool."""

    name: str = setting(default="what the server says")
    """The name in programs. Ids keep the name that the server lists."""
    title: str = setting(default="what the server says")
    """The title."""
    description: str = setting(default="what the server says")
    """The description, in declarations and for the search."""
    annotations: Any = setting("object", "what the server says")
    """Annotations in place of the server's; see [below](#mcpserversnameoverridenameannotations)."""
    arguments: Any = setting("object", "`{}`")
    """Fixed, default and hidden arguments; see [below](#mcpserversnameoverridenamearguments)."""


@dataclass(init=False, repr=False, eq=False)
class HintKeys:
    """The keys of `annotations` of an override."""

    read_only_hint: bool = setting(default="what the server says")
    """The tool changes nothing."""
    destructive_hint: bool = setting(default="what the server says")
    """The tool may destroy or overwrite."""
    idempotent_hint: bool = setting(default="what the server says")
    """A second call with the same arguments changes nothing more."""
    open_world_hint: bool = setting(default="what the server says")
    """The tool reaches beyond its server."""


@dataclass(init=False, repr=False, eq=False)
class ArgumentKeys:
    """The keys of `arguments` of an override."""

    fixed: Any = setting("object", "`{}`")
    """Values that are sent with every call, and that programs neither see nor give."""
    default: Any = setting("object", "`{}`")
    """Values that are sent if a program does not give the argument."""
    hidden: Any = setting("list of arguments", "`[]`")
    """Arguments that are not sent, and that programs neither see nor give."""


_OVERRIDE_EXAMPLE = '{"create_issue": {"arguments": {"fixed": {"owner": "acme"}}}}'


def read_overrides(
    node: Node, server: str, expander: Expander, secrets: SecretValues, set_argument: SetArgument
) -> dict[str, ToolOverride]:
    """Return the overrides of a server, by the id of the tool.

    Args:
        expander: the expander of the entry. Secret values are added to its `used`.
        set_argument: called by `secrets` with each value that is known only later.
    """
    node = replace(node, secret=False)
    overrides: dict[str, ToolOverride] = {}
    renamed: dict[str, str] = {}
    members = node.entries(_OVERRIDE_EXAMPLE)
    for tool, item in members.items():
        if not tool.strip():
            item.fail("needs the name of a tool")
        tool_id = mcp_id(server, tool)
        override = _Reader(item, expander, secrets, partial(set_argument, tool_id)).override()
        overrides[tool_id] = override
        if override.name is not None:
            first = renamed.setdefault(normalize_name(override.name) or override.name, tool)
            if first != tool:
                item.fail(f"gives the tool the same name as the override of {quote(first)}; choose another `name`")
    unnamed = {normalize_name(tool): tool for tool in members if overrides[mcp_id(server, tool)].name is None}
    for spelling, tool in renamed.items():
        if spelling in unnamed:
            other = quote(unnamed[spelling])
            members[tool].fail(f"gives the tool the name of the tool {other}; choose another `name`")
    return overrides


class _Reader:
    """The reader of the override of one tool."""

    def __init__(
        self,
        node: Node,
        expander: Expander,
        secrets: SecretValues,
        set_argument: Callable[[Literal["fixed", "default"], str, str], None],
    ) -> None:
        self._node = node
        self._expander = expander
        self._secrets = secrets
        self._set_argument = set_argument
        self._secret: set[str] = set()

    def override(self) -> ToolOverride:
        given = self._node.settings(
            readers_of(
                OverrideKeys,
                name=text_that(_NAME.fullmatch, "expected 1 to 128 letters, digits, `_`, `-`, `.` and `/`"),
                title=Node.nonblank,
                description=Node.text,
                annotations=_annotations,
                arguments=self._arguments,
            )
        )
        arguments = given.pop("arguments", {})
        return ToolOverride(**given, **arguments)

    def _arguments(self, node: Node) -> dict[str, Any]:
        given = node.settings(
            readers_of(
                ArgumentKeys,
                fixed=partial(self._values, "fixed"),
                default=partial(self._values, "default"),
                hidden=array_of(Node.nonblank),
            )
        )
        places: dict[str, str] = {}
        for place, names in given.items():
            for name in names:
                if name in places:
                    node.fail(
                        f"the argument {quote(name)} is in `{places[name]}` and in `{place}`; keep it in one of them. "
                        "An argument in `fixed` is hidden too"
                    )
                places.setdefault(name, place)
        return {**given, "secret": frozenset(self._secret)}

    def _take(self, table: Literal["fixed", "default"], name: str, _: Node, text: str) -> None:
        self._set_argument(table, name, text)

    def _values(self, table: Literal["fixed", "default"], node: Node) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, item in replace(node, secret=True).entries().items():
            if isinstance(item.value, dict) and len(item.value) == 1 and item.value.keys() & {"command", "keyring"}:
                self._secret.add(name)
                values[name] = ""  # until `set_argument` is called
                self._secrets.read(item, self._expander, partial(self._take, table, name))
                continue
            before = len(self._expander.used)
            values[name] = value = self._expander.value(item)
            texts = list(texts_in(value))
            if not all(map(_is_finite, values_in(value))):
                item.fail("NaN and Infinity are not JSON")
            if len(self._expander.used) > before or any(
                is_named_secret(name, text) or without_tokens(text) != text for text in texts
            ):
                self._secret.add(name)
                self._expander.used.extend(texts)
        return values


def _annotations(node: Node) -> Annotations:
    given = node.settings(readers_of(HintKeys))
    values = {key.removesuffix("_hint"): value for key, value in given.items()}
    if values.get("read_only") and values.get("destructive"):
        node.fail("`readOnlyHint` and `destructiveHint` contradict each other; keep one")
    return Annotations(**values)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
