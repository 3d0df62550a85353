"""Limits of unsolicited messages."""

from typing import Any

import pytest

from upstream_clients.line_messages import MESSAGES_BURST, MESSAGES_PER_SECOND, ReadingAllowance


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def note(text: str = "") -> dict[str, Any]:
    params = {"level": "info", "data": {"lines": [text]}}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


def test_a_server_that_says_little_is_never_held_up() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    for _ in range(5000):
        clock.now += 0.01
        assert allowance.spend(note()) == 0.0


def test_a_flood_is_read_at_the_rate_of_the_allowance() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    count = 3 * int(MESSAGES_BURST)
    for _ in range(count):
        clock.now += allowance.spend(note())
    assert clock.now == pytest.approx((count - MESSAGES_BURST) / MESSAGES_PER_SECOND, rel=0.05)


def test_junk_counts_too() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    for _ in range(int(MESSAGES_BURST + 2 * MESSAGES_PER_SECOND)):
        clock.now += allowance.spend(ValueError("no JSON"))
    assert clock.now > 1


def test_thousands_of_log_messages_before_an_answer_are_read_without_a_pause() -> None:
    allowance = ReadingAllowance(Clock())
    assert sum(allowance.spend(note("a line of a log")) for _ in range(20_000)) == 0.0


def test_a_large_message_counts_for_many_but_holds_its_server_up_for_a_second_at_most() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    pauses = []
    for _ in range(40):
        pauses.append(allowance.spend(note("x" * 16_000_000)))
        clock.now += pauses[-1]
    assert sum(pauses) > 5
    assert max(pauses) <= 1.01
