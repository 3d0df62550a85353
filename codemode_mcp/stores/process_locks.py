"""Lock files that show which processes are alive.

Each process locks a file of its own. The system releases the lock when the process ends, in whatever way.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from upstream_clients.file_lock import NO_LINK, try_lock

if TYPE_CHECKING:
    from pathlib import Path


class ProcessLock:
    """The lock file of this process, in a folder that has one for each process.

    Attributes:
        process: the name of the file. No earlier or later process has the same one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder.name} beside it is not a folder")
        if sys.platform != "win32" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise PermissionError(errno.EPERM, f"others can write to {folder.name} beside it")
        while True:
            self.process = secrets.token_hex(8)
            self._path = folder / self.process
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600)
            # Another process that removes the files of dead processes may have found this file before it was locked.
            if try_lock(self._descriptor) and self.is_held():
                break
            os.close(self._descriptor)
        self._remove_dead()

    def is_held(self) -> bool:
        """Return True if other processes consider this one alive."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return False

    def alive(self, processes: frozenset[str]) -> frozenset[str]:
        """Return those of these processes that are alive."""
        return frozenset(process for process in processes if process == self.process or self._is_alive(process))

    def release(self) -> None:
        """Release the lock. Other processes then consider this one dead."""
        _close_and_unlink(self._descriptor, self._path)

    def _remove_dead(self) -> None:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name != self.process and len(entry.name) == len(self.process):
                    self._is_alive(entry.name)  # removes the file if the process is dead

    def _is_alive(self, process: str) -> bool:
        """Return True if a process is alive, or if that cannot be found out. Remove the file of a dead process."""
        path = self._folder / process
        try:
            descriptor = os.open(path, os.O_RDWR | NO_LINK)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        locked = True
        try:
            locked = not try_lock(descriptor)
        finally:
            if locked:
                os.close(descriptor)
        if not locked:
            _close_and_unlink(descriptor, path)
        return locked


def _close_and_unlink(descriptor: int, path: Path) -> None:
    """Remove a lock file and release its lock. Windows cannot remove an open file, so there the lock goes first."""
    if sys.platform == "win32":
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        return
    try:
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(descriptor)
