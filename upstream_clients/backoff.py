"""Delays before the next attempt to connect. Pure arithmetic; the caller owns clock and sleep."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct):
    """Exponential delays in seconds, with jitter.

    A connection that lived for `stable_after` seconds resets the count of failures. After the first loss the delay is
    0, since most servers that die during a call can be started again. Further losses count as failures.
    """

    base: float = 0.5
    cap: float = 60.0
    stable_after: float = 10.0
    jitter: Callable[[], float] = random.random
    _failures: int = 0

    def reset(self) -> None:
        self._failures = 0

    def after_failure(self, count: int = 1) -> float:
        """Return the seconds to wait after a failed attempt, which counts as `count` failures."""
        self._failures += count
        # Jitter of up to half the delay, so that many clients of one restarted server do not connect at the same
        # moment.
        return min(self.cap, self.base * 2.0 ** min(self._failures - 1, 30)) * (0.5 + 0.5 * self.jitter())

    def after_loss(self, lived: float) -> float:
        """Return the seconds to wait after the loss of a connection that was ready for `lived` seconds."""
        if lived >= self.stable_after:
            self._failures = 0
        if self._failures == 0:
            self._failures = 1
            return 0.0
        return self.after_failure()
