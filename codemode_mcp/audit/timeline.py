"""The timeline of a run, built from the run's events, and the scale of its drawing. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.event_fields import mapping, number, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PAUSE_SHARE: Final = 0.08
"""Maximum width of a pause, as a share of the total width of the active time."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of time, in Unix seconds.

    Attributes:
        ended: None if no end is recorded.
    """

    began: float
    ended: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Request:
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
        """Return the status and code of the answer in words."""
        return " ".join(filter(None, (self.status, self.code))) or "no answer recorded"


@dataclass(frozen=True, slots=True)
class Call:
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
        """Return the size of the result of a completed call, or the status and code of any other call, in words."""
        if self.status == "completed":
            return size(self.size)
        return ": ".join(filter(None, (self.status, self.code))) or "no end recorded"

    def milliseconds(self, until: float) -> float:
        """Return the milliseconds from the making of the call to its end.

        Args:
            until: Unix seconds that are used for the end if no end is recorded.
        """
        return max(0.0, (until if self.time.ended is None else self.time.ended) - self.made) * 1000


@dataclass(frozen=True, slots=True)
class Takeover:
    """The moment at which a process took over the run of another process.

    Attributes:
        at: Unix seconds.
        process: the id of the new process; None if it is not recorded.
    """

    at: float
    process: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
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
        """Return the Unix seconds at which the timeline ends."""
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
                requests[about_id] = replace(
                    request,
                    time=replace(request.time, ended=when),
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
                calls[about_id] = replace(calls[about_id], asked=Bar(when, None, text(event, "reason")))
            case "call_decided" if about_id in calls:
                call, words = calls[about_id], "approved" if event.get("approved") is True else "denied"
                by = text(event, "by")
                since = when if call.asked is None else call.asked.began
                calls[about_id] = replace(call, asked=Bar(since, when, f"{words} by {by}" if by else words))
            case "call_ended":
                call = calls.get(about_id) or Call(about_id, text(event, "tool"), when, Bar(when))
                calls[about_id] = replace(
                    call,
                    time=replace(call.time, ended=when),
                    status=text(event, "status"),
                    code=text(event, "code"),
                    size=int(number(event.get("bytes")) or 0),
                    dispatched=event.get("dispatched") is True,
                    repeatable=event.get("repeatable") is True,
                )
            case "parked":
                pauses.append(Bar(when, None, text(event, "reason")))
            case "restored" if pauses and pauses[-1].ended is None:
                pauses[-1] = replace(pauses[-1], ended=when)
            case "taken_over":
                process = event.get("pid")
                takeovers.append(Takeover(when, process if isinstance(process, int) else None))
            case "run_ended":
                ended, status, code = when, text(event, "status"), text(event, "code")
                if pauses and pauses[-1].ended is None:
                    pauses[-1] = replace(pauses[-1], ended=when)
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
