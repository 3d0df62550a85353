"""Announcements to clients that the answer to `tools/list` has changed, in both protocol eras.

A session of the handshake revisions gets a notification. Clients of newer revisions listen on a subscription. Changes
come in bursts, for example when servers connect or a file is saved, so all changes of a burst are announced together.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

log = logging.getLogger("codemode_mcp.server")

DELAY_SECONDS: Final = 0.3
"""Seconds from a next_change to its announcement. Further changes in this time are announced with it."""
MIN_INTERVAL_SECONDS: Final = 2.0
"""Shortest time between two announcements, in seconds."""
SEND_SECONDS: Final = 5.0
"""Timeout of a notification in seconds."""


class Listener(Protocol):
    """A session of the handshake revisions."""

    async def send_tool_list_changed(self) -> None: ...


class Announcer:
    """The lists that were sent to clients, and the sessions to notify when a list changes.

    Args:
        describe: returns a comparable description of the current list.
        next_change: returns an event that is set when the list may have changed.
    """

    def __init__(self, describe: Callable[[], Hashable], next_change: Callable[[], anyio.Event]) -> None:
        self.describe = describe
        self._next_change = next_change
        self._sent: set[Hashable] = set()
        """Descriptions of the lists that were sent since the last announcement, and of the announced list."""
        self._sessions: set[Listener] = set()
        self.publish: Callable[[], Awaitable[None]] | None = None
        """Notifies the subscriptions of newer revisions; None before the server is made."""

    def __repr__(self) -> str:
        return f"<Announcer: {len(self._sessions)} sessions>"

    def listed(self) -> None:
        """Record that a client gets the current list. Nothing is announced before the first call."""
        self._sent.add(self.describe())

    def redescribe(self, before: Hashable, now: Hashable) -> None:
        """Replace the description of a list that has not changed. From now on, `describe` returns `now` for it."""
        if before in self._sent:
            self._sent = self._sent - {before} | {now}

    def add(self, session: Listener) -> Callable[[], None]:
        """Notify a session of changes from now on. Return a function that removes the session."""
        self._sessions.add(session)
        return lambda: self._sessions.discard(session)

    def __contains__(self, session: Listener) -> bool:
        return session in self._sessions

    async def run(self) -> None:
        """Announce changes until cancelled."""
        while True:
            change = self._next_change()  # taken before the list is described, so that no change is missed
            now = self.describe()
            if self._sent - {now}:
                self._sent = {now}
                await self._announce()
                await anyio.sleep(MIN_INTERVAL_SECONDS)
            else:
                await change.wait()
                await anyio.sleep(DELAY_SECONDS)

    async def _announce(self) -> None:
        log.info("the tool list has changed; notifying %d sessions", len(self._sessions))
        if self.publish is not None:
            await self.publish()
        async with anyio.create_task_group() as group:
            for session in list(self._sessions):
                group.start_soon(_notify, session)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Announce changes for the duration of the context."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            yield
            group.cancel_scope.cancel()


async def _notify(session: Listener) -> None:
    with anyio.move_on_after(SEND_SECONDS):
        try:
            await session.send_tool_list_changed()
        except Exception as error:  # a session that is ending must not prevent the notification of others
            log.debug("a session could not be notified: %r", error)
