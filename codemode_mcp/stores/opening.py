"""Opening of stores from settings. If a database cannot be opened, it is tried again in the background."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.settings import CodeModeSettings, StoreKind, StoreSettings
from codemode_mcp.runs.store import MemoryStore, RunStore
from codemode_mcp.runs.values import MemoryValues, Values
from upstream_clients.private_files import exposure, make_private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from codemode_mcp.stores.seal import Seal
    from codemode_mcp.stores.work import Database, Result, Work

    Open = Callable[[], AbstractAsyncContextManager[Database]]

    OnUse = Callable[[StoreKind, float, bool], None]
    """Receives the kind of a store, the seconds that an operation took, and whether the database was unavailable."""

log = logging.getLogger("codemode_mcp.stores")

FILE_NAME: Final = "runs.sqlite3"

FIRST_RETRY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
"""Maximum seconds between two attempts to open a database."""

OPENING_SECONDS: Final = 10.0
"""Seconds that a request waits for a database that is being opened."""

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.glusterfs"}
)
"""File systems on which processes cannot share the memory that SQLite's write-ahead log needs."""


class OpenedStore(Struct, frozen=True):
    """A store. Its database may not be open yet.

    Attributes:
        name: the name of the store for messages, without secrets.
        durable: True if runs outlive this process.
    """

    runs: RunStore
    values: Values
    name: str
    durable: bool
    _database: ReopenedDatabase | None = None
    _seal: Seal | None = None

    async def wait_attempted(self, seconds: float) -> None:
        if self._database is not None:
            with anyio.move_on_after(seconds):
                await self._database.attempted.wait()

    async def secrets(self, name: str) -> list[bytes]:
        """Return secrets of 32 bytes that all processes of the store share. Use the first one, and accept all.

        The secrets are derived from configured keys. Without keys, one secret is stored in the database. The list is
        empty for a store in memory.

        Raises:
            StoreUnavailable: the secrets cannot be read now.
        """
        if self._database is None or self._seal is None:
            return []
        from codemode_mcp.stores.seal import shared_secret

        if derived := self._seal.derived(name):
            return derived
        fresh = os.urandom(32)
        return [await self._database.execute(lambda: shared_secret(name, fresh))]


@asynccontextmanager
async def open_store(
    settings: StoreSettings | None,
    tools: CodeModeSettings,
    *,
    clock: Callable[[], float],
    wall: Callable[[], float],
    folder: Path,
    prefers_durable: bool = False,
    on_use: OnUse | None = None,
) -> AsyncIterator[OpenedStore]:
    """Open the configured store for the duration of the context, without waiting for its database.

    Args:
        settings: None if the configuration names no store.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        folder: the user's folder for state, where the default SQLite file belongs.
        prefers_durable: without `settings`, use SQLite if the folder allows it. Otherwise the default is memory.
        on_use: called after each piece of work of the database.
    """
    chosen = settings or StoreSettings("memory")
    if settings is None and prefers_durable:
        chosen = await anyio.to_thread.run_sync(_default_settings, folder)
    if chosen.kind == "memory":
        yield OpenedStore(MemoryStore(tools, clock), MemoryValues(tools.store_max_bytes), "memory", durable=False)
        return
    from codemode_mcp.stores.runs import DurableStore
    from codemode_mcp.stores.seal import Seal
    from codemode_mcp.stores.values import StoredValues

    observe = None if on_use is None else partial(on_use, chosen.kind)
    opening = partial(open_database, chosen, wall=wall, folder=folder)
    database = ReopenedDatabase(opening, name_of(chosen, folder), observe)
    seal = Seal(chosen.encryption_keys)
    async with anyio.create_task_group() as group:
        group.start_soon(database.run)
        runs = DurableStore(database, seal, tools, clock=clock, kind=chosen.kind)
        values = StoredValues(database, seal, tools.store_max_bytes)
        try:
            yield OpenedStore(runs, values, database.name, durable=True, _database=database, _seal=seal)
        finally:
            group.cancel_scope.cancel()


@asynccontextmanager
async def open_database(settings: StoreSettings, *, wall: Callable[[], float], folder: Path) -> AsyncIterator[Database]:
    """Open the database for the duration of the context. Raises `StoreUnavailable`."""
    if settings.kind == "postgres":
        from codemode_mcp.stores.postgres import open_postgres

        assert settings.url is not None
        async with open_postgres(settings.url) as database:
            yield database
        return
    from codemode_mcp.stores.sqlite import open_sqlite

    async with open_sqlite(file_of(settings, folder), wall=wall) as database:
        yield database


def file_of(settings: StoreSettings, folder: Path) -> Path:
    return folder / FILE_NAME if settings.path is None else Path(settings.path)


def name_of(settings: StoreSettings, folder: Path) -> str:
    """Return the name of a store for messages, without secrets: a path, or host and database."""
    if settings.kind == "postgres":
        from codemode_mcp.stores.schema import address

        return address(settings.url or "").name
    return str(file_of(settings, folder)) if settings.kind == "sqlite" else settings.kind


def _default_settings(folder: Path) -> StoreSettings:
    """Return the settings to use when the configuration names no store. Blocks."""
    why = why_unusable(folder)
    if why is None:
        return StoreSettings("sqlite")
    log.warning(
        "suspended programs will not outlive this process: %s; set store.path to a file that can be written, "
        'or set "store": {"kind": "memory"}',
        why,
    )
    return StoreSettings("memory")


def why_unusable(folder: Path) -> str | None:
    """Create a folder if needed. Return why it cannot contain the database; None if it can. Blocks."""
    try:
        make_private_folder(folder)
    except OSError as error:
        return f"{folder} cannot be created: {error.strerror}"
    try:
        why = exposure(folder)
    except OSError as error:
        why = f"{folder} cannot be inspected: {error.strerror}"
    if why is not None:
        return why
    kind = network_file_system(folder)
    if kind is not None:
        return f"{folder} is on a network file system ({kind})"
    # If the folder has a store, it is used even if it cannot be written now. With the memory instead, its runs would
    # seem to be lost. Opening is tried again until it works.
    if os.access(folder, os.W_OK | os.X_OK) or os.path.exists(folder / FILE_NAME):
        return None
    return f"{folder} cannot be written"


def network_file_system(path: Path) -> str | None:
    """Return the kind of the network file system of a path; None if it is not on one, or if that is unknown."""
    if sys.platform != "linux":
        return None
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
        return kind_of_mount(path.resolve(), mounts)
    except OSError:
        return None


def kind_of_mount(path: Path, mounts: Iterable[str]) -> str | None:
    """Return the kind of the network file system of a path, or None. `mounts`: lines as in `/proc/mounts`."""
    found: tuple[int, str] = (0, "")
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        where = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # Of two mounts at the same point, the later one hides the earlier one.
        if path.is_relative_to(where) and len(where.parts) >= found[0]:
            found = (len(where.parts), fields[2])
    return found[1] if found[1] in NETWORK_FILE_SYSTEMS else None


class ReopenedDatabase:
    """A `Database` that is opened in the background. Failed attempts are repeated until one succeeds.

    Until then, work fails with the error of the last attempt.

    Args:
        on_use: called after each piece of work, with the seconds that it took, and True if the database was
            unavailable.

    Attributes:
        attempted: set when the first attempt has succeeded or failed.
    """

    def __init__(self, opening: Open, name: str, on_use: Callable[[float, bool], None] | None = None) -> None:
        self._opening = opening
        self._on_use = on_use
        self.name = name
        # Copied from each database that is opened.
        self.process = ""
        self.blob = ""
        self._database: Database | None = None
        self._error: StoreUnavailable | None = None
        self.attempted = anyio.Event()
        self._is_open = anyio.Event()

    async def opened(self) -> Database:
        """Return the open database, after waiting for the first attempt. Raises `StoreUnavailable`."""
        with anyio.move_on_after(OPENING_SECONDS):
            await self.attempted.wait()
        if self._database is None:
            if self._error is not None:
                raise self._error.copy()
            raise StoreUnavailable("the store{at} is still being opened; try again", at=f" {self.name}")
        return self._database

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        began, failed = time.monotonic(), False
        try:
            database = await self.opened()
            return await database.execute(work)
        except StoreUnavailable:
            failed = True
            raise
        finally:
            if self._on_use is not None:
                self._on_use(time.monotonic() - began, failed)

    def is_alive(self) -> bool:
        return self._database is not None and self._database.is_alive()

    async def next_notification(self) -> str | None:
        while self._database is None:
            await self._is_open.wait()
        return await self._database.next_notification()

    async def run(self) -> None:
        """Open the database, and keep it open until cancelled."""
        logged, pause = "", FIRST_RETRY_SECONDS
        while True:
            try:
                async with self._opening() as database:
                    self.process, self.blob = database.process, database.blob
                    self._database, self._error = database, None
                    self._is_open.set()
                    self.attempted.set()
                    logged, pause = "", FIRST_RETRY_SECONDS
                    log.info("suspended programs are kept in %s", self.name)
                    await anyio.sleep_forever()
            except StoreUnavailable as error:
                self._error = error
            except Exception:
                # A defect of this product must not end the server.
                log.exception("the store of suspended programs has failed")
                self._error = StoreUnavailable(
                    "the store{at} cannot be used; see the log of codemode-mcp", at=f" {self.name}"
                )
            finally:
                # An open database has failed. `next_notification` waits until the next one is open.
                if self._database is not None:
                    self._database, self._is_open = None, anyio.Event()
            if self._error is not None and self._error.detail != logged:
                logged = self._error.detail
                log.warning("%s; trying again in the background", logged)
            self.attempted.set()
            await anyio.sleep(min(pause, RETRY_SECONDS))
            pause *= 2
