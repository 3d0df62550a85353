"""The reading of trajectories: their files, the timelines of runs, and who decided what."""

from __future__ import annotations

import glob
import json
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field, structs

from codemode_mcp.audit.events import mapping, number, text

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
    return (
        isinstance(event.get("kind"), str)
        and isinstance(event.get("id", ""), str)
        and isinstance(event.get("pid", 0), int)
    )


# The decisions in a trajectory: who decided what, and why.


MAX_DECISIONS: Final = 500
"""Maximum number of decisions that are read, the latest ones."""

MAX_ASKED: Final = 20_000
"""Maximum number of calls whose reason for asking is remembered until they are decided."""

MAX_HELD: Final = 20_000
"""Maximum number of items whose latest state is remembered while a trajectory is read."""

_SUBJECTS: Final = {
    "call_decided": "a call",
    "tool_switched": "a tool",
    "item_accepted": "what a server lists",
    "item_rejected": "what a server lists",
    "item_held": "what a server lists",
    "server_restarted": "a server",
    "program_proposed": "a saved program",
    "program_accepted": "a saved program",
    "program_rejected": "a saved program",
    "program_removed": "a saved program",
}
"""Subjects of decisions, by the kind of their event."""

_PERSONS: Final = {"terminal": "a person at a terminal", "page": "a person at the page"}
"""Sources of decisions of a person in words, by their names in events about calls."""

_MARKS: Final = ('"kind":"call_asked"', '"why":', *(f'"kind":"{kind}"' for kind in _SUBJECTS))
"""Texts of which the line of a decision, or of a question, has one."""


class Decision(Struct, frozen=True):
    """One decision.

    Attributes:
        time: Unix seconds.
        kind: the kind of the subject, in words.
        subject: the tool, server or item.
        done: the decision, in words.
        by: who decided, in words.
        remember: `run` or `always` for an approval that also holds for later calls.
        run: the id of the run, for a call.
    """

    time: float
    kind: str
    subject: str
    done: str
    by: str
    why: str
    remember: str = ""
    run: str = ""


def decisions_in(path: Path) -> list[Decision]:
    """Return the latest decisions of a trajectory, newest first. Raise `OSError`. Blocks."""
    return [*reversed(deque(_read(_events(path, _MARKS)), MAX_DECISIONS))]


def _read(events: Iterable[Mapping[str, Any]]) -> Iterator[Decision]:
    reasons: OrderedDict[str, str] = OrderedDict()
    held: dict[str, tuple[str, str]] = {}
    for event in events:
        kind, about = text(event, "kind"), text(event, "id")
        if kind.startswith("item_"):
            # Each process that sees the list reports a held item. Only the first of these events is a decision.
            state = text(event, "status"), text(event, "digest")
            if kind == "item_held" and held.get(about) == state:
                continue
            held[about] = state
            if len(held) > MAX_HELD:
                held.clear()
        if kind == "call_asked":
            reasons[about] = text(event, "reason")
            if len(reasons) > MAX_ASKED:
                reasons.popitem(last=False)
        elif kind in _SUBJECTS or (kind == "call_ended" and text(event, "why")):
            yield _decision(event, kind, about, reasons.pop(about, ""))


def _decision(event: Mapping[str, Any], kind: str, about: str, reason: str) -> Decision:
    subject, by = about, text(event, "by")
    match kind:
        case "call_decided":
            done = "approved" if event.get("approved") is True else "denied"
            subject, by = text(event, "tool") or about, _PERSONS.get(by, by)
        case "call_ended":
            done, by = "refused", "policy"
            subject = text(event, "tool") or about
        case "tool_switched":
            done = "switched on" if event.get("on") is True else "switched off"
        case "item_held":
            done, by = "held", "the pins"
        case "program_proposed":
            done, by = "proposed", "a program"
        case _:
            done = kind.partition("_")[2]
    run, _, call = about.partition("/")
    return Decision(
        time=number(event.get("time")) or 0.0,
        kind=_SUBJECTS.get(kind, "a call"),
        subject=subject,
        done=done,
        by=by,
        why=": ".join(filter(None, (reason, text(event, "why") or text(event, "status")))),
        remember=text(event, "remember"),
        run=run if call else "",
    )


# The timeline of a run, built from the run's events, and the scale of its drawing.


PAUSE_SHARE: Final = 0.08
"""Maximum width of a pause, as a share of the total width of the active time."""


class Bar(Struct, frozen=True):
    """A span of time, in Unix seconds.

    Attributes:
        ended: None if no end is recorded.
    """

    began: float
    ended: float | None = None
    detail: str = ""


class Request(Struct, frozen=True):
    """An `exec` or `wait` request for the run.

    Attributes:
        number: the id of the request, which the client chose.
    """

    kind: str
    time: Bar
    number: str = ""
    status: str = ""
    code: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> str:
        return " ".join(filter(None, (self.status, self.code))) or "no answer recorded"


class Call(Struct, frozen=True):
    """A nested call.

    Attributes:
        made: Unix seconds at which the program made the call. The call was queued until the beginning of `time`.
        status: `completed` or `failed`; empty if no end is recorded.
        size: bytes of the result.
        asked: the time for which the call waited for approval. The detail is the decision.
    """

    id: str
    tool: str
    made: float
    time: Bar
    status: str = ""
    code: str = ""
    size: int = 0
    dispatched: bool = False
    repeatable: bool = False
    asked: Bar | None = None
    input: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> str:
        if self.status == "completed":
            return size(self.size)
        return ": ".join(filter(None, (self.status, self.code))) or "no end recorded"

    def milliseconds(self, until: float) -> float:
        """Return the milliseconds from the making of the call to its end.

        Args:
            until: Unix seconds that are used for the end if no end is recorded.
        """
        return max(0.0, (until if self.time.ended is None else self.time.ended) - self.made) * 1000


class Takeover(Struct, frozen=True):
    """The moment at which a process took over the run of another process.

    Attributes:
        at: Unix seconds.
        process: the id of the new process; None if it is not recorded.
    """

    at: float
    process: int | None = None


class Trace(Struct, frozen=True):
    """The timeline of one run.

    Attributes:
        id: the id of the run, or of a call in pass-through mode.
        latest: Unix seconds of the last event.
        status: empty if no end is recorded.
        about: further facts, in words.
        takeovers: takeovers by other processes. Events of these processes are included if they are in the same file.
        lost: number of events that were lost during the run.
    """

    id: str
    time: Bar
    latest: float
    status: str = ""
    code: str = ""
    requests: tuple[Request, ...] = ()
    calls: tuple[Call, ...] = ()
    pauses: tuple[Bar, ...] = ()
    about: tuple[str, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    lost: int = 0

    @property
    def earliest(self) -> float:
        """Return the Unix seconds at which the timeline begins. A request may begin before its run."""
        return min([self.time.began, *(request.time.began for request in self.requests)])

    @property
    def until(self) -> float:
        return self.latest if self.time.ended is None else max(self.time.ended, self.latest)


def trace_of(run_id: str, events: Iterable[Mapping[str, Any]]) -> Trace:
    """Return the trace of a run.

    Args:
        events: the events of the run, in any order. Events without a valid time are ignored.
    """
    ordered = sorted((event for event in events if number(event.get("time")) is not None), key=_time)
    began = ended = None
    status = code = ""
    about: list[str] = []
    requests: dict[str, Request] = {}
    calls: dict[str, Call] = {}
    pauses: list[Bar] = []
    takeovers: list[Takeover] = []
    lost = 0
    for event in ordered:
        when, about_id = _time(event), text(event, "id")
        match event.get("kind"):
            case "exec" | "wait" as kind:
                requests[about_id] = Request(kind, Bar(when), text(event, "request"), input=mapping(event, "input"))
            case "answered" if about_id in requests:
                request = requests[about_id]
                requests[about_id] = structs.replace(
                    request,
                    time=structs.replace(request.time, ended=when),
                    status=text(event, "status"),
                    code=text(event, "code"),
                )
            case "run_started":
                began = when
                principal = text(event, "principal")
                facts = (text(event, "language"), text(event, "transport"), f"principal {principal}" * bool(principal))
                about = [fact for fact in facts if fact]
            case "call_started":
                made = when - (number(event.get("queued_ms")) or 0.0) / 1000
                calls[about_id] = Call(about_id, text(event, "tool"), made, Bar(when), input=mapping(event, "input"))
            case "call_asked" if about_id in calls:
                calls[about_id] = structs.replace(calls[about_id], asked=Bar(when, None, text(event, "reason")))
            case "call_decided" if about_id in calls:
                call, words = calls[about_id], "approved" if event.get("approved") is True else "denied"
                by = text(event, "by")
                since = when if call.asked is None else call.asked.began
                calls[about_id] = structs.replace(call, asked=Bar(since, when, f"{words} by {by}" if by else words))
            case "call_ended":
                call = calls.get(about_id) or Call(about_id, text(event, "tool"), when, Bar(when))
                calls[about_id] = structs.replace(
                    call,
                    time=structs.replace(call.time, ended=when),
                    status=text(event, "status"),
                    code=text(event, "code"),
                    size=int(number(event.get("bytes")) or 0),
                    dispatched=event.get("dispatched") is True,
                    repeatable=event.get("repeatable") is True,
                )
            case "parked":
                pauses.append(Bar(when, None, text(event, "reason")))
            case "restored" if pauses and pauses[-1].ended is None:
                pauses[-1] = structs.replace(pauses[-1], ended=when)
            case "taken_over":
                process = event.get("pid")
                takeovers.append(Takeover(when, process if isinstance(process, int) else None))
            case "run_ended":
                ended, status, code = when, text(event, "status"), text(event, "code")
                if pauses and pauses[-1].ended is None:
                    pauses[-1] = structs.replace(pauses[-1], ended=when)
            case "lost":
                lost += int(number(event.get("events")) or 0)
    times = [_time(event) for event in ordered if event.get("kind") != "lost"] or [0.0]
    if began is None and calls and not run_id.startswith("run_"):
        # In pass-through mode there is no run, so the call gives the times and the status.
        only = next(iter(calls.values()))
        began, ended, status, code = only.made, only.time.ended, only.status, only.code
    return Trace(
        run_id,
        Bar(times[0] if began is None else began, ended),
        times[-1],
        status,
        code,
        tuple(requests.values()),
        tuple(calls.values()),
        tuple(pauses),
        tuple(about),
        tuple(takeovers),
        lost,
    )


class Scale:
    """The positions of moments in a drawing, from 0 to 1.

    Long pauses are drawn shorter than they were, because the drawing is about the work of the run.

    Args:
        began, ended: Unix seconds.
        pauses: pauses in order, without overlaps.
    """

    def __init__(self, began: float, ended: float, pauses: Sequence[Bar]) -> None:
        spans: list[tuple[float, float, bool]] = []
        at = began
        for pause in pauses:
            start = min(max(pause.began, at), ended)
            end = min(max(ended if pause.ended is None else pause.ended, start), ended)
            spans += [(at, start, False), (start, end, True)]
            at = end
        spans.append((at, ended, False))
        active = sum(end - start for start, end, paused in spans if not paused) or 1e-3
        self._moments: list[float] = []
        self._places: list[float] = []
        width = 0.0
        for start, end, paused in spans:
            if end > start:
                self._moments.append(start)
                self._places.append(width)
                width += min(end - start, active * PAUSE_SHARE) if paused else end - start
        self._moments.append(ended)
        self._places.append(width)
        self._width = width or 1.0

    def __call__(self, moment: float) -> float:
        """Return the position of a moment in Unix seconds. It is 0 before the beginning and 1 after the end."""
        index = bisect_right(self._moments, moment) - 1
        if index < 0:
            return 0.0
        if index >= len(self._moments) - 1:
            return 1.0 if self._places[-1] else 0.0
        start, end = self._moments[index], self._moments[index + 1]
        share = (moment - start) / (end - start)
        return (self._places[index] + share * (self._places[index + 1] - self._places[index])) / self._width


def duration(seconds: float) -> str:
    """Return a duration for people: `350 µs`, `12 ms`, `1.42 s`, `3 min 20 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Return a size for people: `0 B`, `812 B`, `1.2 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def moment(seconds: float) -> str:
    """Return a time in Unix seconds as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def deadline(milliseconds: int, now: float) -> str:
    """Return the time that is some milliseconds after `now`, in Unix seconds, as a date and time in UTC."""
    return datetime.fromtimestamp(now + milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def svg_number(value: float) -> str:
    """Return a number for an SVG attribute, with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _time(event: Mapping[str, Any]) -> float:
    return number(event.get("time")) or 0.0
