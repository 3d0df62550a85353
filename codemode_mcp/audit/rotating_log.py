"""A log file of bounded size, for a process in the background."""

from __future__ import annotations

import logging.handlers
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.audit.logs import QuietStream, logging_by
from upstream_clients.private_files import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import TextIOWrapper

    from codemode_mcp.settings import LogLevel

MAX_BYTES: Final = 1024 * 1024
"""Size at which a file is renamed, and a new one begins."""

EARLIER_FILES: Final = 2
"""Number of earlier files: `NAME.1` is the latest of them."""

_STDERR: Final = 2


class RotatingFile(QuietStream, logging.handlers.RotatingFileHandler):
    """A handler that writes to a file of this user with mode 0600, and follows no link in its place.

    A record that cannot be written is lost, for example on a full disk.

    Args:
        stderr: True to send standard error to the file, too. A crash of the process is reported there.

    Raises:
        OSError: the file cannot be opened, or is not a regular file of this user.
    """

    def __init__(self, path: Path, *, stderr: bool) -> None:
        self._stderr = stderr
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=EARLIER_FILES, encoding="utf-8", errors="replace")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        try:
            make_private(descriptor, Path(self.baseFilename))
            if self._stderr:
                os.dup2(descriptor, _STDERR)
            return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
            raise


@contextmanager
def logging_to_rotating_file(
    path: Path, level: LogLevel, redact: Callable[[str], str], *, stderr: bool = False
) -> Iterator[None]:
    """Send the records of this process to a `RotatingFile`, for the duration of the context. Raises as it does."""
    with logging_by(RotatingFile(path, stderr=stderr), level, redact):
        yield
