"""The age of one list of a server: whether it was listed since the server last announced a change, and how long ago."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import anyio

from upstream_clients.tools import NO_HINT, CacheHint

ItemListName = Literal["prompts", "templates", "resources"]
ListName = Literal["tools", "prompts", "templates", "resources"]

ANNOUNCEMENTS: Final[Mapping[str, tuple[ListName, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("templates", "resources"),
}
"""The lists that notifications of servers are about. MCP has no notification for templates alone."""

SUBSCRIBED: Final[Mapping[ListName, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "templates": "resourcesListChanged",
    "resources": "resourcesListChanged",
}
"""The keys by which `subscriptions/listen` requests announcements of lists."""

ITEM_LISTS: Final[tuple[ItemListName, ...]] = ("prompts", "templates", "resources")

MIN_UNANNOUNCED_AGE = 1.0
"""Seconds for which a list counts as fresh if its server neither announces changes nor gives a time."""


class ListState:
    """The announcements and listings of one list. There is one listing at a time.

    Attributes:
        supported: True if the connected server has the list. Announcements of other lists are ignored.
        is_used: False until the list is first used. Before that, it is not requested.
        is_announced: True if the connected server announces changes of the list.
        is_listed: True if the list was requested in the current connection.
        changes: number of announcements so far.
        listed: the value of `changes` when the latest listing that has ended began.
        announced: set by an announcement. `begin` replaces it.
        wanted: set by a request that waits for a listing. `begin` replaces it.
        listed_at: monotonic seconds of the end of the latest listing.
        hint: the caching hint of the latest listing.
    """

    def __init__(self, *, supported: bool, is_used: bool = True) -> None:
        self.supported = supported
        self.is_used = is_used
        self.is_announced = False
        self.is_listed = False
        self.listed_at = 0.0
        self.hint = NO_HINT
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
        self.supported, self.listed, self.is_listed = supported, self.changes, False
        self.announce()

    def announce(self) -> None:
        """Note that the list has to be requested, because it is new or has changed."""
        if self.supported and self.is_used:
            self.changes += 1
            self.announced.set()

    def begin(self) -> None:
        self._begun, self.announced, self.wanted = self.changes, anyio.Event(), anyio.Event()

    def end(self, now: float, hint: CacheHint = NO_HINT) -> None:
        """Note the end of a listing, even a failed one."""
        self.listed, self.listed_at, self.hint, self.is_listed = self._begun, now, hint, True

    def fresh_ms(self, now: float) -> int:
        """Return the milliseconds for which the list still is fresh by the hint of the server; 0 without a hint."""
        if not self.is_current:
            return 0
        return max(0, self.hint.ttl_ms - round((now - self.listed_at) * 1000))

    def is_stale(self, now: float) -> bool:
        """Return True if the list should be requested again before it is used, although no change was announced."""
        if self.hint.ttl_ms:
            return not self.fresh_ms(now)
        return not self.is_announced and now - self.listed_at >= MIN_UNANNOUNCED_AGE
