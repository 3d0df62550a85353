"""The settings of all packages, as frozen values with the documented defaults.

`config` builds them from a file; nothing here reads one, nor the environment. Times are milliseconds, sizes bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


Language = Literal["javascript", "typescript"]

Via = Literal["client", "terminal", "auto"]

LogLevel = Literal["debug", "info", "warning", "error"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class CodeModeSettings:
    """`tools.codeMode`."""

    enabled: bool = True
    """`False` is pass-through: upstream tools are exposed directly, without `exec` and `wait`."""
    languages: tuple[Language, ...] = ("javascript", "typescript")
    """Languages of `exec`; a non-empty subset of these."""
    timeout_ms: int = 10_000
    """Wall clock of one `exec` or `wait`."""
    memory_limit_bytes: int = 64 * MIB
    """Memory of one program."""
    max_output_bytes: int = 32 * KIB
    """Value and output of one answer; see `onOutputLimit`. Four common clients cut or hide more."""
    telemetry: Literal["meta", "result", "off"] = "meta"
    """Place of telemetry in an answer: `_meta["codemode-mcp/telemetry"]`, the structured result, or nowhere."""
    max_snapshot_bytes: int = 10 * MIB
    """Stored form of one suspended program."""
    max_pending_tool_calls: int = 16
    """Nested calls of one run in flight."""
    max_queued_tool_calls: int = 1024
    """Nested calls of one run that wait for their turn, first in first out."""
    snapshot_ttl_seconds: int = 900
    """Seconds for which a suspended program is kept, from its last suspension."""
    max_suspended_runs: int = 64
    """Suspended programs of one store: of the process in memory, else of all processes that share it."""
    max_suspended_runs_per_owner: int | None = None
    """Suspended programs of one owner; without authentication, of one address. None: all there are for the one owner
    over stdio, a quarter of them (at least 8) for each over HTTP."""
    max_running_runs: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    """Guests that compute concurrently; others queue."""
    max_tool_result_bytes: int = 16 * MIB
    """One result of an upstream server."""
    store_max_bytes: int = 64 * MIB
    """Offloaded results and `store` values of one owner."""
    connect_wait_ms: int = 8_000
    """Time that an `exec` waits for servers that it names and that are still connecting."""
    max_request_ms: int = 45_000
    """Every request is answered by then; a larger `timeoutMs` is cut to it."""
    search_default_limit: int = 8
    """Hits of a search that names no limit."""
    max_search_limit: int = 50
    """Hits of a search at most."""
    on_output_limit: Literal["offload", "fail"] = "offload"
    """Treatment of output beyond `maxOutputBytes`: kept for `load`, or the end of the program."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """The range of one numeric setting; a value outside is moved to the nearest end."""

    lowest: int
    highest: int


CLAMPS: dict[str, Clamp] = {
    "timeoutMs": Clamp(100, 60_000),
    "memoryLimitBytes": Clamp(1 * MIB, 1 * GIB),
    "maxOutputBytes": Clamp(1 * KIB, 10 * MIB),
    "maxSnapshotBytes": Clamp(1 * KIB, 256 * MIB),
    "maxPendingToolCalls": Clamp(1, 128),
    "maxQueuedToolCalls": Clamp(0, 100_000),
    "snapshotTtlSeconds": Clamp(1, 86_400),
    "maxSuspendedRuns": Clamp(1, 100_000),
    "maxSuspendedRunsPerOwner": Clamp(1, 100_000),
    "maxRunningRuns": Clamp(1, 1024),
    "maxToolResultBytes": Clamp(1 * KIB, 1 * GIB),
    "storeMaxBytes": Clamp(1 * KIB, 16 * GIB),
    "connectWaitMs": Clamp(0, 60_000),
    "maxRequestMs": Clamp(1000, 600_000),
    "searchDefaultLimit": Clamp(1, 50),
    "maxSearchLimit": Clamp(1, 50),
}
"""Bounds of numbers, by the key in the configuration file."""


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """`tools.allow`, `deny`, `ask`, `approved`: id globs or annotation tests, and `--read-only`."""

    allow: tuple[str, ...] | None = None
    """`None`: everything is allowed. An empty tuple: nothing is."""
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    read_only: bool = False
    """Admit only tools that are read-only by their (trusted) annotations."""
    distrusted_servers: frozenset[str] = frozenset()
    """Servers with `trustAnnotations: false`: treated as if they declared no annotations."""
    server_allow: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """`allow` of server entries, as (server, id globs): of a server named here, everything that none of its globs
    matches is denied."""


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """One of `tools.contexts`: other rules for some callers.

    Attributes:
        callers: `stdio`, `stdio:<login name>`, `principal:<name>`, `group:<name>` or `anonymous`; one of them suffices.
            Names are globs.
        rules: all that count for them, those of `tools` that the context says nothing of included.
        own: the lists that the context gives itself: `allow`, `deny`, `ask`, `approved`.
    """

    name: str
    callers: tuple[str, ...]
    rules: PolicyRules
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DuplicateSettings:
    """`tools.duplicates`: the same call again and again, of a tool that is not read-only."""

    max: int = 3
    """Identical calls that are made without a word."""
    action: Literal["warn", "deny", "off"] = "warn"
    """The consequence of further ones."""
    window_seconds: int = 600
    """Time that a call counts, for all programs of its owner. 0: calls count for their own program alone, as long as
    it lives."""


DUPLICATE_CLAMPS: dict[str, Clamp] = {"max": Clamp(1, 10_000), "windowSeconds": Clamp(0, 86_400)}
"""Bounds of the numbers of `tools.duplicates`."""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """`tools.approval`: the way in which a person is asked to approve calls."""

    via: Via = "auto"
    """`client`: by the client's dialog, whose answer is final. `terminal`: never by the client. `auto`: by the client;
    a question that it dismisses within a second counts as not asked, and the call waits for the terminal."""
    notify: tuple[str, ...] = ()
    """A program and its arguments, run when calls begin to wait for a person. The run id is added as last argument."""


@dataclass(frozen=True, slots=True, eq=False)
class PluginSettings:
    """One of `plugins`."""

    name: str
    module: str | None = None
    """`module:attribute`, or `file.py:attribute` from the folder of the configuration file; None: the entry point of
    this name in the group `codemode_mcp.plugins`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Configuration for the plugin, which checks it."""
    hooks: tuple[str, ...] = ()
    """Ids, or globs of them, of other tools that its `before_tool_call` hooks may see."""
    middleware: tuple[str, ...] = ()
    """Ids, or globs of them, of other tools whose results its middleware may see."""
    enabled: bool = True
    """`False` leaves the plugin out."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of variables that went into `config`."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """`audit`."""

    trajectory: str | None = None
    """The file that events are written to, a line of JSON each; None: none."""
    include_inputs: bool = False
    """Record arguments and sources, and not only their shape and digest."""
    max_bytes: int = 64 * MIB
    """Bytes of one file; then it is put aside as `<file>.1`, and so on."""
    files: int = 4
    """Files that are put aside before the oldest is deleted."""


StoreKind = Literal["memory", "sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`store`: where suspended programs are, and what they keep."""

    kind: StoreKind
    """`memory`: in the process, and gone with it; `sqlite`: in a file, for the processes of one user on one machine;
    `postgres`: in a database, for any number of machines."""
    path: str | None = None
    """The file of `sqlite`, relative to the configuration; None: `runs.sqlite3` in the user's state folder."""
    url: str | None = field(default=None, repr=False)
    """The database of `postgres`: `postgresql://user:password@host:5432/database`."""
    encryption_keys: tuple[bytes, ...] = field(default=(), repr=False)
    """The first encrypts, each decrypts; none: nothing is encrypted."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One of `http.auth.tokens`. Of the token itself only a digest is kept."""

    name: str
    """Name of the principal."""
    digest: bytes
    """SHA-256."""
    groups: tuple[str, ...] = ()
    """Groups of the principal for policy."""


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """`http.auth` with an issuer: access tokens of an authorization server."""

    issuer: str
    """Issuer as it stands in the tokens, character for character."""
    audience: str
    """Audience of the tokens; the URL of this server, as clients have it."""
    resource: str
    """URL of this server, where `audience` is something else."""
    scopes: tuple[str, ...] = ()
    """A token needs all of them."""
    jwks_url: str | None = None
    """URL of the keys; None: the one in the issuer's metadata."""
    groups_claim: str = "groups"
    """Claim of a token with the groups of its subject for policy."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`http`: what `serve --transport http` lets in, and how much of it."""

    tokens: tuple[StaticToken, ...] = ()
    """`auth.tokens`."""
    oauth: IssuerSettings | None = None
    """`auth` with an issuer."""
    allow_unauthenticated: bool = False
    """Listen without authentication on an address that other machines reach."""
    allowed_hosts: tuple[str, ...] = ()
    """Further values of `Host`, besides the address of the listener: `host` or `host:port`."""
    allowed_origins: tuple[str, ...] = ()
    """Pages that may ask and read answers: `https://host`."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` is believed."""
    max_request_bytes: int = 4 * MIB
    """Body of a request."""
    request_read_ms: int = 15_000
    """Time for the headers of a request, and again for its body."""
    requests_per_second: int = 100
    """Requests of one principal, or of one address without authentication."""
    request_burst: int = 1000
    """Requests that may come together."""
    max_connections: int = 2048
    """Connections that may be open."""
    max_sessions: int = 2048
    """Sessions of legacy clients."""
    session_idle_seconds: int = 1800
    """After which a session without requests ends."""
    shutdown_grace_ms: int = 2000
    """Time for open calls, once the server has been told to end."""

    @property
    def authenticates(self) -> bool:
        return bool(self.tokens) or self.oauth is not None


AUDIT_CLAMPS: dict[str, Clamp] = {
    "maxBytes": Clamp(64 * KIB, 16 * GIB),
    "files": Clamp(1, 1000),
}
"""Bounds of numbers of `audit`."""

HTTP_CLAMPS: dict[str, Clamp] = {
    "maxRequestBytes": Clamp(1 * KIB, 256 * MIB),
    "requestReadMs": Clamp(100, 300_000),
    "requestsPerSecond": Clamp(1, 100_000),
    "requestBurst": Clamp(1, 1_000_000),
    "maxConnections": Clamp(1, 100_000),
    "maxSessions": Clamp(1, 100_000),
    "sessionIdleSeconds": Clamp(1, 86_400),
    "shutdownGraceMs": Clamp(0, 600_000),
}
"""Bounds of numbers of `http`."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`log`, `--log-level`, `--log-file`."""

    level: LogLevel = "info"
    """Level of the log; also `--log-level`."""
    file: str | None = None
    """A file in place of stderr, relative to the configuration; also `--log-file`."""


@dataclass(frozen=True, slots=True)
class ProfileOverride:
    """One entry of `clients` in the configuration. Hashable, as settings have to be.

    Attributes:
        client: glob on the name in `clientInfo`.
        values: names of fields of `server.profiles.Profile`, each with its value.
    """

    client: str
    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """`tools`."""

    code_mode: CodeModeSettings = field(default_factory=CodeModeSettings)
    policy: PolicyRules = field(default_factory=PolicyRules)
    contexts: tuple[PolicyContext, ...] = ()
    """The first one that fits a caller counts."""
    duplicates: DuplicateSettings = field(default_factory=DuplicateSettings)
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)
    result_format: Literal["markdown", "plain"] = "markdown"
    """Format of results for a model."""
    esbuild: str | None = None
    """Path of an esbuild binary to use before any other."""
    clients: tuple[ProfileOverride, ...] = ()
    """`clients`, at the top of the configuration: changes to the profiles of clients, by globs on their names."""
