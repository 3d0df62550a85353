"""Changes that open pages are told, each as a topic such as `runs`.

Nothing is listened to while no page is open. An event of a run only adds a topic to a set, so that it costs a program
almost nothing. The topics of `GATHER_SECONDS` are sent together.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from codemode_mcp.audit.events import Event
    from codemode_mcp.page.application import Application

log = logging.getLogger("codemode_mcp.page")

GATHER_SECONDS: Final = 0.03
"""Seconds for which the topics of events are gathered, before they are sent."""

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
    """

    def __init__(self, applications: Callable[[], Sequence[Application]]) -> None:
        self._applications = applications
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
    async def stream(self) -> AsyncIterator[Stream]:
        """Tell a page of changes for the duration of the context. Raise `Full`."""
        if len(self._streams) >= MAX_STREAMS:
            raise Full
        stream = Stream()
        self._streams.add(stream)
        self._look()
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
        if self._streams:
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
                self._heard.pop(key)[0].auditor.remove(self._on_event)
                self.tell("runs", "approvals", "servers", "clients")
        for key, application in present.items():
            change = application.change()
            servers = [(view.name, view.state, view.error) for view in application.server_views()]
            before = self._heard.get(key)
            if before is None:
                application.auditor.add(self._on_event)
            if before is None or before[1:] != (change, servers):
                self._heard[key] = application, change, servers
                self.tell("servers", "tools", "trust", "policy")

    def _on_event(self, event: Event) -> None:
        run = event.parent if event.kind.startswith("call_") else event.id
        topics = ("runs", f"run:{run}", *(("approvals",) if event.kind in _OF_APPROVALS else ()))
        if event.kind in ("exec", "wait", "answered"):
            topics = ("clients",)
        elif event.kind == "server_restarted":
            topics = ("servers",)
        elif event.kind.startswith("item_"):
            topics = ("trust", "servers", "tools")
        for stream in self._streams:
            stream.add(topics)


class Stream:
    """The topics of one page that it was not told of yet."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._ready = anyio.Event()

    def add(self, topics: Sequence[str]) -> None:
        """Add topics."""
        self._topics.update(topics)
        self._ready.set()

    async def next(self) -> list[str]:
        """Wait for topics, and return them."""
        await self._ready.wait()
        await anyio.sleep(GATHER_SECONDS)
        self._ready = anyio.Event()
        topics, self._topics = self._topics, set()
        return sorted(topics)
