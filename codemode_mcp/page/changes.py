"""Changes that open pages are told, each as a topic such as `runs`.

A page names the topics that it shows, and is only told that one of them has changed. While programs run, topics change
hundreds of times a second. So the first changes after a rest are told within `GATHER_SECONDS`, and later ones once in
`PAUSE_SECONDS`. A page that was not told yet costs a program a look at a flag for each event. Nothing is listened to
while no page is open.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from codemode_mcp.audit.events import EventKind
    from codemode_mcp.page.application import Application

log = logging.getLogger("codemode_mcp.page")

GATHER_SECONDS: Final = 0.03
"""Seconds for which changes are gathered, before a page is told."""

PAUSE_SECONDS: Final = 2.0
"""Seconds between two messages to a page whose topics change all the time."""

REST_SECONDS: Final = 1.0
"""Seconds without a change of its topics after which a page is at rest."""

IMMEDIATE_MESSAGES: Final = 3
"""Number of messages that a page gets without a pause after a rest."""

LOOK_SECONDS: Final = 1.0
"""Interval of looks at what reports no events: the applications, their servers and configurations."""

TICK_LOOKS: Final = 5
"""Number of looks after which pages that show times are told to show them again."""

MAX_STREAMS: Final = 24
"""Maximum number of pages that hear of changes at the same time."""

_OF_APPROVALS: Final = frozenset({"call_asked", "call_decided", "run_ended", "parked", "taken_over", "left"})


class Full(Exception):
    """Error for a page that cannot be told of changes, because `MAX_STREAMS` pages are."""


class Changes:
    """The changes of all applications.

    Args:
        applications: returns the open applications.
        clock: returns monotonic seconds.
    """

    def __init__(self, applications: Callable[[], Sequence[Application]], clock: Callable[[], float]) -> None:
        self._applications = applications
        self._clock = clock
        self._streams: set[Stream] = set()
        self._lines: dict[int, int] = {}
        """Number of the latest line of each server, by the number of the server."""
        self._heard: dict[int, tuple[Application, Any, Any]] = {}
        """The applications that are listened to, each with its last change and the state of its servers."""
        self._first = anyio.Event()

    def __repr__(self) -> str:
        return f"<Changes: {len(self._streams)} pages>"

    @property
    def streams(self) -> int:
        """The number of pages that hear of changes."""
        return len(self._streams)

    @asynccontextmanager
    async def stream(self, topics: Collection[str]) -> AsyncIterator[Stream]:
        """Tell a page of changes of topics for the duration of the context. Raise `Full`."""
        if len(self._streams) >= MAX_STREAMS:
            raise Full
        self._look()
        stream = Stream(topics, self._clock)
        self._streams.add(stream)
        self._first.set()
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._first = anyio.Event()
                self._hear(())

    def tell(self, *topics: str) -> None:
        """Tell all pages of changes."""
        for stream in self._streams:
            stream.add(topics)

    async def run(self) -> None:
        """Look for changes that no event reports, until cancelled."""
        looks = 0
        while True:
            await self._first.wait()
            await anyio.sleep(LOOK_SECONDS)
            self._look()
            looks += 1
            if looks % TICK_LOOKS == 0:
                self.tell("tick")

    def _look(self) -> None:
        """Listen to the applications that are open now, and notice changes of their servers and configurations."""
        applications = self._applications()
        self._hear(applications)
        lines: dict[int, int] = {}
        for application in applications:
            if application.control is not None:
                lines |= application.control.latest_lines()
        changed = [f"log:{number}" for number, line in lines.items() if self._lines.get(number) != line]
        if changed:
            self.tell(*changed)
        self._lines = lines

    def _hear(self, applications: Sequence[Application]) -> None:
        present = {id(each): each for each in applications}
        for key in [*self._heard]:
            if key not in present:
                self._heard.pop(key)[0].auditor.unwatch(self._on_event)
                self.tell("runs", "approvals", "servers", "clients")
        for key, application in present.items():
            change = application.change()
            servers = [(view.name, view.state, view.error) for view in application.server_views()]
            before = self._heard.get(key)
            if before is None:
                application.auditor.watch(self._on_event)
            if before is None or before[1:] != (change, servers):
                self._heard[key] = application, change, servers
                self.tell("servers", "tools", "trust", "policy", "programs")

    def _on_event(self, kind: EventKind, about: str, parent: str | None) -> None:
        waiting = [stream for stream in self._streams if not stream.has_changed]
        if not waiting:
            return
        run = parent if kind.startswith("call_") else about
        topics: Sequence[str] = ("runs", f"run:{run}", *(("approvals",) if kind in _OF_APPROVALS else ()))
        if kind in ("exec", "wait", "answered"):
            topics = ("clients",)
        elif kind == "server_restarted":
            topics = ("servers",)
        elif kind.startswith("program_"):
            topics = ("programs",)
        elif kind.startswith("item_"):
            topics = ("trust", "servers", "tools")
        for stream in waiting:
            stream.add(topics)


class Stream:
    """The changes of the topics of one page.

    Args:
        topics: the topics that the page shows.
        clock: returns monotonic seconds.

    Attributes:
        has_changed: True if the page has to be told of a change.
    """

    def __init__(self, topics: Collection[str], clock: Callable[[], float]) -> None:
        self.has_changed = False
        self._wanted = frozenset(topics)
        self._clock = clock
        self._ready = anyio.Event()
        self._left = IMMEDIATE_MESSAGES
        """Number of messages that can be sent without a pause, until the next rest."""
        self._sent = clock()

    def add(self, topics: Collection[str]) -> None:
        """Note that topics have changed."""
        if not self.has_changed and not self._wanted.isdisjoint(topics):
            self.has_changed = True
            self._ready.set()

    async def next(self) -> None:
        """Wait until the page has to be told of a change, and may be told of it."""
        await self._ready.wait()
        now = self._clock()
        if now - self._sent >= REST_SECONDS:
            self._left = IMMEDIATE_MESSAGES
        await anyio.sleep(GATHER_SECONDS if self._left else max(GATHER_SECONDS, self._sent + PAUSE_SECONDS - now))
        self._left = max(0, self._left - 1)
        self._sent = self._clock()
        self._ready, self.has_changed = anyio.Event(), False
