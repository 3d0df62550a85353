"""The timeline of a run from its events, and its positions in a drawing. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PAUSE_SHARE: Final = 0.08
"""Largest share of the width for one pause, by the time that was not paused."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A time from one second to another, Unix time.

    Attributes:
        ended: None where no end is recorded.
    """

    began: float
    ended: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """An `exec` or `wait` about the run.

    Attributes:
        number: the client's own.
    """

    kind: str
    time: Bar
    number: str = ""
    status: str = ""
    code: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A nested call.

    Attributes:
        made: Unix seconds at which the program made it; from then to the beginning of `time` it was queued.
        size: bytes of its result.
        asked: while it waited for a person's approval, and what came of it.
        status: `completed`, `failed`; empty where no end is recorded.
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

    def milliseconds(self, until: float) -> float:
        return max(0.0, (until if self.time.ended is None else self.time.ended) - self.made) * 1000


@dataclass(frozen=True, slots=True)
class Takeover:
    """A process took over the run that another one had left.

    Attributes:
        process: its id; None where it is not recorded.
    """

    at: float
    process: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """All of one run.

    Attributes:
        id: the run's; of a call in pass-through mode, the call's.
        latest: Unix seconds of the last thing that is recorded.
        status: empty where no end is recorded.
        about: further facts, in words.
        takeovers: of another process's run. What that one did is there as far as it wrote to the same file.
        lost: events that the file says were lost while the run lasted.
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
    def until(self) -> float:
        return self.latest if self.time.ended is None else max(self.time.ended, self.latest)


def trace_of(run_id: str, events: Iterable[Mapping[str, Any]]) -> Trace:
    """Return the trace of a run from its events, in any order. Other lines are passed over."""
    ordered = sorted((event for event in events if _number(event.get("time")) is not None), key=_time)
    began = ended = None
    status = code = ""
    about: list[str] = []
    requests: dict[str, Request] = {}
    calls: dict[str, Call] = {}
    pauses: list[Bar] = []
    takeovers: list[Takeover] = []
    lost = 0
    for event in ordered:
        when, about_id = _time(event), _text(event, "id")
        match event.get("kind"):
            case "exec" | "wait" as kind:
                number, given = _text(event, "request"), _mapping(event, "input")
                requests[about_id] = Request(kind, Bar(when), number, input=given)
            case "answered" if about_id in requests:
                request = requests[about_id]
                requests[about_id] = replace(
                    request,
                    time=replace(request.time, ended=when),
                    status=_text(event, "status"),
                    code=_text(event, "code"),
                )
            case "run_started":
                began = when
                about = [_text(event, key) for key in ("language", "transport") if _text(event, key)]
                about += [f"{key} {_text(event, key)}" for key in ("principal",) if _text(event, key)]
            case "call_started":
                made = when - (_number(event.get("queued_ms")) or 0.0) / 1000
                calls[about_id] = Call(about_id, _text(event, "tool"), made, Bar(when), input=_mapping(event, "input"))
            case "call_asked" if about_id in calls:
                calls[about_id] = replace(calls[about_id], asked=Bar(when, None, _text(event, "reason")))
            case "call_decided" if about_id in calls:
                call, words = calls[about_id], "approved" if event.get("approved") is True else "denied"
                by = _text(event, "by")
                since = when if call.asked is None else call.asked.began
                calls[about_id] = replace(call, asked=Bar(since, when, f"{words} by {by}" if by else words))
            case "call_ended":
                call = calls.get(about_id) or Call(about_id, _text(event, "tool"), when, Bar(when))
                calls[about_id] = replace(
                    call,
                    time=replace(call.time, ended=when),
                    status=_text(event, "status"),
                    code=_text(event, "code"),
                    size=int(_number(event.get("bytes")) or 0),
                    dispatched=event.get("dispatched") is True,
                    repeatable=event.get("repeatable") is True,
                )
            case "parked":
                pauses.append(Bar(when, None, _text(event, "reason")))
            case "restored" if pauses and pauses[-1].ended is None:
                pauses[-1] = replace(pauses[-1], ended=when)
            case "taken_over":
                process = event.get("pid")
                takeovers.append(Takeover(when, process if isinstance(process, int) else None))
            case "run_ended":
                ended, status, code = when, _text(event, "status"), _text(event, "code")
                if pauses and pauses[-1].ended is None:
                    pauses[-1] = replace(pauses[-1], ended=when)
            case "lost":
                lost += int(_number(event.get("events")) or 0)
    ours = [event for event in ordered if event.get("kind") != "lost"]
    first = _time(ours[0]) if ours else 0.0
    latest = _time(ours[-1]) if ours else 0.0
    if began is None and calls and not run_id.startswith("run_"):
        # A call in pass-through mode is all there is of it.
        (only,) = [*calls.values()][:1]
        began, ended, status, code = only.made, only.time.ended, only.status, only.code
    return Trace(
        run_id,
        Bar(first if began is None else began, ended),
        latest,
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
    """Positions of moments in the drawing, from 0 to 1.

    Pauses take little of the width, however long they are: what is looked at is what the run did.

    Args:
        began, ended: Unix seconds.
        pauses: in order, without overlaps.
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
        """Monotonic; 0 before the beginning, 1 after the end."""
        index = bisect_right(self._moments, moment) - 1
        if index < 0:
            return 0.0
        if index >= len(self._moments) - 1:
            return 1.0 if self._places[-1] else 0.0
        start, end = self._moments[index], self._moments[index + 1]
        share = (moment - start) / (end - start)
        return (self._places[index] + share * (self._places[index + 1] - self._places[index])) / self._width


def duration(seconds: float) -> str:
    """`350 µs`, `12 ms`, `1.42 s`, `3 min 20 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """`0 B`, `812 B`, `1.2 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _time(event: Mapping[str, Any]) -> float:
    return _number(event.get("time")) or 0.0


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Whatever a date can be made of: 1970 to 9999.
    return float(value) if 0 <= value < 253_402_300_800 else None


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _mapping(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = event.get(key)
    return value if isinstance(value, dict) else {}
