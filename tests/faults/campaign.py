"""The frame of a campaign: seeded faults under processes that work, figures, and the evidence of a broken promise.

Two campaigns with the same seed do the same work and cause the same faults, but not at the same moments.
"""

from __future__ import annotations

import random
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.histories import Broken


@dataclass(slots=True)
class Figures:
    """The numbers of what has happened in campaigns.

    Attributes:
        done: crashes or rounds, whatever the campaign is measured by.
        counts: what clients and programs have seen.
        faults: what was done to processes.
        judged: what was compared with the tables of the product.
    """

    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        sums = (self.counts + other.counts, self.faults + other.faults, self.judged + other.judged)
        return Figures(self.done + other.done, *sums, self.seconds + other.seconds)

    def __str__(self) -> str:
        named = {"counts": self.counts, "faults": self.faults, "judged": self.judged}
        listed = (
            f"\n  {name}: " + ", ".join(f"{key} {count}" for key, count in sorted(counter.items()))
            for name, counter in named.items()
            if counter
        )
        return f"{self.done} in {self.seconds:.0f} s{''.join(listed)}"


class Campaign(ABC):
    """One campaign.

    Attributes:
        chance: all its choices that several tasks do not make at the same time.
        events: the faults so far, with their times.
    """

    def __init__(self, seed: int, goal: int, *, progress: bool) -> None:
        self.figures = Figures()
        self.seed = seed
        self.chance = random.Random(seed)
        self.events: list[str] = []
        self._goal = goal
        self._progress = progress
        self._began = time.monotonic()

    async def run(self) -> Figures:
        """Run it to its end. Raises `Broken`, with what is known of the programs that it names."""
        try:
            await self._run()
        except Broken as broken:
            for line in self._evidence(str(broken)):
                broken.add_note(line)
            raise
        finally:
            self.figures.seconds = time.monotonic() - self._began
            await self._close()
        return self.figures

    def note(self, event: str) -> None:
        self.events.append(f"{self.now} {event}")

    @property
    def now(self) -> str:
        return f"{time.monotonic() - self._began:.3f}"

    def advance(self) -> None:
        """Count one crash or round."""
        self.figures.done += 1
        if self._progress:
            print(f"\r{self.figures.done} of {self._goal}", end="", file=sys.stderr, flush=True)

    def fork(self, name: object) -> random.Random:
        """Return the choices of one task."""
        return random.Random(f"{self.seed} {name}")

    @abstractmethod
    async def _run(self) -> None: ...

    @abstractmethod
    def _evidence(self, text: str) -> Iterable[str]:
        """Return what is known of the programs that the text of a broken promise names."""

    @abstractmethod
    async def _close(self) -> None: ...
