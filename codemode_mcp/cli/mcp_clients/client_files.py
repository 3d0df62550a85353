"""Reading and replacing configuration files: those of clients, and ours."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.edit import replace_file, restore_backup
from codemode_mcp.config.formats import format_of, parse
from codemode_mcp.config.source import SourceError, text_of
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.config.formats import Format

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one file. The limit is high because Claude Code's file also has the history of all projects."""

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Change:
    """A file and its new text.

    Attributes:
        path: the file, behind symbolic links.
        before: the current bytes; None for no file.
        private: whether a new file is readable by its owner alone.
        secret: whether the new text has secrets. An existing file is then made readable by its owner alone, too.
    """

    path: Path
    before: bytes | None = field(repr=False)
    text: str = field(repr=False)
    private: bool = True
    secret: bool = False

    def write(self, before_last_step: Callable[[Path | None], None] | None = None) -> Path | None:
        """Replace the file. Return the backup of the previous one, if there was one.

        Args:
            before_last_step: called with the backup just before the new file is renamed to `path`.

        Raises:
            OSError: the file cannot be written. It is unchanged.
            ChangedMeanwhileError: another program has changed the file since it was read.
        """
        if self.private:
            make_private_folder(self.path.parent)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.secret and self.before is not None:
            # The new file gets the mode of the old one, so the mode is set before the secrets are written.
            self.path.chmod(0o600)
        return replace_file(self.path, self.before, self.text, private=self.private, before_replacing=before_last_step)

    def is_written(self) -> bool:
        with suppress(OSError):
            return self.path.read_bytes() == self.text.encode()
        return False

    def revert(self, backup: Path | None) -> None:
        """Restore the previous file, unless another program has written it since."""
        if not self.is_written():
            return
        with suppress(OSError):
            if backup is not None:
                restore_backup(self.path, backup)
            else:
                self.path.unlink()


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file when it was read.

    Attributes:
        data: the bytes of the file; None for no file.
        text: the text of the file without a byte order mark.
        value: the parsed value.
    """

    path: Path
    data: bytes | None = field(repr=False)
    text: str = field(repr=False)
    value: Any = field(repr=False)

    def change_to(self, text: str, *, private: bool = True, secret: bool = False) -> Change:
        """Return the change to `text`, with a byte order mark if the file has one."""
        mark = BYTE_ORDER_MARK if (self.data or b"").startswith(BYTE_ORDER_MARK.encode()) else ""
        return Change(self.path, self.data, mark + text, private, secret)


def read_file(path: Path, kind: Format | None = None, *, empty: str | None = None) -> Document:
    """Read a file of JSON (with or without comments), TOML or YAML.

    Args:
        kind: the format of the file. By default it follows from the file's name.
        empty: the text to use for a missing or blank file.

    Raises:
        SourceError: the file cannot be read. The message is to follow the file's name, and says what to do.
    """
    data = None if empty is not None and not os.path.lexists(path) else read_bytes(path)
    text = text_of(data or b"")
    if empty is not None and not text.strip():
        text = empty
    return Document(path, data, text, parse(kind or format_of(path), text))


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Refuse any other file, such as a pipe, because reading it might never end.

    Raises:
        SourceError: the file cannot be read, as for `read_file`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise SourceError("is a folder, not a file" if stat.S_ISDIR(mode) else "is not a regular file")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(handle)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024 // 1024} MiB; check that it is the right file")
    return data
