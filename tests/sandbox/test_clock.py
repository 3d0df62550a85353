"""The clock of programs: the times of a recorded turn are given again in a replay, and nothing else changes."""

from __future__ import annotations

import time
from typing import Any

from guest_harness import Cell, ok

from codemode_mcp.sandbox.clock import ADDRESS, FINE_PAIRS, SIZE, Readings
from tests.sandbox.conftest import OpenCell

DECEMBER = 1_796_083_200_000 * 1_000_000
"""A time in nanoseconds, long after these tests."""

READ = """
const times = () => [Date.now(), new Date().toISOString(), performance.now(), performance.now()];
const first = times();
await new Promise((resolve) => setTimeout(resolve, 5));
return [first, times(), Math.random()];
"""


def finish(cell: Cell, readings: list[Readings] | None) -> tuple[Any, list[Readings]]:
    """Return the value of a program with one timer, and the readings of its turns."""
    kept = []
    for number in range(2):
        if readings is None:
            cell.guest.record_clock()
        else:
            cell.guest.replay_clock(readings[number].seen, wall=DECEMBER)
        told = cell.start(READ, elapsed_ms=1.5) if number == 0 else cell.deliver(ok(1), elapsed_ms=7.25)
        kept.append(cell.guest.readings())
    return told.value, kept


def test_a_replay_reads_the_times_of_the_recorded_run(cell: OpenCell) -> None:
    recorded, readings = finish(cell(), None)
    assert abs(recorded[0][0] - time.time() * 1000) < 60_000
    time.sleep(0.002)  # so that the clocks have moved on
    replayed, again = finish(cell(), readings)
    assert replayed == recorded
    assert again == readings
    assert [each.lost for each in readings] == [0, 0]


def test_a_replay_that_reads_more_times_than_were_recorded_says_how_many(cell: OpenCell) -> None:
    replayed = cell()
    replayed.guest.replay_clock(Readings(((DECEMBER, 2),)), wall=0)
    assert replayed.start("return [Date.now(), Date.now(), Date.now(), performance.now()]").value == [
        DECEMBER // 1_000_000,
        DECEMBER // 1_000_000,
        DECEMBER // 1_000_000 + 1,
        1,
    ]
    # One beyond those of the wall clock, and two of the monotonic clock, of which the turn itself needs one.
    assert replayed.guest.readings().lost == 3


def test_a_program_that_waits_in_a_loop_can_be_recorded_and_replayed(cell: OpenCell) -> None:
    code = """
    let loops = 0;
    for (const end = performance.now() + 60; performance.now() < end;) loops += 1;
    for (const end = Date.now() + 20; Date.now() < end;) loops += 1;
    return loops;
    """
    recording, replaying = cell(), cell()
    recording.guest.record_clock()
    value = recording.start(code).value
    readings = recording.guest.readings()
    assert value > FINE_PAIRS
    assert readings.lost == 0
    replaying.guest.replay_clock(readings, wall=0)
    assert replaying.start(code).value == value


def test_a_turn_that_reads_no_time_has_no_readings(cell: OpenCell) -> None:
    quiet = cell()
    quiet.guest.record_clock()
    assert quiet.start("return 1 + 1").value == 2
    assert quiet.guest.readings().seen == Readings()


def test_the_clock_of_a_replay_does_not_stop_the_deadline_of_a_program(cell: OpenCell) -> None:
    replayed = cell()
    replayed.guest.replay_clock(Readings(), wall=DECEMBER)
    assert replayed.start("for (;;) Date.now()", seconds=0.1).stopped == "time"


def test_a_snapshot_has_nothing_of_the_clock(cell: OpenCell) -> None:
    code = "await new Promise((resolve) => setTimeout(resolve, 5)); return Date.now()"
    recorded = cell()
    recorded.guest.record_clock()
    recorded.start(code)
    restored = cell(suspended=recorded.snapshot())
    assert restored.guest._instance.read(ADDRESS, SIZE) == bytes(SIZE)
    assert abs(restored.deliver(ok(1)).value - time.time() * 1000) < 60_000
