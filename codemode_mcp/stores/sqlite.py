"""One file of SQLite that the processes of one user share: `stores.work.Database`."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import secrets
import sqlite3
import stat
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.stores.schema import migrate
from codemode_mcp.stores.work import Alive, Now, Query, Tell
from upstream_clients.file_lock import NO_LINK, try_lock
from upstream_clients.private_files import exposure, make_private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from codemode_mcp.stores.work import Row, Work

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BUSY_SECONDS = 10.0
"""Seconds for which other processes may lock the database."""

OPENING_PAUSE = 0.02
"""Seconds between two attempts to open it while others do."""

NEWS_SECONDS = 0.05
"""Between two looks for news."""

LOG_SECONDS = 60.0
"""Between two records of the same trouble."""

NEWS_KEPT = 1000
"""News that are kept for those who have not looked yet."""

WAL_BYTES = 32 * 1024 * 1024
"""Bytes to which the write-ahead log shrinks again after it had to grow."""

PAGE_BYTES = 4096

SHRINK_EVERY = 256
"""Transactions between two looks whether much of the file is unused."""

SHRINK_PAGES = 2000
"""Unused pages that are given back to the disk in one step; no fewer, and only if they are a quarter."""


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    synchronous: bool = True,
    max_pages: int | None = None,
) -> AsyncIterator[SqliteDatabase]:
    """Yield the database in a file, which is made, with its folder, where there is none.

    Args:
        wall: seconds since the epoch; read once, for a clock that is set later must not end what is stored.
        monotonic: seconds that pass from then on.
        synchronous: what is written outlives a loss of power.
        max_pages: pages of `PAGE_BYTES` that the file may grow to.

    Raises:
        StoreUnavailable: it cannot be used; what to do about it.
    """
    database = SqliteDatabase(path, wall, monotonic)
    try:
        await database._run(lambda: database._open(synchronous, max_pages))
        yield database
    finally:
        with anyio.CancelScope(shield=True):
            await database._run(database._close)
        database._threads_end()


class SqliteDatabase:
    """`Database` in one file, with a file beside it for each process that has it open.

    All that touches the file happens in one thread, so that nothing waits for a disk but who has asked. Each process
    keeps a lock on a file of its own in the folder `<path>.d`, which the system lets go of when the process ends,
    however it ends.
    """

    blob = "BLOB"

    def __init__(self, path: Path, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.name = str(path)
        self.process = ""
        self._path = path
        self._monotonic = monotonic
        self._epoch = wall() - monotonic()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._life: Life | None = None
        self._place: tuple[int, int] | None = None
        """Device and number of the file."""
        self._transactions = 0
        self._patience = BUSY_SECONDS
        self._logged: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, "runs-sqlite")
        # Apart, so that news are heard while a transaction waits for its turn.
        self._listener = ThreadPoolExecutor(1, "runs-sqlite-news")
        self._data_version = -1
        self._heard = 0
        self._news: deque[str | None] = deque()

    def __repr__(self) -> str:
        return f"<SqliteDatabase: {self.name}>"

    async def do(self, work: Callable[[], Work[Result]]) -> Result:
        asked = time.monotonic()
        return await self._run(lambda: self._carry_out(work, time.monotonic() - asked))

    def holds(self) -> bool:
        return self._life is not None and self._life.is_held()

    async def news(self) -> str | None:
        while not self._news:
            try:
                if self._may_be_news():
                    await self._run(self._look, self._listener)
            except StoreUnavailable:
                self._data_version = -1
                await anyio.sleep(1)
                self._news.append(None)
                break
            if not self._news:
                await anyio.sleep(NEWS_SECONDS)
        return self._news.popleft()

    async def _run(self, function: Callable[[], Result], thread: ThreadPoolExecutor | None = None) -> Result:
        try:
            future = (thread or self._thread).submit(function)
        except RuntimeError:
            raise self._closed() from None
        # Work that has begun runs to its end, and its caller waits for that.
        with anyio.CancelScope(shield=True):
            result = await asyncio.wrap_future(future)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable("the store{at} is closed", at=f" {self.name}")

    def _threads_end(self) -> None:
        self._thread.shutdown(wait=True)
        self._listener.shutdown(wait=True)

    # in the thread

    def _open(self, synchronous: bool, max_pages: int | None) -> None:
        try:
            about = _make_private(self._path)
            self._life = Life(self._path.with_name(self._path.name + ".d"))
        except OSError as error:
            raise StoreUnavailable(
                f"the store{{at}} cannot be made: {error.strerror or type(error).__name__}; "
                "give the setting store a path in a folder that can be written to",
                at=f" {self.name}",
            ) from None
        self.process = self._life.process
        until = time.monotonic() + BUSY_SECONDS
        with self._telling():
            while True:
                try:
                    self._writer = connection = self._connected(synchronous, max_pages)
                    break
                except sqlite3.OperationalError as error:
                    # While others open or close it too, SQLite says so immediately, whatever its timeout.
                    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() > until:
                        raise
                time.sleep(OPENING_PAUSE)
        self._place = (about.st_dev, about.st_ino)
        if not _has_open(about):
            # SQLite opens a path, and something else was there at that moment.
            raise self._moved()
        self._carry_out(lambda: _set_up(self.name))
        with self._telling():
            self._heard = connection.execute("SELECT COALESCE(MAX(id), 0) FROM news").fetchone()[0]

    def _connected(self, synchronous: bool, max_pages: int | None) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    "the store{at} is where SQLite cannot share it between processes, as on network drives; "
                    "give the setting store a path on a disk of this machine",
                    at=f" {self.name}",
                )
            connection.execute(f"PRAGMA synchronous = {'FULL' if synchronous else 'OFF'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            if max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {max_pages}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None
        self._listener.submit(self._close_reader).result()
        if self._life is not None:
            self._life.end()
            self._life = None

    def _close_reader(self) -> None:
        if self._reader is not None:
            with suppress(sqlite3.Error):
                self._reader.close()
            self._reader = None

    def _carry_out(self, work: Callable[[], Work[Result]], waited: float = 0.0) -> Result:
        """Run a piece of work. Reads do not wait for writers; work that turns out to write is begun again.

        Args:
            waited: seconds that it has waited for its turn: if others had to because another process locks the
                database, it does not wait as long once more.
        """
        with self._telling():
            self._check_place()
            self._be_patient(BUSY_SECONDS - waited)
            try:
                return self._transaction(work, writes=False)
            except _Writes:
                result = self._transaction(work, writes=True)
        self._shrink()
        return result

    def _be_patient(self, seconds: float) -> None:
        patience = BUSY_SECONDS if seconds > BUSY_SECONDS * 0.9 else max(seconds, BUSY_SECONDS * 0.02)
        if patience != self._patience and self._writer is not None:
            self._patience = patience
            self._writer.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")

    def _shrink(self) -> None:
        """Now and then, give back what is not used any more."""
        self._transactions += 1
        connection = self._writer
        if self._transactions % SHRINK_EVERY or connection is None:
            return
        # What was asked for is done; whatever is wrong now will be told to the next who asks.
        with suppress(sqlite3.Error):
            unused, pages = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
            )
            if unused >= SHRINK_PAGES and unused * 4 >= pages:
                # A page a step; `execute` would take the first step alone.
                connection.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")

    def _transaction(self, work: Callable[[], Work[Result]], *, writes: bool) -> Result:
        connection = self._writer
        if connection is None:  # closed while this waited for its turn
            raise self._closed()
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        asking = work()
        try:
            answer: Any = None
            while True:
                try:
                    asked = asking.send(answer)
                except StopIteration as end:
                    connection.execute("COMMIT")
                    result: Result = end.value
                    return result
                if not writes and _writes(asked):
                    raise _Writes
                answer = self._answer(connection, asked)
        finally:
            asking.close()
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def _answer(self, connection: sqlite3.Connection, asked: Query | Alive | Tell | Now) -> Any:
        match asked:
            case Query():
                rows: list[Row] = connection.execute(asked.sql, asked.values).fetchall()
                return rows
            case Alive():
                assert self._life is not None
                return self._life.alive(asked.processes)
            case Now():
                return self._epoch + self._monotonic()
            case Tell():
                cursor = connection.execute("INSERT INTO news (process, run) VALUES (?, ?)", (self.process, asked.run))
                connection.execute("DELETE FROM news WHERE id <= ?", ((cursor.lastrowid or 0) - NEWS_KEPT,))
                return None

    def _may_be_news(self) -> bool:
        """Return True if anything was written since the last look. Of memory that processes share: it does not
        block."""
        if self._reader is None:
            return True
        try:
            return bool(self._version(self._reader) != self._data_version)
        except sqlite3.Error:
            return True

    def _version(self, reader: sqlite3.Connection) -> int:
        version: int = reader.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _look(self) -> None:
        """Look for news; in the listener's thread, while the reader is free."""
        with self._telling():
            if self._reader is None:
                if self._writer is None:
                    raise self._closed()
                self._check_place()
                self._reader = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            version = self._version(self._reader)
            rows = self._reader.execute("SELECT id, process, run FROM news WHERE id > ? ORDER BY id", (self._heard,))
            for number, process, run in rows.fetchall():
                if number != self._heard + 1:
                    self._news.append(None)
                self._heard = number
                if process != self.process:
                    self._news.append(run)
            self._data_version = version

    def _check_place(self) -> None:
        try:
            about = os.stat(self._path)
        except OSError:
            raise self._moved() from None
        if (about.st_dev, about.st_ino) != self._place:
            # Data that is written now would be lost.
            raise self._moved()

    def _moved(self) -> StoreUnavailable:
        return StoreUnavailable(
            "the store{at} was moved or deleted while it was in use; put it back, or start codemode-mcp again",
            at=f" {self.name}",
        )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Yield what SQLite says, in our words."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            self._log(f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})")
            raise StoreUnavailable(f"the store{{at}} {_trouble(code)}", at=f" {self.name}") from None

    def _log(self, trouble: str) -> None:
        """Log SQLite's own message; not every second as long as it lasts."""
        now = time.monotonic()
        if now - self._logged.get(trouble, -math.inf) >= LOG_SECONDS:
            self._logged[trouble] = now
            log.warning("the store %s: %s", self.name, trouble)


class _Writes(Exception):
    """A transaction that was begun for reading asks for more."""


def _writes(asked: Query | Alive | Tell | Now) -> bool:
    return isinstance(asked, Tell) or (isinstance(asked, Query) and (asked.locks or not asked.sql.startswith("SELECT")))


def _set_up(name: str) -> Work[None]:
    yield from migrate(name, SqliteDatabase.blob)
    yield Query(
        "CREATE TABLE IF NOT EXISTS news "
        "(id INTEGER PRIMARY KEY AUTOINCREMENT, process TEXT NOT NULL, run TEXT NOT NULL)"
    )


def _trouble(code: int | None) -> str:
    """Return what is wrong, and what to do.

    Args:
        code: of SQLite, extended or not.
    """
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"has been locked by another process for more than {BUSY_SECONDS:g} s; try again, "
                "and look for a process that keeps it open if that does not help"
            )
        case sqlite3.SQLITE_FULL:
            return "cannot grow: the disk is full; make room and try again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return "cannot be written to; check who may write to the file, its folder and the file system"
        case sqlite3.SQLITE_CORRUPT:
            return (
                "is damaged; end all codemode-mcp processes that use it, move it away together with the files beside "
                "it that begin with its name, or put a backup in its place, and start again"
            )
        case sqlite3.SQLITE_NOTADB:
            return (
                "is no database of codemode-mcp, or is encrypted by something else; "
                "give the setting store another path, or move that file away"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return "cannot be opened; check that its folder is there and can be written to"
        case sqlite3.SQLITE_IOERR:
            return "cannot be read or written: the disk reports an error, or is full; check it and try again"
        case _:
            return "does not work; see the log of codemode-mcp"


# files


def _make_private(path: Path) -> os.stat_result:
    """Make, or check, a file that no other user can read or put something in the place of; return what it is.

    Raises:
        OSError, StoreUnavailable: it cannot be made, or is exposed.
    """
    make_private_folder(path.parent)
    # SQLite opens it by its path: no other user may be able to exchange what is there in between.
    why = exposure(path.parent)
    if why is not None:
        raise StoreUnavailable(
            "the store{at} is in a folder that others can write to; give it one in a folder of its own",
            at=f" {path} ({why})",
        )
    try:
        # Not opened where it is there already: closing it would let go of the locks of this process.
        about = os.lstat(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600))
        about = os.lstat(path)
    _check_file(path, about)
    return about


def _has_open(about: os.stat_result) -> bool:
    """Tell whether this process has a file open; True where the system does not say."""
    folder = {"linux": "/proc/self/fd", "darwin": "/dev/fd"}.get(sys.platform)
    try:
        descriptors = [int(name) for name in os.listdir(folder)] if folder else None
    except OSError:
        descriptors = None
    if descriptors is None:
        return True
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), about):
                return True
    return False


def _check_file(path: Path, about: os.stat_result) -> None:
    if stat.S_ISLNK(about.st_mode):
        raise StoreUnavailable(
            "the store{at} is a symbolic link; give the setting store the path of the file itself", at=f" {path}"
        )
    if not stat.S_ISREG(about.st_mode):
        raise StoreUnavailable("the store{at} is no file; give the setting store the path of a file", at=f" {path}")
    if sys.platform == "win32":
        return
    if about.st_uid != os.geteuid():
        raise StoreUnavailable(
            "the store{at} belongs to another user; give the setting store another path", at=f" {path}"
        )
    if stat.S_IMODE(about.st_mode) != 0o600:
        os.chmod(path, 0o600)


class Life:
    """A file that is locked for as long as this process lives, and those of others.

    Attributes:
        process: the file's name, which no other process had or will have.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder.name} beside it is no folder")
        if sys.platform != "win32" and (about.st_uid != os.geteuid() or about.st_mode & 0o022):
            raise PermissionError(errno.EPERM, f"others can write to {folder.name} beside it")
        while True:
            self.process = secrets.token_hex(8)
            self._path = folder / self.process
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600)
            # A process that looks for the files of dead ones may just have found it unlocked.
            if try_lock(self._descriptor) and self.is_held():
                break
            os.close(self._descriptor)
        self._bury()

    def is_held(self) -> bool:
        """Return True if others who look take this process for alive."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return False

    def alive(self, processes: frozenset[str]) -> frozenset[str]:
        return frozenset(process for process in processes if process == self.process or self._lives(process))

    def end(self) -> None:
        """Die, as far as others can see."""
        if sys.platform != "win32":
            with suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)
        if sys.platform == "win32":
            with suppress(OSError):
                self._path.unlink()

    def _bury(self) -> None:
        """Remove the files of the dead."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name != self.process and len(entry.name) == len(self.process):
                    self._lives(entry.name)

    def _lives(self, process: str) -> bool:
        path = self._folder / process
        try:
            descriptor = os.open(path, os.O_RDWR | NO_LINK)
        except FileNotFoundError:
            return False
        except OSError:
            # No process is taken for dead because this one cannot look.
            return True
        try:
            if not try_lock(descriptor):
                return True
            if sys.platform != "win32":
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(descriptor)
        if sys.platform == "win32":
            with suppress(OSError):
                path.unlink()
        return False
