"""The script of a replay: the requests of a recorded run, and the turns in which they were answered. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.recordings.format import Clock, Requests, Suspended, Turn
from codemode_mcp.replay.requests import Identity, identity
from codemode_mcp.sandbox.clock import Readings
from codemode_mcp.sandbox.messages import Completion, GuestError, request_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.recordings.format import Completed
    from codemode_mcp.recordings.reader import Recording
    from codemode_mcp.sandbox.messages import Request


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the recorded run.

    Attributes:
        turn: the number of the turn that made it. The start of the program is turn 0.
        nth: the number of earlier requests with the same identity.
    """

    request: Request
    identity: Identity
    turn: int
    nth: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The ends of requests that one turn of the recorded run got.

    Attributes:
        elapsed: milliseconds since the beginning of the run.
        ends: the index of each request in `Script.asked`, and its end.
        readings: the readings of the clock in this turn.
        suspended: True if the run was suspended before this turn.
    """

    elapsed: float
    ends: tuple[tuple[int, Completion], ...]
    readings: Readings
    suspended: bool


@dataclass(frozen=True, slots=True)
class Script:
    """A recorded run, as a replay needs it.

    Attributes:
        asked: the requests, in order.
        batches: the turns after the start, in order.
        readings: the readings of the clock in the first turn.
    """

    asked: tuple[Asked, ...]
    batches: tuple[Batch, ...]
    readings: Readings


def script_of(recording: Recording) -> Script:
    """Return the script of a recording.

    Raises:
        ValueError: it has the end of a request that was never made.
    """
    asked: list[Asked] = []
    batches: list[Batch] = []
    counts: defaultdict[Identity, int] = defaultdict(int)
    open_requests: defaultdict[int, deque[int]] = defaultdict(deque)
    turns = list(_turns(recording))
    for number, turn in enumerate(turns):
        if turn.delivered is not None:
            ends = []
            for each in turn.delivered.completions:
                if not open_requests[each.id]:
                    raise ValueError(f"request {each.id} ends, but it was never made")
                ends.append((open_requests[each.id].popleft(), _completion(each)))
            batches.append(Batch(turn.delivered.elapsed, tuple(ends), turn.readings, turn.suspended))
        for request in turn.requests:
            who = identity(request)
            open_requests[request.id].append(len(asked))
            asked.append(Asked(request, who, number, counts[who]))
            counts[who] += 1
    return Script(tuple(asked), tuple(batches), turns[0].readings)


_NONE = Readings()


@dataclass(slots=True)
class _Recorded:
    delivered: Turn | None
    suspended: bool = False
    readings: Readings = _NONE
    requests: tuple[Request, ...] = ()


def _turns(recording: Recording) -> Iterator[_Recorded]:
    current, suspended = _Recorded(None), False
    for line in recording.steps:
        match line:
            case Turn():
                yield current
                current, suspended = _Recorded(line, suspended), False
            case Clock():
                current.readings = Readings(line.wall, line.monotonic, line.lost)
            case Requests():
                current.requests += tuple(map(request_of, line.requests))
            case Suspended():
                suspended = True
    yield current


def _completion(end: Completed) -> Completion:
    if end.error is None:
        return Completion(end.id, "null" if end.value is None else end.value)
    error = end.error
    return Completion(end.id, error=GuestError(error.message, error.name, error.code, error.data))
