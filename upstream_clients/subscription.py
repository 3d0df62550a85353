"""A stream of changes that a modern server was asked for (`subscriptions/listen`, revision 2026-07-28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from upstream_clients.tools import JsonObject


class Subscription:
    """One stream, from the request until its end."""

    def __init__(self) -> None:
        self.acknowledged = anyio.Event()
        """Set when the server has acknowledged the stream, and when the stream has ended."""
        self.honored: JsonObject | None = None
        """The changes that the server will report, as JSON; None before the acknowledgement."""
        self.over = anyio.Event()
        self.lost = False
        """True if the stream ended without the server's answer."""

    def end(self, *, lost: bool) -> None:
        """Note the end of the stream. The first call counts."""
        if not self.over.is_set():
            self.lost = lost
            self.over.set()
            self.acknowledged.set()
