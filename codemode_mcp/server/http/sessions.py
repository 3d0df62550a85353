"""Sessions of clients of the handshake revisions, shared fairly between callers: principals or peers.

At the limit, a new session replaces the longest idle session of the caller that has the most sessions. The client of a
session that has ended gets 404 and opens a new session, as MCP requires. The SDK's session manager has no option for
this, so it only gets the requests of revisions without sessions.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse

from codemode_mcp.server.sdk_exchange import CONNECTION, Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel import Server
    from starlette.types import Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

SHARE: Final = "codemode_mcp.share"
"""Key of an ASGI scope: the caller whose share of the server the request uses."""


@dataclass(eq=False)
class _Session:
    """A session.

    Attributes:
        caller: the value of `SHARE` of the request that opened it.
        requestor: the credential that opened it, without which it is not found.
    """

    id: str
    caller: str
    requestor: AuthorizationContext | None
    transport: StreamableHTTPServerTransport
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = Connection(self.id)

    @property
    def idle_deadline(self) -> float:
        """A number that orders sessions by their last use: the deadline of an idle one, infinity if in use."""
        scope = self.transport.idle_scope
        return math.inf if scope is None else scope.deadline

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONNECTION] = self.connection
        await self.transport.handle_request(scope, receive, send)


class FairSessions:
    """The requests of all clients over HTTP. The scope of a request needs `SHARE`."""

    def __init__(
        self, server: Server[Any], *, max_request_bytes: int, idle_seconds: float | None, max_sessions: int
    ) -> None:
        self._server = server
        self._idle_seconds = idle_seconds
        self._max_sessions = max_sessions
        self._sessions: dict[str, _Session] = {}
        self._group: TaskGroup | None = None
        self._modern = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=max_request_bytes)
        self._legacy = RequestBodyLimitMiddleware(self._handle, max_request_bytes)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve sessions for the duration of the context. It can be entered once."""
        async with self._modern.run(), anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                self._group.cancel_scope.cancel()

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        version = Request(scope).headers.get(MCP_PROTOCOL_VERSION_HEADER)
        if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._legacy(scope, receive, send)
            return
        with Connection() as scope[CONNECTION]:
            await self._modern.handle_request(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        session_id = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if session_id is None:
            await self._open(scope.get(SHARE, ""), requestor, scope, receive, send)
            return
        session = self._sessions.get(session_id)
        if session is None or session.requestor != requestor:
            await _refusal("Session not found", HTTPStatus.NOT_FOUND, INVALID_REQUEST)(scope, receive, send)
            return
        await session.handle(scope, receive, send)
        if session.transport.is_terminated:  # the client has ended it
            await self._discard(session)

    async def _open(
        self, caller: str, requestor: AuthorizationContext | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Open a session for a request, and keep it if the request succeeds: only `initialize` does."""
        assert self._group is not None
        if len(self._sessions) >= self._max_sessions and not self._make_room(caller, self._group):
            refused = _refusal("Too many open sessions", HTTPStatus.SERVICE_UNAVAILABLE, INTERNAL_ERROR)
            await refused(scope, receive, send)
            return
        transport = StreamableHTTPServerTransport(uuid4().hex, idle_timeout=self._idle_seconds)
        assert transport.mcp_session_id is not None
        session = _Session(transport.mcp_session_id, caller, requestor, transport)
        self._sessions[session.id] = session
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._group.start(self._serve, session)
            await session.handle(scope, receive, send_noting_status)
        finally:
            if status >= HTTPStatus.BAD_REQUEST:
                await self._discard(session)

    async def _serve(self, session: _Session, *, task_status: TaskStatus[None]) -> None:
        """Answer the messages of a session until the session ends."""
        async with session.transport.connect() as streams:
            task_status.started()
            try:
                # The transport cancels this scope when the session was idle for too long.
                with session.transport.idle_scope or nullcontext(), session.connection:
                    # The server has no state of its lifespan.
                    await serve_loop(self._server, *streams, lifespan_state={}, session_id=session.id)
            except Exception:
                logger.exception("a session ended with an error")
            finally:
                await self._discard(session)

    def _make_room(self, caller: str, group: TaskGroup) -> bool:
        """End one session. Return False if the caller itself has the most sessions and uses all of them."""
        counts = Counter(each.caller for each in self._sessions.values())
        ((largest, count),) = counts.most_common(1)
        if counts[caller] == count:
            largest = caller  # a caller with as many sessions as any other replaces its own, not another caller's
        session = min(
            (each for each in self._sessions.values() if each.caller == largest), key=lambda each: each.idle_deadline
        )
        # A session in use may end too, if it belongs to another caller that has the most sessions. Otherwise that
        # caller could keep all others out by open streams.
        if largest == caller and session.idle_deadline == math.inf:
            return False
        # The session is removed now, so that there is room. Its tasks end later.
        del self._sessions[session.id]
        group.start_soon(self._discard, session)
        return True

    async def _discard(self, session: _Session) -> None:
        """Forget a session now, so that its id answers 404, and end its transport, also while this is cancelled."""
        self._sessions.pop(session.id, None)
        if not session.transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await session.transport.terminate()


def _refusal(message: str, status: HTTPStatus, code: int) -> JSONResponse:
    error = {"code": code, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=status)
