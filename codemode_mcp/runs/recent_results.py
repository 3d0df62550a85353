"""The latest results of a run, as JSON text, with which an error of its program is explained.

They are kept only while the run is in memory, up to a limit. They are never stored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from codemode_mcp.did_you_mean import normalize_name

if TYPE_CHECKING:
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.described_values import Result

MAX_CHARACTERS: Final = 256 * 1024
MAX_RESULTS: Final = 32


class RecentResults:
    """The latest results, at most `MAX_RESULTS` with at most `MAX_CHARACTERS` together."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, str]] = deque()
        self._size = 0

    def add(self, called: str, text: str) -> None:
        """Add a result. `called`: the id of its tool, or the expression of a look-up."""
        if len(text) > MAX_CHARACTERS:
            return
        self._kept.append((called, text))
        self._size += len(text)
        while self._size > MAX_CHARACTERS or len(self._kept) > MAX_RESULTS:
            self._size -= len(self._kept.popleft()[1])

    def clear(self) -> None:
        """Remove all results."""
        self._kept.clear()
        self._size = 0

    def of(self, catalog: Catalog) -> list[Result]:
        """Return the results with the names by which a program calls their tools."""
        from codemode_mcp.program.described_values import Result  # only programs that fail need it

        return [Result(_names(called, catalog), text, _path(called, catalog)) for called, text in self._kept]


def _path(called: str, catalog: Catalog) -> str:
    entry = catalog.get(called)
    return called if entry is None else entry.path


def _names(called: str, catalog: Catalog) -> frozenset[str]:
    entry = catalog.get(called)
    if entry is None:
        return frozenset((normalize_name(called),))
    names = (entry.path, entry.id, f"MCP.{entry.source_name}.{entry.tool.name}", f"tools.{entry.tool.name}")
    return frozenset(map(normalize_name, names))
