"""The standard error of a server. It is written to the log, and its last lines are kept for error messages."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TextIO

from upstream_clients.redaction import MAX_SECRET, redacted_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

logger = logging.getLogger(__name__)

KEPT_LINES = 20
_CHATTER = re.compile(
    r"^npm (?:notice|warn)\b|^npm err(?:or|!)\s*$|^npm err(?:or|!) code\b|complete log of this run|^hint:|"
    r"^For more information|^at |^File \"|^\^+$|^Node\.js v\d|^note: ",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"\b404\b|\bcaused by\b|\bbecause\b|\bENOENT\b|\bEACCES\b|\bECONNREFUSED\b", re.IGNORECASE)
_ERROR = re.compile(
    r"error|exception|fatal|cannot|can't|denied|not found|required|missing|invalid|failed|does not exist", re.IGNORECASE
)
_STRAY_SHOWN = 200

MAX_LINE = 1_000
"""Characters of a line; longer lines are cut."""

_MAX_BELOW = 3
"""Lines after a telling line in which its list may begin. A path may fill one of them."""


class StderrTail:
    """A pipe for the standard error of a child. Leaving the context waits until everything written was read.

    Entering opens the pipe, unless it is open already. A thread reads it, since not every platform can await a pipe.
    The thread ends at a special line. It cannot wait for the end of the pipe, which a grandchild may keep open.
    """

    def __init__(
        self, server: str, redact: Callable[[str], str], on_line: Callable[[str], object] | None = None
    ) -> None:
        """`on_line` takes each line without secrets, in the thread."""
        self._server = server
        self._redact = redact
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._stray = ""
        self.exit_code: int | None = None
        """Exit code of a child that ended without a signal of ours; negative if another signal ended it."""
        self._end = os.urandom(16).hex().encode()
        """A line that no child can guess. It ends the thread."""
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Create the pipe."""
        self._read_end, write_end = os.pipe()
        self.file: TextIO = os.fdopen(write_end, "w")
        """File to pass as the child's stderr."""
        # The records belong to the same log as those of the task that opens the pipe (see `contextvars`).
        read = partial(copy_context().run, self._read)
        self._thread = threading.Thread(target=read, name=f"stderr of {self._server}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until everything written was read, and close the pipe."""
        # A pipe keeps its order: when the thread reads this line, it has read everything that the child wrote before.
        os.write(self.file.fileno(), b"\n" + self._end + b"\n")
        self.file.close()
        assert self._thread is not None
        self._thread.join(timeout=1.0)

    def __enter__(self) -> StderrTail:
        if self._thread is None:
            self.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def note_stray(self, line: bytes) -> None:
        """Keep the first line of the child's stdout that is not a message."""
        if not self._stray:
            text = line[: MAX_LINE + MAX_SECRET].decode("utf-8", "replace").strip()
            self._stray = redacted_start(text, _STRAY_SHOWN, self._redact)

    @property
    def stray_line(self) -> str:
        """The first line of the child's stdout that is not a message, without secrets."""
        return self._stray

    @property
    def telling_line(self) -> str:
        """The line that most likely says why the child ended, or else the last useful line. It has no secrets.

        If the line begins a list, it has everything up to the first item.
        """
        lines = [line for line in tuple(self._lines) if not _CHATTER.search(line)]
        causes = [line for line in lines if _CAUSE.search(line)]
        errors = [line for line in lines if _ERROR.search(line)]
        telling = causes[0] if causes else errors[-1] if errors else lines[-1] if lines else ""
        below = lines[lines.index(telling) + 1 :][:_MAX_BELOW] if telling else []
        first = next((number for number, line in enumerate(below) if line.startswith("- ")), -1)
        return " ".join([telling, *below[: first + 1]])

    def _read(self) -> None:
        rest, is_kept = b"", False
        """The begin of a line whose end was not read yet, and True if it was kept already."""
        try:
            while chunk := os.read(self._read_end, 65_536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line == self._end:
                        return
                    if not is_kept:
                        self._keep(line)
                    is_kept = False
                if is_kept or len(rest) > MAX_LINE + MAX_SECRET:
                    # The next piece of this line could begin with the second half of a secret, so it is left out.
                    if not is_kept:
                        self._keep(rest)
                    rest, is_kept = b"", True
        finally:
            os.close(self._read_end)

    def _keep(self, line: bytes) -> None:
        text = line[: 4 * (MAX_LINE + MAX_SECRET)].decode("utf-8", "replace")
        text = redacted_start(text, MAX_LINE, self._redact).strip()
        if text:
            self._lines.append(text)
            if self._on_line is not None:
                self._on_line(text)
            logger.debug("%s: %s", self._server, text)
