"""Work of a store for a database, apart from the driver. Pure.

A piece of work is a generator: it yields what it asks, gets the answer, and returns its result. A `Database` carries
all of one out in one transaction, and again from its beginning where two got in each other's way, so that work has no
effect but by what it yields. What is said in SQL is said so that SQLite and PostgreSQL both take it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """Answered with the list of rows.

    Attributes:
        sql: one statement; `?` for each of `values`. Times are seconds since the epoch, flags 0 and 1.
        values: `str`, `int`, `float`, `bytes` or None each.
        locks: no other process may change the rows until the work is done. (Of SQLite everything is locked.)
    """

    sql: str
    values: tuple[Any, ...] = ()
    locks: bool = False


@dataclass(frozen=True, slots=True)
class Alive:
    """Answered with the set of those of these processes (ids of `Database.process`) that are alive."""

    processes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tell:
    """Have all other processes hear of a run, once the work is done. Answered with None."""

    run: str


@dataclass(frozen=True, slots=True)
class Now:
    """Answered with the time, seconds since the epoch, by the clock that all processes go by."""


Asked = Query | Alive | Tell | Now

Work = Generator[Asked, Any, Result_co]


class Database(Protocol):
    """One database that several processes share.

    Attributes:
        process: the id of this one, different each time that a database is opened.
        name: for messages, without secrets: a path, or host and name.
        blob: the type of bytes in its SQL.
    """

    process: str
    name: str
    blob: str

    async def do(self, work: Callable[[], Work[Result]]) -> Result:
        """Carry out a piece of work.

        Raises:
            errors.StoreUnavailable: it could not be; nothing was changed. What the work itself raises undoes it too.
        """
        ...

    def holds(self) -> bool:
        """Return True if all others still take this process for alive. Asked right before anything that only one may
        do."""
        ...

    async def news(self) -> str | None:
        """Wait for the next run that another process tells of; None: some may have been missed."""
        ...
