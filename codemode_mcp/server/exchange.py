"""A client's connection and its requests, independent of the transport.

`stdio` implements them for clients of the handshake revisions over stdio, `sdk_server` for all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.base.settings import ExposeMode
    from codemode_mcp.rules.policy.policy import Caller
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.tools import JsonObject, LogLevel


METHODS: Final = (
    *("tools/list", "tools/call"),
    *("prompts/list", "prompts/get"),
    *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"),
    *("completion/complete", "logging/setLevel"),
)
"""The requests of clients that a surface answers. `initialize`, `server/discover` and `ping` are answered before it."""


TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
"""The requests about tasks that a surface answers, in revision 2026-07-28 only. See `client_tasks`."""


class Client(Protocol):
    """Facts about a client, as it has stated them."""

    @property
    def client_name(self) -> str | None:
        """`clientInfo.name`; None if the client has not sent it."""

    @property
    def client_version(self) -> str | None: ...

    @property
    def protocol_version(self) -> str:
        """Revision of MCP, such as `2025-11-25`."""

    @property
    def modern(self) -> bool:
        """True for revision 2026-07-28 and later, in which servers send no requests to clients."""

    @property
    def capabilities(self) -> Mapping[str, Any] | None:
        """The client's capabilities as JSON; None while they are unknown."""


class Session(Client, Protocol):
    """A connected client; in revisions without sessions, the client of one request."""

    @property
    def session_id(self) -> str | None:
        """The id of the session over HTTP; None over stdio, and in revisions without sessions."""

    @property
    def connection(self) -> object:
        """An object that stands for the connection. It is the same for all requests of a session."""

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification to a client of the handshake revisions. Drop it if the client has disconnected."""

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call a function when the session ends, for a client of the handshake revisions."""

    async def request(self, method: str, params: JsonObject, related: RequestId | None = None) -> JsonObject:
        """Send a request to the client and return the result.

        Args:
            params: valid for the method.
            related: the client's request that this one belongs to, if any.

        Raises:
            QuestionRefused: the client answered with an error or an invalid result, or has disconnected.
        """


class Exchange(Protocol):
    """An open request of a client."""

    @property
    def path_mode(self) -> ExposeMode | None:
        """The mode that the path of the request names; None over stdio and on the main path."""

    @property
    def session(self) -> Session: ...

    @property
    def caller(self) -> Caller:
        """The principal that sent the request."""

    @property
    def request_id(self) -> RequestId: ...

    @property
    def params(self) -> Mapping[str, Any]:
        """The params, valid for the request's method."""

    @property
    def wants_progress(self) -> bool:
        """True if the request has a progress token."""

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send `notifications/progress`. Do nothing if the client has disconnected."""

    @property
    def log_level(self) -> LogLevel | None:
        """The level from which on the client wants log messages during the request; None before revision 2026-07-28."""

    async def report_log(self, params: JsonObject) -> None:
        """Send `notifications/message` to a client of 2026-07-28 and later."""
