"""One database that several processes have open, as tests see it: which of them die when, and what time it is."""

from __future__ import annotations

import os
import sqlite3
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.stores.postgres import open_postgres
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.work import Database, Query, Work

KEY = b"k" * 32


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One process: its database, and a store over it."""

    def __init__(self, database: Database, clock: Clock, settings: CodeModeSettings, seal: Seal) -> None:
        self.database = database
        self.clock = clock
        self.store = DurableStore(database, seal, settings, clock=clock)


class SharedDatabase(Protocol):
    """Attributes:
    clock: what the stores take for monotonic; moved by `advance` alone."""

    clock: Clock

    async def process(self, settings: CodeModeSettings = ..., seal: Seal | None = None) -> Process:
        """Return one more."""
        ...

    async def kill(self, process: Process) -> None:
        """All others take it for dead from now on. What is left of it may still try things."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let time pass for the database and the stores."""
        ...

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what is in the database, for a SELECT without values."""
        ...


@dataclass
class SharedSqlite:
    path: Path
    synchronous: bool = False
    clock: Clock = field(default_factory=Clock)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> SharedSqlite:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    async def process(self, settings: CodeModeSettings | None = None, seal: Seal | None = None) -> Process:
        opening = open_sqlite(self.path, wall=self.clock, monotonic=self.clock, synchronous=self.synchronous)
        database = await self.stack.enter_async_context(opening)
        return Process(database, self.clock, settings or CodeModeSettings(), seal or Seal((KEY,)))

    async def kill(self, process: Process) -> None:
        lock = process.database._lock  # type: ignore[attr-defined]
        nowhere = os.open(os.devnull, os.O_RDONLY)
        # The system lets go of the lock; the number is still there to be closed in the end.
        os.dup2(nowhere, lock._descriptor)
        os.close(nowhere)

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


@dataclass
class SharedPostgres:
    """Its clock is the server's: what lies in the future is moved here instead."""

    url: str
    clock: Clock = field(default_factory=Clock)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    onlooker: Database | None = None

    async def __aenter__(self) -> SharedPostgres:
        self.onlooker = await self.stack.enter_async_context(open_postgres(self.url))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    async def process(self, settings: CodeModeSettings | None = None, seal: Seal | None = None) -> Process:
        database = await self.stack.enter_async_context(open_postgres(self.url))
        return Process(database, self.clock, settings or CodeModeSettings(), seal or Seal((KEY,)))

    async def kill(self, process: Process) -> None:
        async def not_any_more(connection: object) -> None:
            pass

        process.database._renew = not_any_more  # type: ignore[attr-defined]
        await self.rows(f"UPDATE processes SET expires = 0 WHERE process = '{process.database.process}'")

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        times = ", ".join(f"{name} = {name} - {seconds}" for name in ("began", "parked", "ended", "expires"))
        await self.rows(f"UPDATE runs SET {times}")
        await self.rows(f"UPDATE catalogs SET kept = kept - {seconds}")

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        def work() -> Work[list[tuple[Any, ...]]]:
            rows: list[tuple[Any, ...]] = yield Query(sql)
            return rows

        assert self.onlooker is not None
        return await self.onlooker.execute(work)
