"""Files and folders that only this user (or root) can change, and locks on files.

To check a path and then open it is a race: another user who can write to a folder of the path may replace the file in
between. So a file is opened first, without following a link, and the descriptor is checked. Some files have to be used
by path (a program to execute, a database). For these, `exposure` checks every folder of the path, also behind links. If
no other user can rename anything there, nothing can be replaced.

Standard library only: the sandbox imports this module, and it may use neither MCP nor an event loop.
Windows has no user ids; there the folders of the user's profile are private by their access lists.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS: Final = 40


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700, for any umask. Raises `OSError`."""
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private_folder(folder.parent)
        make_private_folder(folder)
    except OSError:
        if not folder.is_dir():
            raise


def open_private(path: Path) -> BufferedReader:
    """Open a file for reading that no other user can have written. A link is not followed.

    Raises:
        OSError: there is no such file, or it is not private; `strerror` says why.
    """
    # Opening a pipe without O_NONBLOCK would wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        check_private(descriptor, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_private(descriptor: int, path: Path) -> None:
    """Check that an open file is a regular file of this user or root, and that no other user can write it.

    Raises:
        OSError: the file is not private; `strerror` says why.
    """
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if (why := _why_exposed(about)) is not None:
        raise PermissionError(errno.EPERM, f"it {why}", str(path))


def make_private(descriptor: int, path: Path) -> None:
    """Set mode 0600 on an open file of this user.

    Raises:
        OSError: the file is not a regular file of this user; `strerror` says why.
    """
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if sys.platform == "win32":
        return
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if about.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)


def belongs_to_another(about: os.stat_result) -> bool:
    """Return True if a file belongs to a user other than this one and root."""
    return sys.platform != "win32" and about.st_uid not in _trusted_users()


def exposure(path: Path) -> str | None:
    """Return the reason why another user could change or replace the file at `path`; None if no one could.

    Folders above the file may be writable by others only if they are sticky. A path that does not exist yet is private
    if the folders above it are private.

    Raises:
        OSError: a folder cannot be read.
    """
    if sys.platform == "win32":
        return None
    here = Path("/")
    names = list(reversed((Path.cwd() / path).parts[1:]))
    links = 0
    while names:
        about = os.stat(here)
        if belongs_to_another(about):
            return f"{here} belongs to another user"
        if _others_rename_in(about):
            return f"{here} can be written by others"
        name = names.pop()
        if name == "..":
            here = here.parent
            continue
        try:
            found = os.lstat(here / name)
        except FileNotFoundError:
            return None
        if not stat.S_ISLNK(found.st_mode):
            here /= name
            # Checked now: in a sticky folder, the owner of this entry could replace it by a link before the next
            # `lstat`.
            if belongs_to_another(found):
                return f"{here} belongs to another user"
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if belongs_to_another(found):
            return f"the link {here / name} belongs to another user"
        target = Path(os.readlink(here / name))
        if target.is_absolute():
            here = Path("/")
        names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    why = _why_exposed(os.stat(here))
    return None if why is None else f"{here} {why}"


def _others_rename_in(folder: os.stat_result) -> bool:
    """Return True if another user can rename files in a folder.

    On systems where each user has a private group, with the same number as the user, the umask is 002. There, write
    access of the group is access of this user only.
    """
    others = stat.S_IWOTH if folder.st_gid == folder.st_uid != 0 else _OTHERS_WRITE
    return bool(folder.st_mode & others) and not folder.st_mode & stat.S_ISVTX


def _why_exposed(about: os.stat_result) -> str | None:
    if sys.platform == "win32":
        return None
    if belongs_to_another(about):
        return "belongs to another user"
    if about.st_mode & _OTHERS_WRITE:
        return "can be written by others"
    return None


def _trusted_users() -> frozenset[int]:
    if sys.platform == "win32":
        return frozenset()
    return frozenset({os.geteuid(), 0}) | _unmapped_users()


@functools.cache
def _unmapped_users() -> frozenset[int]:
    """Return the id that a user namespace shows for all users outside it; an empty set outside such a namespace.

    Sandboxes that map one user (bubblewrap) show `/` and `/home` with this owner.
    """
    with suppress(OSError, ValueError, IndexError):
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("utf-8"))
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text("utf-8").splitlines()]
        if not any(int(first) <= overflow < int(first) + int(count) for first, _, count in ranges):
            return frozenset({overflow})
    return frozenset()


NO_LINK: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for `os.open`: do not follow a symbolic link, and close the file in children."""

if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> bool:
        """Lock an open file without waiting. Return False if another process has the lock."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file without waiting. Return False if another process has the lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# Private files with state that several processes change: a lock for each change, and replacement in one step.
#
# The functions block on disk operations.


LOCK_SECONDS: Final = 5.0
"""Seconds to wait for the lock of a file, which other processes hold for milliseconds."""

_PAUSE_SECONDS: Final = 0.01

_PART: Final = ".part"
_LEFT: Final = re.compile(rf"tmp[a-z0-9_]{{8}}{re.escape(_PART)}")
"""Names of the files of `replace_file`, which `tempfile` makes."""

Stamp = tuple[int, int, int] | None
"""The identity of one version of a file; None if there is no file."""


def stamp_of(path: Path) -> Stamp:
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
