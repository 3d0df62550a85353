"""A database of SQLite: who may open it, what it says when something is wrong, who is alive, what is heard."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else continues here meanwhile

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.stores import schema, sqlite
from codemode_mcp.stores.sqlite import ProcessLock, SqliteDatabase, open_sqlite, problem
from codemode_mcp.stores.work import Alive, Notify, Query, Work

posix = pytest.mark.skipif(sys.platform == "win32", reason="about owners and modes of files, or files in use")

BLOB = b"x" * 100_000
param = pytest.param


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs.sqlite3"


def asking(sql: str, *values: Any) -> Work[list[Any]]:
    rows: list[Any] = yield Query(sql, values)
    return rows


def keeping(digest: str, body: bytes = b"") -> Work[None]:
    yield Query("INSERT INTO catalogs (hash, kept, body) VALUES (?, 0, ?)", (digest, body))


def telling(run: str) -> Work[None]:
    yield Notify(run)


async def catalogs(database: SqliteDatabase) -> list[str]:
    return [row[0] for row in await database.execute(lambda: asking("SELECT hash FROM catalogs ORDER BY hash"))]


async def refused(path: Path) -> str:
    with pytest.raises(StoreUnavailable) as refusal:
        async with open_sqlite(path):
            pass
    assert str(path) in refusal.value.detail
    assert str(path.parent) not in refusal.value.message
    assert "SQL" not in refusal.value.detail.replace("SQLite", "").replace(str(path), "")
    return refusal.value.detail


# transactions


async def test_what_fails_is_undone_and_what_is_done_is_kept(path: Path) -> None:
    def failing() -> Work[None]:
        yield from keeping("a")
        raise ValueError("after all")

    async with open_sqlite(path) as database:
        with pytest.raises(ValueError, match="after all"):
            await database.execute(failing)
        assert await catalogs(database) == []
        await database.execute(lambda: keeping("b"))
    async with open_sqlite(path) as database:
        assert await catalogs(database) == ["b"]
        assert await database.execute(lambda: asking("PRAGMA integrity_check")) == [("ok",)]


async def test_what_is_stored_outlives_a_loss_of_power(path: Path) -> None:
    async with open_sqlite(path) as database:
        # Full; outside of a transaction, where it could not be changed unseen.
        assert await database.execute(lambda: asking("SELECT synchronous FROM pragma_synchronous")) == [(2,)]
        assert await database.execute(lambda: asking("SELECT journal_mode FROM pragma_journal_mode")) == [("wal",)]


async def test_reading_does_not_wait_for_writers(path: Path) -> None:
    async with open_sqlite(path, synchronous=False) as database:
        await database.execute(lambda: keeping("a"))
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("DELETE FROM catalogs")
            with anyio.fail_after(sqlite.BUSY_SECONDS / 2):
                assert await catalogs(database) == ["a"]
        finally:
            other.close()


async def test_work_that_turns_out_to_write_is_begun_again(path: Path) -> None:
    begun = []

    def work() -> Work[int]:
        begun.append(1)
        rows = yield Query("SELECT COUNT(*) FROM catalogs")
        yield from keeping(f"number {rows[0][0]}")
        return len(begun)

    async with open_sqlite(path, synchronous=False) as database:
        assert await database.execute(work) == 2
        assert await catalogs(database) == ["number 0"]


async def test_a_process_that_is_cancelled_leaves_no_half_of_a_transaction(path: Path) -> None:
    reached, proceed = threading.Event(), threading.Event()

    def work() -> Work[None]:
        yield from keeping("a")
        reached.set()
        proceed.wait(10)
        yield from keeping("b")

    async with open_sqlite(path, synchronous=False) as database:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await database.execute(work)

            group.start_soon(ask)
            await anyio.to_thread.run_sync(reached.wait)
            group.cancel_scope.cancel()
            proceed.set()
        assert await catalogs(database) == ["a", "b"]


async def test_a_file_that_holds_little_any_more_gets_smaller(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SHRINK_EVERY", 3)
    monkeypatch.setattr(sqlite, "SHRINK_PAGES", 100)
    async with open_sqlite(path, synchronous=False) as database:
        await database.execute(lambda: keeping("a", BLOB * 20))
        await database.execute(lambda: asking("DELETE FROM catalogs"))
        [(before,)] = await database.execute(lambda: asking("SELECT page_count FROM pragma_page_count"))
        for _ in range(3):
            await database.execute(lambda: asking("DELETE FROM catalogs"))
        [(after,)] = await database.execute(lambda: asking("SELECT page_count FROM pragma_page_count"))
        assert after == before - 100


# files


@posix
async def test_no_other_user_can_read_it(path: Path) -> None:
    async with open_sqlite(path) as database:
        await database.execute(lambda: keeping("a"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        files = [each for each in path.parent.rglob("*") if each.is_file()]
        assert len(files) == 4
        for file in files:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    path.chmod(0o644)
    async with open_sqlite(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize("stays", [True, False])
async def test_a_folder_that_is_exchanged_while_the_file_is_opened_is_not_used(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    async with open_sqlite(path):
        pass
    theirs, aside = tmp_path / "theirs", tmp_path / "aside"
    shutil.copytree(path.parent, theirs)
    connect = sqlite3.connect

    def exchanged(*args: Any, **options: Any) -> sqlite3.Connection:
        path.parent.rename(aside)
        theirs.rename(path.parent)
        connection = connect(*args, **options)
        if not stays:
            path.parent.rename(theirs)
            aside.rename(path.parent)
        return connection

    monkeypatch.setattr(sqlite3, "connect", exchanged)
    assert "was moved or deleted" in await refused(path)


def private(path: Path) -> Path:
    path.parent.mkdir(mode=0o700)
    return path


def given_away(path: Path) -> None:
    private(path).touch()
    os.chown(path, 12345, 12345)


root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
PLACES = [
    param(
        lambda path: private(path).symlink_to(path.parent.parent / "x"), "is a symbolic link", id="link", marks=posix
    ),
    param(lambda path: private(path).parent.chmod(0o777), "others can write to", id="open", marks=posix),
    param(lambda path: private(path).parents[1].chmod(0o777), "others can write to", id="below open", marks=posix),
    param(given_away, "belongs to another user", id="of another user", marks=root),
    param(lambda path: path.mkdir(parents=True), "is not a regular file", id="a folder"),
    param(lambda path: path.parent.touch(), "cannot be created", id="below a file"),
    param(lambda path: private(path).with_name("runs.sqlite3.d").touch(), "cannot be created", id="no processes"),
    param(
        lambda path: private(path).write_bytes(b"my diary\n" * 1000), "is not a database of codemode-mcp", id="a text"
    ),
]


@pytest.mark.parametrize(("prepare", "words"), PLACES)
async def test_what_cannot_be_the_database_is_named_and_left_as_it_is(
    path: Path, tmp_path: Path, prepare: Callable[[Path], object], words: str
) -> None:
    def state() -> tuple[object, ...]:
        return path.is_file() and path.read_bytes(), path.exists(), (tmp_path / "x").exists()

    prepare(path)
    before = state()
    assert words in await refused(path)
    assert words == "cannot be created" or state() == before


# trouble


async def test_a_damaged_file_is_to_be_moved_away(path: Path) -> None:
    async with open_sqlite(path) as database:
        for number in range(20):
            await database.execute(lambda number=number: keeping(f"{number}", os.urandom(20_000)))  # type: ignore[misc]
    data = bytearray(path.read_bytes())
    data[sqlite.PAGE_BYTES :] = os.urandom(len(data) - sqlite.PAGE_BYTES)
    path.write_bytes(data)
    message = await refused(path)
    assert "is damaged" in message
    assert "move it away" in message


async def test_a_full_disk_is_told_and_what_was_there_stays(path: Path) -> None:
    async with open_sqlite(path, max_pages=60) as database:
        await database.execute(lambda: keeping("a"))
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await database.execute(lambda: keeping("b", BLOB * 10))
        assert await catalogs(database) == ["a"]
        await database.execute(lambda: keeping("c"))
        assert await catalogs(database) == ["a", "c"]


async def test_a_database_that_a_user_keeps_locked_is_told_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    async with open_sqlite(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"locked by another process .* try again"):
                await database.execute(lambda: keeping("a"))
            other.execute("COMMIT")
            await database.execute(lambda: keeping("a"))
        finally:
            other.close()


async def test_all_who_ask_while_it_is_locked_are_told_in_time_and_it_is_logged_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    failed = []

    async def ask(database: SqliteDatabase) -> None:
        with pytest.raises(StoreUnavailable, match="locked"):
            await database.execute(lambda: keeping("a"))
        failed.append(time.monotonic() - began)

    async with open_sqlite(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(ask, database)
            other.execute("COMMIT")
            await database.execute(lambda: keeping("b"))
        finally:
            other.close()
    assert max(failed) < 20 * 0.2 / 2
    assert len([record for record in caplog.records if "database is locked" in record.message]) == 1


@posix
async def test_a_database_that_was_moved_away_is_not_written_to(path: Path) -> None:
    async with open_sqlite(path) as database:
        path.rename(path.with_name("aside"))
        with pytest.raises(StoreUnavailable, match="was moved or deleted"):
            await database.execute(lambda: keeping("a"))
        path.with_name("aside").rename(path)
        await database.execute(lambda: keeping("a"))


async def test_a_database_that_was_closed_says_so(path: Path) -> None:
    async with open_sqlite(path) as database:
        assert database.is_alive()
    assert not database.is_alive()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await database.execute(lambda: keeping("a"))


async def test_work_that_comes_while_it_is_being_closed_is_told_so(path: Path) -> None:
    async with open_sqlite(path) as database:
        await database._run(database._close)
        with pytest.raises(StoreUnavailable, match="is closed"):
            await database.execute(lambda: keeping("a"))
        assert await database.next_notification() is None
        assert database._reader is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SQLITE_BUSY", "try again"),
        ("SQLITE_FULL", "make room"),
        ("SQLITE_READONLY", "cannot be written to"),
        ("SQLITE_READONLY_DIRECTORY", "cannot be written to"),
        ("SQLITE_CORRUPT", "is damaged"),
        ("SQLITE_CORRUPT_INDEX", "is damaged"),
        ("SQLITE_NOTADB", "is not a database"),
        ("SQLITE_CANTOPEN", "cannot be opened"),
        ("SQLITE_IOERR_FSYNC", "the disk reports an error"),
        ("SQLITE_MISUSE", "see the log"),
    ],
)
def test_each_kind_of_trouble_says_what_to_do(name: str, words: str) -> None:
    assert words in problem(getattr(sqlite3, name), 10)


# the schema


def dumped(path: Path) -> list[str]:
    """Return the tables and rows of a database as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


async def test_a_database_of_a_newer_version_is_left_alone(path: Path) -> None:
    async with open_sqlite(path) as database:
        await database.execute(lambda: asking("UPDATE schema_version SET version = 99"))
    before = dumped(path)
    message = await refused(path)
    assert dumped(path) == before
    assert f"its schema is 99, this one knows {schema.VERSION}" in message
    assert "upgrade codemode-mcp" in message


async def test_a_database_of_an_earlier_version_is_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sqlite(path) as database:
        await database.execute(lambda: keeping("a"))
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("ALTER TABLE catalogs ADD COLUMN more {blob}",)))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    for _ in range(2):
        async with open_sqlite(path) as database:
            assert await database.execute(lambda: asking("SELECT hash, more FROM catalogs")) == [("a", None)]
            assert await database.execute(lambda: asking("SELECT version FROM schema_version")) == [(schema.VERSION,)]


async def test_a_failed_step_to_a_new_version_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sqlite(path) as database:
        await database.execute(lambda: keeping("a"))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("DROP TABLE catalogs", "DROP TABLE no_such")))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        await refused(path)
    async with open_sqlite(path) as database:
        assert await catalogs(database) == ["a"]


async def test_many_may_open_it_for_the_first_time_together(path: Path) -> None:
    opened: list[str] = []

    async def one() -> None:
        async with open_sqlite(path) as database:
            opened.append(database.process)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(one)
    assert len(set(opened)) == 4


# the living and the dead


def alive(*processes: str) -> Work[frozenset[str]]:
    found: frozenset[str] = yield Alive(frozenset(processes))
    return found


async def test_a_process_is_alive_until_it_closes(path: Path) -> None:
    async with open_sqlite(path) as first:
        async with open_sqlite(path) as second:
            asked = (first.process, second.process, "0" * 16)
            assert await first.execute(lambda: alive(*asked)) == {first.process, second.process}
            assert first.process != second.process
        assert await first.execute(lambda: alive(*asked)) == {first.process}
        assert [each.name for each in path.with_name("runs.sqlite3.d").iterdir()] == [first.process]


async def test_a_killed_process_is_dead_immediately(path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from codemode_mcp.stores.sqlite import ProcessLock\n"
        "print(ProcessLock(pathlib.Path(sys.argv[1])).process, flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with open_sqlite(path) as database:
        folder = path.with_name("runs.sqlite3.d")
        with subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            name = process.stdout.readline().strip()
            assert await database.execute(lambda: alive(name)) == {name}
            process.kill()
            process.wait()
            assert await database.execute(lambda: alive(name)) == set()
        assert not (folder / name).exists()


def test_files_of_the_dead_are_removed_by_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    first = ProcessLock(folder)
    (folder / ("0" * 16)).touch()
    (folder / "something foreign").touch()
    second = ProcessLock(folder)
    assert {each.name for each in folder.iterdir()} == {first.process, second.process, "something foreign"}
    first.release()
    second.release()
    assert not first.is_held()


@posix
def test_a_process_whose_file_is_gone_does_not_hold_anything_any_more(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "d")
    assert lock.is_held()
    (tmp_path / "d" / lock.process).unlink()
    assert not lock.is_held()
    lock.release()


# news


async def test_news_are_heard_by_all_others(path: Path) -> None:
    async with open_sqlite(path) as first, open_sqlite(path) as second, open_sqlite(path) as third:
        await first.execute(lambda: telling("run_a"))
        await second.execute(lambda: telling("run_b"))
        with anyio.fail_after(10):
            assert await first.next_notification() == "run_b"
            assert await second.next_notification() == "run_a"
            assert [await third.next_notification(), await third.next_notification()] == ["run_a", "run_b"]
            with anyio.move_on_after(sqlite.POLL_SECONDS * 2):
                assert await third.next_notification() is None, "there is no more"
            await first.execute(lambda: telling("run_c"))
            assert await third.next_notification() == "run_c"


async def test_what_is_undone_is_no_news(path: Path) -> None:
    def failing() -> Work[None]:
        yield Notify("run_a")
        raise ValueError

    async with open_sqlite(path) as first, open_sqlite(path) as second:
        with pytest.raises(ValueError):
            await first.execute(failing)
        await first.execute(lambda: telling("run_b"))
        with anyio.fail_after(10):
            assert await second.next_notification() == "run_b"


async def test_a_process_that_has_not_listened_for_long_is_told_that_it_missed_something(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_NOTIFICATIONS", 3)
    async with open_sqlite(path, synchronous=False) as first, open_sqlite(path, synchronous=False) as second:
        for number in range(10):
            await first.execute(lambda number=number: telling(f"run_{number}"))  # type: ignore[misc]
        assert await first.execute(lambda: asking("SELECT COUNT(*) FROM news")) == [(3,)]
        with anyio.fail_after(10):
            assert [await second.next_notification() for _ in range(4)] == [None, "run_7", "run_8", "run_9"]


@posix
async def test_a_process_whose_file_is_removed_makes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs.sqlite3.d"
    try_lock, tried = sqlite.try_lock, []

    def late(descriptor: int) -> bool:
        tried.append(descriptor)
        if len(tried) == 1:
            for path in folder.iterdir():
                path.unlink()
        return try_lock(descriptor)

    monkeypatch.setattr(sqlite, "try_lock", late)
    lock = ProcessLock(folder)
    try:
        assert lock.is_held()
        assert len(tried) == 2
    finally:
        lock.release()
