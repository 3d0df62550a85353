"""How to reach one upstream MCP server. Pure: no I/O, no MCP SDK."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

TransportKind = Literal["stdio", "http", "sse", "auto"]

HIDDEN = "***"
_SHORTEST_SECRET = 4
"""Values shorter than this (`1`, `on`) are settings, not secrets; hiding them would garble every message."""


@dataclass(frozen=True, slots=True, repr=False)
class UpstreamSpec:
    """One entry of `mcpServers`, already expanded and validated.

    Attributes:
        name: the server's name in the configuration; used in every message.
        transport: `stdio` starts `command`; the others go to `url`. `http` and `auto` fall back to the older
            HTTP+SSE transport when the server refuses streamable HTTP.
        env: added to the few variables that a child inherits (`PATH`, `HOME`, ...).
        timeout_ms: limit of one call unless the call names its own; `None` is no limit.
        connect_timeout: seconds from opening the transport to the end of the first tool list.
        secrets: further values never to be shown, e.g. what a `${VAR}` in `args` or `url` expanded to.
    """

    name: str
    transport: TransportKind = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    description: str | None = None
    connect_timeout: float = 30.0
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        missing = "command" if self.transport == "stdio" else "url"
        if not getattr(self, missing):
            raise ValueError(f"server {self.name!r}: transport {self.transport!r} needs {missing!r}")

    @property
    def timeout(self) -> float | None:
        """Default limit of one call, in seconds."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000

    @property
    def address(self) -> str:
        """Where the server is, fit for a message: the command's name, or the URL without credentials and query."""
        if self.url is None:
            return self.command or ""
        parts = urlsplit(self.url)
        return self.redact(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))

    def redact(self, text: str) -> str:
        """`text` with every secret value of this spec replaced by `***`."""
        for secret in self._secret_values():
            text = text.replace(secret, HIDDEN)
        return text

    def _secret_values(self) -> list[str]:
        found = {*self.env.values(), *self.secrets}
        for value in self.headers.values():
            # "Bearer abc": the token alone is as secret as the whole.
            found.update((value, *value.split()[1:]))
        if self.url is not None:
            parts = urlsplit(self.url)
            found.update(value for _, value in parse_qsl(parts.query))
            found.update(part for part in (parts.username, parts.password) if part)
        # Longest first, so that a secret within another leaves no remainder.
        return sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __repr__(self) -> str:
        shown = [repr(self.name), self.transport, repr(self.address)]
        if self.args:
            shown.append(f"{len(self.args)} args")
        shown += [
            f"{label} {sorted(names)}" for label, names in (("env", self.env), ("headers", self.headers)) if names
        ]
        return f"UpstreamSpec({', '.join(shown)})"
