"""The control socket of a serving process, in a private folder of the user.

Only processes of the same user are admitted. On a Unix socket, the system names the user of the client. On a loopback
port, both sides prove that they know the token in the endpoint's file, which only this user can read.

Each connection has one small request and a timeout. The number of connections is limited, and requests are answered one
after another. So a flood of requests delays only other requests to this socket.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketListener

from codemode_mcp.control import endpoints, protocol
from codemode_mcp.control.lines import LineReader, peer_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from anyio.abc import SocketStream, TaskGroup

    from codemode_mcp.control.answers import Control
    from codemode_mcp.control.endpoints import Endpoint

log = logging.getLogger("codemode_mcp.control")

CONNECTION_SECONDS = 10.0
"""Timeout of a connection, from its beginning to the last byte of the answer."""

MAX_CONNECTIONS = 16
"""Maximum number of concurrent connections. Further connections are closed without an answer."""

PAUSE_SECONDS = 0.2
"""Pause after a connection could not be accepted."""


@asynccontextmanager
async def listening(
    control: Control, *, loopback: bool = sys.platform == "win32", folders: Sequence[Path] | None = None
) -> AsyncIterator[Endpoint | None]:
    """Answer requests for the duration of the context.

    If this is impossible, log a warning and yield None: the process serves its clients nevertheless.

    Args:
        loopback: listen on a port instead of a Unix socket.
        folders: candidates for the folder of the endpoint; None for the folders of the user.
    """
    token = secrets.token_hex(32)
    try:
        endpoint, listener_socket, open_file = await anyio.to_thread.run_sync(_listen, token, loopback, folders)
    except (endpoints.NoPrivateFolder, OSError) as error:
        log.warning("`codemode-mcp runs` cannot reach this process: %s", error)
        yield None
        return
    try:
        async with await SocketListener.from_socket(listener_socket) as listener, anyio.create_task_group() as group:
            group.start_soon(_accept, listener, control, token if loopback else None, group)
            yield endpoint
            group.cancel_scope.cancel()
    finally:
        listener_socket.close()
        if open_file is not None:
            open_file.close()
        with suppress(OSError):
            endpoint.path.unlink()


def _listen(
    token: str, loopback: bool, folders: Sequence[Path] | None
) -> tuple[Endpoint, socket.socket, BinaryIO | None]:
    """Return an endpoint, its listening socket, and the file of the endpoint if it has to stay open.

    Raises:
        NoPrivateFolder: the user has no usable private folder.
        OSError: the endpoint cannot be made.
    """
    for folder in endpoints.folders() if folders is None else folders:
        _remove_stale_in(folder)
    endpoint = endpoints.new_endpoint("json" if loopback else "sock", folders)
    listener = socket.socket(socket.AF_INET if loopback else socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        if not loopback:
            # The socket gets its final name only when it listens. A client or another server that finds it before would
            # be refused, and take it for the socket of a process that was killed.
            unready = endpoint.path.with_suffix(".new")
            listener.bind(os.fspath(unready))
            os.chmod(unready, 0o600)
            listener.listen(MAX_CONNECTIONS)
            os.rename(unready, endpoint.path)
            return endpoint, listener, None
        listener.bind(("127.0.0.1", 0))
        listener.listen(MAX_CONNECTIONS)
        # The file is made last, when clients can connect. It stays open, because an open file cannot be removed on
        # Windows: this is how `remove_stale` knows there that the process is running.
        descriptor = os.open(endpoint.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "wb", buffering=0)
        try:
            file.write(protocol.encode({"port": listener.getsockname()[1], "token": token}))
        except BaseException:
            file.close()
            raise
        return endpoint, listener, file
    except BaseException:
        listener.close()
        for path in (endpoint.path, endpoint.path.with_suffix(".new")):
            with suppress(OSError):
                path.unlink()
        raise


def _remove_stale_in(folder: Path) -> None:
    """Remove the endpoints of processes that were killed."""
    try:
        found = endpoints.endpoints_in(folder)
    except endpoints.NotPrivate:
        return
    for endpoint in found:
        if endpoint.kind == "json":
            # Its port is not tried: another program may listen there by now.
            endpoints.remove_stale(endpoint)
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(endpoint.path))
            except ConnectionRefusedError:
                endpoints.remove_stale(endpoint)
            except OSError:
                pass  # the queue of connections is full, so the process is running


async def _accept(listener: SocketListener, control: Control, token: str | None, group: TaskGroup) -> None:
    open_connections: set[SocketStream] = set()

    async def serve(stream: SocketStream) -> None:
        try:
            with anyio.move_on_after(CONNECTION_SECONDS):
                await _answer_request(stream, control, token)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # the client closed the connection
        except Exception:
            log.exception("a connection to the control socket failed unexpectedly")
        finally:
            open_connections.discard(stream)
            # The stream is closed even if the server is shutting down.
            with anyio.CancelScope(shield=True), suppress(Exception):
                await stream.aclose()

    while True:
        try:
            stream = await listener.accept()
        except anyio.ClosedResourceError:
            return
        except OSError as error:  # for example, there are no free file descriptors
            log.warning("a connection to the control socket could not be accepted: %s", error)
            await anyio.sleep(PAUSE_SECONDS)
            continue
        if len(open_connections) >= MAX_CONNECTIONS:
            await stream.aclose()
            continue
        open_connections.add(stream)
        group.start_soon(serve, stream)


async def _answer_request(stream: SocketStream, control: Control, token: str | None) -> None:
    if token is None and peer_user(stream.extra(SocketAttribute.raw_socket)) != os.geteuid():
        log.warning("a process of another user was rejected at the control socket")
        return
    lines = LineReader(stream, protocol.MAX_REQUEST)
    try:
        if token is not None and not await _authenticate(stream, lines, token):
            return
        answer = await control.answer(await lines.next())
    except protocol.BadMessage as error:
        answer = {"ok": False, "error": str(error)}
    data = protocol.encode(answer)
    if len(data) > protocol.MAX_ANSWER:
        data = protocol.encode({"ok": False, "error": f"the answer would be larger than {protocol.MAX_ANSWER} bytes"})
    await stream.send(data)


async def _authenticate(stream: SocketStream, lines: LineReader, token: str) -> bool:
    """Return True if the client has proved that it knows the token. This side then sends its own proof.

    The client proves first, so that a client without the token gets no proof.
    """
    ours = secrets.token_hex(16)
    await stream.send(protocol.encode({"nonce": ours}))
    message = protocol.decode(await lines.next())
    theirs = message.get("nonce")
    if not isinstance(theirs, str) or not protocol.proves(message.get("proof"), token, "client", (ours, theirs)):
        return False
    await stream.send(protocol.encode({"proof": protocol.proof(token, "server", (ours, theirs))}))
    return True
