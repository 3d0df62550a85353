"""Sessions of legacy clients, of which no principal or peer keeps others from theirs.

At the limit a new session takes the place of another one. It is the longest idle session of the principal or peer
that has the most. A client whose session has ended gets 404 and opens a new one, as MCP has it.
"""

from __future__ import annotations

import math
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from starlette.types import Receive, Scope, Send

SHARE: Final = "codemode_mcp.share"
"""Key of an ASGI scope: whose share of the server the request uses."""

_WHO: ContextVar[str] = ContextVar("codemode_mcp.server.http.who", default="")


class FairSessions(StreamableHTTPSessionManager):
    """The SDK's manager with shares. Scopes of requests need `SHARE`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._whose: dict[str, str] = {}

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        _WHO.set(scope.get(SHARE, ""))
        await super()._handle_stateful_request(scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        who = _WHO.get()
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            self._make_room(who)
        made = super()._admit_session(requestor)
        if made is not None:
            assert made.mcp_session_id is not None
            self._whose[made.mcp_session_id] = who
        return made

    def _make_room(self, who: str) -> None:
        counts = Counter(self._whose.values())
        ((most, count),) = counts.most_common(1)
        if counts[who] == count:
            most = who
        session = min((each for each, whose in self._whose.items() if whose == most), key=self._unused_since)
        if most == who and self._unused_since(session) == math.inf:
            return  # all are in use
        transport = self._server_instances.pop(session)
        del self._whose[session]
        group: Any = self._task_group
        group.start_soon(self._discard_session, session, transport)

    def _unused_since(self, session: str) -> float:
        """Return when a session was last used, on a clock of its own; infinity while it is in use."""
        scope = self._server_instances[session].idle_scope
        return math.inf if scope is None else scope.deadline

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._whose.pop(session_id, None)
        await super()._discard_session(session_id, transport)
