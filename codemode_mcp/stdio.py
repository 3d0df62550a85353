"""The standard streams of `serve`: for MCP alone, whatever else runs in this process or is started by it.

They are reserved before anything else is imported, so the SDK is imported where it is used.
"""

from __future__ import annotations

import json
import os
import sys
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    import contextvars

    from mcp.server.lowlevel import Server
    from mcp.shared._context_streams import ContextReceiveStream
    from mcp.shared.message import SessionMessage

_STREAMS = (0, 1, 2)


def reserve() -> tuple[IO[str], IO[str]] | None:
    """The client's ends of standard input and output, as private descriptors that no child inherits.

    From then on, and for good, descriptor 0 reads nothing and descriptor 1 is standard error: what a plugin or library
    prints, at once or when it is flushed at exit, does not get between the messages. None where there are no such
    streams, as when they were closed by whoever started this.
    """
    if sys.stdin is None or sys.stdout is None:
        return None
    try:
        client_in, client_out = _duplicate(0), _duplicate(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout.flush()  # what was printed before
    except OSError:
        return None
    if sys.platform == "win32":
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        for stream in (0, 1):
            rebind_std_handle_to_fd(stream)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    # A thread may still read from one of them when everything else has ended, so nobody closes them.
    return (
        _Unowned(os.fdopen(client_in, "rb", closefd=False), encoding="utf-8", errors="replace"),
        _Unowned(os.fdopen(client_out, "wb", closefd=False), encoding="utf-8"),
    )


class _Unowned(TextIOWrapper):
    def close(self) -> None:
        if not self.closed:
            self.detach()


def _duplicate(stream: int) -> int:
    """A copy that children do not inherit, and that is not mistaken for a standard stream that was closed."""
    copies = [os.dup(stream)]
    while copies[-1] in _STREAMS:
        copies.append(os.dup(stream))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


# messages on them


async def serve_stdio(server: Server[Any], streams: tuple[IO[str], IO[str]] | None = None) -> None:
    """Serve on the process's standard streams, or on `streams`, until the client closes its end."""
    from mcp.server.stdio import stdio_server

    ends = (None, None) if streams is None else (anyio.wrap_file(streams[0]), anyio.wrap_file(streams[1]))
    async with stdio_server(*ends) as (read, write):
        await server.run(_Lines(read), write, server.create_initialization_options())


class _Lines:
    """The messages of a stdio client. JSON may hold half of a surrogate pair as an escape, which the SDK's parser
    refuses: its request would never be answered. Such a line is read again, with U+FFFD in the place of that half.
    """

    def __init__(self, inner: ContextReceiveStream[SessionMessage | Exception]) -> None:
        self._inner = inner

    @property
    def last_context(self) -> contextvars.Context | None:
        return self._inner.last_context

    async def receive(self) -> SessionMessage | Exception:
        item = await self._inner.receive()
        return _read_again(item) if isinstance(item, Exception) else item

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await anext(self._inner)
        return _read_again(item) if isinstance(item, Exception) else item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Lines:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _read_again(error: Exception) -> SessionMessage | Exception:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    from codemode_mcp.bridge import joined_halves

    if not isinstance(error, ValidationError):
        return error
    line = error.errors(include_url=False, include_context=False)[0]["input"]
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
        whole = joined_halves(text)
        return error if whole == text else SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
    except (TypeError, ValueError, RecursionError):
        return error
