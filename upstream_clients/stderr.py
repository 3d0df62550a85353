"""A child's stderr: into the log, never onto our own stdout or stderr, and its last lines kept."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

logger = logging.getLogger(__name__)

KEPT_LINES = 20
_CHATTER = re.compile(r"npm (?:notice|warn)\b", re.IGNORECASE)

MAX_LINE = 1_000
"""Bytes; longer lines are cut."""


class StderrTail:
    """A pipe to give a child as its stderr. A context manager; leaving it waits for what was written to be read.

    Read by a thread, since pipes cannot be awaited on every platform. The thread ends when it is told to, not at end
    of file: a grandchild may hold the other end for ever.
    """

    def __init__(self, server: str, redact: Callable[[str], str]) -> None:
        self._server = server
        self._redact = redact
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.exit_code: int | None = None
        """How the child ended, where it has ended by itself; a signal is negative."""
        self._end = os.urandom(16).hex().encode()
        """A line that no child can guess; tells the thread to stop."""

    def __enter__(self) -> StderrTail:
        self._read_end, write_end = os.pipe()
        self.file: TextIO = os.fdopen(write_end, "w")
        """What to pass as the child's stderr."""
        self._thread = threading.Thread(target=self._read, name=f"stderr of {self._server}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A pipe keeps its order: when the thread sees this line, it has seen all that the child wrote before.
        os.write(self.file.fileno(), b"\n" + self._end + b"\n")
        self.file.close()
        self._thread.join(timeout=1.0)

    @property
    def last_line(self) -> str:
        """The last line that is not blank nor npm's chatter, without secrets."""
        return next((line for line in reversed(tuple(self._lines)) if not _CHATTER.match(line)), "")

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := os.read(self._read_end, 65_536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line == self._end:
                        return
                    self._keep(line)
                if len(rest) > MAX_LINE:
                    self._keep(rest)
                    rest = b""
        finally:
            os.close(self._read_end)

    def _keep(self, line: bytes) -> None:
        text = self._redact(line[:MAX_LINE].decode("utf-8", "replace")).strip()
        if text:
            self._lines.append(text)
            logger.debug("%s: %s", self._server, text)
