"""The settings of all rooms, as frozen values. Sizes are in bytes.

A class is the definition of one section of the configuration file. A field with a docstring is a key of the section. It
gives the type, the default and, with `whole`, the range; its docstring is the text of docs/reference/configuration.md.
`config.nodes` makes the checks of the file from it, and scripts/reference.py the page and the JSON Schema. Fields that
are no keys of the section are explained in the docstring of the class.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.base.log_level import LogLevel as LogLevel  # noqa: TC001 - it is exported, and msgspec reads it
from upstream_clients.json_values import values_in

if TYPE_CHECKING:
    from upstream_clients.tools import Annotations


# The changes that the configuration makes to one tool of a server.


_MIN_SECRET: Final = 4
"""Minimum length of a text that is replaced in what a server sends."""

CONCEALED: Final = "(a secret of the configuration, not shown)"
"""The text that stands for a secret argument in a question to a person."""


@dataclass(frozen=True)
class ToolOverride:
    """One member of `override` in a server entry. Texts and annotations that are None stay as the server lists them.

    An argument is in one of `fixed`, `default` and `hidden` at most.

    Attributes:
        annotations: annotations of the operator. Those that are None stay as the server declares them.
        fixed: values of arguments that are sent with every call. Programs neither see nor give them.
        default: values of arguments that are sent if a program does not give them.
        hidden: arguments that programs neither see nor give, and that are not sent.
        secret: the names in `fixed` and `default` whose values are never shown.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Annotations | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict, repr=False)
    default: Mapping[str, Any] = field(default_factory=dict, repr=False)
    hidden: tuple[str, ...] = ()
    secret: frozenset[str] = frozenset()

    @cached_property
    def reserved(self) -> frozenset[str]:
        return frozenset((*self.fixed, *self.hidden))

    @cached_property
    def changes_arguments(self) -> bool:
        return bool(self.fixed or self.default or self.hidden)

    @property
    def secret_texts(self) -> frozenset[str]:
        """The texts of secret values. Short texts are left out: they are parts of many words."""
        values = [*self.fixed.items(), *self.default.items()]
        found = {text for name, value in values if name in self.secret for text in texts_in(value)}
        return frozenset(text for text in found if len(text) >= _MIN_SECRET)

    def unrecorded_in(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of arguments that are never recorded: fixed ones, and those with a secret default."""
        return frozenset(
            name
            for name, value in arguments.items()
            if name in self.fixed or (name in self.secret and value == self.default[name])
        )

    def concealing_secrets(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments with a text in place of each secret value that the configuration has set."""
        secret = self.unrecorded_in(arguments) & self.secret
        return {name: CONCEALED if name in secret else value for name, value in arguments.items()}


def texts_in(value: Any) -> Iterator[str]:
    """Yield the strings and the numbers in JSON data, apart from keys."""
    return (
        str(each) for each in values_in(value) if isinstance(each, str | int | float) and not isinstance(each, bool)
    )


Language = Literal["javascript", "typescript"]

Via = Literal["client", "terminal", "auto"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Clamp:
    """The range of a numeric setting. A value outside the range is replaced by the nearest bound."""

    lowest: int
    highest: int


def setting(kind: str = "", default: str = "", value: Any = None, *, shown: bool = True, **more: Any) -> Any:
    """Return the field of a key whose type, default or name differs from what its annotation and name say.

    Args:
        kind, default: the words of the reference for the type and the default. Without them, the field says both.
        value: the default, or a function that makes it.
        shown: False if `repr` leaves out the value.
        more: `key`, the name in the file, and `range`; see `whole`.
    """
    made = {"default_factory" if callable(value) else "default": value}
    return field(**made, repr=shown, metadata={"kind": kind, "default": default, **more})


def whole(default: Any, lowest: int, highest: int, said: str = "") -> Any:
    """Return the field of a whole number.

    Args:
        default: the default, or a function that makes it; `said` has the words for it.
        lowest, highest: the range; see `Clamp`.
    """
    return setting("", said, default, range=Clamp(lowest, highest))


def key_of(field: Field[Any]) -> str:
    """Return the key in the configuration file of a field. `max_bytes` becomes `maxBytes`."""
    return field.metadata.get("key") or re.sub(r"_(\w)", lambda match: match[1].upper(), field.name)


def keys_of(model: Any) -> tuple[str, ...]:
    return tuple(map(key_of, fields(model)))


def ranges(model: Any) -> dict[str, Clamp]:
    return {key_of(each): each.metadata["range"] for each in fields(model) if "range" in each.metadata}


SECRET: Final = 'string, `{"command": [...]}` or `{"keyring": "name"}`'
SECRETS: Final = f"{SECRET}, or a list of these"
EXPOSE: Final = "as the section `expose`"
_RULES: Final = "list of ids, globs or annotations"


@dataclass(frozen=True, slots=True)
class CodeModeSettings:
    """`tools.codeMode`."""

    enabled: bool = True
    """Code mode with `exec` and `wait`. `False` is pass-through: the tools of servers are exposed directly."""
    runtime: Literal["quickjs-wasi"] = "quickjs-wasi"
    """The only engine."""
    mode: Literal["only"] = "only"
    """The only mode."""
    languages: tuple[Language, ...] = ("javascript", "typescript")
    """Languages of `exec`: one of these, or both."""
    timeout_ms: int = whole(10_000, 100, 60_000)
    """Default time limit of one `exec` or `wait`."""
    memory_limit_bytes: int = whole(64 * MIB, 1 * MIB, 1 * GIB)
    """Memory limit of one program."""
    max_output_bytes: int = whole(32 * KIB, 1 * KIB, 10 * MIB)
    """Size limit of the value and output in one answer; see `onOutputLimit`. Four common clients cut or hide larger
    answers."""
    telemetry: Literal["meta", "result", "off"] = "meta"
    """Place of telemetry in an answer: `_meta["codemode-mcp/telemetry"]`, the structured result, or nowhere."""
    max_snapshot_bytes: int = whole(10 * MIB, 1 * KIB, 256 * MIB)
    """Size limit of one suspended program in the store."""
    max_pending_tool_calls: int = whole(16, 1, 128)
    """Nested calls of one run that may be in flight."""
    max_queued_tool_calls: int = whole(1024, 0, 100_000)
    """Nested calls of one run that may wait for their turn, first in, first out."""
    snapshot_ttl_seconds: int = whole(900, 1, 86_400)
    """Seconds for which a suspended program is kept after its last suspension."""
    approval_ttl_seconds: int = whole(259_200, 60, 2_592_000)
    """Seconds for which a suspended program is kept while it waits for a person, instead of `snapshotTtlSeconds`: from
    its last suspension, and again from each decision."""
    max_suspended_runs: int = whole(64, 1, 100_000)
    """Suspended programs in one store. The store in memory belongs to one process; other stores may be shared."""
    max_suspended_runs_per_owner: int | None = whole(None, 1, 100_000)
    """Suspended programs of one owner, or of one address without authentication. None: no separate limit over stdio, a
    quarter of `maxSuspendedRuns` (at least 8) over HTTP."""
    max_running_runs: int = whole(lambda: 2 * (os.cpu_count() or 1), 1, 1024, "twice the cores")
    """Programs that compute at the same time; others queue."""
    max_tool_result_bytes: int = whole(16 * MIB, 1 * KIB, 1 * GIB)
    """Size limit of one result of a server."""
    store_max_bytes: int = whole(64 * MIB, 1 * KIB, 16 * GIB)
    """Size limit of the offloaded results and `store` values of one owner."""
    connect_wait_ms: int = whole(8_000, 0, 60_000)
    """Time that an `exec` waits for servers that it names and that are still connecting."""
    max_request_ms: int = whole(45_000, 1000, 600_000)
    """Time limit of every request. A larger `timeoutMs` is cut to it."""
    search_default_limit: int = whole(8, 1, 50)
    """Default number of hits of a search."""
    max_search_limit: int = whole(50, 1, 50)
    """Largest number of hits of a search."""
    check: Literal["off", "note"] = "off"
    """Type check of programs: none, or a note about type errors. It needs `codemode-mcp setup --check`."""
    on_output_limit: Literal["offload", "fail"] = "offload"
    """Reaction to output beyond `maxOutputBytes`: keep it for `load`, or fail the program."""
    save_programs: bool = True
    """Programs may propose their text with `save_program`, as a saved program. A person decides about each proposal."""


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """`tools.allow`, `deny`, `ask` and `approved`, as globs on ids or annotation tests; and `--read-only`.

    Attributes:
        distrusted_servers: servers with `trustAnnotations: false`, whose annotations are ignored.
        server_allow: `allow` of server entries, as pairs of a server and globs on ids. Other tools of such a server are
            denied.
        annotations: `annotations` of overrides, by the id of the tool. They count before those of the server, and even
            if the server is not trusted.
    """

    allow: tuple[str, ...] | None = setting(_RULES, "everything")
    """Tools that programs may call; with `[]` none."""
    deny: tuple[str, ...] = setting(_RULES, value=())
    """Tools that they may not call; beats all others."""
    ask: tuple[str, ...] = setting(_RULES, value=())
    """Tools whose calls a person has to [approve](../approval.md)."""
    approved: tuple[str, ...] = setting(_RULES, value=())
    """Exceptions from `ask`."""
    read_only: bool = False
    """Allow only tools with a trusted annotation that marks them as read-only."""
    distrusted_servers: frozenset[str] = frozenset()
    server_allow: tuple[tuple[str, tuple[str, ...]], ...] = ()
    annotations: tuple[tuple[str, Annotations], ...] = ()


ExposeMode = Literal["code", "search", "direct", "auto"]


UI_TOOLS = "ui"
"""The pattern for tools with an app."""


@dataclass(frozen=True, slots=True)
class ExposeSettings:
    """`expose`, of the file or of a part of it. None: the value of the next wider part; see
    `server.exposure.selection`.
    """

    mode: ExposeMode | None = None
    """Tools that clients get. `code`: `exec` and `wait`. `search`: `search` and `call`. `direct`: `exec` and `wait`,
    and the tools of `direct`. `auto`: `direct` for a few small tools, otherwise `code`."""
    prompts: bool | None = None
    """List the prompts of servers."""
    resources: bool | None = None
    """List the resources and resource templates of servers."""
    programs: bool | None = None
    """List saved programs as prompts, which clients show as slash commands. Off by default."""
    direct: tuple[str, ...] | None = setting(default="by the mode")
    """Tools that are listed with their own schemas, beside those of the mode: globs on ids, annotation tests, and `ui`
    for tools with an app. None: all tools in the mode `direct`, none in other modes."""


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """One entry of `tools.contexts`: other rules for some callers.

    Attributes:
        rules: all rules for these callers, including those of `tools` that the context does not replace.
        own: the lists that the context replaces: `allow`, `deny`, `ask`, `approved`.
    """

    name: str
    callers: tuple[str, ...] = setting("list of callers", value=MISSING, key="for")
    """Callers: `stdio`, `stdio:<login name>`, `principal:<name>`, `group:<name>` or `anonymous`, where a name may be a
    glob. A caller has to match one of them. If there are none, only callers that name the context belong to it."""
    rules: PolicyRules = setting(value=MISSING)
    own: frozenset[str] = frozenset()
    expose: ExposeSettings = setting(EXPOSE, value=ExposeSettings)
    """Tools and items that these callers see directly; see [below](#expose)."""


@dataclass(frozen=True, slots=True)
class DuplicateSettings:
    """`tools.duplicates`: repeated identical calls of a tool that is not read-only."""

    max: int = whole(3, 1, 10_000)
    """Identical calls that are made without a warning."""
    action: Literal["warn", "deny", "off"] = "warn"
    """Reaction to further identical calls."""
    window_seconds: int = whole(600, 0, 86_400)
    """Seconds for which a call counts, for all programs of its owner. 0: a call counts for its own program only."""


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """One entry of `tools.budgets`: how much each caller may use each server in a window of time."""

    name: str
    server: str = "*"
    """Glob on names of servers; each server has an account of its own."""
    callers: tuple[str, ...] = setting("list of callers", "all", (), key="for")
    """Callers, as in `tools.contexts`; each has an account of its own. Empty: all callers."""
    calls: int | None = whole(None, 1, 10**9)
    """Calls that may be sent."""
    bytes: int | None = whole(None, 1, 10**15)
    """Bytes of results, as JSON."""
    running_ms: int | None = whole(None, 1, 10**12)
    """Milliseconds in which calls are in flight, added up."""
    window_seconds: int = whole(3600, 1, 31 * 86_400)
    """Length of the window, which moves with the time."""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """`tools.approval`: how a person is asked to approve calls."""

    via: Via = "auto"
    """`client`: in a dialog of the client, whose answer is final. `terminal`: in a terminal only. `auto`: in a dialog
    of the client, and in a terminal if the client dismisses the dialog within a second."""
    notify: tuple[str, ...] = ()
    """A program and its arguments, run when calls begin to wait for a person. The run id is added as last argument."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """One entry of `plugins`.

    Attributes:
        secrets: secret values in `config`.
        unusable: the reason why the plugin is refused before it is loaded, such as an unset variable in `config`.
    """

    name: str
    module: str | None = None
    """`module:attribute`, or `file.py:attribute` from the folder of the configuration file. None: the entry point of
    this name in the group `codemode_mcp.plugins`."""
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Configuration of the plugin. The plugin checks it."""
    hooks: tuple[str, ...] = ()
    """Ids, or globs on ids, of other tools whose calls its `before_tool_call` hooks may see."""
    middleware: tuple[str, ...] = ()
    """Ids, or globs on ids, of other tools whose results its middleware may see."""
    enabled: bool = True
    """`False` disables the plugin."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """`audit`."""

    trajectory: str | None = None
    """The file for events, one line of JSON each. None: events are not recorded."""
    include_inputs: bool = False
    """Record arguments and programs in full, not only their shape and digest."""
    max_bytes: int = whole(64 * MIB, 64 * KIB, 16 * GIB)
    """Size at which the file is renamed to `<file>.1`, `<file>.1` to `<file>.2`, and so on."""
    files: int = whole(4, 1, 1000)
    """Renamed files to keep; the oldest is deleted."""
    recordings: str | None = None
    """A folder for recordings, one file for each program; also `serve --record`. None: no files are written."""
    recording_files: int = whole(1000, 1, 100_000)
    """Files to keep in that folder; the oldest is deleted."""
    recording_bytes: int = whole(GIB, 1 * MIB, 1024 * GIB)
    """Size of all files in that folder; the oldest is deleted."""
    keep_recording_bytes: int = whole(16 * MIB, 0, 4 * GIB)
    """Memory for the recordings of the latest programs, which `codemode-mcp runs export` writes to a file. 0: none are
    kept."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """`instance`: the process that serves all clients of this file and user over stdio."""

    shared: bool = True
    """Serve all clients by one process. False: each client has a process of its own, as with `serve --private`."""
    idle_seconds: int = whole(600, 0, 10**9)
    """Seconds after which the process ends, once its last client has left and no call is in flight; 0: never."""


@dataclass(frozen=True, slots=True)
class UiSettings:
    """`ui`: the page that `codemode-mcp ui` opens in a browser."""

    enabled: bool = True
    """False: the page cannot be opened."""
    decide: bool = True
    """Let a person decide about calls and change things on the page. False: the page only shows them."""
    port: int = whole(0, 0, 65_535)
    """Port of the page on 127.0.0.1. 0: any free port."""


StoreKind = Literal["memory", "sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`store`: the store of suspended programs and of their `store` values."""

    kind: StoreKind
    """`memory`: lost when the process exits. `sqlite`: a file, for the processes of one user on one machine.
    `postgres`: a database, for any number of machines."""
    path: str | None = None
    """The file of `sqlite`, relative to the configuration. None: `runs.sqlite3` in the user's state folder."""
    url: str | None = setting(SECRET, "required for `postgres`", shown=False)
    """The database of `postgres`: `postgresql://user:password@host:5432/database`."""
    encryption_keys: tuple[bytes, ...] = setting(SECRETS, "none", (), shown=False, key="encryptionKey")
    """32 random bytes in base64 or hexadecimal. The first key encrypts, and each key decrypts. Without keys nothing is
    encrypted."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One entry of `http.auth.tokens`, with a digest in place of the token."""

    name: str
    """Name of the principal."""
    digest: bytes = setting(SECRET, value=MISSING, key="token")
    """Bearer token: at least 16 letters, digits and `-._~+/`."""
    groups: tuple[str, ...] = ()
    """Groups of the principal for policy."""


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """`http.auth` with an issuer: access tokens of an authorization server."""

    issuer: str
    """Issuer exactly as in the tokens."""
    audience: str
    """Audience of the tokens: the URL that clients use for this server."""
    resource: str = setting(default="`audience`", value=MISSING)
    """URL of this server, if `audience` is not a URL."""
    scopes: tuple[str, ...] = ()
    """Scopes that a token must have. All of them are required."""
    jwks_url: str | None = None
    """URL of the keys. None: the URL in the issuer's metadata."""
    groups_claim: str = "groups"
    """Claim with the groups of the caller, for policy."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`http`: authentication and limits of `serve --transport http`. `tokens` is a key of `auth`."""

    tokens: tuple[StaticToken, ...] = setting("list of objects", "none", ())
    """Bearer tokens; see [above](#httpauthtokens)."""
    oauth: IssuerSettings | None = setting("object", key="auth")
    """Authentication: `tokens`, or an authorization server."""
    allow_unauthenticated: bool = False
    """Serve without authentication on an address that other machines can reach."""
    allowed_hosts: tuple[str, ...] = ()
    """Allowed values of the header `Host`, besides the address of the listener: `host` or `host:port`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may send requests and read answers: `https://host`."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose header `X-Forwarded-For` is trusted."""
    max_request_bytes: int = whole(4 * MIB, 1 * KIB, 256 * MIB)
    """Size limit of the body of a request."""
    request_read_ms: int = whole(15_000, 100, 300_000)
    """Time limit for the headers of a request, and again for its body."""
    requests_per_second: int = whole(100, 1, 100_000)
    """Requests of one principal, or of one address without authentication."""
    request_burst: int = whole(1000, 1, 1_000_000)
    """Requests that may arrive together beyond that rate."""
    max_connections: int = whole(2048, 1, 100_000)
    """Open connections."""
    max_sessions: int = whole(2048, 1, 100_000)
    """Sessions of legacy clients."""
    session_idle_seconds: int = whole(1800, 1, 86_400)
    """Seconds without requests after which a session ends."""
    shutdown_grace_ms: int = whole(2000, 0, 600_000)
    """Time for open calls to end when the server is stopped."""

    @property
    def authenticates(self) -> bool:
        return bool(self.tokens) or self.oauth is not None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`log`, `--log-level`, `--log-file`."""

    level: LogLevel = "info"
    """Lowest level of messages in the log; also `--log-level`."""
    file: str | None = None
    """A file for the log instead of stderr, relative to the configuration; also `--log-file`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The behaviour of the clients whose name matches a glob.

    Attributes:
        client: glob for the name in `clientInfo`, without regard to case.
        evidence: the measured client and version, a colon, and the observations.
    """

    client: str = "*"
    shows_structured: bool = False
    """The client shows its model `structuredContent` instead of `content`. Such a client gets neither structured
    content nor an output schema, so that its model reads the text."""
    loses_pictures: bool = False
    """The client drops pictures of a result that has `structuredContent`."""
    defers_tools: bool = False
    """The client leaves tools out of the first request to its model, and offers its own tool search."""
    max_output_bytes: int | None = whole(None, 1 * KIB, 10 * MIB)
    """Largest answer in bytes that the client shows whole. None: no limit is known."""
    sends_null: bool = False
    """The client sends null for arguments that the model left out."""
    adds_arguments: tuple[str, ...] = ()
    """Arguments that the client adds to every call. They are ignored without a note."""
    repeats_failures: bool = False
    """The client shows its model all forms of a failure, and its `_meta`. Such a client gets only the text of a
    failure."""
    mishandles_links: bool = False
    """The client fails on a result with a resource link, or shows its model the whole resource. Such a client gets no
    links."""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class ProfileOverride:
    """One entry of `clients`.

    Attributes:
        client: a glob on the name in `clientInfo`.
        values: fields of `Profile` with their values, in a form that can be hashed.
    """

    client: str
    values: tuple[tuple[str, Any], ...]
    expose: ExposeSettings = setting(EXPOSE, value=ExposeSettings)
    """Tools and items that these clients see directly; see [above](#expose)."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """`tools`.

    Attributes:
        clients: the top-level section `clients`: changes to the profiles of clients.
        overrides: `override` of server entries, by the id of the tool.
        expose: the top-level section `expose`.
        expose_servers: `expose` of server entries, by the name of the server.
    """

    code_mode: CodeModeSettings = setting("object, `true` or `false`", "`true`", CodeModeSettings)
    """Code mode; see [below](#toolscodemode). `false` is [pass-through](../passthrough.md)."""
    policy: PolicyRules = field(default_factory=PolicyRules)
    contexts: tuple[PolicyContext, ...] = setting("object", "`{}`", ())
    """Other rules for some callers, by name; see [below](#toolscontextsname)."""
    duplicates: DuplicateSettings = setting("object", value=DuplicateSettings)
    """Repeated identical calls; see [below](#toolsduplicates)."""
    budgets: tuple[BudgetSettings, ...] = setting("object", "`{}`", ())
    """Limits on the use of servers by callers, by name; see [below](#toolsbudgetsname)."""
    approval: ApprovalSettings = setting("object", value=ApprovalSettings)
    """Approval of calls by a person; see [below](#toolsapproval)."""
    result_format: Literal["markdown", "plain"] = "markdown"
    """Format of results for the model."""
    esbuild: str | None = None
    """Path of an esbuild binary, to use instead of the bundled or fetched one."""
    clients: tuple[ProfileOverride, ...] = ()
    overrides: Mapping[str, ToolOverride] = field(default_factory=dict)
    expose: ExposeSettings = ExposeSettings()
    expose_servers: Mapping[str, ExposeSettings] = field(default_factory=dict)
