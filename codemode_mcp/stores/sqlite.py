"""SQLite as a `Database`: one file that the processes of one user share.

- The file is in WAL mode: readers do not wait for a writer, and one process at a time writes.
- A transaction begins as a reader. Work that turns out to write is started again with the write lock. SQLite could
  upgrade a reader, but refuses that immediately (SQLITE_BUSY_SNAPSHOT) if another process has written meanwhile.
- SQLite has no notifications. So a notification is a row of the table `news`, and each process polls
  `PRAGMA data_version`, which only reads shared memory. It changes with each commit of another connection.
- SQLite opens the file by its path. If the path leads to another file later, changes would go to a file that no other
  process uses. So each transaction checks the file first.

The module is long because one object owns both threads, both connections and the lock file.
"""

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

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.stores.schema import migrate
from codemode_mcp.stores.work import Alive, Notify, Now, Query, Request, Row, Work
from upstream_clients.private_files import NO_LINK, exposure, make_private_folder, try_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


log = logging.getLogger(__name__)

Result = TypeVar("Result")

BUSY_SECONDS = 10.0
"""Seconds that a piece of work waits for a lock of other processes. The time in our own queue counts, too."""

OPENING_PAUSE = 0.02
"""Seconds between two attempts to open the database while other processes open it."""

POLL_SECONDS = 0.05
"""Seconds between two checks for notifications."""

LOG_SECONDS = 60.0
"""Seconds between two log records of the same error."""

MAX_NOTIFICATIONS = 1000
"""Maximum number of notifications kept for processes that have not read them yet."""

WAL_BYTES = 32 * 1024 * 1024
"""Bytes to which the write-ahead log is cut after it has grown."""

PAGE_BYTES = 4096

SHRINK_EVERY = 256
"""Transactions between two checks for unused pages."""

SHRINK_PAGES = 2000
"""Unused pages that are given back to the disk in one step. It happens only if there are so many, and only if they are
a quarter of all pages."""


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    synchronous: bool = True,
    max_pages: int | None = None,
) -> AsyncIterator[SqliteDatabase]:
    """Open the database in a file for the duration of the context. File and folder are created when missing.

    Args:
        wall: seconds since the epoch. It is read once, so that no run expires because the clock is set later.
        monotonic: monotonic seconds, for the time that passes from then on.
        synchronous: True if a commit must survive a loss of power.
        max_pages: maximum size of the file in pages of `PAGE_BYTES`.

    Raises:
        StoreUnavailable: the file cannot be used; the message says what to do.
    """
    database = SqliteDatabase(path, wall, monotonic)
    try:
        await database._run(lambda: database._open(synchronous, max_pages))
        yield database
    finally:
        with anyio.CancelScope(shield=True):
            await database._run(database._close)
        database._shut_down_threads()


class SqliteDatabase:
    """A `Database` in one file. The folder `<path>.d` has a lock file for each process that has the database open.

    One thread does all transactions, so that the event loop never waits for the disk. A second thread reads
    notifications, so that they arrive even while a transaction waits for a lock.
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
        self._lock: ProcessLock | None = None
        self._file_id: tuple[int, int] | None = None
        """Device and inode of the file."""
        self._transactions = 0
        self._busy_seconds = BUSY_SECONDS
        self._logged: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, "runs-sqlite")
        self._listener = ThreadPoolExecutor(1, "runs-sqlite-news")
        self._data_version = -1
        self._last_read = 0
        """Number of the last notification that was read."""
        self._notifications: deque[str | None] = deque()

    def __repr__(self) -> str:
        return f"<SqliteDatabase: {self.name}>"

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        queued = time.monotonic()
        return await self._run(lambda: self._execute(work, time.monotonic() - queued))

    def is_alive(self) -> bool:
        return self._lock is not None and self._lock.is_held()

    async def next_notification(self) -> str | None:
        while not self._notifications:
            try:
                if self._has_changed():
                    await self._run(self._read_notifications, self._listener)
            except StoreUnavailable:
                # Notifications may have come and gone meanwhile, so the caller has to check all runs.
                self._data_version = -1
                await anyio.sleep(1)
                self._notifications.append(None)
                break
            if not self._notifications:
                await anyio.sleep(POLL_SECONDS)
        return self._notifications.popleft()

    async def _run(self, function: Callable[[], Result], thread: ThreadPoolExecutor | None = None) -> Result:
        try:
            future = (thread or self._thread).submit(function)
        except RuntimeError:
            raise self._closed() from None
        # Work in a thread cannot be stopped. A cancelled caller waits for its end, and so learns what was changed.
        with anyio.CancelScope(shield=True):
            result = await asyncio.wrap_future(future)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable("the store{at} is closed", at=f" {self.name}")

    def _shut_down_threads(self) -> None:
        self._thread.shutdown(wait=True)
        self._listener.shutdown(wait=True)

    # in the thread

    def _open(self, synchronous: bool, max_pages: int | None) -> None:
        try:
            status = make_private_file(self._path)
            self._lock = ProcessLock(self._path.with_name(self._path.name + ".d"))
        except OSError as error:
            raise StoreUnavailable(
                f"the store{{at}} cannot be created: {error.strerror or type(error).__name__}; "
                "set store.path to a file in a folder that can be written to",
                at=f" {self.name}",
            ) from None
        self.process = self._lock.process
        until = time.monotonic() + BUSY_SECONDS
        with self._mapping_errors():
            while True:
                try:
                    self._writer = connection = self._connected(synchronous, max_pages)
                    break
                except sqlite3.OperationalError as error:
                    # SQLite does not apply its timeout while other processes open or close the file.
                    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() > until:
                        raise
                time.sleep(OPENING_PAUSE)
        self._file_id = (status.st_dev, status.st_ino)
        if not has_open(status):
            # SQLite has opened another file: the file or a folder above it was exchanged after the check.
            raise self._moved()
        self._execute(lambda: _create_tables(self.name))
        with self._mapping_errors():
            self._last_read = connection.execute("SELECT COALESCE(MAX(id), 0) FROM news").fetchone()[0]

    def _connected(self, synchronous: bool, max_pages: int | None) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    "the store{at} is on a file system where SQLite cannot share it between processes, such as a "
                    "network drive; set store.path to a file on a disk of this machine",
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
        # In the thread that reads, so that no read is in progress.
        self._listener.submit(self._close_reader).result()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_reader(self) -> None:
        if self._reader is not None:
            with suppress(sqlite3.Error):
                self._reader.close()
            self._reader = None

    def _execute(self, work: Callable[[], Work[Result]], waited: float = 0.0) -> Result:
        """Run a piece of work. It reads without waiting for writers. Work that turns out to write is started again.

        Args:
            waited: seconds that the work was queued. They count against `BUSY_SECONDS`, because the work before it may
                have waited for the same lock.
        """
        with self._mapping_errors():
            self._check_file()
            self._set_busy_seconds(BUSY_SECONDS - waited)
            try:
                return self._transaction(work, writes=False)
            except _NeedsWriteLock:
                result = self._transaction(work, writes=True)
        self._shrink()
        return result

    def _set_busy_seconds(self, seconds: float) -> None:
        # Work that was hardly queued gets the whole time, so that the statement below is rarely needed. Work that was
        # queued too long gets a short time, in which it runs if nothing is locked.
        seconds = BUSY_SECONDS if seconds > BUSY_SECONDS * 0.9 else max(seconds, BUSY_SECONDS * 0.02)
        if seconds != self._busy_seconds and self._writer is not None:
            self._busy_seconds = seconds
            self._writer.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _shrink(self) -> None:
        """Give unused pages back to the disk, once in `SHRINK_EVERY` transactions."""
        self._transactions += 1
        connection = self._writer
        if self._transactions % SHRINK_EVERY or connection is None:
            return
        # The transaction before is committed, so it must not fail here. If the error lasts, the next one reports it.
        with suppress(sqlite3.Error):
            unused, pages = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
            )
            if unused >= SHRINK_PAGES and unused * 4 >= pages:
                # The statement frees one page a step, and `execute` would take the first step only.
                connection.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")

    def _transaction(self, work: Callable[[], Work[Result]], *, writes: bool) -> Result:
        connection = self._writer
        if connection is None:  # closed while this work was queued
            raise self._closed()
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        running = work()
        try:
            answer: Any = None
            while True:
                try:
                    request = running.send(answer)
                except StopIteration as end:
                    connection.execute("COMMIT")
                    result: Result = end.value
                    return result
                if not writes and _needs_write_lock(request):
                    raise _NeedsWriteLock
                answer = self._answer(connection, request)
        finally:
            # No transaction may stay open, because it would keep its lock.
            running.close()
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def _answer(self, connection: sqlite3.Connection, request: Request) -> Any:
        match request:
            case Query(sql, values):
                rows: list[Row] = connection.execute(sql, values).fetchall()
                return rows
            case Alive(processes):
                assert self._lock is not None
                return self._lock.alive(processes)
            case Now():
                # Not the wall clock of now: see `open_sqlite`.
                return self._epoch + self._monotonic()
            case Notify(run):
                cursor = connection.execute("INSERT INTO news (process, run) VALUES (?, ?)", (self.process, run))
                # A process that has not read a deleted row finds a gap in the numbers; see `_read_notifications`.
                oldest = (cursor.lastrowid or 0) - MAX_NOTIFICATIONS
                connection.execute("DELETE FROM news WHERE id <= ?", (oldest,))
                return None

    def _has_changed(self) -> bool:
        """Return True if another connection has committed since the last check. Reads shared memory; never blocks."""
        if self._reader is None:
            return True
        try:
            return bool(self._version(self._reader) != self._data_version)
        except sqlite3.Error:
            return True

    def _version(self, reader: sqlite3.Connection) -> int:
        version: int = reader.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _read_notifications(self) -> None:
        """Read new notifications, in the listener's thread."""
        with self._mapping_errors():
            if self._reader is None:
                if self._writer is None:
                    raise self._closed()
                self._check_file()
                # `_has_changed` uses the connection in the event loop, while this thread does not.
                self._reader = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            # Read before the rows: a commit in between then counts as a change at the next check.
            version = self._version(self._reader)
            query = "SELECT id, process, run FROM news WHERE id > ? ORDER BY id"
            for number, process, run in self._reader.execute(query, (self._last_read,)).fetchall():
                if number != self._last_read + 1:
                    self._notifications.append(None)  # rows were deleted before they were read here
                self._last_read = number
                if process != self.process:
                    self._notifications.append(run)
            self._data_version = version

    def _check_file(self) -> None:
        """Raise `StoreUnavailable` if the path no longer leads to the open file. Changes would be lost."""
        try:
            status = os.stat(self._path)
        except OSError:
            raise self._moved() from None
        if (status.st_dev, status.st_ino) != self._file_id:
            raise self._moved()

    def _moved(self) -> StoreUnavailable:
        return StoreUnavailable(
            "the store{at} was moved or deleted while it was in use; put it back, or start codemode-mcp again",
            at=f" {self.name}",
        )

    @contextmanager
    def _mapping_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            self._log(f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})")
            raise StoreUnavailable(f"the store{{at}} {problem(code, BUSY_SECONDS)}", at=f" {self.name}") from None

    def _log(self, error: str) -> None:
        """Log SQLite's own message, at most once in `LOG_SECONDS`."""
        now = time.monotonic()
        if now - self._logged.get(error, -math.inf) >= LOG_SECONDS:
            self._logged[error] = now
            log.warning("the store %s: %s", self.name, error)


class _NeedsWriteLock(Exception):
    """Raised in a transaction that began as a reader, for a request that writes or locks."""


def _needs_write_lock(request: Request) -> bool:
    match request:
        case Query(sql, locks=locks):
            return locks or not sql.startswith("SELECT")
        case _:
            return isinstance(request, Notify)


def _create_tables(name: str) -> Work[None]:
    yield from migrate(name, SqliteDatabase.blob)
    # AUTOINCREMENT gives every number once, so that a gap in the numbers shows that rows were deleted.
    yield Query(
        "CREATE TABLE IF NOT EXISTS news "
        "(id INTEGER PRIMARY KEY AUTOINCREMENT, process TEXT NOT NULL, run TEXT NOT NULL)"
    )


def problem(code: int | None, busy_seconds: float) -> str:
    """Return the end of a message that begins with "the store": the problem, and the remedy.

    Args:
        code: a result code of SQLite, primary or extended; None if unknown.
        busy_seconds: the time for which the database was locked.
    """
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"has been locked by another process for more than {busy_seconds:g} s; try again; "
                "if that does not help, look for the process that locks it"
            )
        case sqlite3.SQLITE_FULL:
            return "cannot grow: the disk is full; make room and try again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return "cannot be written to; check who may write to the file, its folder and the file system"
        case sqlite3.SQLITE_CORRUPT:
            return (
                "is damaged; end all codemode-mcp processes that use it, move it away together with all files whose "
                "names begin with its name, or replace it by a backup, and start codemode-mcp again"
            )
        case sqlite3.SQLITE_NOTADB:
            return (
                "is not a database of codemode-mcp, or is encrypted by another program; "
                "set store.path to another file, or move this one away"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return "cannot be opened; check that its folder exists and can be written to"
        case sqlite3.SQLITE_IOERR:
            return "cannot be read or written: the disk reports an error, or is full; check it and try again"
        case _:
            return "does not work; see the log of codemode-mcp"


# Files of the SQLite store, which no other user may read or replace.


def make_private_file(path: Path) -> os.stat_result:
    """Create or check a file that no other user can read or replace, and return its status.

    Raises:
        OSError: the file or its folder cannot be created.
        StoreUnavailable: the file is exposed to other users, or is not a regular file.
    """
    make_private_folder(path.parent)
    # SQLite will open the file by its path. So no other user may be able to replace the file before that.
    why = exposure(path.parent)
    if why is not None:
        raise StoreUnavailable(
            "the store{at} is in a folder that others can write to; set store.path to a file in a private folder",
            at=f" {path} ({why})",
        )
    try:
        # An existing file is not opened here. POSIX releases all locks of a process on a file when the process closes
        # any descriptor of it, and SQLite may have locked the file.
        status = os.lstat(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600))
        status = os.lstat(path)
    _check_file(path, status)
    return status


def has_open(status: os.stat_result) -> bool:
    """Return True if this process has a file open, or if that cannot be found out on this system."""
    folder = {"linux": "/proc/self/fd", "darwin": "/dev/fd"}.get(sys.platform)
    try:
        descriptors = [int(name) for name in os.listdir(folder)] if folder else None
    except OSError:
        descriptors = None
    if descriptors is None:
        return True
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return True
    return False


def _check_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreUnavailable("the store{at} is a symbolic link; set store.path to the file itself", at=f" {path}")
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnavailable(
            "the store{at} is not a regular file; set store.path to the path of a file", at=f" {path}"
        )
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid():
        raise StoreUnavailable("the store{at} belongs to another user; set store.path to another file", at=f" {path}")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.chmod(path, 0o600)


# Lock files that show which processes are alive.
#
# Each process locks a file of its own. The system releases the lock when the process ends, in whatever way.


class ProcessLock:
    """The lock file of this process, in a folder that has one for each process.

    Attributes:
        process: the name of the file. No earlier or later process has the same one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder.name} beside it is not a folder")
        if sys.platform != "win32" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise PermissionError(errno.EPERM, f"others can write to {folder.name} beside it")
        while True:
            self.process = secrets.token_hex(8)
            self._path = folder / self.process
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600)
            # Another process that removes the files of dead processes may have found this file before it was locked.
            if try_lock(self._descriptor) and self.is_held():
                break
            os.close(self._descriptor)
        self._remove_dead()

    def is_held(self) -> bool:
        """Return True if other processes consider this one alive."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return False

    def alive(self, processes: frozenset[str]) -> frozenset[str]:
        return frozenset(process for process in processes if process == self.process or self._is_alive(process))

    def release(self) -> None:
        """Release the lock. Other processes then consider this one dead."""
        _close_and_unlink(self._descriptor, self._path)

    def _remove_dead(self) -> None:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name != self.process and len(entry.name) == len(self.process):
                    self._is_alive(entry.name)  # removes the file if the process is dead

    def _is_alive(self, process: str) -> bool:
        """Return True if a process is alive, or if that cannot be found out. Remove the file of a dead process."""
        path = self._folder / process
        try:
            descriptor = os.open(path, os.O_RDWR | NO_LINK)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        locked = True
        try:
            locked = not try_lock(descriptor)
        finally:
            if locked:
                os.close(descriptor)
        if not locked:
            _close_and_unlink(descriptor, path)
        return locked


def _close_and_unlink(descriptor: int, path: Path) -> None:
    """Remove a lock file and release its lock. Windows cannot remove an open file, so there the lock goes first."""
    if sys.platform == "win32":
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        return
    try:
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(descriptor)
