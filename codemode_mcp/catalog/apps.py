"""MCP Apps: user interfaces that servers offer for the results of their tools. Pure.

An app is a resource with a `ui://` URI. A tool names its app in `_meta.ui.resourceUri`. With `_meta.ui.visibility`, it
says who may call it: the model, the app or both. Source: the extension `io.modelcontextprotocol/ui`, 2026-01-26.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import Tool, UpstreamView

SCHEME: Final = "ui://"

MAX_URI: Final = 2_000
"""Maximum length of the URI of an app in characters."""

LEGACY_KEY: Final = "ui/resourceUri"
"""Key of the URI in `_meta` before the key `ui` was introduced."""

_URI: Final = re.compile(r"ui://[!-~]+")


def is_app_uri(value: object) -> TypeGuard[str]:
    """Return True for the URI of an app: printable ASCII that begins with `ui://`."""
    return isinstance(value, str) and len(value) <= MAX_URI and _URI.fullmatch(value) is not None


def app_uri(tool: Tool) -> str | None:
    """Return the URI of a tool's app, as its server names it; None if it has none, or an invalid one."""
    meta = tool.meta or {}
    uri = _ui(tool).get("resourceUri", meta.get(LEGACY_KEY))
    return uri if is_app_uri(uri) else None


def is_for_apps_only(tool: Tool) -> bool:
    """Return True if only apps of its server may call a tool."""
    visibility = _visibility(tool)
    return visibility is not None and "model" not in visibility


def is_for_apps(tool: Tool) -> bool:
    """Return True if apps of its server may call a tool."""
    visibility = _visibility(tool)
    return visibility is None or "app" in visibility


def without_app_tools(view: UpstreamView) -> UpstreamView:
    """Return a view without the tools that only apps may call; the same object if there are none."""
    if not any(map(is_for_apps_only, view.tools)):
        return view
    return replace(view, tools=tuple(tool for tool in view.tools if not is_for_apps_only(tool)))


def app_tools_alone(view: UpstreamView) -> UpstreamView:
    """Return a view with the tools that only apps may call, and nothing else."""
    tools = tuple(filter(is_for_apps_only, view.tools))
    return replace(view, tools=tools, withheld={}, resources=False, prompts=False)


def _ui(tool: Tool) -> Mapping[str, Any]:
    ui = (tool.meta or {}).get("ui")
    return ui if isinstance(ui, dict) else {}


def _visibility(tool: Tool) -> list[Any] | None:
    found = _ui(tool).get("visibility")
    return found if isinstance(found, list) else None
