"""The subscriptions to updates of resources at one process of a server. They outlive its connections.

Any task adds and removes listeners. The task that owns the connection (`resource_updates`) subscribes at the server,
and reports what the server answers. This module sends nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from upstream_clients.errors import UpstreamCallError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from upstream_clients.tools import UpdateFn

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
