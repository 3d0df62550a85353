"""Checks of the engine, esbuild, `Intl` and the store."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from codemode_mcp.base.display import counted, rough
from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.settings import StoreSettings
from codemode_mcp.catalog.plugins.api import EXEC_ID
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.extensions.setup.doctor.machine import full_disk, nearest_existing
from codemode_mcp.stores.opening import file_of, name_of, network_file_system, open_database, why_unusable
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.work import Database, Now, Query, Work
from upstream_clients.private_files import exposure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from codemode_mcp.config import Config
    from codemode_mcp.server.services import App


class CompiledFile(NamedTuple):
    """The compiled engine on disk.

    Attributes:
        path: the path of the file, which may not exist; None if no file can be written.
        changed_at: the time of the last change, in nanoseconds; None if there is no file.
    """

    path: Path | None
    changed_at: int | None


def compiled_file() -> CompiledFile:
    """Return the present state of the compiled engine on disk. Blocks.

    Opening the engine changes this state: it writes a missing file.
    """
    from codemode_mcp.sandbox.compiled import compiled_path

    try:
        path = compiled_path(cache_dir())
        return CompiledFile(path, None if path is None or not path.exists() else path.stat().st_mtime_ns)
    except (CodeModeError, OSError):
        return CompiledFile(None, None)


async def check_engine(app: App, before: CompiledFile) -> Iterable[Check]:
    """Check the engine by running a trivial program, and check the compiled file.

    Args:
        before: the state of the compiled file before the engine was opened.
    """
    from codemode_mcp.sandbox.binary import VERSION

    began = time.monotonic()
    try:
        await app.engine()
    except CodeModeError as error:
        return [Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")]
    ready = elapsed_ms(began)
    cache = await anyio.to_thread.run_sync(_cache, before, ready)
    return [await _program(app, f"QuickJS-NG (qjs-wasi-reactor {VERSION}), ready in {ready:,} ms"), cache]


async def _program(app: App, engine: str) -> Check:
    """Run a trivial program in the same way as the programs of clients."""
    began = time.monotonic()
    manager = await app.manager()
    from codemode_mcp.program.prepare import Cell

    try:
        outcome = await manager.execute(Cell("return 6 * 7", "javascript", app.operator))
    except CodeModeError as error:  # A required plugin is missing, or a plugin forbids this program.
        detail = f"starts, but a trivial program was refused: {error.message}"
        return Check("engine", "warn", detail, "see the plugins below")
    took = elapsed_ms(began)
    if outcome.value == 42:
        return Check("engine", "ok", f"{engine}, runs a trivial program in {took:,} ms")
    detail = f"the program `return 6 * 7` returned {outcome.error or repr(outcome.value)} instead of 42"
    if (await app.plugins()).interceptors.has_hooks(EXEC_ID):
        advice = "check the plugins with core:code_mode:exec in their hooks first: they may change programs"
        return Check("engine", "warn", detail, advice)
    return Check("engine", "fail", detail, "reinstall codemode-mcp")


def _cache(before: CompiledFile, ready: int) -> Check:
    name, after = "compile cache", compiled_file()
    if after.path is None:
        detail = f"others can write the cache folder, or it cannot be made: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "see the cache folder above")
    if after.changed_at is None:
        detail = f"no file could be written in {after.path.parent}: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "make that folder writable, and free space on its disk")
    size = f"{after.path.stat().st_size / 1e6:.1f} MB"
    why = exposure(after.path)
    if why is not None:
        return Check(name, "warn", why, "remove the file, which is made again, and find out who could write it")
    if before.changed_at is None:
        detail = f"written now, {size}, {after.path}: it saves the next process {ready:,} ms"
    elif before.changed_at != after.changed_at:
        detail = f"was damaged or of another version, and was written again: {after.path}"
    else:
        detail = f"used, {size}, {after.path}"
    return Check(name, "ok", detail)


async def esbuild(app: App, config: Config) -> Iterable[Check]:
    """Check the path and version of esbuild, and transform a line of TypeScript."""
    if "typescript" not in config.tools.code_mode.languages:
        return [Check("esbuild", "ok", "not needed: TypeScript is not enabled")]
    from codemode_mcp.program.esbuild import find_esbuild, version_of
    from codemode_mcp.program.esbuild_pin import VERSION

    configured = config.tools.esbuild
    fetch = "run codemode-mcp setup (npm fetches it), or name a binary in tools.esbuild; JavaScript works without it"
    correct = 'correct "tools.esbuild", or remove it'
    try:
        path = await anyio.to_thread.run_sync(
            lambda: find_esbuild(configured, environ=os.environ, cache_dir=cache_dir()), abandon_on_cancel=True
        )
        began = time.monotonic()
        await app.transform("const x: number = 1; return x")
    except CodeModeError as error:
        return [Check("esbuild", "warn", error.message, fetch if configured is None else correct)]
    transforms = f"{path} transforms TypeScript in {elapsed_ms(began):,} ms"
    version = await anyio.to_thread.run_sync(version_of, path)
    if version == VERSION:
        return [Check("esbuild", "ok", f"{version}, {transforms}")]
    detail = f"{version or 'of an unknown version'}, {transforms}; codemode-mcp is tested with {VERSION}"
    return [Check("esbuild", "info" if configured is None else "warn", detail, f"use esbuild {VERSION}")]


def intl() -> Iterable[Check]:
    from codemode_mcp.program.intl import find_intl

    try:
        path = find_intl(cache_dir())
    except CodeModeError as error:
        return [Check("intl", "warn", error.message, "run codemode-mcp setup (npm fetches it); other programs work")]
    return [Check("intl", "ok", f"{path.stat().st_size / 1e6:.1f} MB, {path}")]


# Checks of the store of suspended programs: opening, writing, reading, permissions, and contents.


MIN_FREE: Final = 200 * 1024 * 1024
"""Bytes that should be free. On a full disk, no program can be suspended."""

OPEN_SECONDS: Final = 15.0
"""Time limit in seconds to open a database, and to write and read a probe."""

SLOW_MS: Final = 50.0
"""Milliseconds of a round trip above which a store is slow. Each suspended program takes several round trips."""

_ADVICE = {
    "sqlite": 'remove the cause, name another file in "store.path", or use "store": {"kind": "memory"}',
    "postgres": 'check "store.url", and that the database runs and accepts connections from this machine',
}


class Contents(Struct, frozen=True):
    """The contents of a database.

    Attributes:
        schema: the version of the database schema.
        suspended: number of suspended programs.
        oldest: seconds since the oldest program was suspended; None if no program is suspended.
        size: bytes of all suspended programs.
        round_trip: milliseconds of a query.
    """

    schema: int
    suspended: int
    oldest: float | None
    size: int
    round_trip: float


async def check_configured_store(config: Config) -> Iterable[Check]:
    from codemode_mcp.base.paths import state_dir

    return await check_store(config.store, state_dir())


async def check_store(settings: StoreSettings | None, folder: Path) -> list[Check]:
    """Check the store that `serve` would use.

    Args:
        settings: the section `store`; None if the configuration does not choose a store.
        folder: the user's state folder.
    """
    if settings is None:
        why = await anyio.to_thread.run_sync(_unusable_default, folder)
        if why is not None:
            detail = f"suspended programs are lost when the process exits: {why}"
            return [Check("store", "warn", detail, "make that folder yours alone, or name a file in store.path")]
        settings = StoreSettings("sqlite")
    if settings.kind == "memory":
        detail = "in memory, as configured: suspended programs are lost when the process exits"
        return [Check("store", "ok", detail)]
    how = "encrypted" if settings.encryption_keys else "not encrypted"
    name = name_of(settings, folder)
    title = f"SQLite, {name}" if settings.kind == "sqlite" else f"PostgreSQL, {name}"
    files: list[Check] = []
    free = ""
    if settings.kind == "sqlite":
        file = file_of(settings, folder)
        files, exists, free_bytes = await anyio.to_thread.run_sync(_check_files, file)
        free = "" if free_bytes is None else f"; {free_bytes / 1e9:.1f} GB free"
        if not exists:
            if any(each.status == "fail" for each in files):
                return files
            return [Check("store", "ok", f"{title}, made when it is needed; {how}{free}"), *files]
    try:
        with anyio.fail_after(OPEN_SECONDS):
            async with open_database(settings, wall=time.time, folder=folder) as database:
                contents = await _try(database, Seal(settings.encryption_keys))
    except StoreUnavailable as error:
        return [Check("store", "fail", f"{title}: {error.detail}", _ADVICE[settings.kind]), *files]
    except TimeoutError:
        detail = f"{title}: it did not answer within {OPEN_SECONDS:.0f} s"
        return [Check("store", "fail", detail, _ADVICE[settings.kind]), *files]
    detail = f"{title}: {in_words(contents)}; {how}{free}"
    if contents.round_trip > SLOW_MS:
        advice = "it is slow, and every suspended program takes several round trips: " + (
            "the disk or the machine is busy; run doctor again, and check store.path"
            if settings.kind == "sqlite"
            else "move the database closer to this machine"
        )
        return [Check("store", "warn", detail, advice), *files]
    return [Check("store", "ok", detail), *files]


async def _try(database: Database, seal: Seal) -> Contents:
    """Write and read a probe, and return the contents of the database. The probe is rolled back."""
    contents = None
    try:
        await database.execute(lambda: _probe(seal, f"doctor:{secrets.token_hex(8)}"))
    except _Rollback as rollback:
        contents = rollback.contents
    assert contents is not None
    began = time.perf_counter()
    await database.execute(_nothing)
    return structs.replace(contents, round_trip=(time.perf_counter() - began) * 1000)


class _Rollback(Exception):
    """An exception that undoes the transaction in which it is raised."""

    def __init__(self, contents: Contents) -> None:
        super().__init__()
        self.contents = contents


def _probe(seal: Seal, name: str) -> Work[None]:
    """Write and read a row, count the suspended programs, and raise `_Rollback`."""
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
        raise StoreUnavailable("it returned other data than was written")
    oldest = None if first is None else max(0.0, now - first)
    raise _Rollback(Contents(version[0], suspended, oldest, int(size), 0.0))


def _nothing() -> Work[None]:
    yield Query("SELECT version FROM schema_version")


def in_words(contents: Contents) -> str:
    suspended = counted(contents.suspended, "suspended program")
    if contents.oldest is not None:
        suspended += f", the oldest for {rough(contents.oldest)}, {contents.size / 1e6:.1f} MB"
    return f"{suspended}; schema {contents.schema}, answers in {contents.round_trip:.1f} ms"


# The functions below block.


def _unusable_default(folder: Path) -> str | None:
    """Return the reason why the default SQLite store cannot be used, or None if it can. Creates no files."""
    if folder.exists():
        return why_unusable(folder)
    return _not_writable(nearest_existing(folder))


def _not_writable(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"{folder} is a file"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"


def _check_files(file: Path) -> tuple[list[Check], bool, int | None]:
    """Check the SQLite file and its folder.

    Returns:
        The results, True if the file exists, and the free bytes on its disk. The free bytes are None for a folder that
        cannot be written.
    """
    folder = nearest_existing(file.parent)
    if (why := _not_writable(folder)) is not None:
        return [Check("store", "fail", f"SQLite, {file}: {why}", _ADVICE["sqlite"])], False, None
    checks = list(permissions(file)) if sys.platform != "win32" else []
    kind = network_file_system(folder)
    if kind is not None:
        detail = f"{folder} is on a network file system ({kind}), on which SQLite may not work"
        checks.append(Check("store", "warn", detail, "name a file on a disk of this machine, or use postgres"))
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE:
        checks.append(full_disk("store", folder, free, "on a full disk, no program can be suspended"))
    return checks, os.path.lexists(file), free


def permissions(file: Path) -> Iterator[Check]:
    """Check if other users can read or write the SQLite file. POSIX only."""
    for path in (file.parent, file):
        if not path.exists():
            continue
        status = path.stat()
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        shared = writable and status.st_mode & stat.S_ISVTX
        if path == file.parent and (shared or status.st_uid not in (os.getuid(), 0)):
            detail = f"the store {file} is in a folder that others can write to"
            yield Check("store", "fail", detail, "name a file in a folder of yours alone in store.path")
        elif status.st_uid != os.getuid() and path == file:
            yield Check("store", "warn", f"{path} belongs to another user", "name a file of yours in store.path")
        elif writable or (path == file and status.st_mode & 0o077):
            verb, mode = "write" if writable else "read", "600" if path == file else "700"
            yield Check("store", "warn", f"others can {verb} {path}", f"chmod {mode} {path}")
