"""Write files that people write too: the configuration, and those of MCP clients.

`jsontext` keeps what is there as it is written. The file before is kept as a backup, and the new one takes its place in
one step, so that no process reads half of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.config.edit_json import with_items
from codemode_mcp.config.source import MAX_BYTES, SourceError, read_text
from codemode_mcp.errors import ConfigError
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ATTEMPTS = 5
"""Attempts to change a file that another process changes at the same moment."""

MAX_BACKUPS = 10
"""Backups of one file; the oldest are deleted."""

_writing = threading.Lock()


def add_approved(path: Path, ids: Iterable[str], context: str | None = None) -> bool:
    """Add tools to `tools.approved`, or to the `approved` of one of `tools.contexts`; whether any was missing.

    Raises:
        ConfigError: the file cannot be read, changed or written; it is as before.
    """
    keys = ("tools", "approved") if context is None else ("tools", "contexts", context, "approved")
    items = tuple(dict.fromkeys(ids))
    with _writing:
        for _ in range(ATTEMPTS):
            with suppress(ChangedMeanwhileError):
                return _add_items(path, keys, items)
    raise ConfigError((f"{path} is being changed by another process all the time; add the tools by hand",))


class ChangedMeanwhileError(Exception):
    """Another process has written the file since it was read."""


def _add_items(path: Path, keys: Sequence[str], items: Sequence[str]) -> bool:
    """Add items as `add_approved` does, for any keys."""
    # Behind a symbolic link: what it leads to is changed, and it stays a link.
    path = Path(os.path.realpath(path))
    try:
        before = path.read_bytes()
        text = read_text(path)
        changed = with_items(text, keys, items)
        if len(changed.encode()) > MAX_BYTES:
            raise SourceError("has no room for more")
    except OSError as error:
        raise ConfigError((f"{path} cannot be read: {error.strerror}",)) from None
    except SourceError as error:
        raise ConfigError((f"{path} {error}",)) from None
    if changed == text:
        return False
    try:
        replace_file(path, before, ("\ufeff" if before.startswith(b"\xef\xbb\xbf") else "") + changed)
    except OSError as error:
        raise ConfigError((f"{path} could not be written: {error.strerror}",)) from None
    return True


def replace_file(
    path: Path,
    before: bytes | None,
    text: str,
    *,
    private: bool = True,
    first: Callable[[Path | None], None] | None = None,
) -> Path | None:
    """Put `text` in the place of a file that holds `before`, and say where a copy of that is kept.

    Args:
        before: None for a file that is not there yet, of which there is no copy either.
        private: whether a new file is for its owner alone.
        first: called with the copy when all but the last step is done.

    Raises:
        ChangedMeanwhileError: it holds something else.
    """
    backup = None if before is None else _backed_up(path, before)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            shutil.copymode(path, name)
            with suppress(OSError, AttributeError):
                status = path.stat()
                os.chown(name, status.st_uid, status.st_gid)
        elif not private:
            os.chmod(name, 0o644)
        if _content(path) != before:
            raise ChangedMeanwhileError
        if first is not None:
            first(backup)
            if _content(path) != before:
                raise ChangedMeanwhileError
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # not there any more where the last step is done: then the copy is needed
            if backup is not None:
                os.unlink(backup)
        raise
    if backup is not None:
        _forget_oldest(path, backup)
    return backup


def put_back(path: Path, backup: Path) -> None:
    """Put a copy in the place of the file that it was made of, and remove it. Raises `OSError`.

    The state folder can be on another file system, where a file cannot be renamed to.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        shutil.copy2(backup, name)
        with suppress(FileNotFoundError):
            shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    backup.unlink()


def backups_of(path: Path) -> Path:
    """Return the folder for copies of a file, which is in the user's state folder.

    A copy holds the secrets of the file. The folder of the file may be shared: it can be a repository, or become one.
    """
    import platformdirs

    state = Path(platformdirs.user_state_dir("codemode-mcp", appauthor=False))
    return state / "copies" / hashlib.sha256(os.fsencode(path.parent)).hexdigest()[:16]


def _backed_up(path: Path, content: bytes) -> Path:
    stem = f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}"
    folder = backups_of(path)
    make_private_folder(folder)
    for number in count():
        backup = folder / (f"{stem}-{number}.bak" if number else f"{stem}.bak")
        with suppress(FileExistsError):
            handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            break
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copystat(path, backup)
        os.chmod(backup, 0o600)  # the file may be readable by others, and not be in a folder of this user alone
    except BaseException:
        with suppress(OSError):
            backup.unlink()
        raise
    return backup


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _forget_oldest(path: Path, newest: Path) -> None:
    """Delete the oldest backups, by the dates in their names. The file is written already, so nothing fails here."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d{4}-\d\d-\d\d-\d{6})(?:-(\d+))?\.bak")
    dated: list[tuple[str, int, Path]] = []
    with suppress(OSError):
        for each in newest.parent.iterdir():
            match = pattern.fullmatch(each.name)
            if match is not None and each != newest:
                dated.append((match[1], int((match[2] or "0")[-9:]), each))
    for _, _, each in sorted(dated)[: len(dated) - MAX_BACKUPS + 1 if len(dated) >= MAX_BACKUPS else 0]:
        with suppress(OSError):
            each.unlink()
