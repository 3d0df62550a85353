"""The files of a trajectory: those that were put aside too, read line by line."""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.trace.timeline import Trace, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_NAMED: Final = 5
"""Runs that are named where it is not clear which is meant."""

MAX_EVENTS: Final = 200_000
"""Events of one run that are read."""

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes that are read as one line: a torn file may have gigabytes without the end of a line."""


class NoTrace(Exception):
    """There is no such trace; the message says why."""


def files_of(path: Path) -> list[Path]:
    """Return the trajectory's files that are there, the oldest first."""
    found = []
    for each in path.parent.glob(f"{_literal(path.name)}.*"):
        number = each.name[len(path.name) + 1 :]
        if number.isascii() and number.isdecimal():
            found.append((int(number), each))
    # Reading a pipe may never end.
    return [each for each in [*(each for _, each in sorted(found, reverse=True)), path] if each.is_file()]


def find(path: Path, prefix: str) -> Trace:
    """Return the trace of the run whose id begins so.

    Raises:
        NoTrace: there is none, or more than one.
        OSError: a file cannot be read.
    """
    run_id = _only_one(path, prefix)
    events: list[dict[str, Any]] = []
    requests: set[str] = set()
    for event in _events(path, (run_id,)):
        if len(events) < MAX_EVENTS and (_run_of(event) == run_id or event.get("run") == run_id):
            events.append(event)
            if event.get("kind") in ("exec", "wait", "answered"):
                requests.add(str(event.get("id")))
            elif isinstance(event.get("parent"), str) and event.get("kind") == "run_started":
                requests.add(event["parent"])
    # Events of a request before its run is known, and events that were lost meanwhile.
    known = {(event.get("id"), event.get("kind")) for event in events}
    times = [event["time"] for event in events if isinstance(event.get("time"), int | float)]
    processes = {event.get("pid") for event in events}
    for event in _events(path, (*sorted(requests), '"kind":"lost"')):
        if event.get("kind") == "lost":
            when = event.get("time")
            is_of = isinstance(when, int | float) and times and min(times) <= when <= max(times) + 1
            if is_of and event.get("pid") in processes:
                events.append(event)
        elif event.get("id") in requests and (event.get("id"), event.get("kind")) not in known:
            events.append(event)
    return trace_of(run_id, events)


def latest(path: Path, count: int) -> list[Trace]:
    """Return the runs, and the calls of pass-through mode, that began last, the newest first.

    Of their calls only the beginnings are read.

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
            # The file of a process that took a run over need not have its beginning.
            if event.get("kind") not in ("run_started", "taken_over", "call_started"):
                continue
            found[run_id] = []
            order.append(run_id)
            if len(order) > count:
                del found[order.popleft()]
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
    """Yield all events of the files, the oldest file first, one after the other.

    Raises:
        OSError: a file cannot be read.
    """
    return _events(path, ("",))


def _only_one(path: Path, prefix: str) -> str:
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
        looked = len(files_of(path))
        where = f"{path}, which is not there" if not looked else f"{path}" + (f" and {looked - 1} more" * (looked > 1))
        raise NoTrace(f"no run whose id begins with {prefix[:60]!r} is in {where}; codemode-mcp trace lists the latest")
    if len(found) > 1:
        named = ", ".join(each[:16] for each in [*found][:MAX_NAMED])
        more = " and more" if len(found) > MAX_NAMED else ""
        raise NoTrace(f"more than one run has an id that begins with {prefix[:60]!r}: {named}{more}; give more of it")
    return next(iter(found))


def _run_of(event: dict[str, Any]) -> str | None:
    """Return the run that an event belongs to: a run's own, or of a nested call."""
    about, kind = event.get("id"), event.get("kind")
    if not isinstance(about, str) or kind in ("exec", "wait", "answered", "lost"):
        return None
    return about.partition("/")[0]


def _events(path: Path, needles: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the events whose lines have any of these in them. Lines that are none, or torn, are passed over."""
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
    """Return True if the fields that identify an event are as we write them."""
    return (
        isinstance(event.get("kind"), str)
        and isinstance(event.get("id", ""), str)
        and isinstance(event.get("pid", 0), int)
    )


def _literal(name: str) -> str:
    """Return a name as a pattern of `glob` that is that name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
