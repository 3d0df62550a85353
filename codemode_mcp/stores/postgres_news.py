"""News of other processes from PostgreSQL, each run once, until it is asked for."""

from __future__ import annotations

from collections import deque

import anyio

MAX_NEWS = 10_000


class News:
    """Runs that other processes have reported, each once, until they are asked for."""

    def __init__(self) -> None:
        self._runs: deque[str] = deque()
        self._missed = False
        self._changed = anyio.Event()

    def told(self, run: str) -> None:
        if len(self._runs) >= MAX_NEWS:
            self.missed()
        elif not self._missed:
            self._runs.append(run)
        self._changed.set()

    def missed(self) -> None:
        """Everything has to be looked at, and so what had been told of."""
        self._missed = True
        self._runs.clear()
        self._changed.set()

    async def next(self) -> str | None:
        while not (self._missed or self._runs):
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._missed:
            self._missed = False
            return None
        return self._runs.popleft()
