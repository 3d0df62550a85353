"""Answers of a server that are used again, and subscriptions to updates of its resources."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from upstream_clients.errors import UpstreamCallError
from upstream_clients.tools import JsonObject, UpdateFn, read_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from upstream_clients.list_state import ListName


# The subscriptions to updates of resources at one process of a server. They outlive its connections.
#
# Any task adds and removes listeners. The task that owns the connection (`list_changed`) subscribes at the server,
# and reports what the server answers. This module sends nothing.


logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000
"""Number of resources of one process with listeners."""


class SubscribedResource:
    """One resource with listeners.

    Attributes:
        answered: True once the server has accepted or refused the subscription in the current connection.
        refusal: the reason why the server does not report updates; None if it does, or has not answered yet.
        was_active: True if the server has reported updates before, so that a gap is reported.
        listeners: the functions to call, by the number of their subscription.
    """

    def __init__(self) -> None:
        self.answered = False
        self.refusal: str | None = None
        self.was_active = False
        self.listeners: dict[int, UpdateFn] = {}


class ResourceSubscriptions:
    """The resources with listeners, by URI.

    Args:
        on_answer: called when the server has answered.
    """

    def __init__(self, server: str, on_answer: Callable[[], None]) -> None:
        self._server = server
        self._on_answer = on_answer
        self._resources: dict[str, SubscribedResource] = {}
        self._changed = anyio.Event()
        self._count = 0

    def __len__(self) -> int:
        return len(self._resources)

    def add(self, uri: str, on_update: UpdateFn) -> tuple[SubscribedResource, Callable[[], None]]:
        """Add a listener. Return its resource, and a function that removes the listener.

        Raises:
            UpstreamCallError: there are too many resources with listeners.
        """
        resource = self._resources.get(uri)
        if resource is None:
            if len(self._resources) >= MAX_SUBSCRIPTIONS:
                why = f"server {self._server!r} has {MAX_SUBSCRIPTIONS} subscribed resources already; end some of them"
                raise UpstreamCallError(self._server, why, dispatched=False)
            resource = self._resources[uri] = SubscribedResource()
            self._change()
        self._count += 1
        number = self._count
        resource.listeners[number] = on_update

        def remove() -> None:
            if resource.listeners.pop(number, None) is not None and not resource.listeners:
                if self._resources.get(uri) is resource:
                    del self._resources[uri]
                self._change()

        return resource, remove

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # For the owner of the connection.

    def uris(self) -> frozenset[str]:
        """Return the resources with listeners."""
        return frozenset(self._resources)

    def unanswered(self) -> list[str]:
        """Return the resources for which the server has not answered yet."""
        return [uri for uri, resource in self._resources.items() if not resource.answered]

    def change(self) -> anyio.Event:
        """Return an event for the next change of `uris`."""
        return self._changed

    def report_gap(self) -> None:
        """Note that the server has forgotten all subscriptions."""
        for resource in self._resources.values():
            resource.answered = False

    def report_accepted(self, uris: Collection[str]) -> None:
        """Note that the server reports updates of these resources from now on. Report an update after a gap."""
        for uri in uris:
            resource = self._resources.get(uri)
            if resource is None or (resource.answered and resource.refusal is None):
                continue
            missed = resource.was_active
            resource.answered, resource.refusal, resource.was_active = True, None, True
            if missed:
                self._report(resource, uri)
        self._on_answer()

    def report_refused(self, uris: Collection[str], why: str) -> None:
        """Note that the server does not report updates of these resources."""
        for uri in uris:
            resource = self._resources.get(uri)
            if resource is not None:
                resource.answered, resource.refusal = True, why
        self._on_answer()

    def report_update(self, uri: str) -> None:
        """Call the listeners of a resource, and of those that it is a part of."""
        for subscribed, resource in tuple(self._resources.items()):
            if uri == subscribed or uri.startswith(subscribed if subscribed.endswith("/") else f"{subscribed}/"):
                self._report(resource, uri)

    def _report(self, resource: SubscribedResource, uri: str) -> None:
        for listener in tuple(resource.listeners.values()):
            try:
                listener(uri)
            except Exception:
                logger.exception("an update of a resource of server %r could not be reported", self._server)


# Answers to reads and lists that a server allows to be used again for some time (`cache_hints`).
#
# A cache belongs to one process of a server, so clients with processes of their own share nothing. An answer is used
# for the login with which it was requested. It is dropped when its time is over, when the server reports an update of
# the resource or a change of the list, and when the connection ends. Answers that depend on what a person has answered
# are not stored (MCP 2026-07-28, Caching).


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


Key = tuple[str, str]
"""The method, and the URI or the cursor of a request."""

_READ: Final = "resources/read"

_PARAMS: Final = {
    _READ: "uri",
    "resources/list": "cursor",
    "resources/templates/list": "cursor",
    "prompts/list": "cursor",
}
"""The methods whose answers are stored, and the only member that their params may have."""

_METHODS: Final[Mapping[ListName, Sequence[str]]] = {
    "tools": (),
    "prompts": ("prompts/list",),
    "templates": ("resources/templates/list",),
    "resources": ("resources/list", _READ),
}
"""The methods whose answers are no longer valid after a change of a list."""


class PendingAnswer(NamedTuple):
    """A request in flight, whose answer may be stored.

    Attributes:
        key: None if the answer is not stored.
        number: counts what has become invalid. If it has changed meanwhile, the answer is not stored.
    """

    key: Key | None
    number: int
    login: Hashable


class AnswerCache:
    """The stored answers of one connection."""

    def __init__(self) -> None:
        self._stored: dict[Key, StoredAnswer] = {}
        self._size = 0
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._stored)

    def find(self, method: str, params: Mapping[str, Any], now: float, login: Hashable) -> StoredAnswer | None:
        """Return the stored answer to a request; None without one.

        Args:
            params: the params without what every request has.
            login: identifies the present login.
        """
        key = _key_of(method, params)
        stored = None if key is None else self._stored.pop(key, None)
        if key is None or stored is None:
            return None
        if stored.until <= now or stored.login != login:
            self._size -= len(stored.text)
            return None
        self._stored[key] = stored  # at the end: the latest in use
        return stored

    def begin(self, method: str, params: Mapping[str, Any], login: Hashable) -> PendingAnswer:
        """Note a request before it is sent."""
        return PendingAnswer(_key_of(method, params), self._number, login)

    def end(self, pending: PendingAnswer, result: JsonObject, now: float, login: Hashable) -> None:
        """Store the answer to a request, if its server allows that. `login`: identifies the present login."""
        key, ttl = pending.key, read_hint(result).ttl_ms / 1000
        if not ttl or key is None or pending.number != self._number or pending.login != login:
            return
        try:
            text = json.dumps(result).encode()
        except (ValueError, RecursionError):
            return
        if len(text) > MAX_CACHE_BYTES:
            return
        self._drop([key])
        self._stored[key] = StoredAnswer(text, now + ttl, login)
        self._size += len(text)
        while self._size > MAX_CACHE_BYTES:
            self._drop([next(iter(self._stored))])

    def drop_resource(self, uri: str) -> None:
        """Drop the answers for a resource that has been updated, and for those below or above it."""
        self._number += 1
        self._drop(
            [key for key in self._stored if key[0] == _READ and (key[1].startswith(uri) or uri.startswith(key[1]))]
        )

    def drop_list(self, name: ListName) -> None:
        """Drop the answers that a change of a list makes invalid."""
        self._number += 1
        self._drop([key for key in self._stored if key[0] in _METHODS[name]])

    def clear(self) -> None:
        """Drop all answers, and those of requests in flight."""
        self._number += 1
        self._drop([*self._stored])

    def _drop(self, keys: list[Key]) -> None:
        for key in keys:
            if (stored := self._stored.pop(key, None)) is not None:
                self._size -= len(stored.text)


def _key_of(method: str, params: Mapping[str, Any]) -> Key | None:
    """Return the key of a request; None if its answer is not stored."""
    name = _PARAMS.get(method)
    if name is None or any(key != name for key in params):
        return None
    value = params.get(name, "")
    return (method, value) if isinstance(value, str) else None
