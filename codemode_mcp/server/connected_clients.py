"""The clients that have sent requests to this process, bounded in number and size. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.server.exchange import Session

MAX_CLIENTS: Final = 200
"""Most clients that are remembered. The least recently active client is forgotten first."""

MAX_TEXT: Final = 200
"""Longest name or version that is kept, in characters."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client as its `clientInfo` describes it."""

    name: str
    """The name; empty if the client has not sent one."""
    version: str
    protocol: str
    """Revision of MCP."""

    @staticmethod
    def of(session: Session) -> ConnectedClient:
        """Return the client of a session."""
        return ConnectedClient.described(session.client_name, session.client_version, session.protocol_version)

    @staticmethod
    def described(name: str | None, version: str | None, protocol: str | None) -> ConnectedClient:
        """Return a client with bounded texts."""
        return ConnectedClient((name or "")[:MAX_TEXT], (version or "")[:MAX_TEXT], (protocol or "")[:MAX_TEXT])


@dataclass(frozen=True, slots=True)
class ClientActivity:
    """A client with the number and the time of its requests."""

    client: ConnectedClient
    requests: int
    idle_seconds: float
    """Time since its latest request."""


class ConnectedClients:
    """The clients of one process. Sessions with equal descriptions count as one client.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[ConnectedClient, tuple[int, float]] = {}

    def record(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count one request of a client."""
        client = ConnectedClient.described(name, version, protocol)
        requests, _ = self._seen.pop(client, (0, 0.0))
        self._seen[client] = (requests + 1, self._clock())  # the order is that of the latest requests
        if len(self._seen) > MAX_CLIENTS:
            del self._seen[next(iter(self._seen))]

    def listed(self) -> list[ClientActivity]:
        """Return all clients, the most recently active first."""
        now = self._clock()
        return [
            ClientActivity(client, requests, now - latest)
            for client, (requests, latest) in reversed(self._seen.items())
        ]
