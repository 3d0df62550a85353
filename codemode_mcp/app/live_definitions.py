"""The definitions of tools as programs of the operator see them, to which versions of saved programs are pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.trust.views import is_listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.saved_programs.used_tools import Definition
    from upstream_clients.tools import UpstreamView


class LiveDefinitions:
    """The implementation of `version_keeper.Definitions` by a catalog.

    Args:
        catalog: returns the present catalog.
        servers: returns the configured names of servers, by identifier.
        views: returns the views of servers.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        servers: Callable[[], Mapping[str, str]],
        views: Callable[[], Sequence[UpstreamView]],
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._views = views

    def at(self, path: str) -> Definition | None:
        return self._catalog().definition_at(path)

    def present(self) -> object:
        """Return the present catalog, which is another object after each change."""
        return self._catalog()

    def is_known(self, path: str) -> bool:
        identifier = path.removeprefix("MCP.").partition(".")[0]
        name = self._servers().get(identifier)
        return name is None or any(view.name == name and is_listed(view) for view in self._views())
