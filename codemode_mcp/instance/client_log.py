"""The log of one client: on the standard error of its relay, or in its own file."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from codemode_mcp.instance.hello import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        with logs.of_client(level, client.print, app.redact):
            yield
        return
    path = os.path.join(client.folder, name)
    try:
        file = open(path, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115 - closed below
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
        with logs.of_client(level, write, app.redact):
            yield
    finally:
        with suppress(OSError):
            file.close()
