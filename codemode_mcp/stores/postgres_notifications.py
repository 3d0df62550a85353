"""Notifications of other processes that PostgreSQL has delivered, until they are read."""

from __future__ import annotations

from collections import deque

import anyio

MAX_QUEUED = 10_000
"""Maximum number of ids in the queue. Beyond it, the reader checks all runs instead."""


class Notifications:
    """Queue of the ids of runs that other processes have changed."""

    def __init__(self) -> None:
        self._runs: deque[str] = deque()
        self._lost = False
        self._changed = anyio.Event()

    def add(self, run: str) -> None:
        if len(self._runs) >= MAX_QUEUED:
            self.mark_lost()
        elif not self._lost:
            self._runs.append(run)
        self._changed.set()

    def mark_lost(self) -> None:
        """Record that notifications may have been lost. The reader then has to check all runs."""
        self._lost = True
        self._runs.clear()
        self._changed.set()

    async def next(self) -> str | None:
        """Wait for the next id, or None if some may have been lost."""
        while not (self._lost or self._runs):
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._lost:
            self._lost = False
            return None
        return self._runs.popleft()
