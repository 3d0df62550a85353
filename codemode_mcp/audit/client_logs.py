"""Logs that replace the standard error: those of single clients, and a file of bounded size.

Records that are made for a client go to its own destination, and to the log of the process. A variable of the context
says for whom a task works. Tasks that a task starts inherit it, and so do threads that wait for it.

Tasks that outlive a client and work for others must not inherit its variable: start them with `for_no_client`.
"""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import threading
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from codemode_mcp.audit.logs import Destination, QuietStream, RedactingFormatter, logging_by, open_destination
from upstream_clients.private_files import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import TextIOWrapper

    from codemode_mcp.base.settings import LogLevel

    Sink = Callable[[str], bool]
    """Takes a record as text, without a line break at its end, in the thread of the event loop. Returns False if it
    drops the record because its reader is too slow."""


class _Receiver(Protocol):
    def receive(self, record: logging.LogRecord) -> None: ...


_receiver: Final[ContextVar[_Receiver | None]] = ContextVar("codemode_mcp_log", default=None)


class ClientLogs:
    """The logs of the clients of one application."""

    def __init__(self) -> None:
        self._logs: list[_ClientLog] = []

    @contextmanager
    def of_all(self) -> Iterator[None]:
        """Send the records that are made in this context to the logs of all clients, whichever there are by then."""
        token = _receiver.set(self)
        try:
            with _dispatching():
                yield
        finally:
            _receiver.reset(token)

    @contextmanager
    def of_client(self, level: LogLevel | None, sink: Sink, redact: Callable[[str], str]) -> Iterator[None]:
        """Send the records that are made in this context to one client. It is entered in the event loop.

        Args:
            level: the lowest level of its records; None for the level of the log of the process.
            redact: replaces every known secret, as in `RedactingFormatter`.
        """
        log = _ClientLog(level, sink, RedactingFormatter(redact))
        token = _receiver.set(log)
        self._logs.append(log)
        try:
            with open_destination(log), _dispatching():
                yield
        finally:
            log.closed = True
            self._logs.remove(log)
            _receiver.reset(token)

    def receive(self, record: logging.LogRecord) -> None:
        """Give a record to all clients. May be called in any thread."""
        for each in tuple(self._logs):
            each.receive(record)


def for_no_client(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function that starts a task. The task does not work for a client, even if the caller does."""
    return Context().run(function, *arguments)


class _ClientLog(Destination):
    """The log of one client.

    Attributes:
        closed: True after the client has left. Tasks that began for it may still make records.
    """

    def __init__(self, level: LogLevel | None, sink: Sink, formatter: logging.Formatter) -> None:
        super().__init__(level)
        self._sink = sink
        self._formatter = formatter
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._dropped = 0
        self.closed = False

    def receive(self, record: logging.LogRecord) -> None:
        """Write a record, if the client wants it. May be called in any thread."""
        if self.closed or not self.wants(record):
            return
        text = self._formatter.format(record)
        if threading.get_ident() == self._thread:
            self._write(text)
        else:
            self._loop.call_soon_threadsafe(self._write, text)

    def _write(self, text: str) -> None:
        if self.closed:
            return
        if self._dropped:
            text = (
                f"{text}\n({self._dropped} records before this one were dropped, because the log was read too slowly)"
            )
        if self._sink(text):
            self._dropped = 0
        else:
            self._dropped += 1


class _Dispatcher(logging.Handler):
    """The handler that gives records to the client of their context."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit a record without the lock of the handler: one slow log would delay all others."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        receiver = _receiver.get()
        if receiver is not None:
            with suppress(Exception):  # a log must never fail what is logged
                receiver.receive(record)


_dispatcher: Final = _Dispatcher()
_users = 0


@contextmanager
def _dispatching() -> Iterator[None]:
    global _users
    _users += 1
    logging.getLogger().addHandler(_dispatcher)
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            logging.getLogger().removeHandler(_dispatcher)


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
