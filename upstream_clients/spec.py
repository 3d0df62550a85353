"""Definition of one upstream MCP server. Pure: no I/O, no MCP SDK."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit, urlunsplit

from upstream_clients.environment import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TransportKind = Literal["stdio", "http", "sse", "auto"]

IDLE_SECONDS = 600.0
"""Seconds without calls after which a local server is closed, since it costs memory."""

HIDDEN = "***"
_SHORTEST_SECRET = 4
"""Values shorter than this (`1`, `on`) are settings, not secrets; hiding them would garble every message."""


_MOST_LEARNED = 32


_SHORTEST_ENCODED = 8
"""Bytes of a secret that is looked for in Base64 too."""


def without(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with `***` for each of the secrets, as it is and as it may be written: within JSON or Python, in a URL, in
    Base64."""
    for form in _forms(secrets):
        text = text.replace(form, HIDDEN)
    return text


@lru_cache(maxsize=256)
def _forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    # Longest first, so that a secret within another leaves no remainder.
    return tuple(sorted({form for secret in secrets for form in _written(secret)}, key=len, reverse=True))


@lru_cache(maxsize=4096)
def _written(secret: str) -> frozenset[str]:
    data = secret.encode("utf-8", "surrogatepass")
    forms = {
        *(secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]),
        *(quote(data), quote(data, safe=""), quote_plus(data)),
    }
    if len(data) >= _SHORTEST_ENCODED:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(data).decode())
            # Within something longer: the characters that do not depend on what is around it.
            for before, first in ((0, 0), (1, 2), (2, 3)):
                shifted = bytes(before) + data
                forms.add(encode(shifted).decode()[first : len(shifted) * 8 // 6])
    return frozenset(forms)


def _credentials(header: str) -> list[str]:
    """User and password of basic authentication."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(encoded).decode()]
    except ValueError:
        return []


_KEY_IN_PATH = re.compile(r"(?<=/)(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[^/]{20,}(?=/|$)")
"""Some services put the credential there."""


@dataclass(frozen=True, slots=True, repr=False)
class OAuthSettings:
    """The section `auth` of an entry. All of it may be left out: most servers announce the rest.

    Attributes:
        client_id, client_secret: of a client that was registered by hand.
        client_metadata_url: a document that describes this client, used as its id where the server takes such.
        scopes: what to ask for, in the place of what the server names.
        redirect_port: where the browser is sent back to on this machine; any free port for `None`.
    """

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] | None = None
    redirect_port: int | None = None

    def __repr__(self) -> str:
        return f"OAuthSettings(client_id={self.client_id!r}, scopes={self.scopes!r})"


@dataclass(frozen=True, slots=True, repr=False)
class UpstreamSpec:
    """One entry of `mcpServers`, already expanded and validated.

    Attributes:
        name: the server's name in the configuration; used in every message.
        transport: `stdio` starts `command`; the others go to `url`. `http` and `auto` fall back to the older
            HTTP+SSE transport when the server refuses streamable HTTP.
        env: added to the variables that a child gets from this process (`environment`).
        withheld: names of such variables that this child does not get.
        timeout_ms: limit of one call unless the call names its own; `None` is no limit.
        connect_timeout: seconds from opening the transport to the end of the first tool list.
        start: `lazy` connects when first needed if the tools are known from an earlier time, else like `eager`: now.
        idle_seconds: without calls for this long, the connection is closed until it is needed again; 0 is never,
            `None` is 600 for `stdio` and never for others.
        max_concurrent_calls: of all owners together; further ones wait. None: `DEFAULT_LIMIT` of `fair_limiter` for
            each owner.
        secrets: further values never to be shown, e.g. what a `${VAR}` in `args` or `url` expanded to.
        plain: values that are never hidden, such as that of HOME; see `environment.PLAIN`.
        oauth: how to log in, where the entry says that the server wants it. Without it a login is used if there is one.
        learned: secrets that came up since, i.e. tokens; the one mutable part, shared by copies of a spec.
    """

    name: str
    transport: TransportKind = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    description: str | None = None
    connect_timeout: float = 30.0
    start: Literal["lazy", "eager"] = "lazy"
    idle_seconds: float | None = None
    max_concurrent_calls: int | None = None
    secrets: tuple[str, ...] = ()
    plain: tuple[str, ...] = field(default=(), compare=False)
    oauth: OAuthSettings | None = None
    learned: list[str] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        missing = "command" if self.transport == "stdio" else "url"
        if not getattr(self, missing):
            raise ValueError(f"server {self.name!r}: transport {self.transport!r} needs {missing!r}")

    @property
    def timeout(self) -> float | None:
        """Default limit of one call, in seconds."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000

    @property
    def idle_after(self) -> float:
        """Seconds without calls after which the connection is closed; infinite where it never is."""
        seconds = self.idle_seconds
        if seconds is None:
            seconds = IDLE_SECONDS if self.transport == "stdio" else 0
        return seconds or math.inf

    @property
    def address(self) -> str:
        """Return where the server is, fit for a message: the command's name, or the URL without credentials, query and
        what looks like a key in its path."""
        if self.url is None:
            return self.command or ""
        parts = urlsplit(self.url)
        path = _KEY_IN_PATH.sub("***", parts.path)
        return self.redact(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", "")))

    @property
    def may_log_in(self) -> bool:
        """Return True if a login has a place here: the server is remote and the entry brings no credentials of its
        own."""
        return self.url is not None and not any(name.lower() == "authorization" for name in self.headers)

    def learn(self, secrets: Iterable[str]) -> None:
        """These values are never to be shown from now on."""
        for value in secrets:
            if value in self.learned:
                self.learned.remove(value)
            self.learned.append(value)
        del self.learned[:-_MOST_LEARNED]

    def redact_learned(self, text: str) -> str:
        """`text` without the tokens of a login."""
        return without(text, tuple(secret for secret in self.learned if len(secret) >= _SHORTEST_SECRET))

    def redact_learned_in(self, value: Any) -> Any:
        """JSON without the tokens of a login in any of its texts."""
        match value:
            case str():
                return self.redact_learned(value)
            case list():
                return [self.redact_learned_in(item) for item in value]
            case dict():
                return {key: self.redact_learned_in(item) for key, item in value.items()}
        return value

    def redact(self, text: str) -> str:
        """`text` with every secret value of this spec replaced by `***`, however it is written."""
        return without(text, tuple(self.secret_values))

    @property
    def secret_values(self) -> list[str]:
        """Return what is never shown, the longest first."""
        given = {value for name, value in self.env.items() if name not in PLAIN}
        found = {*given, *self.secrets, *self.learned}
        if self.oauth is not None and self.oauth.client_secret:
            found.add(self.oauth.client_secret)
        for value in self.headers.values():
            # "Bearer abc": the token alone is as secret as the whole.
            found.update((value, *value.split()[1:]))
            # "Basic abc": what it stands for, and the password in that.
            found.update(part for each in _credentials(value) for part in (each, each.partition(":")[2]))
        if self.url is not None:
            parts = urlsplit(self.url)
            found.update(value for _, value in parse_qsl(parts.query))
            found.update(part for part in (parts.username, parts.password) if part)
        # Longest first, so that a secret within another leaves no remainder.
        found.difference_update(self.plain)
        return sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __repr__(self) -> str:
        shown = [repr(self.name), self.transport, repr(self.address)]
        if self.args:
            shown.append(f"{len(self.args)} args")
        shown += [
            f"{label} {sorted(names)}" for label, names in (("env", self.env), ("headers", self.headers)) if names
        ]
        return f"UpstreamSpec({', '.join(shown)})"
