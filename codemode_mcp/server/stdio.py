"""The standard streams of `serve`: for MCP alone, whatever else runs in this process or is started by it.

They are reserved before anything else is imported, so the SDK is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit import telemetry
from codemode_mcp.server.handshake import HandshakeSession, read_message
from codemode_mcp.server.lines import open_lines
from upstream_clients.jsonrpc import form_of, has_envelope

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.server.code_mode import Surface

Streams = tuple[int, int]
"""Descriptors to read from and to write to."""

MAX_OPENING: Final = 8
"""Messages before the first request that are kept, as the SDK keeps them; the first request decides the era."""

_STREAMS = (0, 1, 2)


def reserve() -> Streams:
    """Return the client's ends of standard input and output, as private descriptors that no child inherits.

    From then on, and for good, descriptor 0 reads nothing and descriptor 1 is standard error: what a plugin or library
    prints, immediately or when it is flushed at exit, does not get between the messages. Missing streams, as when the
    parent process has closed them, are returned as they are.
    """
    if sys.stdin is None or sys.stdout is None:
        return 0, 1
    try:
        client_in, client_out = _duplicate(0), _duplicate(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout.flush()  # what was printed before
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
    """Return a copy that children do not inherit, and that is not mistaken for a standard stream that was closed."""
    copies = [os.dup(stream)]
    while copies[-1] in _STREAMS:
        copies.append(os.dup(stream))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


# messages on them


async def serve_surface(surface: Surface, caller: Caller, streams: Streams) -> None:
    """Answer one client on its streams, in the era of its first request, until it closes its end."""
    async with open_lines(*streams) as lines:
        opening: list[str] = []
        handshake = not telemetry.is_configured()  # spans around requests are the SDK's
        while handshake and (line := await lines.receive()) is not None:
            message = read_message(line)
            is_request = message is not None and form_of(message) == "request"
            if is_request or len(opening) < MAX_OPENING:
                opening.append(line)
            if message is not None and is_request:
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

    async with open_lines(*streams) as lines:
        await serve_lines(server, lines)
