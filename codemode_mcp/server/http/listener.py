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
"""Seconds after which an idle connection is closed. Clients close their idle connections sooner. If the server were the
first, it could close a connection to which a request is on its way."""

BACKLOG = 2048

_OTHER_FILES = 256
"""Descriptors that are reserved for everything except connections."""

_FLUSH_SECONDS = 0.5
"""Time limit for writing the last answers when the server stops, in seconds."""


class CannotListen(Exception):
    """An address on which the server cannot listen. The message has the address and the reason."""


class Listener:
    """A listener for HTTP. Use `listening` to open one."""

    def __init__(self, front: Front, url: str, group: TaskGroup) -> None:
        self.url = url
        self._front = front
        self._group = group
        self._stopped = anyio.Event()

    async def serve(self, server: Server[Any]) -> None:
        """Answer requests with this server from now on. Before that, they are answered with 503."""
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
            await self._stopped.wait()

    def set_ready(self) -> None:
        """Report at `/readyz` that the server is ready."""
        self._front.ready = True

    async def drain(self) -> bool:
        """Refuse new requests, and wait up to `shutdownGraceMs` for open requests. Return False if some are left."""
        self._front.draining = True
        log.info("no new calls; %d requests are open", self._front.open_requests)
        with anyio.move_on_after(self._front.settings.shutdown_grace_ms / 1000) as scope:
            await self._front.drained()
        self._front.handler = None  # requests that still wait for their turn are answered with 503
        return not scope.cancelled_caught

    async def close(self) -> None:
        """Stop answering, once the open responses are written or `_FLUSH_SECONDS` have passed."""
        self._front.draining = True
        with anyio.move_on_after(_FLUSH_SECONDS):
            await self._front.drained()
        self._stopped.set()


@asynccontextmanager
async def listening(settings: HttpSettings, host: str, port: int, path: str) -> AsyncIterator[Listener]:
    """Listen for the duration of the context, then close all connections. Port 0 means any free port.

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
            _resource_metadata(settings),
        )
        connections = await stack.enter_async_context(_accept_connections(front, opened))
        async with anyio.create_task_group() as group:
            listener = Listener(front, url, group)
            try:
                yield listener
            finally:
                # First no new connections are accepted, then the sessions of the SDK end. Connections end last, at the
                # end of `_accept_connections`, because the sessions still write answers to them.
                with anyio.CancelScope(shield=True):
                    connections.close()
                    await listener.close()


async def _verifier(settings: HttpSettings, stack: AsyncExitStack) -> Verifier | None:
    if settings.oauth is None:
        return StaticTokens(settings.tokens) if settings.tokens else None
    from codemode_mcp.server.http.oauth import FETCH_SECONDS, AccessTokens, Keys
    from upstream_clients.address_guard import GuardedClient

    # The metadata of the issuer may name public addresses for the keys, or addresses of the issuer's own network. With
    # `jwksUrl`, the operator has chosen the address.
    trusted = settings.oauth.jwks_url or settings.oauth.issuer
    client = await stack.enter_async_context(GuardedClient(trusted, trust_named_by=True, timeout=FETCH_SECONDS))
    return AccessTokens(settings.oauth, Keys(settings.oauth, client, time.monotonic))


def _resource_metadata(settings: HttpSettings) -> tuple[dict[str, Any], str] | None:
    """Return the metadata of this resource (RFC 9728) and the URL of the metadata."""
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


_UNRESOLVED = "this name cannot be resolved; give an address of this machine"


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
        raise CannotListen(f"cannot listen on {where}: {_UNRESOLVED}")
    try:
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror}") from None
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            # On Windows, SO_REUSEADDR would allow two processes to listen on one port.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # After a restart, connections of the old process may still be in TIME_WAIT on this port.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            with suppress(OSError):  # all addresses include those of IPv4, whatever the default of the system is
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
        """Accept no more connections. Idle connections end now, others after their response."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self) -> None:
        """End all connections, within twice `_FLUSH_SECONDS`."""
        self.close()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
            for task in late:
                task.cancel()
            if late:  # a task that ignores its cancellation must not keep the process
                await asyncio.wait(late, timeout=_FLUSH_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted connections close their sockets in the next round of the event loop


@asynccontextmanager
async def _accept_connections(front: Front, opened: socket.socket) -> AsyncIterator[_Connections]:
    # uvicorn logs a line for every invalid request, and tracebacks. `Front` logs what an operator needs.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    maximum = _allowed_connections(front.settings.max_connections)

    # uvicorn makes the connections, so their limits are attributes of a class.
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
        proxy_headers=False,  # `TrustedProxies` decides which headers of proxies are used
        server_header=False,
        date_header=False,  # `JsonSend` adds the header
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


def _allowed_connections(connections: int) -> int:
    """Raise the limit of open files as far as needed and possible. Return the number of connections that it allows."""
    try:
        import resource
    except ImportError:  # Windows does not limit open files in this way
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft < wanted:
            room = max(1, soft - _OTHER_FILES)
            log.warning(
                "only %d connections are accepted, because the limit of open files is %d; raise it with ulimit -n",
                room,
                soft,
            )
            return room
    return connections


def refusal_to_listen(settings: HttpSettings, host: str, *, allowed: bool) -> str | None:
    """Return the reason why a server must not be started on this address; None if it may be.

    Args:
        allowed: the user has allowed it with `--allow-unauthenticated`.
    """
    if settings.authenticates or settings.allow_unauthenticated or allowed or is_loopback(host):
        return None
    if not _addresses(host, 0):
        return f"--host {host}: {_UNRESOLVED}"
    return (
        f"--host {host} can be reached from other machines, and there is no authentication: every client there could "
        "run programs with all your servers. Set http.auth in the configuration, or listen on 127.0.0.1. If only "
        "clients that you trust can reach this address, use --allow-unauthenticated or http.allowUnauthenticated"
    )


def notes_for(settings: HttpSettings, host: str) -> list[str]:
    """Return notes for the user who starts the server."""
    if is_loopback(host):
        return []
    if not settings.authenticates:
        return [
            f"warning: every client that reaches {host} can run programs with all servers: there is no authentication"
        ]
    return [
        "note: without TLS, others on the network can read bearer tokens; put a proxy with TLS in front of this server"
    ]
