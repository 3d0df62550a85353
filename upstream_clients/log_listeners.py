"""The listeners to the log messages of one server (MCP, Logging; deprecated since 2026-07-28, and still supported).

Several clients may listen, each from a level on. A server has one level: the lowest that any of them wants. A legacy
server gets it by `logging/setLevel`, a modern one with each request. A message that comes with the answer to a call is
reported only to listeners of the call's owner. Other transports do not tell for which call a message is; then all
listeners of the process get it, except those that want only messages about known calls.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import anyio

from upstream_clients.errors import UpstreamCallError
from upstream_clients.redaction import cut, map_json, redacted_start
from upstream_clients.tools import LogLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.tools import LogFn

logger = logging.getLogger(__name__)

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
        """Return an event for the next change of the listeners."""
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
