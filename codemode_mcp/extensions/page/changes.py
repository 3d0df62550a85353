"""The application as the page needs it, and the changes that open pages are told.

A page names the topics that it shows, and is only told that one of them has changed. While programs run, topics change
hundreds of times a second. So the first changes after a rest are told within `GATHER_SECONDS`, and later ones once in
`PAUSE_SECONDS`. A page that was not told yet costs a program a look at a flag for each event. Nothing is listened to
while no page is open.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from codemode_mcp.audit.events import EventKind
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.server.control.answers import Control, Where
    from codemode_mcp.server.services import App

    Stored = tuple[list[tuple[RunView, Where]], dict[str, Any]]


log = logging.getLogger("codemode_mcp.extensions.page")

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

    def __init__(self, applications: Callable[[], Sequence[App]], clock: Callable[[], float]) -> None:
        self._applications = applications
        self._clock = clock
        self._streams: set[Stream] = set()
        self._lines: dict[int, int] = {}
        """Number of the latest line of each server, by the number of the server."""
        self._heard: dict[int, tuple[App, Any, Any]] = {}
        """The applications that are listened to, each with its last change and the state of its servers."""
        self._first = anyio.Event()

    def __repr__(self) -> str:
        return f"<Changes: {len(self._streams)} pages>"

    @property
    def streams(self) -> int:
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

    def _hear(self, applications: Sequence[App]) -> None:
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


# The runs that only a store has, as they were a short time ago.
#
# Reading thousands of runs takes a fraction of a second of a processor, and an open page asks for them again and again.
# So they are read again in the background, for a small share of the time at most. Pages are told if they have changed.


FRESH_SECONDS: Final = 1.0
"""Age up to which stored runs are not read again."""

SHARE: Final = 40.0
"""Stored runs are not read again before this multiple of the time that it took has passed."""

OLD_SECONDS: Final = 60.0
"""Age from which a page waits until they are read again."""


class StoredRuns:
    """The stored runs of each application.

    Args:
        clock: returns monotonic seconds.
        on_change: called after they were read again, if they have changed.
    """

    def __init__(self, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._read: WeakKeyDictionary[Control, tuple[Stored, float, float]] = WeakKeyDictionary()
        """The stored runs, the time at which they were read, and how long that took."""
        self._reading: WeakKeyDictionary[Control, asyncio.Task[None]] = WeakKeyDictionary()

    async def of(self, control: Control) -> tuple[Stored, int]:
        """Return the stored runs of an application, and the milliseconds since they were read."""
        known = self._read.get(control)
        now = self._clock()
        if known is None or now - known[1] > OLD_SECONDS:
            await self._read_again(control)
            return self._read[control][0], 0
        stored, at, took = known
        if now - at > max(FRESH_SECONDS, SHARE * took) and control not in self._reading:
            task = asyncio.get_running_loop().create_task(self._read_in_background(control))
            self._reading[control] = task
        return stored, round((now - at) * 1000)

    async def _read_in_background(self, control: Control) -> None:
        before = self._read[control][0]
        try:
            await self._read_again(control)
        except Exception:
            log.exception("stored runs could not be read")
        finally:
            self._reading.pop(control, None)
        if _signature(before) != _signature(self._read[control][0]):
            self._on_change()

    async def _read_again(self, control: Control) -> None:
        began = self._clock()
        stored = await control.stored()
        now = self._clock()
        self._read[control] = stored, now, now - began


def _signature(stored: Stored) -> Any:
    views, store = stored
    return {(view.id, view.state, view.approvals, where) for view, where in views}, store.get("problem")
