"""Questions of a server during a call: the call that each belongs to, the allowed ones, and the call's clock meanwhile.

Three ways lead here. A modern server answers a call with what it needs, and `converse` sends the call again with the
answers. A legacy server sends a request of its own, which `ConnectionQuestions.answer` gives to the call it belongs to.
A server of 2025-11-25 fails a call until its user has been to some URL; `converse` repeats it then.

The request of a legacy server names no call. Over streamable HTTP it comes on the stream of its call, so the call is
known. Otherwise (stdio, HTTP+SSE, a stream of the server's own) this rule holds: when all calls in flight belong to one
run, so does the question. When calls of several runs are in flight, no person is asked; the server gets an error, and
from then on calls of different runs take turns on this connection, first come first served, so that it works the next
time. When none is in flight, roots are those of the only client, if any, and no person is asked. A call that was
cancelled or timed out counts as one in flight for another `ABANDONED` seconds, unless the server answers it after all:
servers may not notice, and ask.

Taking turns never holds up a call for long:

- A call of another owner holds up others until it has been in flight for `TURN` seconds, however many calls wait, one
  after another. Then they are sent out of turn. Questions that the server asks while calls of several runs are in
  flight are refused, so none reaches the wrong client.
- A call that waits only behind other runs of its own owner is sent after `PATIENCE` seconds.
- An open question that no client of its run can answer is refused as soon as a call of another run waits.
- A question that a client can answer stays open. It belongs to the run that was alone when it came. Its call gives back
  its place of `max_concurrent_calls` until the answer is there.

Knows no MCP SDK.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, get_args

import anyio

from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.results import needs_input, read_input_required
from upstream_clients.tools import Asking, JsonObject, Question, QuestionMethod, RootsFn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from upstream_clients.fair_limiter import Slot

logger = logging.getLogger(__name__)

METHODS: frozenset[str] = frozenset(get_args(QuestionMethod))

MAX_QUESTIONS = 100
"""Questions of one call. A form with a hundred steps is no form."""

MAX_QUESTION_BYTES = 4 * 1024 * 1024
MAX_QUESTION_DEPTH = 64
"""One question as JSON. A sampling request may hold an image."""

MAX_ROUNDS = 25
"""Times that a modern server may answer one call with "not yet"."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25
"""Seconds between the rounds of a server that asks for nothing but to be called again."""

URL_WAIT = 120.0
"""Seconds in which a user who agreed to open a URL should be done there. Servers need not tell when that is."""

ABANDONED = 30.0
"""Seconds for which a server may still work on an abandoned call."""

TURN = 0.8
"""Seconds for which a call holds up calls of another owner."""

PATIENCE = 60.0
"""Seconds for which a call waits behind other runs of its own owner."""

_MAX_COMPLETED = 1_000

CURRENT: ContextVar[CallQuestions | None] = ContextVar("upstream_clients.questions.CURRENT", default=None)
"""The call that is being sent. HTTP transports hand it on to what comes back on the call's own stream."""


class UrlElicitationRequired(UpstreamCallError):
    """The server does not look at the call before its user has been to some URLs (-32042 of 2025-11-25).

    Attributes:
        elicitations: as the server sent them.
        completed: returns when the server has said of each of these elicitation ids that it is done, or is gone.
    """

    def __init__(
        self,
        plain: UpstreamCallError,
        elicitations: Sequence[Any],
        completed: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        super().__init__(plain.server, plain.message, dispatched=plain.dispatched, code=plain.code)
        self.elicitations = elicitations
        self.completed = completed


class Limit(Protocol):
    """The deadline of a call, such as a cancel scope round it."""

    deadline: float


class CallQuestions:
    """One call: who can be asked, what was asked, and its time limit, which stands still while a question is open.

    Attributes:
        subject: the call in words, for messages: `tool 'create_issue'`.
        waiting: it waits for the calls of other runs.
        sent_at: seconds on the clock of the event loop.
        request_id: of its request while that is with a legacy server, unanswered.
        place: its place of `max_concurrent_calls`, given back while a question is open.
    """

    def __init__(self, server: str, subject: str, asking: Asking | None, limit: Limit) -> None:
        """`limit`: its deadline, in seconds on the clock of the event loop, is moved."""
        self.server = server
        self.subject = subject
        self.asking = asking
        self.waiting = False
        self.sent_at = math.inf
        self.request_id: int | None = None
        self._limit = limit
        self._asked = 0
        self._open = 0
        self._left = math.inf
        self.place: Slot | None = None

    @property
    def run(self) -> str | None:
        """Calls with the same value here may share a question; `None` when no person can be asked for this one."""
        return None if self.asking is None else self.asking.run

    @property
    def owner(self) -> str | None:
        """Owner of the run; None when the call can ask no client."""
        return None if self.asking is None else self.asking.owner

    def can_answer(self, method: str, params: JsonObject) -> bool:
        """Tell if a client of this call's run is able to answer such a question."""
        if self.asking is None:
            return False
        return self.asking.can_answer(Question(self.server, method, params))  # type: ignore[arg-type]  # checked

    def queued(self, why: str) -> None:
        """Say why the call is not sent yet."""
        if self.asking is not None:
            self.asking.queued(why)

    @property
    def may_ask(self) -> bool:
        return self._asked < MAX_QUESTIONS

    def take(self, count: int) -> None:
        """Account for further questions. Raises `QuestionRefused` when they are too many."""
        if self._asked + count > MAX_QUESTIONS:
            raise QuestionRefused(f"more than {MAX_QUESTIONS} questions were asked within one call; ask for less")
        self._asked += count

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Return the MCP result of one question that `take` and `check_question` let pass. Raises `QuestionRefused`."""
        if self.asking is None:
            raise QuestionRefused("no person can be asked on behalf of this call")
        question = Question(self.server, method, params)  # type: ignore[arg-type]  # checked
        try:
            with self.clock_stopped():
                answer = await self.asking.ask(question)
        except QuestionRefused:
            raise
        except Exception as error:
            logger.exception("asking on behalf of server %r failed", self.server)
            raise QuestionRefused("the client could not ask, for an internal error") from error
        return answer

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Yield what the call has left of its time when this is entered first it has again when this is left last."""
        if self._open == 0:
            self._left = self._limit.deadline - anyio.current_time()
            self._limit.deadline = math.inf
            if self.place is not None:
                self.place.step_out()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._limit.deadline = anyio.current_time() + self._left
                if self.place is not None:
                    self.place.step_in()


def check_question(method: str, params: JsonObject) -> None:
    """Raises `QuestionRefused` for what is no question, or too large a one."""
    if method not in METHODS:
        raise QuestionRefused(f"{method!r} is nothing that a client can be asked; it is none of {_METHODS_IN_WORDS}")
    if _is_deeper(params, MAX_QUESTION_DEPTH):
        raise QuestionRefused(f"the question is nested more than {MAX_QUESTION_DEPTH} deep")
    try:
        size = len(json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise QuestionRefused("the question is nested too deeply") from None
    if size > MAX_QUESTION_BYTES:
        raise QuestionRefused(f"the question has {size} bytes, and {MAX_QUESTION_BYTES} are allowed; ask for less")


def _is_deeper(value: object, depth: int) -> bool:
    level: list[object] = [value]
    for _ in range(depth):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return any(isinstance(each, (dict, list)) for each in level)


_METHODS_IN_WORDS = ", ".join(get_args(QuestionMethod))

_REMEDIES: dict[str, str] = {
    "elicitation/create": "Pass everything that the tool needs as arguments, or connect a client that supports "
    "elicitation and call the tool again",
    "sampling/createMessage": "Connect a client that supports sampling and call the tool again, or use another tool",
    "roots/list": "Connect a client that supports roots and call the tool again, or use another tool",
}
"""Next steps for a question that the client cannot answer."""


# Questions that come as requests of the server.


@dataclass(slots=True, eq=False)
class _Open:
    """One question that waits for its answer.

    Attributes:
        calls: those that it may belong to and that are still in flight.
        hopeless: no client of their run can answer it, as far as is known now.
    """

    calls: list[CallQuestions]
    hopeless: Callable[[], bool]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


@dataclass(slots=True, eq=False)
class _Turn:
    call: CallQuestions
    come: anyio.Event = field(default_factory=anyio.Event)


class ConnectionQuestions:
    """The calls in flight on one connection to a legacy server, and what the server asks there."""

    def __init__(self, *, roots: RootsFn | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without questions. `roots`: of the only client, while no call is in flight; `clock`: in seconds."""
        self._roots = roots
        self._clock = clock
        self._calls: list[CallQuestions] = []
        """Oldest first."""
        self._abandoned: dict[object, tuple[str | None, float]] = {}
        """Run and time of calls that the server was not waited for, by the id of the request."""
        self._open: list[_Open] = []
        self._take_turns = False
        self._queue: deque[_Turn] = deque()
        self._completed: dict[str, None] = {}
        self._news = anyio.Event()
        self._closed = False

    def try_enter(self, call: CallQuestions) -> bool:
        """Count `call` as in flight, until `leave`; False where it would have to wait."""
        if self._take_turns and (self._queue or not self._fits(call)):
            return False
        self._add(call)
        return True

    async def enter(self, call: CallQuestions) -> None:
        """Count `call` as in flight, until `leave`. Waits where calls of different runs take turns; see the module."""
        if self.try_enter(call):
            return
        turn = _Turn(call)
        self._queue.append(turn)
        call.waiting = True
        self._refuse_hopeless()
        try:
            await self._wait_for(turn)
        except BaseException:
            if turn.come.is_set():
                self.leave(call)
            else:
                self._queue.remove(turn)
                self._admit()
            raise
        call.waiting = False

    async def _wait_for(self, turn: _Turn) -> None:
        """Return when the call may be sent: in turn, or when it has waited for long enough."""
        call, began = turn.call, anyio.current_time()
        while not turn.come.is_set():
            asked = any(each.run != call.run for question in self._open for each in question.calls)
            call.queued(
                f"waits behind a question that server {call.server!r} asked another program"
                if asked
                else f"waits for its turn: server {call.server!r} works on a call of another program"
            )
            with anyio.CancelScope(deadline=self._turn_ends(turn)):
                await turn.come.wait()
            if not turn.come.is_set() and (
                self._waits_for_another_owner(turn) or anyio.current_time() >= began + PATIENCE
            ):
                self._queue.remove(turn)
                self._send(turn)
                self._admit()

    def _turn_ends(self, turn: _Turn) -> float:
        """Return until when a call waits before it may be sent out of turn."""
        others = [each.sent_at for each in self._calls if each.owner != turn.call.owner]
        return TURN + min([anyio.current_time(), *others])

    def _waits_for_another_owner(self, turn: _Turn) -> bool:
        ahead = (each.call for each in itertools.takewhile(lambda each: each is not turn, self._queue))
        return any(each.owner != turn.call.owner for each in (*self._calls, *ahead))

    def _send(self, turn: _Turn) -> None:
        self._add(turn.call)
        turn.come.set()

    def _add(self, call: CallQuestions) -> None:
        call.sent_at = asyncio.get_running_loop().time()
        self._calls.append(call)

    def leave(self, call: CallQuestions) -> None:
        """The call has ended; so have the questions that can belong to no other."""
        self._calls.remove(call)
        if call.request_id is not None:
            self._abandoned[call.request_id] = (call.run, self._clock())
        for question in self._open:
            if call in question.calls:
                question.calls.remove(call)
                if not question.calls:
                    question.scope.cancel()
        self._admit()

    async def answer(self, method: str, params: JsonObject, asker: CallQuestions | None) -> JsonObject:
        """Have a question of the server answered.

        Args:
            asker: the call on whose own stream it came; `None` where the transport does not tell.

        Raises:
            QuestionRefused: it gets no answer; cancelling takes the question back.
        """
        calls = self._whose(asker)
        if not calls:
            if method == "roots/list":
                return {"roots": []} if self._roots is None else await self._roots()
            raise QuestionRefused(f"{method} is answered only while a call is in flight, and none is")
        check_question(method, params)
        # Of calls of one run any can ask for all; the oldest that may still do so does.
        call = next((each for each in calls if each.may_ask), calls[0])
        call.take(1)
        question = _Open(list(calls), lambda: not any(each.can_answer(method, params) for each in calls))
        self._open.append(question)
        self._refuse_hopeless()
        try:
            with question.scope, ExitStack() as stopped:
                for each in calls:
                    stopped.enter_context(each.clock_stopped())
                return await call.ask(method, params)
        finally:
            self._open.remove(question)
        if question.calls:
            raise QuestionRefused(
                f"server {call.server!r} asks with {method}, which this client cannot answer, and calls of other "
                f"programs wait for the server. {_REMEDIES[method]}"
            )
        raise QuestionRefused("the call that this question belongs to has ended")

    def answered(self, request_id: object) -> None:
        """The server has answered this request of ours, waited for or not."""
        self._abandoned.pop(request_id, None)

    def complete(self, elicitation: object) -> None:
        """The server says that the user is done at the URL of this elicitation."""
        if isinstance(elicitation, str):
            self._completed[elicitation] = None
            if len(self._completed) > _MAX_COMPLETED:
                del self._completed[next(iter(self._completed))]
            self._wake()

    async def completed(self, elicitations: Sequence[str]) -> None:
        """Return when the server has said that of each, or has gone."""
        while not self._closed and any(each not in self._completed for each in elicitations):
            await self._news.wait()

    def close(self) -> None:
        """The connection has ended."""
        self._closed = True
        self._wake()

    def _whose(self, asker: CallQuestions | None) -> list[CallQuestions]:
        if asker is not None:
            return [asker] if asker in self._calls else []
        runs = {call.run for call in self._calls}
        if not runs:
            return []
        if len(runs) == 1:
            since = self._clock() - ABANDONED
            self._abandoned = {key: each for key, each in self._abandoned.items() if each[1] > since}
            if all(run in runs for run, _ in self._abandoned.values()):
                return list(self._calls)
            raise QuestionRefused(
                "a call of another user or program was given up shortly before and the question, which does not say "
                "to which call it belongs, may still be that one's, so no person was asked: repeat this after "
                f"{ABANDONED:g} s"
            )
        self._take_turns = True
        raise QuestionRefused(
            "calls of different users or programs are in flight on this connection and the question does not say to "
            "which it belongs, so no person was asked; such calls are sent one after another from now on, if none has "
            "to wait for long: repeat this one"
        )

    def _fits(self, call: CallQuestions) -> bool:
        return all(each.run == call.run for each in self._calls)

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0].call):
            self._send(self._queue.popleft())

    def _refuse_hopeless(self) -> None:
        """End questions that no client can answer where calls of other runs wait."""
        for question in self._open:
            runs = {call.run for call in question.calls}
            if any(turn.call.run not in runs for turn in self._queue) and question.hopeless():
                question.scope.cancel()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


# Questions that come as the answer to a call.


async def converse(
    send: Callable[[Mapping[str, Any]], Awaitable[JsonObject]], params: Mapping[str, Any], call: CallQuestions
) -> JsonObject:
    """Return the raw result of a call in the end, however often the server needs something before.

    Args:
        send: sends the call with the given params, over the connection that there is then. Between two rounds nothing
            is in flight, so a server may be restarted meanwhile: all that it has to know is in what it is sent.

    Raises:
        UpstreamCallError: the server asks for what it cannot get, or too often; and what `send` raises.
    """
    pause, been_to_urls = FIRST_PAUSE, False
    more: dict[str, Any] = {}
    for _ in range(1 + MAX_ROUNDS):
        try:
            raw = await send({**params, **more})
        except UrlElicitationRequired as required:
            if call.asking is None:
                raise
            if been_to_urls:
                raise _failed(
                    call, "still needs the user to finish in a browser; repeat the call when that is done"
                ) from required
            await _go_to_urls(required, call)
            been_to_urls = True
            continue
        if not needs_input(raw):
            return raw
        if call.asking is None:
            raise UpstreamCallError(
                call.server,
                f"server {call.server!r}: {call.subject} asks for further input from the user, which cannot be given "
                "here; call it with all that it needs, or use another tool",
                dispatched=True,
            )
        try:
            asked = read_input_required(raw, METHODS)
        except ValueError as error:
            raise _failed(call, f"asks for input in a way that is not valid MCP: {error}") from None
        more = dict(asked.state)
        if asked.requests:
            more["inputResponses"] = await _ask_all(asked.requests, call)
            pause = FIRST_PAUSE
        else:
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
    raise _failed(call, f"asks for further input again after {MAX_ROUNDS} rounds; it was given up")


async def _ask_all(requests: Mapping[str, tuple[str, JsonObject]], call: CallQuestions) -> dict[str, JsonObject]:
    """Return all answers, asked for at the same time. One that is refused takes the others back."""
    answers: dict[str, JsonObject] = {}
    refusals: list[QuestionRefused] = []

    async def ask(key: str, method: str, params: JsonObject) -> None:
        try:
            answers[key] = await call.ask(method, params)
        except QuestionRefused as refusal:
            refusals.append(refusal)
            asking.cancel_scope.cancel()

    try:
        call.take(len(requests))
        for method, params in requests.values():
            check_question(method, params)
        # Stopped once for all: between the end of one question and the next the clock is not to run.
        with call.clock_stopped():
            async with anyio.create_task_group() as asking:
                for key, (method, params) in requests.items():
                    asking.start_soon(ask, key, method, params)
        if refusals:
            raise refusals[0]
    except QuestionRefused as refusal:
        raise _failed(call, f"needs input that it cannot get: {refusal}") from refusal
    # In the order of the questions, not of the answers.
    return {key: answers[key] for key in requests}


async def _go_to_urls(required: UrlElicitationRequired, call: CallQuestions) -> None:
    """Have the user go to each URL, and wait until the server has noticed, or for `URL_WAIT`."""
    requests: dict[str, tuple[str, JsonObject]] = {}
    for item in required.elicitations:
        match item:
            case {"url": str(), "elicitationId": str() as identity} if item.get("mode", "url") == "url":
                requests[identity] = ("elicitation/create", {**item, "mode": "url"})
            case _:
                raise _failed(call, "asks the user to open a URL, but not in a way that is valid MCP") from required
    if not requests:
        raise required
    answers = await _ask_all(requests, call)
    for identity, answer in answers.items():
        if (action := answer.get("action")) != "accept":
            _, params = requests[identity]
            how = "declined" if action == "decline" else "did not answer"
            raise _failed(call, f"needs the user to open {params['url']} first, and the user {how}") from required
    with call.clock_stopped(), anyio.move_on_after(URL_WAIT):
        await required.completed(list(requests))


def _failed(call: CallQuestions, what: str) -> UpstreamCallError:
    return UpstreamCallError(call.server, f"server {call.server!r}: {call.subject} {what}", dispatched=True)
