"""The patterns of `expose.direct`: which tools clients get with their own schemas. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.policy.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.catalog.entries import Entry

UI_TOOLS = "ui"
"""The pattern for tools with an app."""

_SOURCES = ("mcp", "plugin")


class DirectPatterns:
    """Patterns as `ExposeSettings.direct` has them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = Rules(pattern for pattern in patterns if pattern != UI_TOOLS)
        self.with_apps = UI_TOOLS in patterns
        """True if tools with an app are chosen, for clients that show apps."""

    def __bool__(self) -> bool:
        return bool(self._rules) or self.with_apps

    def choose(self, entry: Entry) -> bool:
        """Return True if a pattern other than `ui` fits a tool of a server or of a plugin."""
        is_tool = entry.source in _SOURCES and entry.operation is None
        return is_tool and self._rules.first(entry.id, entry.effects) is not None
