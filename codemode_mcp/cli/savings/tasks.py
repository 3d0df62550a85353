"""Bytes that recorded runs have sent through the model, and that direct calls would have sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Reads = Literal["content", "structured"]
"""Part of a result that a client shows its model: its content blocks, or its `structuredContent` where there is one."""

Kind = Literal["task", "single", "look-up", "failed", "refused", "open"]
"""`single`: one nested call; `look-up`: none; `refused`: an attempt of which nothing ran; `open`: no end recorded."""

_OURS: Final = ("core:", "client:")
"""Tools that there would be no need for, or that would be the model itself, if tools were called directly."""


_YEAR_9999: Final = 253_370_764_800
"""The year 9999 in Unix seconds, the last one with dates."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run, or an attempt at one, in bytes.

    Attributes:
        id: the run's; of an attempt of which nothing ran, the request's.
        began: Unix seconds.
        requests: how often the model wrote: `exec` and each `wait`.
        sent: arguments of these requests; `shown`: their answers.
        calls: nested ones, of tools that could have been called directly.
        repeats: those of them that asked again what could be asked again, in the same words: a model would have had the
            answer already.
        arguments, results: of these calls, without the repeats.
    """

    id: str
    began: float
    kind: Kind
    requests: int = 0
    sent: int = 0
    shown: int = 0
    calls: int = 0
    repeats: int = 0
    arguments: int = 0
    results: int = 0

    @property
    def through(self) -> int:
        """Return the bytes that went through the model."""
        return self.sent + self.shown

    @property
    def failed(self) -> bool:
        return self.kind in ("failed", "refused")

    @property
    def direct(self) -> int:
        """Return what direct calling would have put there. Of what failed it is nothing: the next attempt calls
        again."""
        return 0 if self.failed else self.arguments + self.results

    @property
    def steps_saved(self) -> int:
        """Calls that needed no step of the model's own; negative where it took more steps."""
        return (0 if self.failed else self.calls - self.repeats) - self.requests

    @property
    def stayed(self) -> int:
        """Results that the model did not have to see."""
        return 0 if self.failed else max(0, self.results - self.shown)

    @property
    def saved(self) -> int:
        """Negative where code mode cost more."""
        return self.direct - self.through


@dataclass(frozen=True, slots=True)
class Tasks:
    """All that is recorded.

    Attributes:
        all: in the order they began.
        unmeasured: runs of which sizes or the beginning are not recorded.
        terminal: runs of `codemode-mcp run` and the like, which no model wrote.
        passed: calls of pass-through mode, which are direct ones.
        lost: events that were not recorded.
    """

    all: tuple[Task, ...] = ()
    unmeasured: int = 0
    terminal: int = 0
    passed: int = 0
    lost: int = 0

    @property
    def through(self) -> int:
        return sum(task.through for task in self.all)

    @property
    def direct(self) -> int:
        return sum(task.direct for task in self.all)

    @property
    def saved(self) -> int:
        return self.direct - self.through

    @property
    def costlier(self) -> tuple[Task, ...]:
        """Those for which direct calling would have been cheaper."""
        return tuple(task for task in self.all if task.saved < 0)


@dataclass(slots=True)
class _Request:
    began: float
    kind: str
    run: str = ""
    sent: int | None = None
    shown: int | None = None
    answered: bool = False

    @property
    def by_model(self) -> bool:
        """Return False if its client has come back with a person's answers."""
        return self.sent != 0

    @property
    def sized(self) -> bool:
        return self.sent is not None and (self.shown is not None or not self.answered)


@dataclass(slots=True)
class _Run:
    first: float
    """Unix seconds of its first record."""
    began: float | None = None
    parent: str | None = None
    status: str = ""
    calls: int = 0
    repeats: int = 0
    arguments: int = 0
    results: int = 0
    requests: list[_Request] = field(default_factory=list)
    asked: set[tuple[str, str]] = field(default_factory=set)

    def begin(self, event: Mapping[str, Any]) -> tuple[int, tuple[str, str]]:
        given = _mapping(event, "input")
        size = _size(given, "bytes") or 0
        self.calls += 1
        self.arguments += size
        return size, (_text(event, "tool"), _text(given, "digest"))

    def end(self, event: Mapping[str, Any], begun: tuple[int, tuple[str, str]] | None, reads: Reads) -> None:
        if begun is not None and begun[1][1] and event.get("repeatable") is True:
            if begun[1] in self.asked:
                self.repeats += 1
                self.arguments -= begun[0]
                return
            self.asked.add(begun[1])
        seen = _seen(event, reads)
        self.results += (_size(event, "bytes") or 0) if seen is None else seen


def tasks_of(events: Iterable[Mapping[str, Any]], reads: Reads = "content", since: float = 0.0) -> Tasks:
    """Return the tasks of a trajectory from its events, in the order of writing; other lines are passed over.

    Args:
        since: Unix seconds; what began before is left out.
    """
    requests: dict[str, _Request] = {}
    runs: dict[str, _Run] = {}
    calls: dict[str, tuple[int, tuple[str, str]]] = {}
    passed = lost = 0
    for event in events:
        about, when = event.get("id"), _number(event.get("time"))
        if when is None:
            continue
        if event.get("kind") == "lost":
            lost += _size(event, "events") or 0 if when >= since else 0
            continue
        if not isinstance(about, str):
            continue
        run_id = about.partition("/")[0]
        match event.get("kind"):
            case "exec" | "wait" as kind:
                requests[about] = _Request(when, kind, _text(event, "run"), _size(event, "bytes"))
            case "answered" if about in requests:
                request = requests[about]
                request.answered, request.run = True, _text(event, "run")
                nothing = _text(event, "status") in ("asks", "cancelled")
                request.shown = 0 if nothing else _seen(event, reads)
            case "run_started":
                run = runs.setdefault(about, _Run(when))
                run.began, run.parent = when, _text(event, "parent") or None
            case "call_started" if run_id.startswith("run_") and _counts(event):
                calls[about] = runs.setdefault(run_id, _Run(when)).begin(event)
            case "call_started" if run_id.startswith("call_") and when >= since:
                passed += 1
            case "call_ended" if run_id.startswith("run_") and _counts(event):
                runs.setdefault(run_id, _Run(when)).end(event, calls.pop(about, None), reads)
            case "run_ended":
                runs.setdefault(about, _Run(when)).status = _text(event, "status")
    return _put_together(requests, runs, since, passed, lost)


def _put_together(
    requests: Mapping[str, _Request], runs: Mapping[str, _Run], since: float, passed: int, lost: int
) -> Tasks:
    of_parent = {run.parent: run for run in runs.values() if run.parent is not None}
    found: list[Task] = []
    unmeasured = terminal = 0
    for request_id, request in requests.items():
        run = of_parent.get(request_id) or runs.get(request.run)
        if run is not None:
            run.requests.append(request)
        elif request.began >= since and request.by_model and request.answered:
            if request.sized:
                sent, shown = request.sent or 0, request.shown or 0
                found.append(Task(request_id, request.began, "refused", 1, sent, shown))
            else:
                unmeasured += 1
    for run_id, run in runs.items():
        if (run.first if run.began is None else run.began) < since:
            continue
        if run.began is not None and run.parent is None:
            terminal += 1
            continue
        whole = any(each.kind == "exec" for each in run.requests) and all(each.sized for each in run.requests)
        if run.began is None or not whole:
            unmeasured += 1
            continue
        found.append(
            Task(
                run_id,
                run.began,
                _kind(run),
                sum(each.by_model for each in run.requests),
                sum(each.sent or 0 for each in run.requests),
                sum(each.shown or 0 for each in run.requests),
                run.calls,
                run.repeats,
                run.arguments,
                run.results,
            )
        )
    return Tasks(tuple(sorted(found, key=lambda task: task.began)), unmeasured, terminal, passed, lost)


def _kind(run: _Run) -> Kind:
    if run.status and run.status != "completed":
        return "failed"
    if not run.status:
        return "open"
    return "look-up" if run.calls == 0 else "single" if run.calls == 1 else "task"


def _counts(event: Mapping[str, Any]) -> bool:
    return not _text(event, "tool").startswith(_OURS)


def _seen(event: Mapping[str, Any], reads: Reads) -> int | None:
    """Bytes of a result that the model of such a client sees; None: that is not recorded."""
    text, structured = _size(event, "text_bytes"), _size(event, "structured_bytes")
    return structured if reads == "structured" and structured is not None else text


def _number(value: Any) -> float | None:
    is_moment = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _YEAR_9999
    return float(value) if is_moment else None


def _size(event: Mapping[str, Any], key: str) -> int | None:
    value = event.get(key)
    # JSON has numbers that no size is.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _mapping(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = event.get(key)
    return value if isinstance(value, dict) else {}
