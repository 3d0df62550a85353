"""Questions that a legacy server sends as requests of its own. Each is assigned to the call that it belongs to.

Over streamable HTTP such a request comes on the stream of its call, so the call is known. Otherwise (stdio, HTTP+SSE, a
stream that belongs to no call) the request names no call, and these rules hold:

- If all calls in flight belong to one run, the question belongs to this run.
- If calls of several runs are in flight, no person is asked. The server gets an error. From then on, calls of different
  runs take turns on this connection, first come first served, so that the next question can be assigned.
- If no call is in flight, no person is asked. `roots/list` gets the roots of the only client, if there is exactly one.
  A client that can be asked only during its calls is asked in its next one: before that call is sent, the server hears
  that the roots have changed, and asks again.
- A call that was cancelled or timed out counts as one in flight for another `ABANDONED_SECONDS`, unless the server
  answers it. The server may not have noticed the cancellation, and may still ask.

Taking turns never delays a call for long. A caller is an owner, or one of several clients of an owner:

- A call delays the calls of other callers only until it has been in flight for `TURN_SECONDS`. Then all of these are
  sent out of turn, however many wait. Questions that the server asks while calls of several runs are in flight are
  refused, so none reaches the wrong client.
- A call that waits only behind other runs of its own caller is sent after `SAME_CALLER_SECONDS`.
- An open question that no client of its run can answer is refused as soon as a call of another run waits.
- A question that a client can answer stays open. It belongs to the run that was the only one when the question came.
  Until the answer, the call gives back its place among `max_concurrent_calls`.

A connection takes turns only after the first question that could not be assigned, and then until its end. Most servers
never ask, and their calls overlap freely.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from upstream_clients.errors import QuestionRefused
from upstream_clients.questions import CallQuestions, check_question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from upstream_clients.tools import JsonObject, RootsFn

ABANDONED_SECONDS = 30.0
"""Seconds for which a server may still work on a call that was given up."""

TURN_SECONDS = 0.8
"""Seconds for which a call delays calls of another caller."""

SAME_CALLER_SECONDS = 60.0
"""Seconds for which a call waits behind other runs of its own caller."""

RENEWAL_SECONDS = 1.0
"""Seconds that a call waits for the server to ask for roots again. Some servers never do."""

_MAX_COMPLETED = 1_000
"""Elicitation ids that are remembered as complete. A server may report any number of them."""

_REMEDIES: dict[str, str] = {
    "elicitation/create": "Pass everything that the tool needs as arguments, or connect a client that supports "
    "elicitation and call the tool again",
    "sampling/createMessage": "Connect a client that supports sampling and call the tool again, or use another tool",
    "roots/list": "Connect a client that supports roots and call the tool again, or use another tool",
}
"""Next steps for questions that the client cannot answer, by method."""


class _OpenQuestion(Struct, eq=False):
    """One question that waits for its answer.

    Attributes:
        calls: the calls in flight that the question may belong to.
        is_hopeless: returns True if no client of the calls' run can answer the question, as far as is known now.
    """

    calls: list[CallQuestions]
    is_hopeless: Callable[[], bool]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class _Renewal:
    """A request of ours that the server asks for roots again."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.answered = anyio.Event()


class _WaitingCall(Struct, eq=False):
    call: CallQuestions
    admitted: anyio.Event = field(default_factory=anyio.Event)


class ConnectionQuestions:
    """The calls in flight on one connection to a legacy server, and the server's questions there."""

    def __init__(self, *, roots: RootsFn | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`roots` answers `roots/list` while no call is in flight. `clock` is in seconds."""
        self._roots = roots
        self._clock = clock
        # The mutable state.
        self._calls: list[CallQuestions] = []
        """The calls in flight, oldest first."""
        self._abandoned: dict[object, tuple[str | None, float]] = {}
        """The run and the end of calls that were given up, by the id of the request."""
        self._open: list[_OpenQuestion] = []
        self._take_turns = False
        """True once a question could not be assigned. From then on, calls of different runs take turns."""
        self._queue: deque[_WaitingCall] = deque()
        self._asked_no_client = False
        """True if the server has last asked for roots while no call was in flight."""
        self._renewal: _Renewal | None = None
        self._completed: dict[str, None] = {}
        self._completion = anyio.Event()
        self._closed = False

    async def enter(self, call: CallQuestions) -> None:
        """Count `call` as in flight, until `leave`. Wait if calls of different runs take turns."""
        # Not past waiting calls, even if this one could overlap: a busy run would keep the others waiting.
        if not self._take_turns or (not self._queue and self._may_overlap(call)):
            self._add(call)
            return
        waiting = _WaitingCall(call)
        self._queue.append(waiting)
        call.waiting = True
        self._refuse_hopeless()
        try:
            await self._wait_for_turn(waiting)
        except BaseException:
            if waiting.admitted.is_set():  # its turn came when it was cancelled
                self.leave(call)
            else:
                # It may have been the first in the queue, and the next one may overlap with the calls in flight.
                self._queue.remove(waiting)
                self._admit()
            raise
        call.waiting = False

    async def _wait_for_turn(self, waiting: _WaitingCall) -> None:
        call, began = waiting.call, anyio.current_time()
        # Calls in flight may change during each wait, so the reason and the end of the turn are computed again.
        while not waiting.admitted.is_set():
            asked = any(each.run != call.run for question in self._open for each in question.calls)
            call.queued(
                f"waits behind a question that server {call.server!r} asked another program"
                if asked
                else f"waits for its turn: server {call.server!r} works on a call of another program"
            )
            with anyio.CancelScope(deadline=self._end_of_turn(waiting)):
                await waiting.admitted.wait()
            if not waiting.admitted.is_set() and (
                self._waits_for_another_caller(waiting) or anyio.current_time() >= began + SAME_CALLER_SECONDS
            ):
                self._queue.remove(waiting)
                self._admit_call(waiting)
                self._admit()

    def _end_of_turn(self, waiting: _WaitingCall) -> float:
        # The oldest call of another caller decides. If each call had its own turn, a flood of short calls could delay
        # others without end.
        others = [each.sent_at for each in self._calls if each.caller != waiting.call.caller]
        return TURN_SECONDS + min([anyio.current_time(), *others])

    def _waits_for_another_caller(self, waiting: _WaitingCall) -> bool:
        ahead = (each.call for each in itertools.takewhile(lambda each: each is not waiting, self._queue))
        return any(each.caller != waiting.call.caller for each in (*self._calls, *ahead))

    def _admit_call(self, waiting: _WaitingCall) -> None:
        # Added before the waiter runs, so that a later call sees it in flight.
        self._add(waiting.call)
        waiting.admitted.set()

    def _add(self, call: CallQuestions) -> None:
        call.sent_at = asyncio.get_running_loop().time()
        self._calls.append(call)

    def leave(self, call: CallQuestions) -> None:
        """Note the end of a call. Questions that can belong to no other call end too."""
        self._calls.remove(call)
        if call.request_id is not None:  # the server has not answered it
            self._abandoned[call.request_id] = (call.run, self._clock())
        for question in self._open:
            if call in question.calls:
                question.calls.remove(call)
                if not question.calls:
                    question.scope.cancel()
        self._admit()

    async def answer(self, method: str, params: JsonObject, asker: CallQuestions | None) -> JsonObject:
        """Answer a question of the server. Cancelling the caller withdraws the question.

        Args:
            asker: the call on whose own stream the question came; None if the transport cannot tell.

        Raises:
            QuestionRefused: the question gets no answer.
        """
        calls = self._calls_of(asker)
        if method == "roots/list":
            self._asked_no_client = not calls
        if not calls:
            if method == "roots/list":
                return {"roots": []} if self._roots is None else await self._roots()
            raise QuestionRefused(f"{method} is answered only while a call is in flight, and none is")
        check_question(method, params)
        # All calls of one run ask the same person. The question counts for the oldest call that may still ask one.
        call = next((each for each in calls if each.may_ask), calls[0])
        call.count(1)
        question = _OpenQuestion(list(calls), lambda: not any(each.can_answer(method, params) for each in calls))
        self._open.append(question)
        self._refuse_hopeless()
        renewal = self._renewal if method == "roots/list" else None
        if renewal is not None:
            renewal.asked.set()
        try:
            with question.scope, ExitStack() as stopped:
                # The question may belong to any of the calls, so none of them may time out meanwhile.
                for each in calls:
                    stopped.enter_context(each.clock_stopped())
                return await call.ask(method, params)
        finally:
            self._open.remove(question)
            if renewal is not None:
                renewal.answered.set()
        # The scope was cancelled: by `_refuse_hopeless`, or by `leave` when the last of the calls had ended.
        if question.calls:
            raise QuestionRefused(
                f"server {call.server!r} asks with {method}, which this client cannot answer, and calls of other "
                f"programs wait for the server. {_REMEDIES[method]}"
            )
        raise QuestionRefused("the call that this question belongs to has ended")

    def lacks_roots(self, call: CallQuestions) -> bool:
        """Return True if the server has not got the roots that the client of a call names only during its calls."""
        return self._asked_no_client and call.names_roots() and call.can_answer("roots/list", {})

    async def renew_roots(self, report_change: Callable[[], Awaitable[None]]) -> None:
        """Have the server ask for roots again, for the call that has entered, and wait until it has the answer.

        Args:
            report_change: sends `notifications/roots/list_changed`.
        """
        self._asked_no_client, self._renewal = False, _Renewal()
        await report_change()
        with anyio.move_on_after(RENEWAL_SECONDS):
            await self._renewal.asked.wait()
        if self._renewal.asked.is_set():
            await self._renewal.answered.wait()

    def answered(self, request_id: object) -> None:
        """Note that the server has answered a request, even if it was given up."""
        self._abandoned.pop(request_id, None)

    def complete(self, elicitation: object) -> None:
        """Note that the user has finished at the URL of an elicitation, as the server reports."""
        if isinstance(elicitation, str):
            self._completed[elicitation] = None
            if len(self._completed) > _MAX_COMPLETED:
                del self._completed[next(iter(self._completed))]
            self._wake()

    async def wait_completed(self, elicitations: Sequence[str]) -> None:
        """Return when all these elicitations are complete, or the connection has ended."""
        while not self._closed and any(each not in self._completed for each in elicitations):
            await self._completion.wait()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _calls_of(self, asker: CallQuestions | None) -> list[CallQuestions]:
        """Return the calls in flight that a question may belong to. Raises `QuestionRefused` if their runs differ."""
        if asker is not None:
            return [asker] if asker in self._calls else []  # the call may have ended meanwhile
        runs = {call.run for call in self._calls}
        if not runs:
            return []
        if len(runs) == 1:
            since = self._clock() - ABANDONED_SECONDS
            self._abandoned = {key: each for key, each in self._abandoned.items() if each[1] > since}
            # A call of another run that was given up may be the one that asks.
            if all(run in runs for run, _ in self._abandoned.values()):
                return list(self._calls)
            raise QuestionRefused(
                "no person was asked: the question does not name its call, and it may belong to a call of another user "
                f"or program that was given up shortly before; repeat this after {ABANDONED_SECONDS:g} s"
            )
        self._take_turns = True
        raise QuestionRefused(
            "no person was asked: the question does not name its call, and calls of different users or programs are in "
            "flight on this connection; from now on they are sent one after another where possible; repeat this call"
        )

    def _may_overlap(self, call: CallQuestions) -> bool:
        return all(each.run == call.run for each in self._calls)

    def _admit(self) -> None:
        """Admit waiting calls from the front of the queue. None is overtaken, so each gets its turn."""
        while self._queue and self._may_overlap(self._queue[0].call):
            self._admit_call(self._queue.popleft())

    def _refuse_hopeless(self) -> None:
        for question in self._open:
            runs = {call.run for call in question.calls}
            if any(waiting.call.run not in runs for waiting in self._queue) and question.is_hopeless():
                question.scope.cancel()

    def _wake(self) -> None:
        self._completion.set()
        self._completion = anyio.Event()
