"""Answers to `resources/read` that a server allows to be used again for some time (`cache_hints`).

A cache belongs to one process of a server, so clients with processes of their own share nothing. An answer is used for
the login with which it was requested. It is dropped when its time is over, when the server reports an update of the
resource or a change of its lists, and when the connection ends. Answers that depend on what a person has answered are
not stored (MCP 2026-07-28, Caching).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from upstream_clients.cache_hints import read_hint

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from upstream_clients.tools import JsonObject

MAX_CACHE_BYTES = 8 * 1024 * 1024
"""Bytes of all answers, as JSON. The answers that were used longest ago are dropped first."""


class StoredAnswer(NamedTuple):
    """An answer.

    Attributes:
        text: the answer as JSON, so that no user of it can change that of another.
        until: monotonic seconds.
    """

    text: bytes
    until: float
    login: Hashable


class Reading(NamedTuple):
    """A request in flight, whose answer may be stored.

    Attributes:
        uri: the resource; None if the answer is not stored.
        number: counts what has become invalid. If it has changed meanwhile, the answer is not stored.
    """

    uri: str | None
    number: int
    login: Hashable


class ReadCache:
    """The stored answers of one connection."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredAnswer] = {}
        self._size = 0
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._stored)

    def find(self, params: Mapping[str, Any], now: float, login: Hashable) -> StoredAnswer | None:
        """Return the stored answer to a request; None without one.

        Args:
            params: the params of `resources/read`, without what every request has.
            login: identifies the present login.
        """
        uri = _uri_of(params)
        stored = None if uri is None else self._stored.pop(uri, None)
        if uri is None or stored is None:
            return None
        if stored.until <= now or stored.login != login:
            self._size -= len(stored.text)
            return None
        self._stored[uri] = stored  # at the end: the latest in use
        return stored

    def begin(self, params: Mapping[str, Any], login: Hashable) -> Reading:
        """Note a request before it is sent."""
        return Reading(_uri_of(params), self._number, login)

    def end(self, reading: Reading, result: JsonObject, now: float, login: Hashable) -> None:
        """Store the answer to a request, if its server allows that. `login`: identifies the present login."""
        ttl = read_hint(result).ttl_ms / 1000
        if not ttl or reading.uri is None or reading.number != self._number or reading.login != login:
            return
        try:
            text = json.dumps(result).encode()
        except (ValueError, RecursionError):
            return
        if len(text) > MAX_CACHE_BYTES:
            return
        self._drop([reading.uri])
        self._stored[reading.uri] = StoredAnswer(text, now + ttl, login)
        self._size += len(text)
        while self._size > MAX_CACHE_BYTES:
            self._drop([next(iter(self._stored))])

    def drop(self, uri: str) -> None:
        """Drop the answers for a resource that has been updated, and for those below or above it."""
        self._number += 1
        self._drop([each for each in self._stored if each.startswith(uri) or uri.startswith(each)])

    def clear(self) -> None:
        """Drop all answers, and those of requests in flight."""
        self._number += 1
        self._drop([*self._stored])

    def _drop(self, uris: list[str]) -> None:
        for uri in uris:
            if (stored := self._stored.pop(uri, None)) is not None:
                self._size -= len(stored.text)


def _uri_of(params: Mapping[str, Any]) -> str | None:
    """Return the resource of a request that has no other params; None for any other request."""
    uri = params.get("uri")
    return uri if len(params) == 1 and isinstance(uri, str) else None
