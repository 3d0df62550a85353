"""A client of the instance in pass-through mode: its tools are those of all servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.server.passthrough import Passthrough
from codemode_mcp.server.sdk_server import serve_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.app.app import App
    from codemode_mcp.policy.policy import Caller
    from codemode_mcp.server.line_stream import Lines


async def serve_passthrough(app: App, caller: Caller, lines: Lines, on_open: Callable[[Passthrough], None]) -> None:
    """Answer one client on its lines until it closes its end.

    Args:
        on_open: called first, with the object that answers.
    """
    passthrough = Passthrough(app, lambda _: caller, app.auditor, caller, lasting=True)
    on_open(passthrough)
    await serve_lines(passthrough.server, lines)
