"""The folder of `serve --record`: a file for each run, bounded by number and by bytes. The oldest files are removed."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from codemode_mcp.recordings.writer import RecordingFile
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.recordings.writer import RecordingWriter

SUFFIX: Final = ".jsonl"

_LOOK: Final = 20
"""Number of new files after which the folder is looked at, to remove the oldest ones."""

_RUN: Final = re.compile(r"run_[A-Za-z0-9_-]{8,100}")


class RecordingFolder:
    """The files of runs in one folder.

    Args:
        max_files, max_bytes: limits of all files. The folder is looked at when some new files were created, or many
            bytes were written, so it may have a few more. One file has at most a quarter of the bytes.
    """

    def __init__(self, writer: RecordingWriter, folder: Path, *, max_files: int, max_bytes: int) -> None:
        self._writer = writer
        self._folder = folder
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._has_looked = False
        self._new_files = self._new_bytes = 0
        """Files and bytes since the folder was looked at. Only the thread of the writer uses them."""

    def __repr__(self) -> str:
        return f"<RecordingFolder {self._folder}>"

    def begin(self, run_id: str) -> RecordingFile | None:
        """Return the file of a new run; None if its id cannot be the name of a file."""
        path = path_of(self._folder, run_id)
        if path is None:
            return None
        return RecordingFile(
            self._writer, path, on_open=self._created, on_write=self._written, max_bytes=self._max_bytes // 4
        )

    def reopen(self, run_id: str) -> RecordingFile | None:
        """Return the file of a run that another process has begun; None if there is none."""
        path = path_of(self._folder, run_id)
        if path is None or not path.is_file():
            return None
        return RecordingFile(self._writer, path, reopen=True, on_write=self._written, max_bytes=self._max_bytes // 4)

    def read(self, run_id: str) -> bytes | None:
        """Return the recording of a run; None if there is none. Raises `OSError`."""
        path = path_of(self._folder, run_id)
        return None if path is None or not path.is_file() else path.read_bytes()

    def _created(self) -> None:
        # Looking at a thousand files takes milliseconds.
        self._new_files += 1
        if not self._has_looked or self._new_files >= min(_LOOK, self._max_files // 10):
            self._remove_oldest()

    def _written(self, size: int) -> None:
        self._new_bytes += size
        if self._new_bytes > self._max_bytes // 8:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        self._has_looked = True
        self._new_files = self._new_bytes = 0
        found = []
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if _is_recording(entry.name) and entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    found.append((about.st_mtime_ns, about.st_size, entry.path))
        found.sort(reverse=True)
        size = 0
        for count, (_, each, path) in enumerate(found):
            size += each
            if count and (count >= self._max_files or size > self._max_bytes):
                with suppress(OSError):
                    os.unlink(path)


def use_folder(folder: Path) -> None:
    """Create a folder for recordings, with mode 0700, if it is not there. Raises `OSError` if it cannot be used."""
    make_private_folder(folder)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "this user cannot write in it", str(folder))


def path_of(folder: Path, run_id: str) -> Path | None:
    """Return the path of the recording of a run; None if the id cannot be the name of a file."""
    return folder / f"{run_id}{SUFFIX}" if _RUN.fullmatch(run_id) else None


def _is_recording(name: str) -> bool:
    return name.endswith(SUFFIX) and _RUN.fullmatch(name.removesuffix(SUFFIX)) is not None
