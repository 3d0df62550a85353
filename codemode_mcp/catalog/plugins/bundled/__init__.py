"""Plugins that are a part of this product. They are registered as all others, with the source `core`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from codemode_mcp.catalog.plugins.bundled import duplicates, results

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import ToolSettings
    from codemode_mcp.catalog.plugins.api import PluginApi
    from codemode_mcp.catalog.plugins.bundled.results import ValueStore


def bundled(
    settings: Callable[[], ToolSettings], values: Callable[[], ValueStore]
) -> dict[str, Callable[[PluginApi], None]]:
    """Return the `register` functions of these plugins by name.

    Args:
        settings: returns the current settings.
        values: returns the store of values.
    """
    found: dict[str, Callable[[PluginApi], None]] = {"results": partial(results.register, values=values)}
    # In pass-through, the calls of a client belong to no run.
    if settings().code_mode.enabled:
        found["duplicates"] = partial(duplicates.register, settings=settings)
    return found
