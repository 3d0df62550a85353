"""A client's connection and its requests, as the surface sees them, whatever carries them.

`handshake` carries clients of the handshake revisions over stdio; `sdk_server` carries all others on the MCP SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.policy.callers import Caller
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.tools import JsonObject


class Session(Protocol):
    """A client: for as long as it is connected, or for one request in the revisions without a session."""

    @property
    def client_name(self) -> str | None:
        """`clientInfo.name`; None if the client has not said it."""

    @property
    def client_version(self) -> str | None: ...

    @property
    def protocol_version(self) -> str:
        """Revision of MCP, such as `2025-11-25`."""

    @property
    def modern(self) -> bool:
        """Tell whether the revision is 2026-07-28 or later: no request goes from server to client."""

    @property
    def capabilities(self) -> Mapping[str, Any] | None:
        """The client's capabilities as JSON; None while they are not known."""

    async def request(self, method: str, params: JsonObject, related: RequestId | None = None) -> JsonObject:
        """Send a request to the client and return the result it answers with.

        Args:
            params: valid for the method.
            related: the client's own request that this one belongs to; None: to none.

        Raises:
            QuestionRefused: the client answered with an error or with an invalid result, or it is gone.
        """


class Exchange(Protocol):
    """A request of a client while it is open."""

    @property
    def session(self) -> Session: ...

    @property
    def caller(self) -> Caller:
        """The principal that sent it."""

    @property
    def request_id(self) -> RequestId: ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Valid for the request's method."""

    @property
    def wants_progress(self) -> bool:
        """Tell whether it has a progress token."""

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send `notifications/progress`. Does nothing where the client has gone."""
