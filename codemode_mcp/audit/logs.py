"""The destination of logs, and the form of their lines."""

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
    """A formatter that writes each record as one line, and replaces secret values. Only tracebacks have more lines.

    Args:
        redact: replaces every known secret.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] in _SDK_LOGGERS:
            record = _without_text(record)
        line = super().format(record)
        # A line without a traceback was redacted by `formatMessage`.
        return self._redact(line) if record.exc_text or record.stack_info else line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        # The message may have names that programs or servers have chosen. A line break in a name is escaped, so that no
        # record looks like two. Secrets are redacted before that, because a secret may have several lines.
        return escape_hidden(self._redact(super().formatMessage(record)))


class _Stream(logging.StreamHandler[TextIO]):
    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Print once that records are lost.

        The default of `logging` prints the parts of each record to stderr, without redaction.
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


_OWN_LOGGERS: Final = ("codemode_mcp", "upstream_clients")
_SDK_LOGGERS: Final = ("mcp", "client")
"""The loggers of the MCP SDK. It logs lost connections and invalid messages of servers with tracebacks, which
`upstream_clients` reports in a line. At level `debug`, its records are logged without their text, because they contain
messages, output of servers and ids of sessions.
"""


def _without_text(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record with its origin and the type of its error, but without its text."""
    error = "" if record.exc_info is None or record.exc_info[0] is None else f" ({record.exc_info[0].__name__})"
    bare = logging.makeLogRecord(record.__dict__)
    bare.msg, bare.args = f"{record.funcName}, line {record.lineno}{error}", None
    bare.exc_info = bare.exc_text = bare.stack_info = None
    return bare


@contextmanager
def logging_to(settings: LogSettings, redact: Callable[[str], str]) -> Iterator[None]:
    """Send logs to stderr or to the configured file, for the duration of the context. Stdout belongs to MCP.

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
    before = {logger: logger.level for logger in map(logging.getLogger, (None, *_OWN_LOGGERS, *_SDK_LOGGERS))}
    root.addHandler(handler)
    set_level(settings.level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)
        with suppress(OSError):  # the disk may be full
            handler.close()


def set_level(name: LogLevel) -> None:
    """Set the level of the log."""
    level = getattr(logging, name.upper())
    # Our own loggers get this level. Libraries log warnings and errors only.
    logging.getLogger().setLevel(max(level, logging.WARNING))
    for logger in _OWN_LOGGERS:
        logging.getLogger(logger).setLevel(level)
    for library in _SDK_LOGGERS:
        logging.getLogger(library).setLevel(logging.CRITICAL if level > logging.DEBUG else logging.DEBUG)
