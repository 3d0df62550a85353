"""The application as a server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.base.errors import CodeModeError

if TYPE_CHECKING:
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.http.listener import Listener
    from codemode_mcp.server.services import App


async def begin_serving(listener: Listener, opened: App, restriction: Caller) -> None:
    """Serve the clients of a listener from now on.

    Args:
        restriction: see `Caller.bound_as`.
    """
    from codemode_mcp.server.code_mode import Surface
    from codemode_mcp.server.http.listener import callers_bound_as
    from codemode_mcp.server.sdk_server import surface_server

    caller_of = callers_bound_as(restriction)
    opened.serves_http = True
    await listener.serve(surface_server(Surface(opened), caller_of))


async def become_ready(listener: Listener, opened: App) -> None:
    """Report readiness as soon as the engine is loaded and the servers are connected, or have had time to be."""
    try:
        if opened.code_mode:
            await opened.engine()
    except CodeModeError:
        return  # logged; without the engine the server never becomes ready
    await opened.wait_settled(None, opened.settings().code_mode.connect_wait_ms / 1000)
    listener.set_ready()
