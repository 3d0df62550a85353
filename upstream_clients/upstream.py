"""One upstream as its callers see it: a view, and calls that wait for, or fail without, a connection.

Knows no transport and no MCP SDK. The task that owns the connection (`connection.Connection`) reports through
`remembered`, `idle`, `connecting`, `ready`, `listed`, `down` and `stopped`; every other task only looks and calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio

from upstream_clients.call import Call, Link
from upstream_clients.direct import Answer
from upstream_clients.errors import UpstreamCallError, UpstreamClientError, UpstreamUnavailable
from upstream_clients.fair_limiter import FairLimiter
from upstream_clients.questions import CallQuestions, UrlElicitationRequired, converse
from upstream_clients.results import OutputCheck, needs_input, read_outcome, without_plumbing
from upstream_clients.schemas import compile_check
from upstream_clients.tools import (
    Admission,
    AdmitFn,
    Asking,
    BeginFn,
    CallEnd,
    JsonObject,
    ProgressFn,
    SentCall,
    SentFn,
    Tool,
    ToolOutcome,
    Unfinished,
    UpstreamView,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.spec import UpstreamSpec

logger = logging.getLogger(__name__)

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


class _ExecutedCall(Call):
    """A call that a task carries, inside a scope."""

    def __init__(self, since: float, limit: float | None) -> None:
        super().__init__(since, limit)
        self.scope = anyio.CancelScope()

    def stop(self) -> None:
        self.scope.cancel()


class _DirectCall(Call):
    """A call without a task; a timer of the event loop ends it when its time is over. Satisfies `tools.SentCall`.

    Args:
        on_end: takes the answer, or the error; None where it was stopped.
    """

    def __init__(
        self, since: float, limit: float | None, on_end: Callable[[Answer | UpstreamCallError | None], None]
    ) -> None:
        super().__init__(since, limit)
        self.give_up: Callable[[], None] | None = None
        """Gives the request up, while there is no answer."""
        self._on_end: Callable[[Answer | UpstreamCallError | None], None] | None = on_end
        self._on_leave: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf

    @property
    def deadline(self) -> float:
        """Seconds on the clock of the event loop."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline != math.inf and self._on_end is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self.stop)

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Call `leave` once, when the call has ended in whatever way."""
        self._on_leave = leave

    def stop(self) -> None:
        self._end(None)

    def answered(self, answer: Answer | UpstreamCallError) -> None:
        """Take the answer."""
        self.give_up = None
        self._end(answer)

    def cancel(self) -> None:
        """Give the call up and tell the server. Its end is not told any more."""
        if self._on_end is not None:
            self._on_end = _ignore
            self._end(None)

    def _end(self, answer: Answer | UpstreamCallError | None) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        self.deadline = math.inf
        if self.give_up is not None:
            self.give_up()
        self._on_leave()
        on_end(answer)


def _ignore(_: object) -> None:
    return


class Upstream:
    """Satisfies `tools.ToolSource`."""

    def __init__(
        self,
        spec: UpstreamSpec,
        on_change: Callable[[], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`, in seconds, is for the ages of calls only."""
        self.spec = spec
        self.settled = anyio.Event()
        """Set once there are tools to show, or the first attempt has ended without."""
        self.wanted = anyio.Event()
        """Set by a call to a server that is idle or down; the owner then tries to connect immediately."""
        self.stirred = anyio.Event()
        """Set when a call begins, ends or times out; the owner puts in a new one before it looks."""
        self.clock = clock
        self.calls: set[Call] = set()
        """Calls in flight, waiting ones included."""
        self.suspected: set[Call] | None = None
        """A call has timed out, and these were with the server then. The owner takes it away when it looks."""
        self.last_used = clock()
        """Time at which the last call began or ended."""
        self.announced = 0
        """Announcements of changed tools so far."""
        self.held = anyio.Event()
        """Set when a call waits for a listing; the owner puts in a new one before it lists."""
        self._on_change = on_change
        self._limiter = FairLimiter(spec.max_concurrent_calls)
        # The mutable state. Changed by the owner task only.
        self._view = UpstreamView(spec.name, "connecting", description=spec.description)
        self._link: Link | None = None
        self._changed = anyio.Event()
        self._tools: dict[str, Tool] = {}
        self._followed = 0
        """Announcements up to the beginning of the latest listing."""
        self._output_checks: dict[str, OutputCheck | None] = {}

    @property
    def name(self) -> str:
        return self.spec.name

    def view(self) -> UpstreamView:
        return self._view

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}: {self._view.state}, {len(self._view.tools)} tools>"

    # What callers do.

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        """Call one tool; waits for a connection that is being made, within the same `timeout` (seconds).

        Raises, besides what `begin` and `admit` do:
            UpstreamUnavailable: the server is down or did not come up in time; nothing was sent.
            UpstreamCallError: the tool did not answer.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        raw = await self._send("tools/call", params, on_progress, timeout, asking, on_sent, begin, admit)
        return read_outcome(raw, self._output_check(tool))

    def try_call(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_end: Callable[[CallEnd], None],
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
    ) -> SentCall | None:
        """Send one call without waiting; None where anything has to be awaited first. See `tools.DirectSource`."""
        link = self._link
        if link is None or self._view.state != "ready" or not link.alive or not link.is_direct:
            return None
        if isinstance(admit, Admission) and admit.by_annotations and self._followed < self.announced:
            return None
        limit = self.spec.timeout if timeout is None else timeout
        params = {"name": tool, "arguments": arguments}

        def ended(answer: Answer | UpstreamCallError | None) -> None:
            again = partial(self._rest_of, tool, params, on_progress, asking, on_sent, admit)
            on_end(self._end_of(tool, call, questions, answer, again))

        call = _DirectCall(self.clock(), limit, ended)
        questions = CallQuestions(self.name, _subject("tools/call", params), asking, call)
        place = self._limiter.try_admit("" if asking is None else asking.owner)
        if place is None:
            return None
        questions.place = place
        if not link.try_turn(questions):
            place.end()
            return None

        def leave() -> None:
            link.leave(questions)
            place.end()
            self.calls.discard(call)
            self._stir()

        self.calls.add(call)
        call.on_leave(leave)
        try:
            if admit is not None and not (isinstance(admit, Admission) and admit.is_settled):
                admit(self._tools.get(tool))
            call.give_up = link.try_send("tools/call", params, call.answered, on_progress, questions)
            if call.give_up is not None and on_sent is not None:
                # Nothing is written before the next round of the event loop.
                on_sent()
        except BaseException:
            call.cancel()
            raise
        if call.give_up is None:
            call.cancel()
            return None
        call.sent = True
        self._stir()
        if limit is not None:
            call.deadline = asyncio.get_running_loop().time() + limit
        return call

    def _end_of(
        self,
        tool: str,
        call: _DirectCall,
        questions: CallQuestions,
        answer: Answer | UpstreamCallError | None,
        again: Callable[[float | None, JsonObject | UrlElicitationRequired], Awaitable[ToolOutcome]],
    ) -> CallEnd:
        if answer is None:
            return self._why_ended(call, questions)
        if isinstance(answer, UrlElicitationRequired) or (isinstance(answer, Answer) and needs_input(answer.result)):
            left = None if call.limit is None else call.limit - (self.clock() - call.since)
            first = answer.result if isinstance(answer, Answer) else answer
            return Unfinished(partial(again, left, first))
        if isinstance(answer, UpstreamCallError):
            return answer
        try:
            outcome = read_outcome(answer.result, self._output_check(tool))
        except Exception as error:
            return error
        if answer.text is None or outcome.result is not answer.result:
            return outcome
        return ToolOutcome(outcome.result, outcome.notes, answer.text)

    async def _rest_of(
        self,
        tool: str,
        params: Mapping[str, Any],
        on_progress: ProgressFn | None,
        asking: Asking | None,
        on_sent: SentFn | None,
        admit: AdmitFn | None,
        limit: float | None,
        first: JsonObject | UrlElicitationRequired,
    ) -> ToolOutcome:
        """Finish a call whose first answer is no result yet, within `limit` seconds."""
        raw = await self._send("tools/call", params, on_progress, limit, asking, on_sent, None, admit, first)
        return read_outcome(raw, self._output_check(tool))

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        begin: BeginFn | None = None,
    ) -> JsonObject:
        """Return one of `REQUESTS`, within the default timeout. Raises as `call_tool`, and `ValueError` for other
        methods."""
        if method not in REQUESTS:
            raise ValueError(f"{method!r} is none of {', '.join(sorted(REQUESTS))}")
        raw = await self._send(method, params, None, None, asking, on_sent, begin)
        return without_plumbing(raw)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_progress: ProgressFn | None,
        timeout: float | None,
        asking: Asking | None,
        on_sent: SentFn | None,
        begin: BeginFn | None,
        admit: AdmitFn | None = None,
        first: JsonObject | UrlElicitationRequired | None = None,
    ) -> JsonObject:
        """`first`: the answer that the call was given already."""
        limit = self.spec.timeout if timeout is None else timeout
        call = _ExecutedCall(self.clock(), limit)
        questions = CallQuestions(self.name, _subject(method, params), asking, call.scope)

        def told() -> None:
            questions.queued(f"waits for server {self.name!r}, which has {self._limiter.limit} other calls in flight")

        async def send(params: Mapping[str, Any]) -> JsonObject:
            nonlocal begin, first
            if first is not None:
                answer, first, call.sent = first, None, True
                if isinstance(answer, UrlElicitationRequired):
                    raise answer
                return answer
            if self._view.state != "ready":
                questions.queued(f"waits for server {self.name!r}, which is starting")
            await self._connected()
            owner, run = ("", "") if asking is None else (asking.owner, asking.run)
            async with self._limiter.admitted(owner, run, told) as place:
                link = await self._connected()
                async with link.turn(questions):
                    questions.place = place
                    if begin is not None:
                        once, begin = begin, None
                        await once()
                    if isinstance(admit, Admission) and admit.by_annotations:
                        await self._listed_again(link)
                    # From here on nothing is awaited until the request is on its way.
                    if admit is not None:
                        # There is a connection, so these tools are of its own listing, and none that was remembered.
                        admit(self._tools.get(params["name"]))
                    if on_sent is not None:
                        on_sent()
                    call.sent = True
                    return await link.send(method, params, on_progress, questions)

        self.calls.add(call)
        self._stir()
        try:
            # One scope for waiting and calling. When it ends a request, the dispatcher tells the server.
            call.scope.deadline = math.inf if limit is None else anyio.current_time() + limit
            with call.scope:
                return await converse(send, params, questions)
        finally:
            self.calls.discard(call)
            self._stir()
        raise self._why_ended(call, questions)

    def _why_ended(self, call: Call, questions: CallQuestions) -> UpstreamClientError:
        """Return why a call has ended without an answer."""
        subject, limit = questions.subject, call.limit or 0.0
        if call.rejected is None and call.sent:
            if self.suspected is None:
                self.suspected = self.sent()
            return UpstreamCallError(
                self.name, f"server {self.name!r}: {subject} timed out after {limit:g} s", dispatched=True
            )
        if call.sent:
            message = f"{call.rejected}; whether it acted on {subject} is unknown"
            return UpstreamCallError(self.name, message, dispatched=True)
        if call.rejected is not None:
            return UpstreamUnavailable(self.name, f"{call.rejected}; nothing was sent")
        busy = self._view.state == "ready"
        what = f"had {self._limiter.limit} other calls in flight" if busy else "was still connecting"
        if questions.waiting:
            what = "asks without saying for which call, so other runs' calls came first, and still did"
        return UpstreamUnavailable(self.name, f"server {self.name!r} {what} after {limit:g} s; nothing was sent")

    def sent(self) -> set[Call]:
        """Return the calls that are with the server."""
        return {call for call in self.calls if call.sent}

    def _stir(self) -> None:
        self.last_used = self.clock()
        self.stirred.set()

    async def _connected(self) -> Link:
        while True:
            link = self._link
            if link is not None and link.alive:
                return link
            # A link that has just died leaves the state at `ready` until the owner has noticed; wait for that.
            if self._view.state in ("down", "stopped"):
                self.wanted.set()
                raise UpstreamUnavailable(self.name, self._view.error or f"server {self.name!r} is closed")
            if self._view.state == "idle":
                self.wanted.set()
            await self._changed.wait()

    async def _listed_again(self, link: Link) -> None:
        """Wait until the server was listed again after its latest announcement, or that has failed.

        What a tool was before the announcement says nothing about what it does now.
        """
        latest = self.announced
        while self._followed < latest:
            if link.alive:
                self.held.set()
                await self._changed.wait()
                continue
            why = f"server {self.name!r} closed the connection before the call; nothing was sent, repeat the call"
            raise UpstreamCallError(self.name, why, dispatched=False)

    async def attempted(self) -> None:
        """Have an idle server connected; return when it is, or when the attempt has failed."""
        while self._view.state in ("idle", "connecting"):
            self.wanted.set()
            await self._changed.wait()

    def _output_check(self, tool: str) -> OutputCheck | None:
        if tool not in self._output_checks:
            known = self._tools.get(tool)
            schema = None if known is None else known.output_schema
            self._output_checks[tool] = None if schema is None else compile_check(schema)
        return self._output_checks[tool]

    # What the owner task reports.

    def remembered(self, view: UpstreamView) -> None:
        """Show what was listed by an earlier process, before the first attempt. The state stays."""
        self._adopt(view.tools)
        self._show(replace(view, name=self.name, state=self._view.state, description=self.spec.description))
        self.settled.set()

    def idle(self) -> None:
        """Note that there is no connection, and that none is made until the next call."""
        self._link = None
        self.wanted = anyio.Event()
        self._show(replace(self._view, state="idle", error=None))

    def reject(self, why: str) -> None:
        """End all calls in flight immediately, each with what is known."""
        for call in tuple(self.calls):
            call.rejected = why
            call.stop()

    def connecting(self) -> None:
        """Note the begin of an attempt that is worth waiting for."""
        self._link = None
        self._show(replace(self._view, state="connecting", error=None, login_required=False))

    def ready(
        self,
        link: Link,
        *,
        era: Literal["modern", "legacy"],
        protocol_version: str,
        server_version: str | None,
        instructions: str | None,
        resources: bool,
        prompts: bool,
        completions: bool,
        tools: tuple[Tool, ...],
        problems: tuple[str, ...],
    ) -> None:
        """Note a connection that serves calls from now on."""
        self._link = link
        self._followed = self.announced
        self.suspected = None
        self.last_used = self.clock()
        self._adopt(tools)
        self._show(
            replace(
                self._view,
                state="ready",
                login_required=False,
                error=None,
                era=era,
                protocol_version=protocol_version,
                server_version=server_version,
                instructions=instructions,
                resources=resources,
                prompts=prompts,
                completions=completions,
                tools=tools,
                problems=problems,
            )
        )

    def listed(self, tools: tuple[Tool, ...], problems: tuple[str, ...]) -> None:
        """Note that the server's tools have changed."""
        self._adopt(tools)
        self._show(replace(self._view, tools=tools, problems=problems))

    def followed(self, announced: int) -> None:
        """Note the end of a listing that began after so many announcements, well or not."""
        self._followed = announced
        self._changed.set()
        self._changed = anyio.Event()

    def down(self, error: str, *, login_required: bool = False) -> None:
        """Note that there is no connection: the last attempt failed, perhaps for want of a login."""
        self._link = None
        self.wanted = anyio.Event()
        self._show(replace(self._view, state="down", error=error, login_required=login_required))

    def stopped(self, why: str | None = None) -> None:
        """Note that there is no connection, and that none will be made. The first `why` stays."""
        self._link = None
        if self._view.state != "stopped":
            self._show(replace(self._view, state="stopped", error=why or f"server {self.name!r} is closed"))

    def _adopt(self, tools: tuple[Tool, ...]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._output_checks.clear()

    def _show(self, view: UpstreamView) -> None:
        changed = view != self._view
        self._view = view
        if view.state != "connecting":
            self.settled.set()
        # Woken even when the view is the same: a waiter may have seen a dead link under it.
        self._changed.set()
        self._changed = anyio.Event()
        if changed and self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                logger.exception("the observer of server %r failed", self.name)


def _subject(method: str, params: Mapping[str, Any]) -> str:
    """Return what was asked for, in words: `tool 'create_issue'`."""
    name = params.get("name") or params.get("uri")
    what = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}.get(method, method)
    return f"{what} {name!r}" if isinstance(name, str) else what
