"""A store is opened while everything else continues, tried again until it works, and refuses until then."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.base.settings import CodeModeSettings, StoreSettings
from codemode_mcp.stores import opening
from codemode_mcp.stores.opening import OpenedStore, ReopenedDatabase, kind_of_mount, name_of, open_store, why_unusable
from codemode_mcp.stores.work import Now, Result, Work
from tests.waiting import refusal, until


class Fake:
    """A database that knows the time alone."""

    name, blob = "fake", "BLOB"

    def __init__(self, process: str) -> None:
        self.process = process

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        going = work()
        next(going)
        try:
            going.send(1234.0)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise AssertionError

    def is_alive(self) -> bool:
        return True

    async def next_notification(self) -> str | None:
        return "run-1"


class Opening:
    """Fails as often as it has errors, then opens; a database opens only when it may."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.may = anyio.Event()
        self.tries = 0
        self.broken = anyio.Event()
        """Set: what is open fails."""

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Any]:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.may.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(self._fail)
            yield Fake(f"process-{self.tries}")

    async def _fail(self) -> None:
        await self.broken.wait()
        self.broken = anyio.Event()
        raise ValueError("of the driver")


def now() -> Work[float]:
    return (yield Now())  # type: ignore[no-any-return]


@asynccontextmanager
async def running(database: ReopenedDatabase) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(database.run)
        yield
        group.cancel_scope.cancel()


async def test_what_is_asked_while_it_is_opened_waits_for_it() -> None:
    open_it = Opening()
    database = ReopenedDatabase(open_it, "fake")
    found: list[object] = []

    async def ask() -> None:
        found.append(await database.execute(now))
        found.append(await database.next_notification())

    async with running(database), anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert found == []
        assert not database.is_alive()
        open_it.may.set()
        await until(lambda: len(found) == 2)
        assert found == [1234.0, "run-1"]
        assert database.is_alive()
        assert (database.process, database.blob) == ("process-1", "BLOB")


async def test_one_that_takes_long_to_open_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "OPENING_SECONDS", 0)
    database = ReopenedDatabase(Opening(), "the database")
    async with running(database):
        with pytest.raises(StoreUnavailable, match="the database is still being opened; try again"):
            await database.execute(now)


async def test_one_that_cannot_be_opened_refuses_immediately_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "codemode_mcp.stores")
    monkeypatch.setattr(opening, "RETRY_SECONDS", 0)
    open_it = Opening(*[StoreUnavailable("the disk is full")] * 3)
    open_it.may.set()
    database = ReopenedDatabase(open_it, "fake")
    async with running(database):
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await database.execute(now)
        assert not database.is_alive()
        await until(database.is_alive)
        assert await database.execute(now) == 1234.0
    assert open_it.tries == 4
    # The same reason is told once.
    found = [record.message.partition(";")[0] for record in caplog.records]
    assert found == ["the disk is full", "suspended programs are kept in fake"]


async def test_one_that_fails_while_it_is_open_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "RETRY_SECONDS", 0)
    open_it = Opening()
    open_it.may.set()
    database = ReopenedDatabase(open_it, "fake")
    async with running(database):
        await until(database.is_alive)
        open_it.errors = [StoreUnavailable("gone")]
        open_it.broken.set()
        await until(lambda: not database.is_alive())
        await until(database.is_alive)
        assert database.process == "process-3"
        assert await database.next_notification() == "run-1"
    assert "the store of suspended programs has failed" in caplog.text


# which one, and where


def opened(folder: Path, settings: StoreSettings | None, **options: Any) -> AbstractAsyncContextManager[OpenedStore]:
    clocks = {"clock": time.monotonic, "wall": time.time}
    return open_store(settings, CodeModeSettings(), folder=folder, **clocks, **options)


async def chosen(folder: Path, settings: StoreSettings | None = None, *, durable: bool = True) -> tuple[str, bool]:
    async with opened(folder, settings, prefers_durable=durable) as store:
        return store.name, store.durable


async def test_by_default_a_server_uses_a_file_of_the_user_and_others_memory(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "codemode-mcp"
    assert await chosen(folder, durable=False) == ("memory", False)
    assert not folder.exists()
    assert await chosen(folder) == (str(folder / "runs.sqlite3"), True)
    if sys.platform != "win32":
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_without_the_folder_it_is_memory_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert await chosen(tmp_path / "file" / "codemode-mcp") == ("memory", False)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "cannot be created" in record.message
    assert '"store": {"kind": "memory"}' in record.message


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "getuid"), reason="modes of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    assert why_unusable(tmp_path) == f"{tmp_path} can be written by others"
    assert why_unusable(tmp_path / "below") == f"{tmp_path} can be written by others"
    tmp_path.chmod(0o755)
    assert why_unusable(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_used_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert why_unusable(folder) == f"{folder} cannot be written"
    (folder / "runs.sqlite3").touch()
    assert why_unusable(folder) is None


async def test_what_is_asked_for_is_used_and_named_without_its_password(tmp_path: Path) -> None:
    assert await chosen(tmp_path, StoreSettings("memory")) == ("memory", False)
    file = tmp_path / "x.sqlite3"
    assert await chosen(tmp_path, StoreSettings("sqlite", path=str(file))) == (str(file), True)
    settings = StoreSettings("postgres", url="postgresql://me:secret@db.example:5433/runs")
    assert name_of(settings, tmp_path) == "db.example:5433/runs"


async def test_a_file_that_cannot_be_opened_keeps_nothing_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = StoreSettings("sqlite", path=str(tmp_path / "file" / "x.sqlite3"))
    async with opened(tmp_path, settings) as store:
        assert store.durable
        assert not store.runs.claims_are_valid()
        caught = await refusal(store.runs.totals(), StoreUnavailable)
        assert str(tmp_path / "file") in caught.detail


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/me/local ext4 rw 0 0
//nas/share /mnt/with\\040blank cifs rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/tmp /tmp nfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *(("/var/lib/x", None), ("/home/me/state", "nfs4"), ("/homes", None), ("/home/me/local/state", None)),
        *(("/mnt/with blank/x", "cifs"), ("/tmp/x", "nfs")),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_network_file_systems_are_told_by_their_mounts(path: str, kind: str | None) -> None:
    assert kind_of_mount(Path(path), MOUNTS.splitlines()) == kind


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_what_is_kept_outlives_the_process_and_needs_its_key(tmp_path: Path) -> None:
    def with_keys(*keys: bytes) -> AbstractAsyncContextManager[OpenedStore]:
        return opened(tmp_path, StoreSettings("sqlite", encryption_keys=keys))

    old, new = bytes(range(32)), bytes(range(100, 132))
    async with with_keys(old) as store:
        ref = await store.values.offload("me", '"a text that no other may read"')
        assert ref is not None
    assert b"no other may" not in written(tmp_path)
    async with with_keys(new, old) as store:
        assert await store.values.load("me", ref) == '"a text that no other may read"'
    for keys in ((), (new,)):
        async with with_keys(*keys) as store:
            caught = await refusal(store.values.load("me", ref), CodeModeError)
            assert "encrypted" in caught.message


async def test_what_waits_for_the_first_attempt_to_open_continues_when_that_has_ended_or_takes_long() -> None:
    open_it = Opening()
    database = ReopenedDatabase(open_it, "fake")
    runs: Any = None
    store = OpenedStore(runs, runs, "fake", durable=True, _database=database)
    async with anyio.create_task_group() as group:
        group.start_soon(database.run)
        await store.wait_attempted(0.0)
        assert not database.is_alive(), "it does not wait for longer than it may"
        with anyio.fail_after(20):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(store.wait_attempted, 60.0)
                await anyio.wait_all_tasks_blocked()
                open_it.may.set()
        assert database.is_alive()
        group.cancel_scope.cancel()
