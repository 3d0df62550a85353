"""Files of the SQLite store, which no other user may read or replace."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from codemode_mcp.errors import StoreUnavailable
from upstream_clients.file_lock import NO_LINK
from upstream_clients.private_files import exposure, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path


def make_private_file(path: Path) -> os.stat_result:
    """Create or check a file that no other user can read or replace, and return its status.

    Raises:
        OSError: the file or its folder cannot be created.
        StoreUnavailable: the file is exposed to other users, or is not a regular file.
    """
    make_private_folder(path.parent)
    # SQLite will open the file by its path. So no other user may be able to replace the file before that.
    why = exposure(path.parent)
    if why is not None:
        raise StoreUnavailable(
            "the store{at} is in a folder that others can write to; set store.path to a file in a private folder",
            at=f" {path} ({why})",
        )
    try:
        # An existing file is not opened here. POSIX releases all locks of a process on a file when the process closes
        # any descriptor of it, and SQLite may have locked the file.
        status = os.lstat(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600))
        status = os.lstat(path)
    _check_file(path, status)
    return status


def has_open(status: os.stat_result) -> bool:
    """Return True if this process has a file open, or if that cannot be found out on this system."""
    folder = {"linux": "/proc/self/fd", "darwin": "/dev/fd"}.get(sys.platform)
    try:
        descriptors = [int(name) for name in os.listdir(folder)] if folder else None
    except OSError:
        descriptors = None
    if descriptors is None:
        return True
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return True
    return False


def _check_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreUnavailable("the store{at} is a symbolic link; set store.path to the file itself", at=f" {path}")
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnavailable(
            "the store{at} is not a regular file; set store.path to the path of a file", at=f" {path}"
        )
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid():
        raise StoreUnavailable("the store{at} belongs to another user; set store.path to another file", at=f" {path}")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.chmod(path, 0o600)
