"""The listening socket, its connections, and the sessions behind them."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.server.http.auth import StaticTokens
from codemode_mcp.server.http.front import METADATA_PATH, Front
from codemode_mcp.server.http.guards import bracketed, host_rules
from codemode_mcp.server.http.sessions import FairSessions
from codemode_mcp.server.http.sockets import FLUSH_SECONDS, UNRESOLVED, accept_connections, addresses, open_socket
from codemode_mcp.server.http.sockets import CannotListen as CannotListen
from upstream_clients.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.server.lowlevel import Server

    from codemode_mcp.server.http.auth import Verifier
    from codemode_mcp.settings import HttpSettings

log = logging.getLogger("codemode_mcp.http")


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
            max_request_bytes=settings.max_request_bytes,
            idle_seconds=settings.session_idle_seconds,
            max_sessions=settings.max_sessions,
        )
        async with manager.running():
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
        """Stop answering, once the open responses are written or `FLUSH_SECONDS` have passed."""
        self._front.draining = True
        with anyio.move_on_after(FLUSH_SECONDS):
            await self._front.drained()
        self._stopped.set()


@asynccontextmanager
async def listening(settings: HttpSettings, host: str, port: int, path: str) -> AsyncIterator[Listener]:
    """Listen for the duration of the context, then close all connections. Port 0 means any free port.

    Raises:
        CannotListen: the address is invalid or in use.
    """
    opened = open_socket(host, port)
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
        read_seconds = settings.request_read_ms / 1000
        connections = await stack.enter_async_context(
            accept_connections(front, opened, settings.max_connections, read_seconds)
        )
        async with anyio.create_task_group() as group:
            listener = Listener(front, url, group)
            try:
                yield listener
            finally:
                # First no new connections are accepted, then the sessions of the SDK end. Connections end last, at the
                # end of `accept_connections`, because the sessions still write answers to them.
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


def refusal_to_listen(settings: HttpSettings, host: str, *, allowed: bool) -> str | None:
    """Return the reason why a server must not be started on this address; None if it may be.

    Args:
        allowed: the user has allowed it with `--allow-unauthenticated`.
    """
    if settings.authenticates or settings.allow_unauthenticated or allowed or is_loopback(host):
        return None
    if not addresses(host, 0):
        return f"--host {host}: {UNRESOLVED}"
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
