"""The listening socket, its connections, and the SDK's session manager behind them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from uvicorn.server import ServerState

from codemode_mcp.server.http.auth import StaticTokens
from codemode_mcp.server.http.connection import MAX_HEADER_BYTES, Connection, Connections
from codemode_mcp.server.http.front import METADATA_PATH, Front
from codemode_mcp.server.http.guards import bracketed, host_rules
from codemode_mcp.server.http.sessions import FairSessions
from upstream_clients.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.server.lowlevel import Server

    from codemode_mcp.server.http.auth import Verifier
    from codemode_mcp.settings import HttpSettings

log = logging.getLogger("codemode_mcp.http")

KEEP_ALIVE_SECONDS = 75
"""Seconds for an idle connection. Clients close theirs sooner, so none is closed while a request is on its way."""

BACKLOG = 2048

_SPARE_FILES = 256
"""Descriptors for everything but connections."""

_FLUSH_SECONDS = 0.5
"""Seconds at the end for answers that are being written."""


class CannotListen(Exception):
    """The server cannot listen. The message has the address and the reason."""


class Listener:
    """A listener for HTTP. Use `listening`."""

    def __init__(self, front: Front, url: str, group: TaskGroup) -> None:
        self.url = url
        self._front = front
        self._group = group
        self._over = anyio.Event()

    async def serve(self, server: Server[Any]) -> None:
        """Begin to answer with this server. Until then, requests are answered with 503."""
        await self._group.start(self._sessions, server)

    async def _sessions(self, server: Server[Any], *, task_status: TaskStatus[None]) -> None:
        settings = self._front.settings
        manager = FairSessions(
            server,
            max_request_body_size=settings.max_request_bytes,
            session_idle_timeout=settings.session_idle_seconds,
            max_sessions=settings.max_sessions,
        )
        async with manager.run():
            self._front.handler = manager.handle_request
            task_status.started()
            await self._over.wait()

    def set_ready(self) -> None:
        """Report on `/readyz` that the server is ready."""
        self._front.ready = True

    async def drain(self) -> bool:
        """Refuse new requests and wait up to `shutdownGraceMs` for open ones. Return False if some are left."""
        self._front.draining = True
        log.info("no new calls; %d requests are open", self._front.open)
        with anyio.move_on_after(self._front.settings.shutdown_grace_ms / 1000) as scope:
            await self._front.drained()
        self._front.handler = None
        return not scope.cancelled_caught

    async def close(self) -> None:
        """Stop answering, after the responses that are being written."""
        self._front.draining = True
        with anyio.move_on_after(_FLUSH_SECONDS):
            await self._front.drained()
        self._over.set()


@asynccontextmanager
async def listening(settings: HttpSettings, host: str, port: int, path: str) -> AsyncIterator[Listener]:
    """Listen for the duration of the context, then end all connections. Port 0 stands for any free port.

    Raises:
        CannotListen: the address is invalid or in use.
    """
    opened = _open_socket(host, port)
    async with AsyncExitStack() as stack:
        stack.callback(opened.close)
        port = opened.getsockname()[1]
        url = f"http://{bracketed(host)}:{port}{path}"
        resource = None if settings.oauth is None else settings.oauth.resource
        front = Front(
            settings,
            path,
            host_rules(host, port, settings.allowed_hosts, settings.allowed_origins, resource),
            await _verifier(settings, stack),
            _protected(settings),
        )
        connections = await stack.enter_async_context(_accepting(front, opened))
        async with anyio.create_task_group() as group:
            listener = Listener(front, url, group)
            try:
                yield listener
            finally:
                with anyio.CancelScope(shield=True):
                    connections.close()
                    await listener.close()


async def _verifier(settings: HttpSettings, stack: AsyncExitStack) -> Verifier | None:
    if settings.oauth is None:
        return StaticTokens(settings.tokens) if settings.tokens else None
    from codemode_mcp.server.http.oauth import FETCH_SECONDS, AccessTokens, Keys
    from upstream_clients.address_guard import ReachClient

    # The issuer may name public addresses for its keys, or those of its own network. The operator chooses `jwksUrl`.
    trusted = settings.oauth.jwks_url or settings.oauth.issuer
    client = await stack.enter_async_context(ReachClient(trusted, trust_named_by=True, timeout=FETCH_SECONDS))
    return AccessTokens(settings.oauth, Keys(settings.oauth, client, time.monotonic))


def _protected(settings: HttpSettings) -> tuple[dict[str, Any], str] | None:
    """Return the metadata of the protected resource, and its URL (RFC 9728)."""
    oauth = settings.oauth
    if oauth is None:
        return None
    scheme, _, rest = oauth.resource.partition("://")
    authority, slash, path = rest.partition("/")
    document: dict[str, Any] = {
        "resource": oauth.resource,
        "authorization_servers": [oauth.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "codemode-mcp",
    }
    if oauth.scopes:
        document["scopes_supported"] = list(oauth.scopes)
    return document, f"{scheme}://{authority}{METADATA_PATH}{slash}{path}".rstrip("/")


_UNKNOWN = "this name cannot be resolved; give an address of this machine"


def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a host; none if it cannot be resolved."""
    try:
        return list(socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (OSError, UnicodeError):
        return []


def _open_socket(host: str, port: int) -> socket.socket:
    where = f"{bracketed(host)}:{port}"
    found = _addresses(host, port)
    if not found:
        raise CannotListen(f"cannot listen on {where}: {_UNKNOWN}")
    try:
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror}") from None
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows, where SO_REUSEADDR would share a port in use
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            with suppress(OSError):
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        match error.errno:
            case errno.EADDRINUSE:
                why = "another program uses this port; choose another one, or --port 0 for any free one"
            case errno.EADDRNOTAVAIL:
                why = "this machine has no such address"
            case _:
                why = error.strerror or str(error)
        raise CannotListen(f"cannot listen on {where}: {why}") from None
    return opened


class _Connections:
    """The open connections of uvicorn."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server = server
        self._state = state

    def close(self) -> None:
        """Accept no more connections. Idle ones end now, others after their response."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self) -> None:
        """End all connections."""
        self.close()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_FLUSH_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted connections close their sockets in the next round of the event loop


@asynccontextmanager
async def _accepting(front: Front, opened: socket.socket) -> AsyncIterator[_Connections]:
    # Its records contain tracebacks, and every invalid request gets a line.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    maximum = _room_for(front.settings.max_connections)

    class Limited(Connection):
        peers = Connections(maximum)
        read_seconds = front.settings.request_read_ms / 1000

    config = uvicorn.Config(
        front,
        http=Limited,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Limited(config, state, {}), sock=opened, backlog=BACKLOG)
    connections = _Connections(server, state)
    try:
        yield connections
    finally:
        with anyio.CancelScope(shield=True):
            await connections.end()


def _room_for(connections: int) -> int:
    """Return how many connections the limit of open files allows, after raising it as far as possible."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft < wanted:
            room = max(1, soft - _SPARE_FILES)
            log.warning("at most %d connections: the limit of open files is %d (ulimit -n)", room, soft)
            return room
    return connections


def refusal_to_listen(settings: HttpSettings, host: str, *, allowed: bool) -> str | None:
    """Return why a server must not be started on this address; None if it may."""
    if settings.authenticates or settings.allow_unauthenticated or allowed or is_loopback(host):
        return None
    if not _addresses(host, 0):
        return f"--host {host}: {_UNKNOWN}"
    return (
        f"--host {host} can be reached from other machines, and every client there could run programs against all "
        "your servers: there is no authentication. Set http.auth in the configuration, listen on 127.0.0.1, or, if "
        "something else keeps strangers away, set --allow-unauthenticated or http.allowUnauthenticated"
    )


def notes_for(settings: HttpSettings, host: str) -> list[str]:
    """Return notes for the user who starts the server."""
    if is_loopback(host):
        return []
    if not settings.authenticates:
        return [
            f"warning: every client that reaches {host} can run programs on all servers; there is no authentication"
        ]
    return ["note: this is HTTP without TLS; put a proxy with TLS in front of it, or others can read bearer tokens"]
