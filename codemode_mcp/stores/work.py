"""Work of a store for a database, apart from the driver. Pure.

A piece of work is a generator: it yields requests, receives their answers, and returns its result. A `Database` runs
all of one in one transaction, and again from its beginning when two transactions conflict. Work therefore has no
effect except through its requests. Its SQL is valid in both SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A statement, answered with the list of its rows.

    Attributes:
        sql: one statement; `?` for each of `values`. Times are seconds since the epoch, flags 0 and 1.
        values: `str`, `int`, `float`, `bytes` or None each.
        locks: whether other processes may not change the rows until the work ends. SQLite locks everything.
    """

    sql: str
    values: tuple[Any, ...] = ()
    locks: bool = False


@dataclass(frozen=True, slots=True)
class Alive:
    """A request for the living ones among these processes (ids of `Database.process`), answered with a set."""

    processes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Notify:
    """A request to notify all other processes of a run when the work is committed, answered with None."""

    run: str


@dataclass(frozen=True, slots=True)
class Now:
    """A request for the time in seconds since the epoch, by the clock that all processes share."""


def insert(table: str, row: Mapping[str, Any]) -> Query:
    """Return the query that inserts a row, given by column."""
    marks = ", ".join("?" * len(row))
    return Query(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


Request = Query | Alive | Notify | Now

Work = Generator[Request, Any, Result_co]


class Database(Protocol):
    """One database that several processes share.

    Attributes:
        process: the id of this process, different each time that a database is opened.
        name: a path, or host and database, for messages; without secrets.
        blob: the type of bytes in its SQL.
    """

    process: str
    name: str
    blob: str

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        """Run a piece of work in one transaction. An exception of the work undoes its changes.

        Raises:
            errors.StoreUnavailable: the database cannot be used; nothing was changed.
        """
        ...

    def is_alive(self) -> bool:
        """Return True if all other processes still take this one for alive.

        Called right before something that only one process may do.
        """
        ...

    async def next_notification(self) -> str | None:
        """Wait for the next run that another process has changed; None if notifications may have been lost."""
        ...
