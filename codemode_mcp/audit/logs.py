"""Logs: where they go, and what a line of them looks like."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
        return self._redact(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        # Names that programs and servers make up are in it: no record may look like two.
        # Redacted first: a secret may have several lines.
        return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], self._redact(super().formatMessage(record)))


_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@contextmanager
def logging_to(settings: LogSettings, redact: Callable[[str], str]) -> Iterator[None]:
    """Send logs to stderr, or to the configured file; stdout belongs to MCP.

    Raises:
        OSError: the file cannot be opened.
    """
    handler: logging.Handler
    if settings.file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = logging.FileHandler(settings.file, encoding="utf-8")
    handler.setFormatter(RedactingFormatter(redact))
    root = logging.getLogger()
    previous = root.level
    root.addHandler(handler)
    set_level(settings.level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(previous)
        handler.close()


def set_level(name: LogLevel) -> None:
    """How much is logged from now on."""
    level = getattr(logging, name.upper())
    # Our own rooms at the level asked for; libraries only when something is wrong.
    logging.getLogger().setLevel(max(level, logging.WARNING))
    for room in ("codemode_mcp", "upstream_clients"):
        logging.getLogger(room).setLevel(level)
    # The SDK logs lost connections and junk from servers with tracebacks; `upstream_clients` reports both in a line.
    for library in ("mcp", "client"):  # its client sessions log under the second
        logging.getLogger(library).setLevel(logging.CRITICAL if level > logging.DEBUG else logging.DEBUG)
