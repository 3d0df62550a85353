"""The mode that the path of an HTTP request names: `/mcp/search` for the mode `search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from codemode_mcp.settings import ExposeMode

PATH_MODE: Final = "codemode_mcp.path_mode"
"""Key of the mode in an ASGI scope."""


def path_mode_of(context: ServerRequestContext[Any]) -> ExposeMode | None:
    """Return the mode that the path of a request names; None over stdio and on the main path."""
    mode: ExposeMode | None = None if context.request is None else context.request.scope.get(PATH_MODE)
    return mode
