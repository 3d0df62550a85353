"""The destination of logs, and the form of their lines."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from declarations.untrusted_text import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.base.settings import LogLevel, LogSettings


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


class QuietStream(logging.StreamHandler[TextIO]):
    """A handler that never prints a record when it fails."""

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


class _File(QuietStream, logging.FileHandler):
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


class Destination:
    """One of the destinations of records, with a level of its own. The loggers have the lowest level of all of them.

    Args:
        level: the lowest level of its records; None for that of the log of this process.
    """

    def __init__(self, level: LogLevel | None) -> None:
        self._level = level

    @property
    def level(self) -> LogLevel:
        return _process_level() if self._level is None else self._level

    def set_level(self, level: LogLevel) -> None:
        self._level = level
        _apply_levels()

    def wants(self, record: logging.LogRecord) -> bool:
        return record.levelno >= _threshold(self.level, record.name.partition(".")[0])


def _threshold(name: LogLevel, logger: str) -> int:
    """Return the lowest level of records of a logger. Libraries log warnings and errors only."""
    level: int = getattr(logging, name.upper())
    if logger in _OWN_LOGGERS:
        return level
    if logger in _SDK_LOGGERS:
        return logging.CRITICAL if level > logging.DEBUG else logging.DEBUG
    return max(level, logging.WARNING)


_destinations: list[Destination] = []
_process: list[Destination] = []
"""The destinations of all records of this process, whose level is that of the configuration."""
_levels_before: dict[logging.Logger, int] = {}


@contextmanager
def open_destination(destination: Destination) -> Iterator[None]:
    """Let the loggers make the records of a destination, for the duration of the context."""
    if not _destinations:
        loggers = map(logging.getLogger, (None, *_OWN_LOGGERS, *_SDK_LOGGERS))
        _levels_before.update({logger: logger.level for logger in loggers})
    _destinations.append(destination)
    _apply_levels()
    try:
        yield
    finally:
        _destinations.remove(destination)
        _apply_levels()


def _apply_levels() -> None:
    for logger, before in _levels_before.items():
        thresholds = [_threshold(each.level, logger.name) for each in _destinations]
        logger.setLevel(min(thresholds, default=before))


@contextmanager
def logging_to(settings: LogSettings, redact: Callable[[str], str]) -> Iterator[None]:
    """Send logs to stderr or to the configured file, for the duration of the context. Stdout belongs to MCP.

    Raises:
        OSError: the file cannot be opened.
    """
    with logging_by(open_handler(settings.file), settings.level, redact):
        yield


def open_handler(file: str | None) -> logging.Handler:
    """Return the handler for a file; None for stderr. Raises `OSError`."""
    if file is None:
        return QuietStream(sys.stderr)
    return _File(file, encoding="utf-8", errors="backslashreplace")


@contextmanager
def logging_by(handler: logging.Handler, level: LogLevel, redact: Callable[[str], str]) -> Iterator[None]:
    """Send the records of this process to a handler, for the duration of the context. The handler is closed then."""
    destination = Destination(level)
    handler.setFormatter(RedactingFormatter(redact))
    handler.addFilter(destination.wants)
    root = logging.getLogger()
    root.addHandler(handler)
    _process.append(destination)
    try:
        with open_destination(destination):
            yield
    finally:
        _process.remove(destination)
        root.removeHandler(handler)
        with suppress(OSError):  # the disk may be full
            handler.close()


def _process_level() -> LogLevel:
    return _process[-1].level if _process else "info"


def set_level(name: LogLevel) -> None:
    """Set the level of the log of this process. Logs of single clients keep their own level."""
    for each in _process:
        each.set_level(name)
    _apply_levels()
