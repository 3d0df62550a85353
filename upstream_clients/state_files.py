"""Private files with state that several processes change: a lock for each change, and replacement in one step.

The functions block on disk operations.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from upstream_clients.private_files import NO_LINK, belongs_to_another, check_private, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_SECONDS: Final = 5.0
"""Seconds to wait for the lock of a file, which other processes hold for milliseconds."""

_PAUSE_SECONDS: Final = 0.01

_PART: Final = ".part"
_LEFT: Final = re.compile(rf"tmp[a-z0-9_]{{8}}{re.escape(_PART)}")
"""Names of the files of `replace_file`, which `tempfile` makes."""

Stamp = tuple[int, int, int] | None
"""The identity of one version of a file; None if there is no file."""


def stamp_of(path: Path) -> Stamp:
    """Return the identity of the present version of a file."""
    try:
        about = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file for the duration of the context. Raises `OSError`, also if another process keeps it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    try:
        check_private(descriptor, path)
        until = time.monotonic() + LOCK_SECONDS
        while not try_lock(descriptor):
            if time.monotonic() > until:
                raise TimeoutError("another process has locked it")
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a private file in one step. After a crash of the system, the old or the new content is on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="tmp", suffix=_PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        with suppress(OSError):
            os.unlink(name)


def remove_left_files(folder: Path, before: float) -> None:
    """Remove the files that killed processes have left in `replace_file`. Errors are ignored.

    Args:
        before: Unix seconds. Newer files may belong to a living process, and stay.
    """
    with suppress(OSError):
        for name in filter(_LEFT.fullmatch, os.listdir(folder)):
            about = os.lstat(folder / name)
            if stat.S_ISREG(about.st_mode) and not belongs_to_another(about) and about.st_mtime < before:
                os.unlink(folder / name)
