"""One upstream as its callers see it: calls that wait for a connection, or fail without one.

A call waits for a connection, a place, a turn, a listing, and answers of the user. Usually nothing of this has to be
awaited. Then a call that is an eager coroutine (`eager`) sends its request in the step that made it. Nothing is awaited
between `admit` and the moment at which the request is handed to the transport. Otherwise a tool could change after it
was admitted.

This module knows no transport.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

from upstream_clients import resource_state
from upstream_clients.direct import Answer
from upstream_clients.error_mapping import lost_again
from upstream_clients.errors import SessionLost, UpstreamCallError, UpstreamClientError, UpstreamUnavailable
from upstream_clients.fair_limiter import Call, CallsInFlight, CallUser, FairLimiter, Slot
from upstream_clients.questions import CallQuestions, send_until_result
from upstream_clients.results import is_task, is_unfinished, read_outcome, without_client_fields
from upstream_clients.server_log import LogListeners, ServerLog
from upstream_clients.tools import Admission, ResourceListing, ToolOutcome, read_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from upstream_clients.list_state import ListName
    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tasks import TaskOfCall
    from upstream_clients.token_store import LoginStore, Stamp
    from upstream_clients.tools import CallOptions, HintFn, JsonObject, LogLevel, RequestOptions, UpdateFn

REQUESTS = frozenset(
    (
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    )
)
"""Methods that `request` may send besides tool calls."""


class Misdirected(Exception):
    """A call waited for a process that serves other clients by now. Nothing was sent."""


class Clients(Protocol):
    """The clients of a process."""

    def serves(self, client: str | None) -> bool:
        """Return True if a call of this client may be sent to the process."""
        ...

    def note_roots(self, client: str, answer: JsonObject | None) -> None:
        """Note that the process asks for the roots of a client, or has got this answer."""
        ...

    def names_roots(self, client: str | None) -> bool:
        """Return True if a client can be asked for its roots only during its calls, and the process may get them."""
        ...

    def hears(self, client: str | None) -> bool:
        """Return True if a client gets the log messages of the process; None for one that gets those of all."""
        ...


class Upstream(resource_state.ReportedState):
    """An upstream as a `tools.ItemSource`.

    Attributes:
        calls: the calls that wait or are in flight.
        answers: the answers of the current connection that may be used again.
        subscriptions: the resources whose updates are reported, also in later connections.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        on_change: Callable[[], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        limiter: FairLimiter | None = None,
        clients: Clients | None = None,
        log: ServerLog | None = None,
        log_listeners: LogListeners | None = None,
    ) -> None:
        """Prepare the upstream.

        Args:
            clock: measures the ages of calls, in seconds.
            limiter: the limit that several processes have together; None for an own one.
            clients: the clients that this process serves; None if it serves all.
            log: the lines of all processes of the server; None for an own one.
            log_listeners: the listeners to all processes of the server; None for own ones.
        """
        super().__init__(spec, on_change, log, clock)
        self.calls = CallsInFlight(clock)
        self.answers = resource_state.AnswerCache()
        self.subscriptions = resource_state.ResourceSubscriptions(spec.name, self._wake)
        self._logins: LoginStore | None = None
        self._limiter = limiter or FairLimiter(spec.max_concurrent_calls)
        self._clients = clients
        self.log_listeners = log_listeners or LogListeners(spec.redact)

    async def call_tool(
        self, tool: str, arguments: JsonObject, *, user: CallUser | None = None, **options: Unpack[CallOptions]
    ) -> ToolOutcome:
        """Call one tool. Wait for a connection attempt in progress, within the same timeout.

        Args:
            user: the user who makes the call; None if this server has one user.

        Raises:
            Misdirected: another process serves the client of `user` by now; nothing was sent.
            UpstreamUnavailable: the server is down or did not start in time; nothing was sent.
            UpstreamCallError: the tool did not answer.
            Exception: any exception of `begin` and `admit`.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        admit = options.get("admit")
        # There is a connection when it is called, so these tools are from its own listing, not from an earlier one.
        decide = None if admit is None else lambda: admit(self._tools.get(tool))
        by_list: ListName | None = "tools" if isinstance(admit, Admission) and admit.by_listing else None
        answer = await self._send("tools/call", params, options, user, decide, by_list)
        outcome = read_outcome(answer.result, self._output_check(tool))
        if answer.text is None or outcome.result is not answer.result:
            return outcome
        return ToolOutcome(outcome.result, outcome.notes, answer.text)

    async def request(
        self, method: str, params: JsonObject, *, user: CallUser | None = None, **options: Unpack[RequestOptions]
    ) -> JsonObject:
        """Send a request with one of the methods in `REQUESTS`, within the default timeout.

        Raises as `call_tool`, and `ValueError` for any other method.
        """
        if method not in REQUESTS:
            raise ValueError(f"{method!r} is not one of {', '.join(sorted(REQUESTS))}")
        admit_view = options.get("admit_view")
        decide = None if admit_view is None else lambda: admit_view(self._view)
        by_list = None if admit_view is None else _list_about(method, params)
        result = None
        if self.answers and self._serves(user):
            on_cached, on_hint = options.get("on_cached"), options.get("on_hint")
            result = await self.stored_answer(method, params, by_list, decide, on_cached, on_hint)
        if result is None:
            result = (await self._send(method, params, cast("CallOptions", options), user, decide, by_list)).result
            hint, on_hint = read_hint(result), options.get("on_hint")
            if on_hint is not None and hint.ttl_ms and self._view.era == "modern":
                on_hint(hint.ttl_ms, hint.is_private)
            if admit_view is not None:
                self._compare_list(method, result)
        if is_task(result):
            message = f"server {self.name!r} answered {method} with a task, which is valid only for tools/call"
            raise UpstreamCallError(self.name, message, dispatched=True)
        return without_client_fields(result)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        options: CallOptions,
        user: CallUser | None,
        decide: Callable[[], None] | None,
        by_list: ListName | None,
    ) -> Answer:
        """Send a request until the server gives its result.

        If the server has refused the request because it has lost the session, the request is repeated once.

        Args:
            decide: called right before the request is sent. If it raises, the request is not sent.
            by_list: the list on which the decision depends.
        """
        begin, task = options.get("begin"), options.get("task")
        on_progress, on_sent = options.get("on_progress"), options.get("on_sent")
        timeout = options.get("timeout")
        asked_for_task = False
        lost: SessionLost | None = None
        last = Answer({}, None)
        # One scope for waiting and calling. When it ends a request, the server is told.
        call = Call(self.calls.clock(), self.spec.timeout if timeout is None else timeout, user)
        questions = CallQuestions(self.name, _subject(method, params), options.get("asking"), call.scope)
        self._observe_roots(questions, user)

        async def send(params: Mapping[str, Any]) -> JsonObject:
            nonlocal asked_for_task, begin, last, lost
            while True:
                try:
                    async with self.admitted(questions) as link:
                        # The process may have been bound to other clients during the wait.
                        if not (call.sent or self._serves(user)):
                            raise Misdirected
                        if begin is not None:  # only before the first round of a call with questions
                            once, begin = begin, None
                            await once()
                        if by_list is not None:
                            # A resource can be read if the templates are unknown.
                            await self._wait_listed(by_list, link, is_required=method != "resources/read")
                        # From here on nothing is awaited until the request is sent.
                        if decide is not None:
                            decide()
                        asked_for_task = method == "tools/call" and self._asks_for_task(params["name"], link)
                        sent = {**params, "task": {}} if asked_for_task else params
                        if on_sent is not None:
                            on_sent()
                        call.sent = True
                        store = self.storing(method, params) if link.modern and method != "tools/call" else None
                        last = await link.exchange(method, sent, on_progress, questions)
                        if store is not None and not is_unfinished(last.result):
                            store(last.result)
                        return last.result
                except SessionLost as error:
                    if lost is not None:
                        raise lost_again(questions.subject, error) from error
                    lost, call.sent = error, False

        self.calls.add(call)
        try:
            with call.scope:
                if task is not None and task.known:
                    known = await self._task_of(call, questions, options).follow_known(task.known)
                    return Answer(dict(known), None)
                raw = await send_until_result(send, params, questions)
                created: object = raw.get("task") if asked_for_task else raw if is_task(raw) else None
                if method != "tools/call" or not isinstance(created, dict):
                    return last
                following = self._task_of(call, questions, options)
                return Answer(dict(await following.follow_created(created, modern=not asked_for_task)), None)
            raise self._why_ended(call, questions)
        except UpstreamUnavailable as error:
            if lost is None:
                raise
            # The first request was sent, and the server has not handled it.
            raise UpstreamCallError(self.name, error.message, dispatched=False) from error
        finally:
            self.calls.discard(call)

    def admitted(self, questions: CallQuestions, *, keeps_place: bool = True) -> _Admitted:
        """Wait for a connection, a place and a turn. Keep them for the duration of the context.

        Args:
            keeps_place: False for a short request whose place is not given back while a question is open.
        """
        return _Admitted(self, questions, keeps_place=keeps_place)

    async def admit(self, questions: CallQuestions) -> Slot:
        """Wait for a connection and a place. The caller ends the place."""
        asking = questions.asking

        def report_wait() -> None:
            questions.queued(f"waits for server {self.name!r}, which has {self._limiter.limit} other calls in flight")

        # Before the call takes a place, so that calls which wait for a connection do not hold places.
        if self._view.state == "ready":
            await self.connected()
        else:
            questions.queued(f"waits for server {self.name!r}, which is starting")
            with questions.starting():
                await self.connected()
        share, run = ("", "") if asking is None else (asking.share or asking.owner, asking.run)
        return await self._limiter.admit(share, run, report_wait)

    def _asks_for_task(self, tool: str, link: LiveConnection) -> bool:
        """Return True if a call has to ask for a task (MCP 2025-11-25)."""
        if not link.has_task_calls:
            return False
        known = self._tools.get(tool)
        return known is not None and known.needs_task

    def _task_of(self, call: Call, questions: CallQuestions, options: CallOptions) -> TaskOfCall:
        from upstream_clients.tasks import TaskOfCall  # few servers have tasks

        return TaskOfCall(self, call, questions, options)

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        link = self._link
        if link is not None and link.alive:
            await link.cancel_task(params)

    # Resources.

    async def list_resources(self) -> ResourceListing:
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

    def _store(self, pending: resource_state.PendingAnswer, result: JsonObject) -> None:
        self.answers.end(pending, result, self.clock(), self.login_stamp())

    def _find_answer(self, method: str, params: JsonObject) -> resource_state.StoredAnswer | None:
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
        self.answers.drop_resource(uri)
        self.subscriptions.report_update(uri)

    # Log messages.

    def hears(self, client: str | None) -> bool:
        return self._clients is None or self._clients.hears(client)

    def log_level(self, owner: str | None) -> LogLevel | None:
        """Return the level of log messages that is wanted for calls of an owner; None if none is wanted."""
        return self.log_listeners.level(owner, self.hears)

    def report_log_message(self, params: Mapping[str, Any], owner: str | None) -> None:
        """Note a log message of the server. `owner`: the owner of the call that it is about, if that is known."""
        self.log.add_message(params)
        self.log_listeners.report(params, owner, self.hears)

    def _serves(self, user: CallUser | None) -> bool:
        return user is None or self._clients is None or self._clients.serves(user.client)

    def _observe_roots(self, questions: CallQuestions, user: CallUser | None) -> None:
        if self._clients is None or user is None:
            return
        questions.names_roots = partial(self._clients.names_roots, user.client)
        if user.client is not None:
            questions.on_roots = partial(self._clients.note_roots, user.client)

    def _why_ended(self, call: Call, questions: CallQuestions) -> UpstreamClientError:
        subject, limit = questions.subject, call.limit or 0.0
        if call.rejected is None and call.sent:
            self.calls.note_timeout()
            message = f"server {self.name!r}: {subject} timed out after {limit:g} s"
            return UpstreamCallError(self.name, message, dispatched=True)
        if call.sent:
            message = f"{call.rejected}; it is unknown whether the server acted on {subject}"
            return UpstreamCallError(self.name, message, dispatched=True)
        if call.rejected is not None:
            return UpstreamUnavailable(self.name, f"{call.rejected}; nothing was sent")
        busy = self._view.state == "ready"
        reason = f"had {self._limiter.limit} other calls in flight" if busy else "was still connecting"
        if questions.waiting:
            reason = "was still busy with calls of other programs, which must not overlap with this one,"
        return UpstreamUnavailable(self.name, f"server {self.name!r} {reason} after {limit:g} s; nothing was sent")


class _Admitted:
    """The wait of a call for a connection, a place and a turn, which it has for the duration of the context."""

    __slots__ = ("_keeps_place", "_link", "_place", "_questions", "_upstream")

    def __init__(self, upstream: Upstream, questions: CallQuestions, *, keeps_place: bool) -> None:
        self._upstream = upstream
        self._questions = questions
        self._keeps_place = keeps_place

    async def __aenter__(self) -> LiveConnection:
        self._place = place = await self._upstream.admit(self._questions)
        try:
            self._link = await self._upstream.connected()  # may be a new connection after the wait for a place
            await self._link.enter(self._questions)
        except BaseException:
            place.end()
            raise
        if self._keeps_place:
            self._questions.place = place
        return self._link

    async def __aexit__(self, *_: object) -> None:
        self._link.leave(self._questions)
        self._place.end()


def _list_about(method: str, params: Mapping[str, Any]) -> ListName | None:
    match method, params.get("ref"):
        case ("prompts/list" | "prompts/get", _) | ("completion/complete", {"type": "ref/prompt"}):
            return "prompts"
        case ("resources/templates/list" | "resources/read" | "completion/complete", _):
            return "templates"
    return None


def _subject(method: str, params: Mapping[str, Any]) -> str:
    """Return the target of a request in words: `tool 'create_issue'`."""
    name = params.get("name") or params.get("uri")
    kind = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}.get(method, method)
    return f"{kind} {name!r}" if isinstance(name, str) else kind
