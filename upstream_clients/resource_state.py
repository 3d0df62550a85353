"""The resources of one upstream: their list, answers that are used again, and subscriptions to updates."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from upstream_clients.answer_cache import AnswerCache
from upstream_clients.cache_hints import read_hint
from upstream_clients.call import Call, CallsInFlight
from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.reported_state import ReportedState
from upstream_clients.resource_subscriptions import ResourceSubscriptions
from upstream_clients.tools import ResourceListing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from upstream_clients.answer_cache import PendingAnswer, StoredAnswer
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
