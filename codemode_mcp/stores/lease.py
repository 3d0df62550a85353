"""The lease of a process: the time for which others take it for alive. Pure; the caller owns clock and database."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: others take the process for alive until some time after its last renewal.

    Others count from the time at which the database received the renewal. This process counts from the earlier time at
    which it sent the renewal, and gives away a margin, since two clocks do not run equally fast.

    Attributes:
        valid: seconds for which a renewal is valid.
        every: seconds from one renewal to the next.
        margin: seconds that this process gives away.
        sent: the time on this process's clock when the newest renewal that arrived was sent; None before the first.
    """

    valid: float = 8.0
    every: float = 2.0
    margin: float = 1.0
    sent: float | None = None

    def renewed(self, sent: float) -> Lease:
        """Return the lease after a renewal has arrived. Answers may arrive in another order than their requests."""
        return self if self.sent is not None and self.sent > sent else replace(self, sent=sent)

    def ended(self) -> Lease:
        return replace(self, sent=None)

    def held(self, now: float) -> bool:
        return self.sent is not None and now < self.sent + self.valid - self.margin


def lease_clock(system: str = sys.platform) -> Callable[[], float]:
    """Return a clock of monotonic seconds that also runs while the machine sleeps, as the database's does."""
    # On Linux time.monotonic stands still in sleep; on macOS it is not CLOCK_MONOTONIC; on Windows it keeps running.
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(system)
    number = getattr(time, name, None) if name else None
    return time.monotonic if number is None else lambda: time.clock_gettime(number)
