"""Announcements of changed lists, for clients of both protocol eras.

A session of the handshake revisions gets a notification. Clients of newer revisions listen on a subscription. Changes
come in bursts, for example when servers connect or a file is saved, so all changes of a burst are announced together.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping


log = logging.getLogger("codemode_mcp.server")

DELAY_SECONDS: Final = 0.3
"""Seconds from a next_change to its announcement. Further changes in this time are announced with it."""
MIN_INTERVAL_SECONDS: Final = 2.0
"""Shortest time between two announcements, in seconds."""
SEND_SECONDS: Final = 5.0
"""Timeout of a notification in seconds."""

MAX_LISTS: Final = 64
"""Maximum number of lists of one kind that are watched, such as those of different callers. The oldest is dropped."""

ListKind = Literal["tools", "prompts", "resources"]


class Listener(Protocol):
    """A session of the handshake revisions."""

    async def notify(self, method: str, params: Mapping[str, Any] | None, /) -> None: ...


async def _notify(send: Callable[[], Awaitable[None]], seconds: float = SEND_SECONDS) -> None:
    """Send a notification, unless the client does not read or is leaving, which must not hinder the others."""
    with anyio.move_on_after(seconds):
        try:
            await send()
        except Exception as error:
            log.debug("a client could not be notified: %r", error)


class Outbox:
    """The notifications that wait for one client. Its `run` sends them one after the other.

    Args:
        send: sends one notification.
        most: maximum number of notifications that wait. Later ones are dropped.
        seconds: timeout of one notification.

    Attributes:
        waiting: the notifications by their keys, the oldest first.
        sent: set when everything is sent after `end`.
    """

    def __init__(
        self, send: Callable[[Any], Awaitable[None]], most: float = math.inf, seconds: float = SEND_SECONDS
    ) -> None:
        self._send = send
        self._most = most
        self._seconds = seconds
        self._wake = anyio.Event()
        self._ended = False
        self.waiting: dict[Hashable, Any] = {}
        self.sent = anyio.Event()

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= self._most

    def put(self, notification: Any, key: Hashable = None) -> None:
        """Send a notification soon. It replaces a waiting one with the same key."""
        if not self.is_full and not self._ended:
            self.waiting[key or object()] = notification
            self._wake.set()

    def end(self) -> None:
        """End `run` once everything is sent."""
        self._ended = True
        self._wake.set()

    def close(self) -> None:
        """Drop what waits, and end `run`."""
        self.waiting.clear()
        self.end()

    async def pause(self) -> None:
        """Return when the next notification may be sent."""

    async def run(self) -> None:
        while self.waiting or not self._ended:
            if not self.waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            await self.pause()
            if self.waiting:
                notification = self.waiting.pop(next(iter(self.waiting)))
                await _notify(partial(self._send, notification), self._seconds)
        self.sent.set()


class _WatchedLists:
    """The lists of one kind that were sent to clients.

    Args:
        describe: returns a comparable description of the current list for a key.
    """

    def __init__(self, describe: Callable[[Any], Hashable]) -> None:
        self._describe = describe
        self._sent: OrderedDict[Hashable, set[Hashable]] = OrderedDict()
        """Descriptions of the lists that were sent since the last announcement, and of the announced list, by key."""

    def listed(self, key: Hashable) -> None:
        self._sent.setdefault(key, set()).add(self._describe(key))
        self._sent.move_to_end(key)
        if len(self._sent) > MAX_LISTS:
            self._sent.popitem(last=False)

    def redescribe(self, before: Hashable, now: Hashable) -> None:
        for key, sent in self._sent.items():
            if before in sent:
                self._sent[key] = sent - {before} | {now}

    def changed(self) -> bool:
        """Return True if a list has changed since it was sent. Record the current lists as announced."""
        has_changed = False
        for key, sent in self._sent.items():
            now = self._describe(key)
            if sent - {now}:
                self._sent[key] = {now}
                has_changed = True
        return has_changed


class Announcer:
    """The lists that were sent to clients, and the sessions to notify when a list changes.

    Args:
        describe: returns a comparable description of the current list of tools.
        next_change: returns an event that is set when the list may have changed.
    """

    def __init__(self, describe: Callable[[], Hashable], next_change: Callable[[], anyio.Event]) -> None:
        self.describe = describe
        self._next_change = next_change
        self._lists: dict[ListKind, _WatchedLists] = {"tools": _WatchedLists(lambda _: self.describe())}
        self._sessions: dict[Listener, Callable[[ListKind], bool]] = {}
        self.publish: Callable[[ListKind], Awaitable[None]] | None = None
        """Notifies the subscriptions of newer revisions; None before the server is made."""

    def __repr__(self) -> str:
        return f"<Announcer: {len(self._sessions)} sessions>"

    def watch(self, kind: ListKind, describe: Callable[[Any], Hashable]) -> None:
        """Announce changes of a kind of lists, too.

        Args:
            describe: returns a comparable description of the current list for a key of `listed_for`.
        """
        self._lists[kind] = _WatchedLists(describe)

    def listed(self) -> None:
        """Record that a client gets the current list of tools. Nothing is announced before the first call."""
        self.listed_for("tools", None)

    def listed_for(self, kind: ListKind, key: Hashable) -> None:
        """Record that a client gets a current list. `key`: that on which the list depends, such as the caller."""
        self._lists[kind].listed(key)

    def redescribe(self, before: Hashable, now: Hashable) -> None:
        """Replace the description of a list of tools that has not changed. From now on, `describe` returns `now`."""
        self._lists["tools"].redescribe(before, now)

    def add(self, session: Listener, sees: Callable[[ListKind], bool] = lambda _: True) -> Callable[[], None]:
        """Notify a session of changes from now on. Return a function that removes the session.

        Args:
            sees: returns False for kinds of lists that the client does not see.
        """
        self._sessions[session] = sees

        def remove() -> None:
            self._sessions.pop(session, None)

        return remove

    def __contains__(self, session: Listener) -> bool:
        return session in self._sessions

    async def run(self) -> None:
        """Announce changes until cancelled."""
        while True:
            change = self._next_change()  # taken before the list is described, so that no change is missed
            changed = [kind for kind, lists in self._lists.items() if lists.changed()]
            if changed:
                for kind in changed:
                    await self._announce(kind)
                await anyio.sleep(MIN_INTERVAL_SECONDS)
            else:
                await change.wait()
                await anyio.sleep(DELAY_SECONDS)

    async def _announce(self, kind: ListKind) -> None:
        sessions = [session for session, sees in self._sessions.items() if sees(kind)]
        log.info("the list of %s has changed; notifying %d sessions", kind, len(sessions))
        if self.publish is not None:
            await self.publish(kind)
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(_notify, partial(session.notify, f"notifications/{kind}/list_changed", None))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            yield
            group.cancel_scope.cancel()
