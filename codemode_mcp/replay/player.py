"""The player of recordings: a guest that gets the recorded ends, turn by turn. Synchronous; for guest threads.

Why it is built so:

- A guest never calls the host. Its state depends only on the start message, on the messages of its turns and on the
  times that it reads. So a guest that gets the same three does the same, on any machine: the random generator is in its
  memory, and the clock is that of the recording (`sandbox.clock`).
- The player does not use the driver of runs. There is nothing to wait for: `Matching` knows all ends, and their order.
- Suspensions need no snapshots here. With `restores`, the guest is nevertheless restored from a snapshot at every
  suspension of the recording, or before every turn. The result is the same, which the tests check.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.sandbox.clock import Readings
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.messages import decode_turn, deliver_message

if TYPE_CHECKING:
    from codemode_mcp.replay.matching import Matching, NotRecorded
    from codemode_mcp.runs.recent_results import RecentResults
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.guest import Turn
    from codemode_mcp.sandbox.messages import TurnReport

Restores = Literal["never", "recorded", "always"]
"""The turns before which the guest is restored from a snapshot: none, those that followed a suspension, or each."""

TURN_SECONDS: Final = 60.0
"""Maximum seconds of one turn. The recorded run had at most as much time for a request."""

MAX_ELAPSED: Final = 1e12
"""Milliseconds since the beginning of a run after which its clock stands still."""

MAX_NANOSECONDS: Final = 2**63 - 1
"""The latest time of a clock, whatever a recording says."""

MAX_OTHER_TURNS: Final = 100_000
"""Maximum number of turns beyond those of the recording. A program that polls with timers would never end."""

START_NANOSECONDS: Final = 1_000_000_000
"""Beginning of the monotonic clock where the recording has no reading."""


@dataclass(frozen=True, slots=True)
class Part:
    """The guest of a replay: what it starts from.

    Attributes:
        manifest: the source of its image; see `Engine.image`.
        message: the start message.
        readings: the recorded readings of the clock in the first turn; None if there are none.
        began: nanoseconds since 1970 at which the recorded run began.
        elapsed: milliseconds since then at which the program started.
    """

    manifest: str
    message: str
    memory_limit: int
    readings: Readings | None
    began: int
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """The end of a replay.

    Attributes:
        turn: the last turn, and its report; the report is None if the guest could not make one.
        outputs: all outputs.
        not_recorded: the call that ended the replay, if any.
        is_stuck: True if the program waits and nothing is left to deliver.
        is_endless: True if the program has taken `MAX_OTHER_TURNS`.
        lost: number of readings of the clock that were not recorded, in turns that were.
    """

    turn: Turn
    report: TurnReport | None
    outputs: tuple[dict[str, Any], ...]
    not_recorded: NotRecorded | None = None
    is_stuck: bool = False
    is_endless: bool = False
    lost: int = 0


def play(
    engine: Engine,
    part: Part,
    matching: Matching,
    results: RecentResults,
    *,
    restores: Restores = "never",
    seconds: float = TURN_SECONDS,
) -> Played:
    """Run a program with recorded answers, on a guest thread, and return its end.

    Args:
        results: takes the results that the program gets.
        seconds: maximum seconds of one turn.
    """
    image = engine.image(part.manifest)
    outputs: list[dict[str, Any]] = []
    lost = 0
    with contextlib.ExitStack() as stack:
        guest = stack.enter_context(Guest(engine, image, memory_limit=part.memory_limit))
        _set_clock(guest, part, part.readings, part.elapsed)
        turn = guest.start(part.message, seconds)
        recorded = part.readings
        while True:
            found = guest.readings()
            if recorded is None:
                # Each reading that is not recorded is one millisecond later, so time has passed for the program.
                matching.elapsed += found.lost
            else:
                # Each turn reads the monotonic clock once at its beginning, which alone is not recorded.
                lost += max(0, found.lost - (not recorded.monotonic))
            report = None if turn.text is None else decode_turn(turn.text)
            if report is None:
                return Played(turn, None, tuple(outputs), lost=lost)
            outputs.extend(report.outputs)
            if report.state != "syntax":
                missing = matching.ask(report.requests)
                if missing is not None:
                    return Played(turn, report, tuple(outputs), missing, lost=lost)
            if turn.stopped is not None or report.state != "pending":
                return Played(turn, report, tuple(outputs), lost=lost)
            delivery = matching.next()
            if delivery is None:
                return Played(turn, report, tuple(outputs), is_stuck=True, lost=lost)
            if matching.other_turns > MAX_OTHER_TURNS:
                return Played(turn, report, tuple(outputs), is_endless=True, lost=lost)
            if restores == "always" or (restores == "recorded" and delivery.suspended):
                data = guest.snapshot()
                guest.close()
                guest = stack.enter_context(Guest(engine, image, memory_limit=part.memory_limit, suspended=data))
            for each in delivery.completions:
                name = matching.names.get(each.id)
                if name is not None and each.error is None:
                    results.add(name, each.value)
            recorded = delivery.readings
            _set_clock(guest, part, recorded, delivery.elapsed)
            turn = guest.deliver(deliver_message(delivery.completions, elapsed_ms=delivery.elapsed), seconds)


def _set_clock(guest: Guest, part: Part, readings: Readings | None, elapsed: float) -> None:
    passed = int(min(elapsed, MAX_ELAPSED) * 1_000_000)
    guest.replay_clock(
        Readings() if readings is None else readings,
        wall=min(part.began + passed, MAX_NANOSECONDS),
        monotonic=START_NANOSECONDS + passed,
    )
