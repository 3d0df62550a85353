"""The resources of one upstream: their list, answers that are used again, and subscriptions to updates."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.fair_limiter import Call, CallsInFlight
from upstream_clients.reported_state import ReportedState
from upstream_clients.tools import ResourceListing, read_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from upstream_clients.list_state import ListName
    from upstream_clients.server_log import ServerLog
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.token_store import LoginStore, Stamp
    from upstream_clients.tools import HintFn, JsonObject, UpdateFn


class ResourceState(ReportedState):
    """A `ReportedState` with the resources of its server.

    Attributes:
        calls: the calls that wait or are in flight.
        answers: the answers of the current connection that may be used again.
        subscriptions: the resources whose updates are reported, also in later connections.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        on_change: Callable[[], None] | None = None,
        log: ServerLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(spec, on_change, log, clock)
        self.calls = CallsInFlight(clock)
        self.answers = AnswerCache()
        self.subscriptions = ResourceSubscriptions(spec.name, self._wake)
        self._logins: LoginStore | None = None

    # The list.

    async def list_resources(self) -> ResourceListing:
        """Return the resources of the server. See `tools.ItemSource`."""
        state, view = self.lists["resources"], self._view
        state.is_used = True
        if view.state != "ready" and view.resource_list is not None:
            return self._resource_listing(view.resource_list)
        with self._waiting("resources/list"):
            link = await self.connected()
            if state.is_current and (not state.is_listed or state.is_stale(self.clock())):
                state.announce()
            await self._wait_listed("resources", link, is_required=True)
        listed = self._view.resource_list
        if listed is None:
            failed = (each for each in self._view.problems if each.startswith("resources/list"))
            why = next(failed, "resources/list failed")
            raise UpstreamCallError(self.name, f"server {self.name!r}: {why}", dispatched=True)
        return self._resource_listing(listed)

    def _resource_listing(self, items: tuple[JsonObject, ...]) -> ResourceListing:
        state = self.lists["resources"]
        fresh_ms = state.fresh_ms(self.clock()) if self._view.state == "ready" else 0
        return ResourceListing(items, fresh_ms, state.hint.is_private)

    @contextmanager
    def _waiting(self, subject: str) -> Iterator[None]:
        """Count as a call for the duration of the context, within the default timeout.

        Raises:
            UpstreamUnavailable: the time is over, or the call was ended early.
        """
        call = Call(self.calls.clock(), self.spec.timeout)
        self.calls.add(call)
        try:
            with call.scope:
                yield
        finally:
            self.calls.discard(call)
        if call.scope.cancelled_caught:
            why = call.rejected or f"server {self.name!r} did not answer {subject} within {call.limit or 0:g} s"
            raise UpstreamUnavailable(self.name, why)

    # Answers that are used again.

    async def stored_answer(
        self,
        method: str,
        params: JsonObject,
        by_list: ListName | None,
        decide: Callable[[], None] | None,
        on_cached: Callable[[], None] | None,
        on_hint: HintFn | None = None,
    ) -> JsonObject | None:
        """Return an earlier answer to a read or a list that is still fresh; None without one.

        Args:
            by_list: the list on which `decide` depends.
            decide: called right before. If it raises, there is no answer.
            on_cached, on_hint: see `tools.RequestOptions`.
        """
        link = self._link
        if link is None or not link.alive or self._find_answer(method, params) is None:
            return None
        if by_list is not None:
            await self._wait_listed(by_list, link, is_required=False)
        stored = self._find_answer(method, params)  # an update may have come during the wait
        if stored is None:
            return None
        for each in (decide, on_cached):
            if each is not None:
                each()
        found: JsonObject = json.loads(stored.text)
        if on_hint is not None:
            on_hint(round((stored.until - self.clock()) * 1000), read_hint(found).is_private)
        return found

    def storing(self, method: str, params: JsonObject) -> Callable[[JsonObject], None]:
        """Note that a modern server is asked. Return a function that takes the result."""
        return partial(self._store, self.answers.begin(method, params, self.login_stamp()))

    def _store(self, pending: PendingAnswer, result: JsonObject) -> None:
        self.answers.end(pending, result, self.clock(), self.login_stamp())

    def _find_answer(self, method: str, params: JsonObject) -> StoredAnswer | None:
        return self.answers.find(method, params, self.clock(), self.login_stamp()) if self.answers else None

    def login_stamp(self) -> Stamp:
        """Return the stamp of the present login; None for a server without logins."""
        if not self.spec.may_log_in:
            return None
        if self._logins is None:
            from upstream_clients.token_store import LoginStore  # not needed at the start

            self._logins = LoginStore(self.spec)
        return self._logins.stamp()

    # Updates.

    async def subscribe(self, uri: str, on_update: UpdateFn) -> Callable[[], None]:
        """Have updates of a resource reported. See `tools.ItemSource`."""
        resource, remove = self.subscriptions.add(uri, on_update)
        try:
            with self._waiting("resources/subscribe"):
                while not resource.answered:
                    link = await self.connected()
                    if not link.modern and not self._view.resource_subscriptions:
                        raise self._refused("it does not report updates of resources")
                    if not resource.answered:
                        await self._changed.wait()
            if resource.refusal is not None:
                raise self._refused(resource.refusal)
        except BaseException:
            remove()
            raise
        return remove

    def subscribe_again(self, uri: str, on_update: UpdateFn) -> Callable[[], None]:
        """Continue a subscription that began at another definition of the server, as soon as this one is connected."""
        try:
            resource, remove = self.subscriptions.add(uri, on_update)
        except UpstreamCallError:
            return lambda: None
        resource.was_active = True  # updates in between were missed
        self.wanted.set()
        return remove

    def _refused(self, why: str) -> UpstreamCallError:
        return UpstreamCallError(self.name, f"server {self.name!r} refused the subscription: {why}", dispatched=True)

    def report_update(self, uri: str) -> None:
        """Note that the server has reported an update of a resource."""
        self.answers.drop_resource(uri)
        self.subscriptions.report_update(uri)


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
