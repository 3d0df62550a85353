"""The age of one list of a server: whether it was listed since the server last announced a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping

ItemListName = Literal["prompts", "templates"]
ListName = Literal["tools", "prompts", "templates"]

ANNOUNCEMENTS: Final[Mapping[str, ListName]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "templates",
}
"""The lists that notifications of servers are about. MCP has no notification for templates alone."""

SUBSCRIBED: Final[Mapping[ListName, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "templates": "resourcesListChanged",
}
"""The keys by which `subscriptions/listen` requests announcements of lists."""

ITEM_LISTS: Final[tuple[ItemListName, ...]] = ("prompts", "templates")


class ListState:
    """The announcements and listings of one list. There is one listing at a time.

    Attributes:
        supported: True if the connected server has the list. Announcements of other lists are ignored.
        changes: number of announcements so far.
        listed: the value of `changes` when the latest listing that has ended began.
        announced: set by an announcement. `begin` replaces it.
        wanted: set by a request that waits for a listing. `begin` replaces it.
    """

    def __init__(self, *, supported: bool) -> None:
        self.supported = supported
        self.changes = 0
        self.listed = 0
        self.announced = anyio.Event()
        self.wanted = anyio.Event()
        self._begun = 0
        """Value of `changes` when the latest listing began."""

    @property
    def is_current(self) -> bool:
        """True if a listing that began after the latest announcement has ended, even if it failed."""
        return self.listed >= self.changes

    def connected(self, *, supported: bool) -> None:
        """Note a new connection, which has not listed anything yet."""
        self.supported, self.listed = supported, self.changes
        self.announce()

    def announce(self) -> None:
        """Note that the list has to be requested, because it is new or has changed."""
        if self.supported:
            self.changes += 1
            self.announced.set()

    def begin(self) -> None:
        """Note the beginning of a listing. An announcement during the listing causes another one."""
        self._begun, self.announced, self.wanted = self.changes, anyio.Event(), anyio.Event()

    def end(self) -> None:
        """Note the end of a listing, even a failed one."""
        self.listed = self._begun
