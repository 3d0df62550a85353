"""Serving over HTTP in the shared instance."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.process.app.http_service import become_ready, begin_serving
from codemode_mcp.process.instance.hello import HttpOptions, Refusal
from codemode_mcp.server.http.listener import CannotListen, listening, refusal_to_listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
