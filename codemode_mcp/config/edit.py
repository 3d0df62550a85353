"""Changes to files that people edit too: the configuration file, and the files of MCP clients.

A backup keeps the old content. The new file replaces the old one in one step, so that no process reads half a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config.edit_json import value_at, with_items, with_members
from codemode_mcp.config.source import MAX_BYTES, SourceError, parse, read_text
from upstream_clients.private_files import make_private_folder

ATTEMPTS = 5
"""Maximum number of attempts to change a file that another process changes at the same time."""

MAX_BACKUPS = 10
"""Maximum number of backups of one file. Older backups are deleted."""

_writing = threading.Lock()


def add_approved(path: Path, ids: Iterable[str], context: str | None = None) -> bool:
    """Add tools to `tools.approved`, or to `approved` of a context. Return True if the file was changed.

    Args:
        ids: ids of the tools.
        context: the name of one of `tools.contexts`.

    Raises:
        ConfigError: the file cannot be read, changed or written, and was not changed.
    """
    keys = ("tools", "approved") if context is None else ("tools", "contexts", context, "approved")
    items = tuple(dict.fromkeys(ids))
    return _change(path, lambda text: with_items(text, keys, items))


def switch_tool(path: Path, tool_id: str, *, on: bool) -> bool:
    """Remove the id of a tool from `tools.deny`, or add it. Return True if the file was changed.

    Raises:
        ConfigError: the file cannot be read, changed or written, and was not changed.
    """

    def change(text: str) -> str:
        if not on:
            return with_items(text, ("tools", "deny"), (tool_id,))
        denied = value_at(parse(text), ("tools", "deny"), list, "a list") or ()
        if tool_id not in denied:
            return text
        return with_members(text, ("tools",), {"deny": [each for each in denied if each != tool_id]})

    return _change(path, change)


def _change(path: Path, change: Callable[[str], str]) -> bool:
    with _writing:
        for _ in range(ATTEMPTS):
            with suppress(ChangedMeanwhileError):
                return _replace_text(path, change)
    raise ConfigError((f"{path} was changed by another process in every attempt; change it by hand",))


class ChangedMeanwhileError(Exception):
    """Error for a file that another process has written since it was read."""


def _replace_text(path: Path, change: Callable[[str], str]) -> bool:
    # A symbolic link stays a link: its target is replaced.
    path = Path(os.path.realpath(path))
    try:
        before = path.read_bytes()
        text = read_text(path)
        changed = change(text)
        if len(changed.encode()) > MAX_BYTES:
            raise SourceError(f"would be larger than {MAX_BYTES // 1024} KiB; remove something first")
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
    before_replacing: Callable[[Path | None], None] | None = None,
) -> Path | None:
    """Write a text to a file, and return the path of the backup of its old content.

    Args:
        before: the old content; None for a new file, which has no backup.
        private: True if only the owner may read a new file.
        before_replacing: called with the path of the backup, or None, directly before the file is replaced.

    Raises:
        ChangedMeanwhileError: the content of the file is not `before`.
        OSError: the file or its backup cannot be written.
    """
    backup = None if before is None else _back_up(path, before)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())  # after a crash, the new name must not stand for a file without its content
        if before is not None:
            shutil.copymode(path, name)
            with suppress(OSError, AttributeError):  # only root may give files to others, and Windows has no `chown`
                status = path.stat()
                os.chown(name, status.st_uid, status.st_gid)
        elif not private:
            os.chmod(name, 0o644)
        # Between the last check and `os.replace`, another process can still write the file. No system call compares and
        # replaces in one step, so the check is as late as possible.
        if _content(path) != before:
            raise ChangedMeanwhileError
        if before_replacing is not None:
            before_replacing(backup)
            if _content(path) != before:
                raise ChangedMeanwhileError
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            # This fails if the file was replaced already. Then the backup stays.
            os.unlink(name)
            if backup is not None:
                os.unlink(backup)
        raise
    if backup is not None:
        _delete_oldest_backups(path, backup)
    return backup


def backup_folder(path: Path) -> Path:
    """Return the folder for backups of a file, inside the user's state folder.

    A backup contains the secrets of the file. Beside the file it could be shared, for example in a repository.
    """
    from codemode_mcp.base.paths import state_dir

    return state_dir() / "copies" / hashlib.sha256(os.fsencode(path.parent)).hexdigest()[:16]


def _back_up(path: Path, content: bytes) -> Path:
    stem = f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}"
    folder = backup_folder(path)
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
        os.chmod(backup, 0o600)  # `copystat` has copied the mode of the file, which may be readable by others
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


def _delete_oldest_backups(path: Path, newest: Path) -> None:
    """Delete the oldest backups, by the dates in their names. Errors are ignored, because the file is written."""
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
