"""Listening sockets for HTTP, and their connections, with uvicorn behind them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from uvicorn.server import ServerState

from codemode_mcp.server.http.connection import MAX_HEADER_BYTES, Connection, Connections
from codemode_mcp.server.http.guards import bracketed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger("codemode_mcp.http")

KEEP_ALIVE_SECONDS = 75
"""Seconds after which an idle connection is closed. Clients close their idle connections sooner. If the server were the
first, it could close a connection to which a request is on its way."""

BACKLOG = 2048

_OTHER_FILES = 256
"""Descriptors that are reserved for everything except connections."""

FLUSH_SECONDS = 0.5
"""Time limit for writing the last answers when the server stops, in seconds."""


class CannotListen(Exception):
    """An address on which the server cannot listen. The message has the address and the reason."""


UNRESOLVED = "this name cannot be resolved; give an address of this machine"


def addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a host; none if it cannot be resolved."""
    try:
        return list(socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (OSError, UnicodeError):
        return []


def open_socket(host: str, port: int) -> socket.socket:
    where = f"{bracketed(host)}:{port}"
    found = addresses(host, port)
    if not found:
        raise CannotListen(f"cannot listen on {where}: {UNRESOLVED}")
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


class OpenConnections:
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
        """End all connections, within twice `FLUSH_SECONDS`."""
        self.close()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FLUSH_SECONDS)
            for task in late:
                task.cancel()
            if late:  # a task that ignores its cancellation must not keep the process
                await asyncio.wait(late, timeout=FLUSH_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted connections close their sockets in the next round of the event loop


@asynccontextmanager
async def accept_connections(
    application: Any, opened: socket.socket, most: int, read_seconds: float
) -> AsyncIterator[OpenConnections]:
    """Serve an ASGI application on a listening socket for the duration of the context.

    Args:
        most: maximum number of open connections.
        read_seconds: timeout for the headers of a request, and again for its body.
    """
    # uvicorn logs a line for every invalid request, and tracebacks. The application logs what an operator needs.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    maximum, seconds = _allowed_connections(most), read_seconds

    # uvicorn makes the connections, so their limits are attributes of a class.
    class Limited(Connection):
        peers = Connections(maximum)
        read_seconds = seconds

    config = uvicorn.Config(
        application,
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
    connections = OpenConnections(server, state)
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
