"""The latest lines of one server: its standard error, its log messages, and the ends of its connections."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from upstream_clients.redaction import cut, redacted_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Source = Literal["stderr", "message", "connection"]
"""`stderr`: the standard error of the process. `message`: `notifications/message` of the server. `connection`: a
sentence of this package about a connection of the server."""

MAX_LINES: Final = 500
"""Lines that are kept."""

MAX_LINE: Final = 1_000
"""Characters of a line. Longer lines are cut."""


class LogLine(NamedTuple):
    """One line, without secrets of the server.

    Attributes:
        number: position among all lines of the server, from 1.
        time: Unix seconds.
    """

    number: int
    time: float
    source: Source
    text: str


class ServerLog:
    """The latest lines of all processes of one server. Any thread may use it.

    Args:
        redact: replaces the secrets of the server in a text.
        clock: Unix seconds.
    """

    def __init__(self, redact: Callable[[str], str], clock: Callable[[], float] = time.time) -> None:
        self._redact = redact
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._count = 0
        self.last_error: LogLine | None = None
        """The reason for the latest end of a connection, or for the latest failed attempt."""

    @property
    def count(self) -> int:
        """The number of the latest line; 0 without one."""
        return self._count

    def add(self, source: Source, text: str) -> LogLine:
        """Add a line that has no known secrets."""
        with self._lock:
            self._count += 1
            line = LogLine(self._count, self._clock(), source, cut(text, MAX_LINE))
            self._lines.append(line)
        return line

    def add_message(self, params: Mapping[str, Any]) -> None:
        """Add the params of `notifications/message` (MCP, Logging). Values of other types are written as JSON."""
        data = params.get("data")
        try:
            shown = data if isinstance(data, str) else json.dumps(data)
        except (ValueError, RecursionError):
            shown = "(a value that cannot be written as JSON)"
        parts = (each for each in (params.get("level"), params.get("logger"), shown) if isinstance(each, str) and each)
        text = redacted_start(": ".join(parts), 64 * MAX_LINE, self._redact)
        self.add("message", " ".join(text.split()))

    def add_error(self, reason: str) -> None:
        """Add the reason for the end of a connection, or for a failed attempt."""
        self.last_error = self.add("connection", reason)

    def after(self, number: int) -> list[LogLine]:
        """Return the lines after the line with this number; all lines for 0."""
        with self._lock:
            return [line for line in self._lines if line.number > number]
