"""Tests of what doctor finds of the store of suspended programs, and what it says to do; it leaves nothing behind."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from codemode_mcp.base.settings import StoreSettings
from codemode_mcp.config import Config
from codemode_mcp.extensions.setup.doctor import Check, engine
from codemode_mcp.extensions.setup.doctor.engine import Contents, check_store, in_words, permissions
from codemode_mcp.stores.opening import open_database

KEY = bytes(range(32))


async def only(settings: StoreSettings | None, folder: Path) -> tuple[str, str]:
    """Return the status and the detail of the only check."""
    (found,) = said(await check_store(settings, folder))
    return found


def said(checks: list[Check]) -> list[tuple[str, str]]:
    assert all(check.name == "store" for check in checks)
    assert all(check.advice for check in checks if check.status in ("warn", "fail"))
    return [(check.status, check.detail) for check in checks]


async def made(folder: Path) -> StoreSettings:
    """Return a store in a private folder, as `serve` has made it."""
    settings = StoreSettings("sqlite", path=str(folder / "own" / "runs.sqlite3"))
    async with open_database(settings, wall=time.time, folder=folder):
        pass
    return settings


def rows(settings: StoreSettings, sql: str) -> list[tuple[object, ...]]:
    assert settings.path is not None
    with closing(sqlite3.connect(settings.path)) as connection, connection:
        return connection.execute(sql).fetchall()


async def test_memory_is_fine_where_it_was_asked_for(tmp_path: Path) -> None:
    status, detail = await only(StoreSettings("memory"), tmp_path)
    assert status == "ok"
    assert "lost when the process exits" in detail


async def test_one_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for settings in (None, StoreSettings("sqlite", path=str(folder / "runs.sqlite3"))):
        status, detail = await only(settings, folder)
        assert status == "ok"
        assert detail.startswith(f"SQLite, {folder / 'runs.sqlite3'}, made when it is needed; not encrypted; ")
        assert "GB free" in detail
    assert not folder.exists()


async def test_the_users_folder_that_cannot_be_used_means_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, detail = await only(None, tmp_path / "file" / "codemode-mcp")
    assert status == "warn"
    assert detail == f"suspended programs are lost when the process exits: {tmp_path / 'file'} is a file"


async def test_a_file_where_nothing_can_be_made_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, detail = await only(StoreSettings("sqlite", path=str(tmp_path / "file" / "x")), tmp_path)
    assert status == "fail"
    assert f"{tmp_path / 'file'} is a file" in detail


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["plain", "encrypted"])
async def test_one_that_works_is_written_read_and_left_as_it_was(tmp_path: Path, keys: tuple[bytes, ...]) -> None:
    settings = await made(tmp_path)
    asked = StoreSettings("sqlite", path=settings.path, encryption_keys=keys)
    status, detail = await only(asked, tmp_path)
    assert status == "ok"
    assert f"SQLite, {settings.path}: 0 suspended programs; schema 3, answers in " in detail
    assert detail.partition(" ms; ")[2].startswith("encrypted; " if keys else "not encrypted; ")
    assert rows(settings, "SELECT * FROM catalogs") == []


async def test_suspended_programs_are_counted(tmp_path: Path) -> None:
    settings = await made(tmp_path)
    columns = "id, owner, state, version, token, cancel, reason, began, parked, expires, size, printed"
    suspended = time.time() - 600
    for name, state in (("a", "waiting"), ("b", "waiting"), ("c", "completed")):
        rows(
            settings,
            f"INSERT INTO runs ({columns}) VALUES "
            f"('{name}', 'me', '{state}', 1, 1, 0, 'calls', 0, {suspended}, 1e12, 1500000, 0)",
        )
    status, detail = await only(settings, tmp_path)
    assert status == "ok"
    assert ": 2 suspended programs, the oldest for 10 min, 3.0 MB; schema 3" in detail


async def test_a_database_of_a_newer_version_or_none_at_all_fails(tmp_path: Path) -> None:
    settings = await made(tmp_path)
    rows(settings, "UPDATE schema_version SET version = 99")
    status, detail = await only(settings, tmp_path)
    assert status == "fail"
    assert "newer codemode-mcp" in detail
    (tmp_path / "own" / "text").write_bytes(b"no database" * 1000)
    (tmp_path / "own" / "text").chmod(0o600)
    status, detail = await only(StoreSettings("sqlite", path=str(tmp_path / "own" / "text")), tmp_path)
    assert status == "fail"


async def test_postgres_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    # No one listens on this port of this machine.
    settings = StoreSettings("postgres", url="postgresql://me:not-to-be-shown@127.0.0.1:1/runs")
    checks = await check_store(settings, tmp_path)
    ((status, detail),) = said(checks)
    assert status == "fail"
    assert detail.startswith("PostgreSQL, 127.0.0.1:1/runs: ")
    assert "not-to-be-shown" not in str(checks)


async def test_postgres_that_works_is_ok(tmp_path: Path, postgres_url: str) -> None:
    status, detail = await only(StoreSettings("postgres", url=postgres_url), tmp_path)
    assert status in ("ok", "warn"), "warn: a slow machine"
    assert ": 0 suspended programs; schema 3, answers in " in detail


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
async def test_who_else_can_read_and_write_it_is_told(tmp_path: Path) -> None:
    settings = await made(tmp_path)
    file = tmp_path / "own" / "runs.sqlite3"
    assert list(permissions(file)) == []
    for path, mode, words in (
        (file, 0o640, f"others can read {file}"),
        (file, 0o660, f"others can write {file}"),
        (file.parent, 0o770, f"others can write {file.parent}"),
    ):
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        (check,) = permissions(file)
        path.chmod(before)
        assert (check.status, check.detail) == ("warn", words)
        assert check.advice == f"chmod {'600' if path == file else '700'} {path}"
    assert settings.path == str(file)


@pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")
async def test_what_serve_would_refuse_fails_before_there_is_a_file(tmp_path: Path) -> None:
    everybodys = tmp_path / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (found,) = await check_store(StoreSettings("sqlite", path=str(everybodys / "x.sqlite3")), tmp_path)
    assert (found.status, "in a folder that others can write to" in found.detail) == ("fail", True)
    assert "chmod" not in found.advice
    link = tmp_path / "link.sqlite3"
    link.symlink_to(tmp_path / "nothing.sqlite3")
    status, detail = await only(StoreSettings("sqlite", path=str(link)), tmp_path)
    assert (status, "is a symbolic link" in detail) == ("fail", True)


async def test_a_network_file_system_and_a_full_disk_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await made(tmp_path)
    monkeypatch.setattr(engine, "network_file_system", lambda _: "nfs4")
    monkeypatch.setattr(engine, "MIN_FREE", 1 << 62)
    _, network, full = said(await check_store(settings, tmp_path))
    assert network[0] == full[0] == "warn"
    assert "(nfs4)" in network[1]
    assert full[1].startswith("only ")


async def test_a_slow_one_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SLOW_MS", 0.0)
    status, _ = await only(await made(tmp_path), tmp_path)
    assert status == "warn"


async def test_the_configuration_decides_which_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (default,) = await engine.check_configured_store(Config())
    (asked,) = await engine.check_configured_store(Config(store=StoreSettings("memory")))
    assert "runs.sqlite3" in default.detail
    assert "in memory" in asked.detail


@pytest.mark.parametrize(
    ("oldest", "words"), [(3.4, "3 s"), (119, "119 s"), (3 * 60, "3 min"), (7199, "119 min"), (7200, "2 h")]
)
def test_times_are_told_in_their_unit(oldest: float, words: str) -> None:
    assert f"the oldest for {words}, " in in_words(Contents(1, 1, oldest, 0, 1.0))
