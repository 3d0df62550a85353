"""Work of a store for a database, apart from the driver. Pure.

A piece of work is a generator: it yields requests, receives their answers, and returns its result. A `Database` runs
each piece of work in one transaction. If two transactions conflict, it runs the work again from the beginning. So work
must have no effects except through its requests. Its SQL is valid in both SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

Row = tuple[Any, ...]


class Query(Struct, frozen=True):
    """A statement, answered with the list of its rows.

    Attributes:
        sql: one statement; `?` for each of `values`. Times are seconds since the epoch, flags 0 and 1.
        values: `str`, `int`, `float`, `bytes` or None each.
        locks: True to lock the rows: no other process can change them until the work ends. SQLite locks the whole
            database.
    """

    sql: str
    values: tuple[Any, ...] = ()
    locks: bool = False


class Alive(Struct, frozen=True):
    """A request for those of these processes that are alive, answered with a set.

    Attributes:
        processes: ids as in `Database.process`.
    """

    processes: frozenset[str]


class Notify(Struct, frozen=True):
    """A request to notify all other processes that a run has changed, answered with None.

    The notification is sent when the work is committed.
    """

    run: str


class Now(Struct, frozen=True):
    """A request for the time in seconds since the epoch. In PostgreSQL, it is the time of the server's clock."""


def insert(table: str, row: Mapping[str, Any]) -> Query:
    marks = ", ".join("?" * len(row))
    return Query(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


Request = Query | Alive | Notify | Now

Work = Generator[Request, Any, Result_co]


class Database(Protocol):
    """One database that several processes share.

    Attributes:
        process: the id of this process. Each time that a database is opened, it is another one.
        name: a path, or host and database, for messages; without secrets.
        blob: the name of the type of bytes in its SQL.
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
        """Return True if all other processes still consider this one alive.

        This is checked right before anything that only one process may do.
        """
        ...

    async def next_notification(self) -> str | None:
        """Wait until another process has changed a run, and return the id of the run.

        Return None if notifications may have been lost.
        """
        ...
