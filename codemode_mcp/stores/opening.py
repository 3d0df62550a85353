"""Opens a store from settings; a failed one is tried again in the background."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.runs.store import MemoryStore
from codemode_mcp.runs.values import MemoryValues
from codemode_mcp.settings import StoreSettings
from upstream_clients.private_files import exposure, make_private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.runs.values import Values
    from codemode_mcp.settings import CodeModeSettings, StoreKind
    from codemode_mcp.stores.seal import Seal
    from codemode_mcp.stores.work import Database, Result, Work

    Open = Callable[[], AbstractAsyncContextManager[Database]]

    OnUse = Callable[[StoreKind, float, bool], None]
    """The kind of a store, how many seconds something took, and whether it failed for want of the database."""

log = logging.getLogger("codemode_mcp.stores")

FILE_NAME: Final = "runs.sqlite3"

FIRST_RETRY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
"""Between two attempts to open a database, in the end; after the first attempts it is less."""

OPENING_SECONDS: Final = 10.0
"""Seconds that a request waits for a database that is being opened."""

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.glusterfs"}
)
"""File systems on which processes cannot share the memory that SQLite's write-ahead log needs."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store, or one that will be.

    Attributes:
        name: for messages, without secrets.
        durable: runs outlive this process.
    """

    runs: RunStore
    values: Values
    name: str
    durable: bool
    _database: Lasting | None = None
    _seal: Seal | None = None

    async def attempted(self, seconds: float) -> None:
        """Wait until the first attempt to open the database has ended, for at most so many seconds."""
        if self._database is not None:
            with anyio.move_on_after(seconds):
                await self._database.decided.wait()

    async def secrets(self, name: str) -> list[bytes]:
        """Secrets of 32 bytes that all processes have which share the store: the first to be used, the others to be
        accepted; none where no other process has to do with it. With a key in the configuration nothing is stored.

        Raises:
            StoreUnavailable: they cannot be had now.
        """
        if self._database is None or self._seal is None:
            return []
        from codemode_mcp.stores.secrets import agreed

        derived = self._seal.derived(name)
        if derived:
            return derived
        fresh = os.urandom(32)
        return [await self._database.do(lambda: agreed(name, fresh))]


@asynccontextmanager
async def open_store(
    settings: StoreSettings | None,
    tools: CodeModeSettings,
    *,
    clock: Callable[[], float],
    wall: Callable[[], float],
    folder: Path,
    lasts: bool = False,
    on_use: OnUse | None = None,
) -> AsyncIterator[Opened]:
    """Yield the store that `settings` ask for, for the time inside. It waits for no database.

    Args:
        settings: None: nothing is said.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        folder: the user's own, for what outlives the process.
        lasts: SQLite is what is chosen where the settings say nothing, if it can be; otherwise memory.
        on_use: called for each piece of work of the database.
    """
    chosen = settings or StoreSettings("memory")
    if settings is None and lasts:
        chosen = await anyio.to_thread.run_sync(_chosen, folder)
    if chosen.kind == "memory":
        yield Opened(MemoryStore(tools, clock), MemoryValues(tools.store_max_bytes), "memory", durable=False)
        return
    from codemode_mcp.stores.runs import DurableStore
    from codemode_mcp.stores.seal import Seal
    from codemode_mcp.stores.values import StoredValues

    used = None if on_use is None else partial(on_use, chosen.kind)
    database = Lasting(lambda: open_database(chosen, wall=wall, folder=folder), name_of(chosen, folder), used)
    seal = Seal(chosen.encryption_keys)
    async with anyio.create_task_group() as group:
        group.start_soon(database.run)
        runs = DurableStore(database, seal, tools, clock=clock, kind=chosen.kind)
        values = StoredValues(database, seal, tools.store_max_bytes)
        try:
            yield Opened(runs, values, database.name, durable=True, _database=database, _seal=seal)
        finally:
            group.cancel_scope.cancel()


@asynccontextmanager
async def open_database(settings: StoreSettings, *, wall: Callable[[], float], folder: Path) -> AsyncIterator[Database]:
    """Yield the database itself. Raises `StoreUnavailable`."""
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
    """Return the file of a store of SQLite."""
    return folder / FILE_NAME if settings.path is None else Path(settings.path)


def name_of(settings: StoreSettings, folder: Path) -> str:
    """Return a name for messages, without secrets: a path, or host and database."""
    if settings.kind == "postgres":
        from codemode_mcp.stores.dialect import address

        return address(settings.url or "").name
    return str(file_of(settings, folder)) if settings.kind == "sqlite" else settings.kind


def _chosen(folder: Path) -> StoreSettings:
    """Return what is used where the configuration says nothing. Blocks."""
    why = unusable(folder)
    if why is None:
        return StoreSettings("sqlite")
    log.warning(
        "suspended programs will not outlive this process: %s; give store.path a file that can be written, "
        'or say "store": {"kind": "memory"}',
        why,
    )
    return StoreSettings("memory")


def unusable(folder: Path) -> str | None:
    """Return why a folder, which is made if need be, cannot hold a database of ours; None: it can. Blocks."""
    try:
        make_private_folder(folder)
    except OSError as error:
        return f"{folder} cannot be made: {error.strerror}"
    try:
        why = exposure(folder)
    except OSError as error:
        why = f"{folder} cannot be looked at: {error.strerror}"
    if why is not None:
        return why
    kind = network_file_system(folder)
    if kind is not None:
        return f"{folder} is on a network file system ({kind})"
    # What is kept there already must not seem to be gone: it is tried again until it can be written.
    if os.access(folder, os.W_OK | os.X_OK) or os.path.exists(folder / FILE_NAME):
        return None
    return f"{folder} cannot be written"


def network_file_system(path: Path) -> str | None:
    """Return the kind of network file system that something is on; None: on none, or it cannot be told."""
    if sys.platform != "linux":
        return None
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
        return kind_of_mount(path.resolve(), mounts)
    except OSError:
        return None


def kind_of_mount(path: Path, mounts: Iterable[str]) -> str | None:
    """Return the kind of file system of a path, from the lines of `/proc/mounts`."""
    found: tuple[int, str] = (0, "")
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        where = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # Of two at the same place the later one covers the earlier.
        if path.is_relative_to(where) and len(where.parts) >= found[0]:
            found = (len(where.parts), fields[2])
    return found[1] if found[1] in NETWORK else None


class Lasting:
    """A `Database` that is opened in the background, again and again until it works.

    Until then whatever is asked of it is refused, with why it cannot be opened.

    Args:
        on_use: is told how many seconds each piece of work took, and whether it failed for want of the database.
    """

    def __init__(self, opening: Open, name: str, on_use: Callable[[float, bool], None] | None = None) -> None:
        self._opening = opening
        self._on_use = on_use
        self.name = name
        # Of the database, once it is open.
        self.process = ""
        self.blob = ""
        self._database: Database | None = None
        self._error: StoreUnavailable | None = None
        self.decided = anyio.Event()
        """It is open, or the first attempt has failed."""
        self._is_open = anyio.Event()

    async def opened(self) -> Database:
        """Return the database, if it is open, or soon. Raises `StoreUnavailable`."""
        with anyio.move_on_after(OPENING_SECONDS):
            await self.decided.wait()
        if self._database is None:
            if self._error is not None:
                raise self._error.again()
            raise StoreUnavailable("the store{at} is still being opened; try again", at=f" {self.name}")
        return self._database

    async def do(self, work: Callable[[], Work[Result]]) -> Result:
        began, failed = time.monotonic(), False
        try:
            database = await self.opened()
            return await database.do(work)
        except StoreUnavailable:
            failed = True
            raise
        finally:
            if self._on_use is not None:
                self._on_use(time.monotonic() - began, failed)

    def holds(self) -> bool:
        return self._database is not None and self._database.holds()

    async def news(self) -> str | None:
        while self._database is None:
            await self._is_open.wait()
        return await self._database.news()

    async def run(self) -> None:
        """Open it, and keep it open until cancelled."""
        told, pause = "", FIRST_RETRY_SECONDS
        while True:
            try:
                async with self._opening() as database:
                    self.process, self.blob = database.process, database.blob
                    self._database, self._error = database, None
                    self._is_open.set()
                    self.decided.set()
                    told, pause = "", FIRST_RETRY_SECONDS
                    log.info("suspended programs are kept in %s", self.name)
                    await anyio.sleep_forever()
            except StoreUnavailable as error:
                self._error = error
            except Exception:
                # A fault of ours; whatever it was must not end the server.
                log.exception("the store of suspended programs has failed")
                self._error = StoreUnavailable(
                    "the store{at} cannot be used; see the log of codemode-mcp", at=f" {self.name}"
                )
            finally:
                if self._database is not None:
                    self._database, self._is_open = None, anyio.Event()
            if self._error is not None and self._error.detail != told:
                told = self._error.detail
                log.warning("%s; it is tried again and again", told)
            self.decided.set()
            await anyio.sleep(min(pause, RETRY_SECONDS))
            pause *= 2
