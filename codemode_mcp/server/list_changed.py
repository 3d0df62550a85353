"""Tells clients that what `tools/list` answers has become another: both protocol eras, every live session.

A session of the older revisions is told by a notification of its own; in the newer one a client listens on a
subscription. Changes come in storms, when servers connect or a file is saved: few announcements follow from them.
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
"""Seconds from a change to its announcement: changes that come together are announced together."""
REST_SECONDS: Final = 2.0
"""Seconds from one announcement to the next."""
SEND_SECONDS: Final = 5.0
"""Seconds for a session that does not take its notification."""


class Listener(Protocol):
    """A session of the older revisions."""

    async def send_tool_list_changed(self) -> None: ...


class Announcer:
    """The lists that clients have got, and the sessions to notify of a change.

    It runs once, whatever carries the server, for as long as the server takes connections.

    Args:
        shown: what clients would be shown now, comparable.
        change: an event for the next time that this may have become another.
    """

    def __init__(self, shown: Callable[[], Hashable], change: Callable[[], anyio.Event]) -> None:
        self._shown = shown
        self._change = change
        self._seen: set[Hashable] = set()
        """Lists that clients have got since the last announcement, and the announced one."""
        self._sessions: set[Listener] = set()
        self.publish: Callable[[], Awaitable[None]] | None = None
        """Tells the subscriptions of the newer revisions; None while there can be none."""

    def __repr__(self) -> str:
        return f"<Announcer: {len(self._sessions)} sessions>"

    def listed(self) -> None:
        """Note that a client gets the present list. There are no notifications before the first one."""
        self._seen.add(self._shown())

    def describe_again(self, before: Hashable, now: Hashable) -> None:
        """Replace the description of an unchanged list: `shown` returns `now` for it from now on."""
        if before in self._seen:
            self._seen = self._seen - {before} | {now}

    def add(self, session: Listener) -> Callable[[], None]:
        """Tell a session of the older revisions from now on; returns what ends that."""
        self._sessions.add(session)

        def remove() -> None:
            self._sessions.discard(session)

        return remove

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
        log.info("the tool list has changed; %d sessions are told", len(self._sessions))
        if self.publish is not None:
            await self.publish()
        async with anyio.create_task_group() as group:
            for session in list(self._sessions):
                group.start_soon(_tell, session)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Announce changes for the time inside."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            yield
            group.cancel_scope.cancel()


async def _tell(session: Listener) -> None:
    with anyio.move_on_after(SEND_SECONDS):
        try:
            await session.send_tool_list_changed()
        except Exception as error:  # one session that is about to end must not keep the others from being told
            log.debug("a session could not be told: %r", error)
