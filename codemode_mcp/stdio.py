"""The standard streams of `serve`: for MCP alone, whatever else runs in this process or is started by it."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import IO

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
