"""Records of the changes of `install` to files of clients, so that they can be undone to the byte.

Holds no server entry and no secret: names, and which copy of the client's file has the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from upstream_clients.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Installed:
    """One client's file with this server in it.

    Attributes:
        path: the file.
        name: of our entry.
        after: the digest of the file as it was left.
        origin: the copy of the file before the first of one or more installations in a row; None when there was no
            file, or when it was changed between two of them, which `unbroken` tells.
        origin_digest: of that copy.
        unbroken: whether `origin` is all that was there before.
        moved: names of servers that were moved behind this one, with the copy that has each.
        config: our configuration, which has them now.
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


def following(
    last: Installed | None,
    path: Path,
    name: str,
    before: bytes | None,
    after: bytes,
    backup: Path | None,
    moved: Sequence[str],
    config: str,
) -> Installed:
    """Return the record after one more installation."""
    origin = None if backup is None else str(backup)
    new = Installed(
        path=str(path),
        name=name,
        after=digest(after),
        origin=origin,
        origin_digest=None if before is None else digest(before),
        unbroken=True,
        moved=dict.fromkeys(moved, origin) if origin is not None else {},
        config=config,
    )
    if last is None:
        return new
    known = {**last.moved, **new.moved}
    if last.moved and not new.moved:
        new = replace(new, config=last.config)  # it has what was moved
    if before is not None and digest(before) == last.after:
        return replace(new, origin=last.origin, origin_digest=last.origin_digest, unbroken=last.unbroken, moved=known)
    return replace(new, unbroken=False, moved=known)


def read(folder: Path, path: Path, keys: tuple[str, ...]) -> Installed | None:
    """Return the record of a place; None where it cannot be read."""
    try:
        with open_private(folder / _file_name(path, keys)) as file:
            value = json.loads(file.read())
        found = Installed(**value)
    except (OSError, ValueError, TypeError):
        return None
    texts = (found.path, found.name, found.after, found.config, *found.moved, *found.moved.values())
    return found if all(isinstance(each, str) for each in texts) else None


def write(folder: Path, path: Path, keys: tuple[str, ...], installed: Installed) -> None:
    make_private_folder(folder)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(installed), file, indent=2)
    os.replace(name, folder / _file_name(path, keys))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock on the files of clients and their records, where the system has such locks.

    Elsewhere, the checks before each step have to do.
    """
    make_private_folder(folder)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def forget(folder: Path, path: Path, keys: tuple[str, ...]) -> None:
    (folder / _file_name(path, keys)).unlink(missing_ok=True)


def _file_name(path: Path, keys: tuple[str, ...]) -> str:
    return digest(json.dumps([str(path), *keys]).encode("utf-8", "surrogatepass"))[:24] + ".json"
