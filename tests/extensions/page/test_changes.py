"""Messages to open pages about changes: which ones, and how many."""

from __future__ import annotations

import anyio
import pytest

from codemode_mcp.audit import Auditor
from codemode_mcp.extensions.page.changes import IMMEDIATE_MESSAGES, PAUSE_SECONDS, REST_SECONDS, Changes, Stream

pytestmark = pytest.mark.anyio


class Time:
    """A clock that is set by hand."""

    now = 5.0

    def __call__(self) -> float:
        return self.now


async def told(stream: Stream, seconds: float) -> bool:
    """Return True if a page gets a message about a change within some seconds."""
    with anyio.move_on_after(seconds):
        await stream.next()
        return True
    return False


async def test_changes_without_end_are_told_a_few_times_and_then_once_in_a_pause() -> None:
    time = Time()
    stream = Stream(["runs"], time)
    for _ in range(IMMEDIATE_MESSAGES):
        stream.add(["runs"])
        assert await told(stream, PAUSE_SECONDS / 2)
    stream.add(["runs"])
    assert not await told(stream, PAUSE_SECONDS / 4)
    time.now += REST_SECONDS / 2
    assert not await told(stream, PAUSE_SECONDS / 4)
    for _ in range(IMMEDIATE_MESSAGES):
        time.now += REST_SECONDS
        stream.add(["runs"])
        assert await told(stream, PAUSE_SECONDS / 4)  # the page was at rest
    time.now += 10 * PAUSE_SECONDS
    assert not await told(stream, 0.05)  # nothing has changed since


async def test_a_page_gets_messages_about_the_topics_that_it_shows_only() -> None:
    changes = Changes(list, Time())
    async with changes.stream(["runs", "run:b"]) as stream, changes.stream(["clients"]) as other:
        changes.tell("servers", "run:a")
        assert not stream.has_changed
        changes.tell("servers", "run:b")
        assert await told(stream, PAUSE_SECONDS / 2)
        assert not other.has_changed
        assert changes.streams == 2
    assert changes.streams == 0


def test_a_watcher_learns_of_events_without_their_fields() -> None:
    auditor = Auditor()
    heard: list[tuple[str, str, str | None]] = []

    def fail(*_: object) -> None:
        raise RuntimeError

    def watch(kind: str, about: str, parent: str | None) -> None:
        heard.append((kind, about, parent))

    auditor.watch(fail)
    auditor.watch(watch)
    assert not auditor.listening
    auditor.emit("run_started", "run_a", "req_a", bytes=1)
    auditor.notice("call_started", "run_a/1", "run_a")
    assert heard == [("run_started", "run_a", "req_a"), ("call_started", "run_a/1", "run_a")]
    auditor.unwatch(watch)
    auditor.emit("run_ended", "run_a")
    assert len(heard) == 2
