"""The standard streams of `serve`, reserved for MCP: nothing else in this process or its children uses them.

The streams are reserved before most modules are imported, because an imported module may print. So this module imports
the SDK inside functions.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit import telemetry
from codemode_mcp.server.client_messages import read_or_refuse
from codemode_mcp.server.handshake import HandshakeSession
from codemode_mcp.server.line_stream import open_line_stream
from upstream_clients.jsonrpc import form_of, has_envelope

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.server.code_mode import Surface
    from codemode_mcp.server.line_stream import Lines

Streams = tuple[int, int]
"""Descriptors to read from and to write to."""

MAX_OPENING: Final = 8
"""Messages kept until the first request, which decides the protocol era. The SDK keeps the same number."""

_STREAMS = (0, 1, 2)


def reserve() -> Streams:
    """Return private copies of standard input and output, which no child inherits.

    Afterwards descriptor 0 is empty and descriptor 1 is standard error, until the process exits. So output of a plugin
    or library cannot get between the messages, even if it is flushed at exit. If the parent process has closed a
    stream, return descriptors 0 and 1 unchanged.
    """
    if sys.stdin is None or sys.stdout is None:
        return 0, 1
    try:
        client_in, client_out = _duplicate(0), _duplicate(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        sys.stdout.flush()  # earlier output goes to standard error too
    except OSError:
        return 0, 1
    if sys.platform == "win32":
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        for stream in (0, 1):
            rebind_std_handle_to_fd(stream)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return client_in, client_out


def _duplicate(stream: int) -> int:
    """Return a copy that children do not inherit, with a number other than those of the standard streams."""
    # The system gives the lowest free number. If the parent has closed standard error, that is 2, and everything that
    # writes to standard error would write to the client.
    copies = [os.dup(stream)]
    while copies[-1] in _STREAMS:
        copies.append(os.dup(stream))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


async def serve_surface(surface: Surface, caller: Caller, streams: Streams) -> None:
    """Answer one client on its streams, in the era of its first request, until it closes its end."""
    async with open_line_stream(*streams) as lines:
        await serve_surface_lines(surface, caller, lines)


async def serve_surface_lines(surface: Surface, caller: Caller, lines: Lines) -> None:
    """Answer one client on its lines, in the era of its first request, until it closes its end."""
    opening: list[str] = []
    handshake = not telemetry.is_configured()  # only the SDK makes spans of requests
    while handshake and (line := await lines.receive()) is not None:
        if (message := await read_or_refuse(line, lines.send)) is None:
            continue
        is_request = form_of(message) == "request"
        if is_request or len(opening) < MAX_OPENING:
            opening.append(line)
        if is_request:
            handshake = message["method"] == "initialize" or not has_envelope(message.get("params"))
            break
    lines.unread(opening)
    if handshake:
        await HandshakeSession(surface, lines, caller).serve()
    else:
        from codemode_mcp.server.sdk_server import code_mode_server, serve_lines

        await serve_lines(code_mode_server(surface, lambda _: caller), lines)


async def serve_server(server: Server[Any], streams: Streams) -> None:
    """Serve an SDK server to one client on its streams until it closes its end."""
    from codemode_mcp.server.sdk_server import serve_lines

    async with open_line_stream(*streams) as lines:
        await serve_lines(server, lines)
