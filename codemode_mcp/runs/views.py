"""Views of runs and their calls, and the records of calls that may have had effects. Pure."""

from __future__ import annotations

import marshal
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from codemode_mcp.runs.calls.outcome import CallOutcome, CallRecord, MadeCall
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.sandbox.messages import ToolCall


CallState = Literal["queued", "executing", "needs_approval", "needs_input", "completed", "failed"]

MAX_RUN_CALLS = 1000
"""Maximum number of calls of one run that are remembered, the latest ones."""

MAX_CALLS = 50_000
"""Maximum number of calls of all runs together that are remembered."""

MAX_INPUT = 1024
"""Arguments with more characters are not remembered."""

_PACKED_FIELDS = 10
"""Number of fields of a packed call: the first eight of its record, the arguments, and their length."""

_MIN_COMPACTED = 1000
"""A ledger with fewer entries is not compacted."""

SHOWN_CALLS = 2000
"""Maximum number of calls in the view of one run. If there are more, calls that have not ended are shown first, then
the latest ones."""


class CallView(Struct, frozen=True):
    """One nested call.

    Attributes:
        id: the number of the call within its run.
        at_ms: milliseconds from the start of the run to the call.
        ms: the duration of the call so far, including the time that it waited.
        size: bytes of the result's JSON.
        dispatched: True if the request may have reached the tool.
        repeatable: True if making the call again does no harm.
        input: the arguments as JSON text; None if they are not remembered.
        input_size: characters of the arguments.
    """

    id: int
    tool: str
    status: CallState
    at_ms: int
    ms: int
    size: int
    dispatched: bool
    repeatable: bool
    input: str | None
    input_size: int


class RunView(Struct, frozen=True):
    """One run.

    Attributes:
        kind, principal: the kind and the principal of its caller.
        age_ms: milliseconds since the run began.
        ended_ms: milliseconds since the run ended; None before its end.
        expires_ms: milliseconds until the suspended run is dropped; None if it is not suspended.
        observed: True if an `exec` or `wait` is open for the run.
        code: the error code of a failed run.
        approvals: the number of calls that wait for a person's approval.
        questions: the number of calls that wait for an answer to a question of their server.
        timers: the number of timers that have not fired.
        call_count: the number of all calls of the run.
        made: the calls that may have had effects; None if they are not known. In the stored view of a suspended run,
            only those whose ends the program has received.
        calls: the remembered calls, oldest first; empty in a listing of runs.
        owner: the owner of a stored run, by which processes decide whether they may take the run over. It is never
            shown.
    """

    id: str
    state: RunState
    kind: Literal["stdio", "http"]
    principal: str | None
    age_ms: int
    ended_ms: int | None = None
    expires_ms: int | None = None
    observed: bool = False
    code: str | None = None
    waits: int = 0
    snapshots: int = 0
    approvals: int = 0
    questions: int = 0
    timers: int = 0
    call_count: int = 0
    made: tuple[MadeCall, ...] | None = ()
    calls: tuple[CallView, ...] = ()
    owner: str = ""


class _Remembered(Struct, frozen=True):
    record: CallRecord
    input: str | None
    input_size: int


class Ledger:
    """A limit on the calls that all `Track`s remember together. The oldest calls are forgotten first."""

    def __init__(self, most: int = MAX_CALLS) -> None:
        self._most = most
        self._order: deque[list[Any]] = deque()
        """Tracks in the order of their calls. Each entry is a track with the number of its consecutive calls."""
        self._total = 0
        self._compact_at = _MIN_COMPACTED

    def note(self, track: Track) -> None:
        """Count one more call of a track. If there are too many calls, forget the oldest one of all tracks."""
        if self._order and self._order[-1][0] is track:
            self._order[-1][1] += 1
        else:
            self._order.append([track, 1])
            if len(self._order) > self._compact_at:
                self._compact()
        self._total += 1
        while self._total > self._most:
            oldest = self._order[0]
            oldest[1] -= 1
            if not oldest[1]:
                self._order.popleft()
            self._total -= 1
            oldest[0].forget_oldest()

    def _compact(self) -> None:
        """Remove forgotten tracks, which would stay until their calls are the oldest."""
        self._order = deque(each for each in self._order if not each[0].forgotten)
        self._total = sum(count for _, count in self._order)
        self._compact_at = 2 * len(self._order) + _MIN_COMPACTED


class Track:
    """The calls of one run, also after its end. The records of calls in flight still change.

    A call takes half a kB until its run ends, and a tenth of that when it is packed.
    """

    __slots__ = ("_began", "_kept", "_ledger", "_lost", "_packed", "_packed_count", "forgotten", "total")

    def __init__(self, ledger: Ledger, began: float) -> None:
        self._ledger = ledger
        self._began = began
        self._kept: dict[int, _Remembered] = {}
        self._packed = b""
        """The calls of an ended run, in order; see `_unpacked`."""
        self._packed_count = 0
        """The number of the latest packed calls that are still remembered."""
        self._lost = 0
        """The number of forgotten calls that the ledger still counts."""
        self.total = 0
        self.forgotten = False

    def __repr__(self) -> str:
        return f"<Track: {len(self._kept) + self._packed_count} of {self.total} calls>"

    def add(self, call: ToolCall, record: CallRecord) -> None:
        text = call.input or ""
        self.total += 1
        self._keep(call.id, _Remembered(record, text if len(text) <= MAX_INPUT else None, len(text)))

    def _keep(self, call: int, kept: _Remembered) -> None:
        self._kept[call] = kept
        self._ledger.note(self)
        if len(self._kept) > MAX_RUN_CALLS:
            del self._kept[next(iter(self._kept))]
            self._lost += 1

    def pack(self, live: Container[int]) -> None:
        """Pack the calls of an ended run into less memory, except those in flight."""
        same: dict[str, str] = {}
        flat: list[str | int | float | None] = []
        for number, kept in self._kept.items():
            if number in live:
                continue
            record, text = kept.record, kept.input
            flat += (number, same.setdefault(record.tool, record.tool), record.began, record.status, record.ended)
            flat += (record.size, record.dispatched, record.repeatable)
            flat += (text if text is None else same.setdefault(text, text), kept.input_size)
        if flat:
            self._kept = {number: kept for number, kept in self._kept.items() if number in live}
            self._packed = marshal.dumps(flat)
            self._packed_count = len(flat) // _PACKED_FIELDS

    def _unpacked(self) -> dict[int, _Remembered]:
        if not self._packed_count:
            return {}
        flat = marshal.loads(self._packed)
        found = {}
        for at in range(len(flat) - self._packed_count * _PACKED_FIELDS, len(flat), _PACKED_FIELDS):
            *of_record, text, length = flat[at : at + _PACKED_FIELDS]
            found[flat[at]] = _Remembered(CallRecord(*of_record), text, length)
        return found

    def forget_oldest(self) -> None:
        if self._lost:
            self._lost -= 1
        elif self._packed_count:
            self._packed_count -= 1
            if not self._packed_count:
                self._packed = b""
        elif self._kept:
            del self._kept[next(iter(self._kept))]

    def forget(self) -> None:
        self._kept.clear()
        self._packed, self._packed_count = b"", 0
        self.forgotten = True

    def tool(self, call: int) -> str:
        """Return the id of a call's tool; an empty string if the call was forgotten."""
        kept = self._kept.get(call)
        return "" if kept is None else kept.record.tool

    def restore(self, total: int, records: Iterable[CallRecord]) -> None:
        """Continue the track of another process. `records`: the known records of calls that have ended."""
        self.total = total
        for record in records:
            self._keep(record.id, _Remembered(record, None, 0))

    def add_restored(self, call: ToolCall, record: CallRecord) -> None:
        self.total -= 1
        self.add(call, record)

    def add_program(self, record: CallRecord) -> None:
        self._keep(record.id, _Remembered(record, None, 0))

    def views(
        self,
        now: float,
        live: Iterable[tuple[ToolCall, CallRecord]] = (),
        approvals: Collection[int] = (),
        questions: Collection[int] = (),
    ) -> tuple[CallView, ...]:
        """Return the views of all calls that are remembered or have not ended.

        Args:
            now: monotonic seconds.
            live: the calls that have not ended. Their arguments are known, however long they are.
            approvals: the numbers of the calls that wait for an approval.
            questions: the numbers of the calls that wait for an answer to a question.
        """
        found = self._unpacked() | self._kept
        alive: set[int] = set()
        for call, record in live:
            text = call.input or ""
            found[call.id] = _Remembered(record, text, len(text))
            alive.add(call.id)
        numbers = sorted(found)
        if len(numbers) > SHOWN_CALLS:
            ranked = sorted(numbers, key=lambda number: (number in alive, number), reverse=True)
            numbers = sorted(ranked[:SHOWN_CALLS])
        return tuple(
            self._view(
                number,
                found[number],
                now,
                "needs_approval" if number in approvals else "needs_input" if number in questions else None,
            )
            for number in numbers
        )

    def _view(self, number: int, kept: _Remembered, now: float, waits_for: CallState | None) -> CallView:
        record = kept.record
        # A call that was given up in the queue has no end time, and so no duration.
        never_began = record.status == "failed" and record.ended is None
        return CallView(
            id=number,
            tool=record.tool,
            status=waits_for or record.status,
            at_ms=round((record.began - self._began) * 1000),
            ms=0 if never_began else record.milliseconds(now),
            size=record.size,
            dispatched=record.dispatched,
            repeatable=record.may_be_repeated,
            input=kept.input,
            input_size=kept.input_size,
        )


# The calls of a run that may have had effects, for answers after which a model writes the program again.
#
# A call counts if it was sent and is not repeatable. It does not count if its server has answered that it failed,
# because then the right next step is usually to correct the call and to make it again.


MAX_TOOLS: Final = 20
"""Maximum number of tools that a text names."""


class MadeCalls:
    """The calls of one run that may have had effects.

    Args:
        live: the calls of the run that have not ended, by number. It is read, not copied.
    """

    def __init__(self, live: Mapping[int, LiveCall]) -> None:
        self._live = live
        self._delivered: Counter[tuple[str, CallOutcome]] = Counter()
        self._undelivered: dict[int, tuple[str, CallOutcome]] = {}
        """Calls that have ended, and whose ends the program has not received yet. A store has them one by one."""

    def end(self, call: int, tool: str, outcome: CallOutcome) -> None:
        self._undelivered[call] = tool, outcome

    def deliver(self, call: int) -> None:
        ended = self._undelivered.pop(call, None)
        if ended is not None:
            self._delivered[ended] += 1

    def restore(self, delivered: Iterable[MadeCall]) -> None:
        """Set the calls whose ends the program had received in another process."""
        for tool, outcome, times in delivered:
            self._delivered[tool, outcome] += times

    def has_undelivered(self, call: int) -> bool:
        return call in self._undelivered

    @property
    def delivered(self) -> tuple[MadeCall, ...]:
        return _listed(self._delivered)

    def __call__(self) -> tuple[MadeCall, ...]:
        """Return all calls, as they are now."""
        counts = self._delivered + Counter(self._undelivered.values())
        for live in self._live.values():
            record = live.record
            if not record.repeatable and (record.dispatched or (live.unawaited and not live.cancelled)):
                counts[record.tool, "outcome unknown" if live.cancelled else "in flight"] += 1
        return _listed(counts)


def added(made: Iterable[MadeCall], others: Iterable[tuple[str, CallOutcome | None]]) -> tuple[MadeCall, ...]:
    """Return made calls with further ones, each as its tool and its outcome; None for one that does not count."""
    counts: Counter[tuple[str, CallOutcome]] = Counter()
    for tool, outcome, times in made:
        counts[tool, outcome] += times
    for tool, found in others:
        if found is not None:
            counts[tool, found] += 1
    return _listed(counts)


def _listed(counts: Counter[tuple[str, CallOutcome]]) -> tuple[MadeCall, ...]:
    return tuple(MadeCall(*key, times) for key, times in counts.items())


def made_text(made: Iterable[MadeCall]) -> str:
    every = list(made)
    shown = [
        f"{escape_line(tool)} ({f'{times} times, ' if times > 1 else ''}{outcome})"
        for tool, outcome, times in every[:MAX_TOOLS]
    ]
    left = sum(each.times for each in every[MAX_TOOLS:])
    return ", ".join(shown) + (f" and {left} more calls" if left else "")


def repeat_note(made: tuple[MadeCall, ...]) -> tuple[str, ...]:
    """Return a note about the calls of a failed program that the next program must not repeat."""
    if not made:
        return ()
    return (
        f"Already made, do not repeat: {made_text(made)}. Continue from there; only calls that change nothing may be "
        "made again.",
    )


def after_loss(made: tuple[MadeCall, ...] | None) -> str:
    """Say what to do about a suspended program that cannot be resumed.

    Args:
        made: its calls that may have had effects; None if they are not known.
    """
    if made is None:
        return "find out what its calls have changed before you start the program again"
    if not made:
        return "start the program again"
    return (
        f"do not start it again, because these calls were made: {made_text(made)}; write a program that continues "
        "from there"
    )
