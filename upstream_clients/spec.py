"""The definition of one upstream, its credentials and challenges. Pure: no I/O, no MCP SDK."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from msgspec import Struct

from upstream_clients.environment import PLAIN
from upstream_clients.redaction import (
    HIDDEN,
    basic_credentials,
    counts_as_secret,
    cut,
    hide,
    is_word,
    password_of,
    secrets_of,
)

# The credentials of an HTTP API, as the entry in the configuration has them.
#
# `openapi.client` adds them to requests.


KeyPlace = Literal["header", "query", "cookie"]


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A fixed token in the `Authorization` header."""

    token: str = ""

    @property
    def named_secrets(self) -> dict[str, str]:
        """The values that are never shown, each with the name of its place in the entry."""
        return {self.token: "auth_token"}


@dataclass(frozen=True, slots=True, repr=False)
class BasicLogin:
    """A user name and a password in the `Authorization` header (RFC 7617)."""

    username: str = ""
    password: str = ""

    @property
    def header(self) -> str:
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"

    @property
    def named_secrets(self) -> dict[str, str]:
        found = {self.password: "auth_password", self.header.partition(" ")[2]: "auth_basic"}
        # Some services take an API key as the user name.
        return found if self.password else {**found, self.username: "auth_username"}


@dataclass(frozen=True, slots=True, repr=False)
class ApiKey:
    """A key in a header, in the query or in a cookie.

    Attributes:
        name: the name of the header, the parameter or the cookie.
    """

    place: KeyPlace
    name: str
    value: str = ""

    @property
    def named_secrets(self) -> dict[str, str]:
        return {self.value: "auth_value"}


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """A client that gets tokens for itself, without a person (RFC 6749, section 4.4).

    Attributes:
        token_url: the address of the token endpoint. A person has written it, so it may be on this machine or private.
        scopes: the scopes to request; empty for those that the authorization server chooses.
        audience: the API for which tokens are requested, for authorization servers that require it.
    """

    token_url: str
    client_id: str
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    audience: str | None = None

    @property
    def named_secrets(self) -> dict[str, str]:
        return {self.client_secret: "client_secret"}


CredentialSettings: TypeAlias = BearerToken | BasicLogin | ApiKey | ClientCredentials


DocumentVersion = tuple[int, int]
"""The time of the last change of a file, in nanoseconds, and its size."""

TransportKind = Literal["stdio", "http", "sse", "auto", "openapi"]

IDLE_SECONDS = 600.0
"""Seconds without calls after which a local server is closed, to save memory."""

CONNECT_SECONDS = 30.0
"""Seconds from opening the transport to the end of the first tool list."""

DEFAULT_LIMIT = 32
"""Calls of one caller in flight at one server, where the operator sets no limit."""

REFRESH_SECONDS = 3600.0
"""Seconds after which a document at a URL is read again."""

_MIN_SECRET_LENGTH = 4
"""Shorter values (`1`, `on`) are settings, not secrets. Hiding them would make messages unreadable."""

_MIN_IN_ANSWERS = 8
"""Shorter values are not hidden in answers of an API: they would match other data."""

_MAX_LEARNED = 32

KEY_IN_PATH = re.compile(r"(?<=/)(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[^/]{20,}(?=/|$)")
"""A path segment that looks like a credential: some services put it there."""


def is_url(text: str) -> bool:
    """Return True for an address with the scheme `http` or `https`, and False for a path."""
    return text.lower().startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True, repr=False)
class OAuthSettings:
    """The section `auth` of an entry. All fields are optional, since most servers announce what is needed.

    Attributes:
        client_id, client_secret: a client that was registered by hand.
        client_metadata_url: address of a document about this client. It is the client's id, if the server supports
            that.
        scopes: scopes to request instead of those that the server names.
        redirect_port: port on this machine to which the browser is redirected; None for any free port.
        authorization_url, token_url: the endpoints of the authorization server, instead of those that the server names.
    """

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] | None = None
    redirect_port: int | None = None
    authorization_url: str | None = None
    token_url: str | None = None

    def __repr__(self) -> str:
        return f"OAuthSettings(client_id={self.client_id!r}, scopes={self.scopes!r})"


@dataclass(frozen=True, slots=True, repr=False)
class UpstreamSpec:
    """One entry of `mcpServers`, already expanded and validated.

    Attributes:
        name: the server's name in the configuration; used in every message.
        transport: `stdio` starts `command`; `openapi` calls the API of `document`; the others connect to `url`. `http`
            and `auto` fall back to the older HTTP+SSE transport when the server refuses streamable HTTP.
        env: variables for the child, besides those that it inherits (`environment`).
        withheld: names of variables that the child does not inherit.
        url: the address of a remote server. With `document`, the base address of the API; None for the address that the
            document names.
        document: the path or the URL of an OpenAPI document.
        other_origins: origins other than that of the API to which operations with a server of their own may be sent,
            with the credentials.
        document_version: the time and the size of the document, if it is a file. A server of an earlier version is the
            same server, and reads the file again.
        refresh_seconds: seconds after which a document at a URL is read again, while the server is used.
        is_pinned: False for an API whose document may change without a decision of a person (`"trust": "follow"`).
        credentials: the credentials that are added to requests to the API, except those of a login.
        timeout_ms: limit of a call that has no limit of its own; None for no limit.
        connect_timeout: seconds from opening the transport to the end of the first tool list.
        start: `eager` connects at the start. `lazy` connects when first needed, if the tools are known from an earlier
            process.
        idle_seconds: seconds without calls after which the connection is closed until the next call; 0 for never, None
            for 600 with `stdio` and never with other transports.
        share: `user` for one process that serves all clients, as long as the server does not ask for roots; `client`
            for one process for each client. See `client_processes`.
        max_concurrent_calls: limit for all owners together; further calls wait. None for `DEFAULT_LIMIT` of
            `fair_limiter` for each owner.
        secrets: further values that are never shown, whatever they are: those of the keyring and of commands, and those
            of variables in `args` or `url` that count as secret.
        plain: values that are never hidden, such as the value of HOME; see `environment.PLAIN`.
        oauth: settings of the login, if the entry requires one. Without them, a stored login is used if there is one.
        unusable: the reason why the server is never started or connected, such as an unset variable, as a sentence that
            names the server. Other fields may be missing then.
        environ: the environment variables from which those of the child are inherited; None for those of this process.
        learned: tokens that became known later. Copies of a spec share this mutable field.
        followers: specs of the same server that hide the same tokens. Copies of a spec share this mutable field.
    """

    name: str
    transport: TransportKind = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    cwd: str | None = None
    url: str | None = None
    document: str | None = None
    other_origins: tuple[str, ...] = ()
    document_version: DocumentVersion | None = field(default=None, compare=False)
    refresh_seconds: float = REFRESH_SECONDS
    is_pinned: bool = True
    credentials: CredentialSettings | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    description: str | None = None
    connect_timeout: float = CONNECT_SECONDS
    start: Literal["lazy", "eager"] = "lazy"
    idle_seconds: float | None = None
    share: Literal["user", "client"] = "user"
    max_concurrent_calls: int | None = None
    secrets: tuple[str, ...] = ()
    plain: tuple[str, ...] = field(default=(), compare=False)
    oauth: OAuthSettings | None = None
    unusable: str | None = None
    environ: Mapping[str, str] | None = field(default=None, compare=False)
    learned: list[str] = field(default_factory=list, compare=False)
    followers: list[UpstreamSpec] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        missing = {"stdio": "command", "openapi": "document"}.get(self.transport, "url")
        if not getattr(self, missing) and self.unusable is None:
            raise ValueError(f"server {self.name!r}: transport {self.transport!r} needs {missing!r}")

    @property
    def is_process(self) -> bool:
        """True if the server is a process on this machine, which is started by `command`."""
        return self.transport == "stdio"

    @property
    def is_api(self) -> bool:
        """True if the server is an HTTP API with an OpenAPI document, and does not speak MCP."""
        return self.transport == "openapi"

    @property
    def timeout(self) -> float | None:
        """Default limit of one call, in seconds."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000

    @property
    def idle_after(self) -> float:
        """Seconds without calls after which the connection is closed; infinity if it is never closed."""
        seconds = self.idle_seconds
        if seconds is None:
            seconds = IDLE_SECONDS if self.is_process else 0
        return seconds or math.inf

    @property
    def address(self) -> str:
        """The command, or the URL without credentials and query, or the document of an API, for messages."""
        url = self.url or self.document
        if url is None:
            return self.command or ""
        if not is_url(url):
            return self.redact(url)
        parts = urlsplit(url)
        path = KEY_IN_PATH.sub(HIDDEN, parts.path)
        return self.redact(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", "")))

    @property
    def may_log_in(self) -> bool:
        """True if the server is remote and the entry has no `Authorization` header. For an API, `auth` must say so."""
        if self.is_process or (self.is_api and self.oauth is None):
            return False
        return not any(name.lower() == "authorization" for name in self.headers)

    @property
    def names_endpoints(self) -> bool:
        """True if the entry names the endpoints of the authorization server, so that nothing has to be discovered."""
        return self.oauth is not None and self.oauth.token_url is not None

    @property
    def login_url(self) -> str | None:
        """The address for whose server a login is made; None if the entry names none.

        For an API, it is the token endpoint, the base address or the address of the document, whichever comes first.
        """
        if self.oauth is not None and self.oauth.token_url is not None:
            return self.oauth.token_url
        if self.url is None and self.document is not None and is_url(self.document):
            return self.document
        return self.url

    def learn(self, secrets: Iterable[str]) -> None:
        """Hide these values from now on, in this spec and its followers."""
        for value in secrets:
            if value in self.learned:
                self.learned.remove(value)
            self.learned.append(value)
        del self.learned[:-_MAX_LEARNED]
        for follower in self.followers:
            follower.learned[:] = self.learned

    def redact_learned(self, text: str) -> str:
        """Hide the tokens of a login in a text."""
        return hide(text, self._known_tokens)

    def redact_learned_in(self, value: Any) -> Any:
        """Hide the tokens of a login in a JSON value."""
        return secrets_of(self._known_tokens).hide_in(value)

    @property
    def _known_tokens(self) -> tuple[str, ...]:
        return tuple(secret for secret in self.learned if len(secret) >= _MIN_SECRET_LENGTH)

    def redact(self, text: str) -> str:
        """Replace every secret value of this spec in a text of others by `***`, also in encoded form."""
        return hide(text, tuple(self.secret_values))

    def redact_own(self, text: str) -> str:
        """Replace secret values in a sentence of ours by `***`.

        Texts of others within it must have been redacted before. Values that are words are not hidden in our own
        sentences, which a person has to read, and may have to type.
        """
        return hide(text, tuple(each for each in self.secret_values if not is_word(each)))

    @property
    def sent_secrets(self) -> tuple[str, ...]:
        """The secret values that a request to an API may have, and that its answers are searched for."""
        found = {} if self.credentials is None else dict(self.credentials.named_secrets)
        found.update(self._named_in_request())
        found.update(dict.fromkeys(self.learned, "login"))
        return tuple(value for value in found if len(value) >= _MIN_IN_ANSWERS)

    def cut(self, text: str, limit: int) -> str:
        """Return at most `limit` characters of a text. No part of a secret of this spec is left at the end."""
        return text if len(text) <= limit else cut(text, limit, tuple(self.secret_values))

    @property
    def secret_values(self) -> list[str]:
        """All values that are never shown, the longest first."""
        return sorted(self.named_secrets, key=len, reverse=True)

    @property
    def named_secrets(self) -> dict[str, str]:
        """All values that are never shown, each with the name of its place in the entry.

        Values without a name, such as those of a `${VAR}` in `args`, have their numbers.
        """
        found: dict[str, str] = {}
        for name, value in self.env.items():
            if name not in PLAIN and counts_as_secret(name, value):
                found.setdefault(value, name)
                found.setdefault(password_of(value), f"{name}_password")
        for value, name in self._named_in_request().items():
            found.setdefault(value, name)
        if self.oauth is not None and self.oauth.client_secret:
            found.setdefault(self.oauth.client_secret, "client_secret")
        if self.credentials is not None:
            for value, name in self.credentials.named_secrets.items():
                found.setdefault(value, name)
        for number, value in enumerate(self.secrets, 1):
            found.setdefault(value, str(number))
        for value in tuple(self.learned):  # which another thread may change
            found.setdefault(value, "login")
        for value in self.plain:
            found.pop(value, None)
        # The name of the server is shown everywhere, so no part of it is secret.
        return {
            value: name for value, name in found.items() if len(value) >= _MIN_SECRET_LENGTH and value not in self.name
        }

    def _named_in_request(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in self.headers.items():
            if not counts_as_secret(name, value):
                continue
            # "Bearer abc": the token without the scheme is secret too.
            for part in (value, *value.split()[1:]):
                found.setdefault(part, name)
            # "Basic abc": the decoded credentials and their password are secret too.
            for each in basic_credentials(value):
                found.setdefault(each, name)
                found.setdefault(each.partition(":")[2], f"{name}_password")
        for url in (self.url, self.document):
            if url is None or not is_url(url):
                continue
            parts = urlsplit(url)
            for name, value in parse_qsl(parts.query):
                if counts_as_secret(name, value):
                    found.setdefault(value, f"url_{name}")
            if parts.username:
                found.setdefault(parts.username, "url_user")
            if parts.password:
                found.setdefault(parts.password, "url_password")
        return found

    def __repr__(self) -> str:
        shown = [repr(self.name), self.transport, repr(self.address)]
        if self.args:
            shown.append(f"{len(self.args)} args")
        shown += [
            f"{label} {sorted(names)}" for label, names in (("env", self.env), ("headers", self.headers)) if names
        ]
        return f"UpstreamSpec({', '.join(shown)})"


class Challenge(Struct, frozen=True):
    """The parameters of a challenge."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def read_challenge(header: str | None) -> Challenge | None:
    """Return the `Bearer` challenge of a `WWW-Authenticate` header, if there is one."""
    if header is None or not re.search(r"(?:^|,)\s*bearer(?:\s|,|$)", header, re.IGNORECASE):
        return None
    found = {
        name.lower(): quoted or plain
        for name, quoted, plain in re.findall(r'(?:^|[\s,])([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))', header)
    }
    return Challenge(found.get("resource_metadata"), found.get("scope"), found.get("error"))
