"""The log of one server: its latest lines, its standard error, and the listeners to its messages."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO, get_args

import anyio

from upstream_clients.errors import UpstreamCallError
from upstream_clients.json_values import map_json
from upstream_clients.redaction import MAX_SECRET, cut, redacted_start
from upstream_clients.tools import LogFn, LogLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from upstream_clients.live_connection import LiveConnection


Source = Literal["stderr", "message", "connection"]
"""`stderr`: the standard error of the process. `message`: `notifications/message` of the server. `connection`: a
sentence of this package about a connection of the server."""

MAX_LINES: Final = 500
"""Lines that are kept."""

MAX_LOG_LINE: Final = 1_000
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
            line = LogLine(self._count, self._clock(), source, cut(text, MAX_LOG_LINE))
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
        text = redacted_start(": ".join(parts), 64 * MAX_LOG_LINE, self._redact)
        self.add("message", " ".join(text.split()))

    def add_error(self, reason: str) -> None:
        self.last_error = self.add("connection", reason)

    def after(self, number: int) -> list[LogLine]:
        """Return the lines after the line with this number; all lines for 0."""
        with self._lock:
            return [line for line in self._lines if line.number > number]


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


# The listeners to the log messages of one server (MCP, Logging; deprecated since 2026-07-28, and still supported).
#
# Several clients may listen, each from a level on. A server has one level: the lowest that any of them wants. A legacy
# server gets it by `logging/setLevel`, a modern one with each request. A message that comes with the answer to a call
# is reported only to listeners of the call's owner. Other transports do not tell for which call a message is; then all
# listeners of the process get it, except those that want only messages about known calls.


LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""Levels from the lowest to the highest, as in RFC 5424."""

UNKNOWN_LEVEL: Final[LogLevel] = "info"
"""The level of messages whose own level is not one of MCP."""

MAX_DATA: Final = 16 * 1024
"""Characters of a message as JSON. A longer one is cut, and becomes a string."""

MAX_SEARCHED: Final = 1024 * 1024
"""Characters that are searched for secrets. The text of a longer message is left out."""

MAX_NAME: Final = 256
"""Characters of the name of a logger."""

LEVEL_TIMEOUT: Final = 10.0
"""Seconds for the answer to `logging/setLevel`."""


class _Listener(NamedTuple):
    """One listener.

    Attributes:
        owner: the owner of the calls whose messages are wanted; None for all owners.
        client: the client whose processes are wanted; None for all processes.
        known_only: True to leave out messages that are about no known call.
    """

    take: LogFn
    level: int
    owner: str | None
    client: str | None
    known_only: bool


class LogListeners:
    """The listeners to one server.

    Args:
        redact: replaces the secrets of the server in a text.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._listeners: dict[int, _Listener] = {}
        self._count = 0
        self._changed = anyio.Event()

    def add(
        self, take: LogFn, level: LogLevel, owner: str | None, client: str | None, *, known_only: bool = False
    ) -> Callable[[], None]:
        """Add a listener. Return a function that removes it. Raises `ValueError` for an unknown level."""
        self._count += 1
        number = self._count
        self._listeners[number] = _Listener(take, LEVELS.index(level), owner, client, known_only)
        self._change()

        def remove() -> None:
            if self._listeners.pop(number, None) is not None:
                self._change()

        return remove

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def change(self) -> anyio.Event:
        return self._changed

    def level(self, owner: str | None, hears: Callable[[str | None], bool]) -> LogLevel | None:
        """Return the lowest level that is wanted; None without a listener.

        Args:
            owner: the owner of the call; None for the level of all owners.
            hears: returns True if a client gets the messages of the process.
        """
        levels = [each.level for each in self._of(owner, hears)]
        return LEVELS[min(levels)] if levels else None

    def report(self, params: Mapping[str, Any], owner: str | None, hears: Callable[[str | None], bool]) -> None:
        """Call the listeners for a message. See `level` for the arguments."""
        given = params.get("level")
        level = LEVELS.index(given) if given in LEVELS else LEVELS.index(UNKNOWN_LEVEL)
        listeners = [
            each for each in self._of(owner, hears) if each.level <= level and not (owner is None and each.known_only)
        ]
        if not listeners:
            return
        message: dict[str, Any] = {"level": LEVELS[level], "data": self._data(params.get("data"))}
        if isinstance(name := params.get("logger"), str):
            message["logger"] = redacted_start(name, MAX_NAME, self._redact)
        for listener in listeners:
            try:
                listener.take(message)
            except Exception:
                logger.exception("a log message of a server could not be reported")

    def _of(self, owner: str | None, hears: Callable[[str | None], bool]) -> Iterable[_Listener]:
        return [
            each
            for each in self._listeners.values()
            if (owner is None or each.owner in (None, owner)) and hears(each.client)
        ]

    def _data(self, data: Any) -> Any:
        """Return the data of a message without secrets, of limited size."""
        try:
            text = json.dumps(data)
            if len(text) <= MAX_DATA:
                return map_json(data, self._redact, self._number)
        except (ValueError, RecursionError):
            return "(a value that cannot be written as JSON)"
        text = data if isinstance(data, str) else text
        if len(text) > MAX_SEARCHED:
            return f"(a message of {len(text)} characters, which is too long)"
        # Cut after the replacement, which could not find half a secret at the end.
        return cut(self._redact(text), MAX_DATA) + "... (cut)"

    def _number(self, value: float) -> Any:
        text = json.dumps(value)
        shown = self._redact(text)  # a secret may have digits alone
        return value if shown == text else shown


async def keep_log_level(listeners: LogListeners, link: LiveConnection, hears: Callable[[str | None], bool]) -> None:
    """Send `logging/setLevel` to a legacy server whenever the wanted level changes, until cancelled.

    Without a listener nothing is sent, since MCP has no way to return to the level of the server's choice.
    """
    current = None
    while not link.modern:
        change, level = listeners.change(), listeners.level(None, hears)
        if level not in (None, current):
            current = level
            try:
                with anyio.fail_after(LEVEL_TIMEOUT):
                    await link.send("logging/setLevel", {"level": level})
            except (UpstreamCallError, TimeoutError) as error:
                logger.info("a server has not accepted the level of its log: %s", error)
        await change.wait()
