"""Logs: where they go, and what a line of them looks like."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from declarations.untrusted_text import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.settings import LogLevel, LogSettings


class RedactingFormatter(logging.Formatter):
    """One line a record, with secret values replaced; a traceback's lines are kept in the log, never on the wire.

    Args:
        redact: replaces every secret value it knows of.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] in _LIBRARIES:
            record = _without_text(record)
        line = super().format(record)
        # Without a traceback it is what `formatMessage` has redacted.
        return self._redact(line) if record.exc_text or record.stack_info else line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        # Names that programs and servers make up are in it: no record may look like two.
        # Redacted first: a secret may have several lines.
        return escape_hidden(self._redact(super().formatMessage(record)))


class _Stream(logging.StreamHandler[TextIO]):
    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Say once that records are lost.

        The default of `logging` prints the parts of the record to stderr, without redaction.
        """
        if self._failed:
            return
        self._failed = True
        error = sys.exception()
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        with suppress(Exception):
            print(f"codemode-mcp: a record of {record.name} cannot be logged ({why})", file=sys.stderr)  # noqa: T201


class _File(_Stream, logging.FileHandler):
    pass


_ROOMS: Final = ("codemode_mcp", "upstream_clients")
_LIBRARIES: Final = ("mcp", "client")
"""The SDK, whose client sessions log under the second. It logs lost connections and junk from servers with tracebacks;
`upstream_clients` reports both in a line. At `debug` its records have no text: it puts messages, junk that servers
write and ids of sessions into them.
"""


def _without_text(record: logging.LogRecord) -> logging.LogRecord:
    """Return where a record comes from and the kind of its error, and nothing of what it says."""
    error = "" if record.exc_info is None or record.exc_info[0] is None else f" ({record.exc_info[0].__name__})"
    bare = logging.makeLogRecord(record.__dict__)
    bare.msg, bare.args = f"{record.funcName}, line {record.lineno}{error}", None
    bare.exc_info = bare.exc_text = bare.stack_info = None
    return bare


@contextmanager
def logging_to(settings: LogSettings, redact: Callable[[str], str]) -> Iterator[None]:
    """Send logs to stderr, or to the configured file; stdout belongs to MCP.

    Raises:
        OSError: the file cannot be opened.
    """
    handler: logging.Handler
    if settings.file is None:
        handler = _Stream(sys.stderr)
    else:
        handler = _File(settings.file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(RedactingFormatter(redact))
    root = logging.getLogger()
    before = {logger: logger.level for logger in map(logging.getLogger, (None, *_ROOMS, *_LIBRARIES))}
    root.addHandler(handler)
    set_level(settings.level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)
        with suppress(OSError):  # a full disk does not take what is left
            handler.close()


def set_level(name: LogLevel) -> None:
    """Set the level of the log."""
    level = getattr(logging, name.upper())
    # Our own rooms at the level asked for; libraries only when something is wrong.
    logging.getLogger().setLevel(max(level, logging.WARNING))
    for room in _ROOMS:
        logging.getLogger(room).setLevel(level)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.CRITICAL if level > logging.DEBUG else logging.DEBUG)
