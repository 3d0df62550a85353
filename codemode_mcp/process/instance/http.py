"""Serving over HTTP in the shared instance."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.process.instance.hello import HttpOptions, Refusal
from codemode_mcp.server.http.listener import Listener, listening, refusal_to_listen
from codemode_mcp.server.http.sockets import CannotListen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App


@asynccontextmanager
async def serving_http(app: App, options: HttpOptions) -> AsyncIterator[str]:
    """Serve an application over HTTP for the duration of the context. Yield the URL.

    Raises:
        Refusal: the address cannot be used, or must not be used without authentication.
    """
    settings = app.config.http
    refusal = refusal_to_listen(settings, options.host, allowed=options.allow_unauthenticated)
    if refusal is not None:
        raise Refusal("failed", refusal)
    try:
        async with (
            listening(settings, options.host, options.port, options.path) as listener,
            anyio.create_task_group() as group,
        ):
            await begin_serving(listener, app, app.operator)
            group.start_soon(become_ready, listener, app)
            try:
                yield listener.url
            finally:
                with anyio.CancelScope(shield=True):
                    await listener.drain()
                group.cancel_scope.cancel()
    except CannotListen as error:
        raise Refusal("failed", str(error)) from None


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
