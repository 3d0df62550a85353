"""Sessions of clients of the handshake revisions, shared fairly between callers: principals or peers.

At the limit, a new session replaces the longest idle session of the caller that has the most sessions. The client of a
session that has ended gets 404 and opens a new session, as MCP requires.

The SDK has no option for this, so `FairSessions` overrides private methods of its session manager. This is one reason
why the version of `mcp` is pinned.
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
"""Key of an ASGI scope: the caller whose share of the server the request uses."""

_CALLER: ContextVar[str] = ContextVar("codemode_mcp.server.http.caller", default="")
"""The caller of the present request. The SDK does not pass the scope to `_admit_session`."""


class FairSessions(StreamableHTTPSessionManager):
    """The SDK's session manager with a share for each caller. The scope of a request needs `SHARE`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._callers: dict[str, str] = {}

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        _CALLER.set(scope.get(SHARE, ""))
        await super()._handle_stateful_request(scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        caller = _CALLER.get()
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            self._make_room(caller)
        made = super()._admit_session(requestor)
        if made is not None:
            assert made.mcp_session_id is not None
            self._callers[made.mcp_session_id] = caller
        return made

    def _make_room(self, caller: str) -> None:
        """End one session, unless the caller itself has the most sessions and uses all of them."""
        counts = Counter(self._callers.values())
        ((largest, count),) = counts.most_common(1)
        if counts[caller] == count:
            largest = caller  # a caller with as many sessions as any other replaces its own, not another caller's
        session = min((each for each, owner in self._callers.items() if owner == largest), key=self._idle_deadline)
        # A session in use may end too, if it belongs to another caller that has the most sessions. Otherwise that
        # caller could keep all others out by open streams.
        if largest == caller and self._idle_deadline(session) == math.inf:
            return
        # The session is removed now, so that the SDK counts one less. Its tasks end later, in the group of the manager.
        transport = self._server_instances.pop(session)
        del self._callers[session]
        group: Any = self._task_group
        group.start_soon(self._discard_session, session, transport)

    def _idle_deadline(self, session: str) -> float:
        """Return a number that orders sessions by their last use: the deadline of an idle one, infinity if in use."""
        scope = self._server_instances[session].idle_scope
        return math.inf if scope is None else scope.deadline

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._callers.pop(session_id, None)
        await super()._discard_session(session_id, transport)
