"""The log of one client: on the standard error of its relay, or in its own file."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from codemode_mcp.instance.hello import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from codemode_mcp.app.app import App
    from codemode_mcp.audit.client_logs import ClientLogs
    from codemode_mcp.instance.clients import Client


@contextmanager
def logging_for(client: Client, app: App, logs: ClientLogs) -> Iterator[None]:
    """Send records that are made for a client to the log that its options or its configuration name.

    Raises:
        Refusal: the file cannot be opened.
    """
    options, settings = client.options, app.config.log
    level = options.log_level or settings.level
    name = options.log_file or settings.file
    if name is None:
        with logs.of_client(level, client.print, app.redact.own):
            yield
        return
    path = os.path.join(client.folder, name)
    try:
        file = _open(path)
    except OSError as error:
        raise Refusal(
            "failed", f"cannot log to {path}: {error.strerror}; name another file with --log-file or log.file"
        ) from None

    def write(text: str) -> bool:
        try:
            file.write(text + "\n")
        except OSError:
            return False  # for example, the disk is full
        return True

    try:
        with logs.of_client(level, write, app.redact.own):
            yield
    finally:
        with suppress(OSError):
            file.close()


def _open(path: str) -> TextIO:
    """Open a log for appending. Raise `OSError` if it is no file of the client's own.

    Writing to a pipe or a terminal may wait for its reader, and all clients would wait with it. `/dev/stderr` is the
    standard error of this process, not that of the client.
    """
    # Opening a pipe without O_NONBLOCK would wait for its reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) and os.path.realpath(path) != os.devnull:
            raise OSError(errno.EINVAL, "the shared instance writes to regular files only", path)
        if _is_standard_error(about):
            raise OSError(errno.EINVAL, "it is the standard error of the shared instance", path)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except BaseException:
        os.close(descriptor)
        raise


def _is_standard_error(about: os.stat_result) -> bool:
    try:
        return os.path.samestat(about, os.fstat(2))
    except OSError:
        return False
