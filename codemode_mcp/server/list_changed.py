"""Announcements to clients that the answer to `tools/list` has changed, in both protocol eras.

A session of the handshake revisions gets a notification. Clients of newer revisions listen on a subscription. Changes
come in bursts, when servers connect or a file is saved, so they are announced together.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

log = logging.getLogger("codemode_mcp.server")

AFTER_SECONDS: Final = 0.3
"""Seconds from a change to its announcement. Further changes in this time are announced with it."""
REST_SECONDS: Final = 2.0
"""Least seconds between two announcements."""
SEND_SECONDS: Final = 5.0
"""Seconds after which a notification is given up."""


class Listener(Protocol):
    """A session of the handshake revisions."""

    async def send_tool_list_changed(self) -> None: ...


class Announcer:
    """The lists that clients have got, and the sessions to notify when a list changes.

    Args:
        shown: returns a comparable description of the current list.
        change: returns an event for the next time that the list may change.
    """

    def __init__(self, shown: Callable[[], Hashable], change: Callable[[], anyio.Event]) -> None:
        self._shown = shown
        self._change = change
        self._seen: set[Hashable] = set()
        """Lists that clients have got since the last announcement, and the list that was announced."""
        self._sessions: set[Listener] = set()
        self.publish: Callable[[], Awaitable[None]] | None = None
        """Notifies the subscriptions of newer revisions; None before the server is made."""

    def __repr__(self) -> str:
        return f"<Announcer: {len(self._sessions)} sessions>"

    def listed(self) -> None:
        """Record that a client gets the current list. Before the first time, nothing is announced."""
        self._seen.add(self._shown())

    def describe_again(self, before: Hashable, now: Hashable) -> None:
        """Replace the description of an unchanged list, for which `shown` returns `now` from now on."""
        if before in self._seen:
            self._seen = self._seen - {before} | {now}

    def add(self, session: Listener) -> Callable[[], None]:
        """Notify a session of changes from now on. Return a function that ends this."""
        self._sessions.add(session)
        return lambda: self._sessions.discard(session)

    def __contains__(self, session: Listener) -> bool:
        return session in self._sessions

    async def run(self) -> None:
        """Announce changes until cancelled."""
        while True:
            change = self._change()
            now = self._shown()
            if self._seen - {now}:
                self._seen = {now}
                await self._announce()
                await anyio.sleep(REST_SECONDS)
            else:
                await change.wait()
                await anyio.sleep(AFTER_SECONDS)

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
