"""Write files that people write too: the configuration, and those of MCP clients.

`jsontext` keeps what is there as it is written. The file before is kept as a backup, and the new one takes its place at
once, so that nobody reads half of it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.config.jsontext import with_items
from codemode_mcp.config.source import MAX_BYTES, SourceError, read_text
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ATTEMPTS = 5
"""To change a file that another process changes at the same moment."""

MAX_BACKUPS = 10
"""Of one file; the oldest go."""

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
    raise ConfigError((f"{path} is being changed by somebody else all the time; add the tools by hand",))


class ChangedMeanwhileError(Exception):
    """Another process has written the file since it was read."""


def _add_items(path: Path, keys: Sequence[str], items: Sequence[str]) -> bool:
    """See `add_approved`."""
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


def replace_file(path: Path, before: bytes | None, text: str, *, private: bool = True) -> Path | None:
    """Put `text` in the place of a file that holds `before`, and say where a copy of that is kept.

    Args:
        before: None for a file that is not there yet, of which there is no copy either.
        private: whether a new file is for its owner alone.

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
        os.replace(name, path)
    except BaseException:
        for each in (name, backup):
            if each is not None:
                with suppress(OSError):
                    os.unlink(each)
        raise
    if backup is not None:
        _forget_oldest(path)
    return backup


def _backed_up(path: Path, content: bytes) -> Path:
    backup = path.with_name(f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}.bak")
    number = 1
    while backup.exists():
        backup = path.with_name(f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}-{number}.bak")
        number += 1
    with open(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    shutil.copystat(path, backup)
    return backup


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _forget_oldest(path: Path) -> None:
    pattern = re.compile(re.escape(path.name) + r"\.\d{4}-\d\d-\d\d-\d{6}(-\d+)?\.bak")
    backups = [each for each in path.parent.iterdir() if pattern.fullmatch(each.name)]
    for each in sorted(backups, key=lambda each: each.stat().st_mtime_ns)[: -MAX_BACKUPS or None]:
        with suppress(OSError):
            each.unlink()
