"""Records of the changes of `install` in the files of clients, so that `--undo` can restore the files byte for byte.

A record contains no server entry and no secret. It contains names and the paths of the backups with the entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from upstream_clients.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.client_files import Change


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """The installation of this server in one file of a client.

    Attributes:
        path: the client's file.
        name: the name of our entry.
        after: the SHA-256 of the file after the installation.
        origin: the backup of the file before the first of several installations in a row; None if there was no file.
            If another program has changed the file between two installations, the row begins after that change.
        origin_digest: the SHA-256 of `origin`.
        unbroken: whether no other program has changed the file between the installations.
        moved: the backup that has the entry of each server that was moved behind this one, by the server's name.
        config: our configuration, which has the moved servers now.
    """

    path: str
    name: str
    after: str
    origin: str | None
    origin_digest: str | None
    unbroken: bool
    moved: Mapping[str, str] = field(default_factory=dict)
    config: str = ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record_file(folder: Path, path: Path, keys: Sequence[str]) -> Path:
    """Return the file for the record of one location."""
    return folder / f"{digest(json.dumps([str(path), *keys]).encode('utf-8', 'surrogatepass'))[:24]}.json"


def next_record(
    last: InstallRecord | None, change: Change, name: str, backup: Path | None, moved: Sequence[str], config: str
) -> InstallRecord:
    """Return the record of a location after one more installation. `last` is the record before it."""
    origin = None if backup is None else str(backup)
    origin_digest = None if change.before is None else digest(change.before)
    unbroken = True
    entries = dict.fromkeys(moved, origin) if origin is not None else {}
    if last is not None:
        if last.moved and not entries:
            config = last.config  # the configuration that has the moved servers
        entries = {**last.moved, **entries}
        unbroken = last.unbroken and origin_digest == last.after
        if origin_digest == last.after:
            origin, origin_digest = last.origin, last.origin_digest
    after = digest(change.text.encode())
    return InstallRecord(str(change.path), name, after, origin, origin_digest, unbroken, entries, config)


def read(file: Path) -> InstallRecord | None:
    """Return a record; None if it is missing or damaged."""
    try:
        with open_private(file) as opened:
            found = InstallRecord(**json.loads(opened.read()))
    except (OSError, ValueError, TypeError):
        return None
    texts = (found.path, found.name, found.after, found.config, *found.moved, *found.moved.values())
    return found if all(isinstance(each, str) for each in texts) else None


def write(file: Path, record: InstallRecord | None) -> None:
    """Replace the record in a file. Delete the file if the record is None."""
    if record is None:
        file.unlink(missing_ok=True)
        return
    make_private_folder(file.parent)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        json.dump(asdict(record), opened, indent=2)
    os.replace(name, file)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock on the files of clients and their records.

    Windows and some file systems have no such lock. There, only the checks before each step protect the files.
    """
    make_private_folder(folder)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
