"""A reader for the files of a trajectory, including full files that were renamed. Files are read line by line."""

from __future__ import annotations

import glob
import json
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.timeline import Trace, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_NAMED: Final = 5
"""Maximum number of runs that the message about an ambiguous id lists."""

MAX_EVENTS: Final = 200_000
"""Maximum number of events of one run that are read."""

MAX_LINE: Final = 64 * 1024 * 1024
"""Maximum number of bytes that are read as one line. A damaged file may have gigabytes without a line end."""


class NoTrace(Exception):
    """An error for an id that no run has, or that several runs have. The message is for the user."""


def files_of(path: Path) -> list[Path]:
    """Return the existing files of a trajectory, oldest first."""
    found = []
    for each in path.parent.glob(f"{glob.escape(path.name)}.*"):
        number = each.name[len(path.name) + 1 :]
        if number.isascii() and number.isdecimal():
            found.append((int(number), each))
    # Other kinds of files are left out: reading a pipe may never end.
    return [each for each in [*(each for _, each in sorted(found, reverse=True)), path] if each.is_file()]


def find(path: Path, prefix: str) -> Trace:
    """Return the trace of the run whose id begins with `prefix`.

    Raises:
        NoTrace: no run has such an id, or several runs have one.
        OSError: a file cannot be read.
    """
    run_id = _complete_id(path, prefix)
    events: list[dict[str, Any]] = []
    requests: set[str] = set()
    for event in _events(path, (run_id,)):
        if len(events) < MAX_EVENTS and (_run_of(event) == run_id or event.get("run") == run_id):
            events.append(event)
            if event.get("kind") in ("exec", "wait", "answered"):
                requests.add(str(event.get("id")))
            elif isinstance(event.get("parent"), str) and event.get("kind") == "run_started":
                requests.add(event["parent"])
    # A request may begin before its run has an id, so its first events do not name the run. A second pass finds them.
    # It also finds the reports of lost events.
    known = {(event.get("id"), event.get("kind")) for event in events}
    times = [event["time"] for event in events if isinstance(event.get("time"), int | float)]
    processes = {event.get("pid") for event in events}
    for event in _events(path, (*sorted(requests), '"kind":"lost"')):
        if event.get("kind") == "lost":
            when = event.get("time")
            is_during_run = isinstance(when, int | float) and times and min(times) <= when <= max(times) + 1
            if is_during_run and event.get("pid") in processes:
                events.append(event)
        elif event.get("id") in requests and (event.get("id"), event.get("kind")) not in known:
            events.append(event)
    return trace_of(run_id, events)


def latest(path: Path, count: int) -> list[Trace]:
    """Return the traces of the latest runs and pass-through calls, newest first.

    The traces of runs have the beginnings of their calls, but not the ends.

    Raises:
        OSError: a file cannot be read.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    order: deque[str] = deque()
    for event in _events(path, ('"kind":"run_', '"kind":"taken_over"', '"id":"call_')):
        run_id = _run_of(event)
        if run_id is None:
            continue
        if run_id not in found:
            # A run that was taken over may have begun in the file of another process.
            if event.get("kind") not in ("run_started", "taken_over", "call_started"):
                continue
            found[run_id] = []
            order.append(run_id)
            if len(order) > count:
                del found[order.popleft()]
        # Keep at most four events of a run, but always keep its end.
        if event.get("kind") == "run_ended":
            del found[run_id][3:]
        if len(found[run_id]) < 4:
            found[run_id].append(event)
    if order:
        for event in _events(path, tuple(f'"id":"{run_id}/' for run_id in order)):
            if event.get("kind") == "call_started" and (run_id := _run_of(event)) in found:
                found[run_id].append(event)
    return [trace_of(run_id, found[run_id]) for run_id in reversed(order)]


def every(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all events, in the order in which they were written.

    Raises:
        OSError: a file cannot be read.
    """
    return _events(path, ("",))


def events_with(path: Path, needles: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the events whose lines contain one of the needles, in the order in which they were written.

    Raises:
        OSError: a file cannot be read.
    """
    return _events(path, needles)


def _complete_id(path: Path, prefix: str) -> str:
    """Return the id of the only run whose id begins with `prefix`, or raise `NoTrace`."""
    found: dict[str, None] = {}
    for event in _events(path, (prefix,)):
        run_id = _run_of(event)
        if run_id == prefix:
            return run_id
        if run_id is not None and run_id.startswith(prefix):
            found[run_id] = None
            if len(found) > MAX_NAMED:
                break
    if not found:
        count = len(files_of(path))
        where = f"{path}, which does not exist" if not count else f"{path}" + (f" and {count - 1} more" * (count > 1))
        raise NoTrace(f"no run whose id begins with {prefix[:60]!r} is in {where}; codemode-mcp trace lists the latest")
    if len(found) > 1:
        ids = ", ".join(each[:16] for each in [*found][:MAX_NAMED])
        more = " and more" if len(found) > MAX_NAMED else ""
        raise NoTrace(f"several runs have an id that begins with {prefix[:60]!r}: {ids}{more}; give more of the id")
    return next(iter(found))


def _run_of(event: dict[str, Any]) -> str | None:
    """Return the id of the run of an event about a run or a nested call. Return None for other events."""
    about, kind = event.get("id"), event.get("kind")
    if not isinstance(about, str) or kind in ("exec", "wait", "answered", "lost"):
        return None
    return about.partition("/")[0]


def _events(path: Path, needles: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the events whose lines contain one of the needles. Damaged lines are skipped."""
    wanted = [needle.encode("utf-8", "surrogatepass") for needle in needles]
    for each in files_of(path):
        with each.open("rb") as file:
            for line in iter(partial(file.readline, MAX_LINE), b""):
                if not any(needle in line for needle in wanted):
                    continue
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict) and _is_event(event):
                    yield event


def _is_event(event: dict[str, Any]) -> bool:
    """Return True if the fields that identify an event have valid types."""
    return (
        isinstance(event.get("kind"), str)
        and isinstance(event.get("id", ""), str)
        and isinstance(event.get("pid", 0), int)
    )
