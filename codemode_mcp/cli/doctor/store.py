"""The store of suspended programs: opening, writing and reading it, its rights, and its contents."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import counted
from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.settings import StoreSettings
from codemode_mcp.stores.opening import file_of, name_of, network_file_system, open_database, unusable
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.work import Now, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from codemode_mcp.config import Config
    from codemode_mcp.stores.work import Database, Work

LEAST_FREE: Final = 200 * 1024 * 1024
"""Bytes; a full disk suspends nothing."""

OPEN_SECONDS: Final = 15.0

SLOW_MS: Final = 50.0
"""Milliseconds of one round trip above which a store is slow; every suspended program takes several."""

_CHOOSE = '"store.path" may name another file, and "store": {"kind": "memory"} does without'
_BY_KIND = {
    "sqlite": f"remove the cause; {_CHOOSE}",
    "postgres": 'check "store.url", and that the database runs and lets this machine in',
}


@dataclass(frozen=True, slots=True)
class Found:
    """Contents of a database.

    Attributes:
        oldest: seconds since the one was suspended that was so first; None where none is.
        size: bytes of all suspended programs.
        round_trip: milliseconds.
    """

    schema: int
    suspended: int
    oldest: float | None
    size: int
    round_trip: float


async def check(config: Config) -> Iterable[Check]:
    from codemode_mcp.paths import state_dir

    return await look_at(config.store, state_dir())


async def look_at(settings: StoreSettings | None, folder: Path) -> list[Check]:
    """Return the store that `serve` would use.

    Args:
        settings: None: the configuration says nothing.
        folder: the user's own, for what outlives the process.
    """
    if settings is None:
        why = await anyio.to_thread.run_sync(_not_by_itself, folder)
        if why is not None:
            detail = f"suspended programs end with the process: {why}"
            return [Check("store", "warn", detail, "make that folder yours alone, or give store.path a file elsewhere")]
        settings = StoreSettings("sqlite")
    if settings.kind == "memory":
        return [Check("store", "ok", "in memory, as configured: suspended programs end with the process")]
    how = "encrypted" if settings.encryption_keys else "not encrypted"
    name = name_of(settings, folder)
    title = f"SQLite, {name}" if settings.kind == "sqlite" else f"PostgreSQL, {name}"
    around: list[Check] = []
    free = ""
    if settings.kind == "sqlite":
        file = file_of(settings, folder)
        around, there, room = await anyio.to_thread.run_sync(_files, file)
        free = "" if room is None else f"; {room / 1e9:.1f} GB free"
        if not there:
            if any(each.status == "fail" for each in around):
                return around
            return [Check("store", "ok", f"{title}, made when it is needed; {how}{free}"), *around]
    try:
        with anyio.fail_after(OPEN_SECONDS):
            async with open_database(settings, wall=time.time, folder=folder) as database:
                seal = Seal(settings.encryption_keys)
                found = await _tried(database, seal)
    except StoreUnavailable as error:
        return [Check("store", "fail", f"{title}: {error.detail}", _BY_KIND[settings.kind]), *around]
    except TimeoutError:
        detail = f"{title}: it did not answer within {OPEN_SECONDS:.0f} s"
        return [Check("store", "fail", detail, _BY_KIND[settings.kind]), *around]
    detail = f"{title}: {told(found)}; {how}{free}"
    if found.round_trip > SLOW_MS:
        advice = "every suspended program takes several round trips: " + (
            "the disk or the machine is busy; run doctor again, and see store.path"
            if settings.kind == "sqlite"
            else "keep the database near"
        )
        return [Check("store", "warn", detail, advice), *around]
    return [Check("store", "ok", detail), *around]


async def _tried(database: Database, seal: Seal) -> Found:
    """Write a probe, read it, and take it back; count what is there."""
    found = None
    try:
        await database.execute(lambda: _probe(seal, f"doctor:{secrets.token_hex(8)}"))
    except _Seen as seen:
        found = seen.found
    assert found is not None
    began = time.perf_counter()
    await database.execute(_nothing)
    return replace(found, round_trip=(time.perf_counter() - began) * 1000)


class _Seen(Exception):
    """Undoes the work that has seen this."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


def _probe(seal: Seal, name: str) -> Work[None]:
    (version,) = yield Query("SELECT version FROM schema_version")
    ((suspended, first, size),) = yield Query(
        "SELECT count(*), min(parked), coalesce(sum(size), 0) FROM runs WHERE state = ?", ("waiting",)
    )
    now = yield Now()
    place = {"owner": "doctor", "run": name, "field": "probe"}
    body = seal.seal(name.encode(), **place)
    yield Query("INSERT INTO catalogs (hash, kept, body) VALUES (?, ?, ?)", (name, now, body))
    rows = yield Query("SELECT body FROM catalogs WHERE hash = ?", (name,))
    if [seal.open(bytes(row[0]), **place) for row in rows] != [name.encode()]:
        raise StoreUnavailable("what was written was not what was read again")
    raise _Seen(Found(version[0], suspended, None if first is None else max(0.0, now - first), int(size), 0.0))


def _nothing() -> Work[None]:
    yield Query("SELECT version FROM schema_version")


def told(found: Found) -> str:
    """Return the contents in words."""
    suspended = counted(found.suspended, "suspended program")
    if found.oldest is not None:
        suspended += f", the oldest for {_lasting(found.oldest)}, {found.size / 1e6:.1f} MB"
    return f"{suspended}; schema {found.schema}, answers in {found.round_trip:.1f} ms"


def _lasting(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


# the files; these block


def _not_by_itself(folder: Path) -> str | None:
    """Return why `serve` would not choose SQLite by itself. Makes nothing."""
    there = _there(folder)
    if there == folder:
        return unusable(folder)
    if not there.is_dir():
        return f"{there} is a file"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def _there(path: Path) -> Path:
    """Return the path, or the nearest folder above it that there is."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _files(file: Path) -> tuple[list[Check], bool, int | None]:
    """Check the file and its folder; tell if there is a file, and the free bytes."""
    folder = _there(file.parent)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "cannot be written" if folder.is_dir() else "is a file"
        return [Check("store", "fail", f"SQLite, {file}: {folder} {why}", _BY_KIND["sqlite"])], False, None
    checks = list(private(file)) if sys.platform != "win32" else []
    kind = network_file_system(folder)
    if kind is not None:
        detail = f"{folder} is on a network file system ({kind}), on which SQLite may not work"
        checks.append(
            Check("store", "warn", detail, "give store.path a file on a disk of this machine, or use postgres")
        )
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        detail = f"only {free // 1_000_000} MB are free at {folder}"
        advice = "make room: nothing can be suspended on a disk that is full"
        checks.append(Check("store", "warn", detail, advice))
    return checks, os.path.lexists(file), free


def private(file: Path) -> Iterator[Check]:
    """Check the rights of others to read or write the store. POSIX."""
    for path in (file.parent, file):
        if not path.exists():
            continue
        about = path.stat()
        shared = bool(about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) and about.st_mode & stat.S_ISVTX
        if path == file.parent and (shared or about.st_uid not in (os.getuid(), 0)):
            detail = f"the store {file} is in a folder that others can write to"
            yield Check("store", "fail", detail, "give store.path a file in a folder of its own")
        elif about.st_uid != os.getuid() and path == file:
            yield Check("store", "warn", f"{path} belongs to another user", "give store.path a file of yours")
        elif about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or (path == file and about.st_mode & 0o077):
            what = "written" if about.st_mode & 0o022 else "read"
            mode = "600" if path == file else "700"
            yield Check("store", "warn", f"{path} can be {what} by others", f"chmod {mode} {path}")
