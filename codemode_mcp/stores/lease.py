"""The lease of a process: the time for which others consider it alive. Pure; the caller owns clock and database."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one process. Others consider the process alive for `valid` seconds after its last renewal.

    Others count from the time at which the database received the renewal. This process counts from the time at which
    it sent the renewal, which is earlier, and subtracts `margin`, because no two clocks run equally fast. So it stops
    before others may take over.

    Attributes:
        valid: seconds for which a renewal is valid.
        every: seconds from one renewal to the next.
        margin: seconds by which this process stops early.
        sent: the time at which the latest successful renewal was sent, on the clock of this process; None before the
            first renewal.
    """

    valid: float = 8.0
    every: float = 2.0
    margin: float = 1.0
    sent: float | None = None

    def renewed(self, sent: float) -> Lease:
        """Return the lease after a successful renewal that was sent at time `sent`."""
        # Answers may arrive in another order than their requests. An older one must not shorten the lease.
        return self if self.sent is not None and self.sent > sent else replace(self, sent=sent)

    def ended(self) -> Lease:
        return replace(self, sent=None)

    def held(self, now: float) -> bool:
        return self.sent is not None and now < self.sent + self.valid - self.margin


def lease_clock(system: str = sys.platform) -> Callable[[], float]:
    """Return a clock of monotonic seconds that also runs while the machine sleeps, as the database's does."""
    # While the machine sleeps, time.monotonic stops on Linux and macOS. On Windows it continues. On macOS, unlike on
    # Linux, CLOCK_MONOTONIC continues.
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(system)
    number = getattr(time, name, None) if name else None
    return time.monotonic if number is None else lambda: time.clock_gettime(number)
