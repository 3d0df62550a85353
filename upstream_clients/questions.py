"""The questions of one call: the person who can be asked, the limits, and the call's stopped clock.

Questions come in two ways. A modern server puts them into its answer to the call (`input_required`). A legacy server
sends requests (`question_routing`). This module does not need the MCP SDK.
"""

from __future__ import annotations

import json
import logging
import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, get_args

import anyio

from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.json_values import is_deeper
from upstream_clients.results import needs_input
from upstream_clients.tools import Asking, JsonObject, Question, QuestionMethod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from upstream_clients.eager import Scope
    from upstream_clients.fair_limiter import Slot


logger = logging.getLogger(__name__)

METHODS: frozenset[str] = frozenset(get_args(QuestionMethod))

MAX_QUESTIONS = 100
"""Questions of one call."""

MAX_QUESTION_BYTES = 4 * 1024 * 1024
"""Bytes of one question as JSON. A sampling request may hold an image."""

MAX_QUESTION_DEPTH = 64

CURRENT: ContextVar[CallQuestions | None] = ContextVar("upstream_clients.questions.CURRENT", default=None)
"""The call that is being sent. Messages that come back on the HTTP stream of the call are handled in its context."""


class UrlElicitationRequired(UpstreamCallError):
    """The server refuses a call until its user has opened some URLs (error -32042 of MCP 2025-11-25).

    Attributes:
        elicitations: elicitations as the server sent them.
        completed: waits until the server has reported the end of each of the given elicitation ids, or is gone.
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


class CallQuestions:
    """The questions of one call. The time limit of the call stands still while a question is open.

    Attributes:
        subject: the call in words, for messages: `tool 'create_issue'`.
        waiting: True while the call waits for calls of other runs.
        sent_at: time at which the call was sent, in seconds on the clock of the event loop; infinity before that.
        request_id: id of the request, while a legacy server has not answered it.
        place: the call's place among `max_concurrent_calls`; given back while a question is open.
        on_roots: called with None when the client is asked for its roots, and with its answer; None if no one listens.
        names_roots: returns True if the client can be asked for its roots only during its calls, and the server may get
            them.
    """

    def __init__(
        self, server: str, subject: str, asking: Asking | None, limit: Scope, place: Slot | None = None
    ) -> None:
        """`limit` has the deadline of the call, in seconds on the clock of the event loop. Each question moves it."""
        self.server = server
        self.subject = subject
        self.asking = asking
        self.waiting = False
        self.sent_at = math.inf
        self.request_id: int | None = None
        self.place = place
        self.on_roots: Callable[[JsonObject | None], None] | None = None
        self.names_roots: Callable[[], bool] = lambda: False
        self._limit = limit
        self._count = 0
        self._open = 0
        self._time_left = math.inf

    @property
    def deadline(self) -> float:
        """End of the time of the call, in seconds on the clock of the event loop; infinity without a limit."""
        return self._limit.deadline

    @property
    def run(self) -> str | None:
        """The run of the call; None when no person can be asked on behalf of the call."""
        return None if self.asking is None else self.asking.run

    @property
    def caller(self) -> tuple[str, str] | None:
        """The owner of the run and the share of the call; None when no person can be asked on behalf of the call."""
        return None if self.asking is None else (self.asking.owner, self.asking.share)

    def can_answer(self, method: str, params: JsonObject) -> bool:
        if self.asking is None:
            return False
        return self.asking.can_answer(Question(self.server, method, params))  # type: ignore[arg-type]  # checked

    def queued(self, why: str) -> None:
        if self.asking is not None:
            self.asking.queued(why)

    @contextmanager
    def starting(self) -> Iterator[None]:
        on_start = None if self.asking is None else self.asking.on_start
        if on_start is not None:
            on_start(True)
        try:
            yield
        finally:
            if on_start is not None:
                on_start(False)

    @property
    def may_ask(self) -> bool:
        return self._count < MAX_QUESTIONS

    def count(self, questions: int) -> None:
        """Count further questions. Raises `QuestionRefused` if the call has too many."""
        if self._count + questions > MAX_QUESTIONS:
            raise QuestionRefused(f"more than {MAX_QUESTIONS} questions were asked within one call; ask for less")
        self._count += questions

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Return the MCP result of one question, after `count` and `check_question`. Raises `QuestionRefused`."""
        if self.asking is None:
            raise QuestionRefused("no person can be asked on behalf of this call")
        question = Question(self.server, method, params)  # type: ignore[arg-type]  # checked
        on_roots = self.on_roots if method == "roots/list" else None
        if on_roots is not None:
            on_roots(None)
        try:
            with self.clock_stopped():
                answer = await self.asking.ask(question)
        except QuestionRefused:
            raise
        except Exception as error:
            logger.exception("asking on behalf of server %r failed", self.server)
            raise QuestionRefused("the client could not ask, because of an internal error") from error
        if on_roots is not None:
            on_roots(answer)
        return answer

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Stop the time limit of the call, and give back its place, while at least one such context is open."""
        if self._open == 0:
            self._time_left = self._limit.deadline - anyio.current_time()
            self._limit.deadline = math.inf
            if self.place is not None:
                self.place.step_out()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._limit.deadline = anyio.current_time() + self._time_left
                if self.place is not None:
                    self.place.step_in()


def check_question(method: str, params: JsonObject) -> None:
    """Check the method, the size and the depth of a question. Raises `QuestionRefused`."""
    if method not in METHODS:
        raise QuestionRefused(f"a client cannot be asked {method!r}, only {', '.join(get_args(QuestionMethod))}")
    if is_deeper(params, MAX_QUESTION_DEPTH):
        raise QuestionRefused(f"the question is nested more than {MAX_QUESTION_DEPTH} deep")
    try:
        size = len(json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise QuestionRefused("the question is nested too deeply") from None
    if size > MAX_QUESTION_BYTES:
        raise QuestionRefused(f"the question has {size} bytes, and {MAX_QUESTION_BYTES} are allowed; ask for less")


# Calls whose first answer is not their result, since the server needs input from the user first.
#
# A modern server (2026-07-28) answers such a call with `resultType: "input_required"`. `send_until_result` sends the
# call again with the answers. A server of 2025-11-25 fails a call with error -32042 until its user has opened a URL.
# `send_until_result` then repeats the call.


MAX_ROUNDS = 25
"""Number of times that a modern server may answer one call with "not yet"."""

FIRST_PAUSE, MAX_PAUSE = 0.05, 0.25
"""Seconds between the rounds of a server that asks only to be called again."""

URL_WAIT = 120.0
"""Seconds that a user gets to finish at a URL. Servers are not obliged to report the end."""

NO_PERSON = (
    "asks for further input from the user, which cannot be given here; call it with all that it needs, or use another "
    "tool"
)
"""The reason for the end of a call that needs input, if no person can be asked."""


async def send_until_result(
    send: Callable[[Mapping[str, Any]], Awaitable[JsonObject]], params: Mapping[str, Any], call: CallQuestions
) -> JsonObject:
    """Send a call until the server gives its result, and answer its questions in between. Return the raw result.

    Args:
        send: sends the call with the given params over the current connection. Between two rounds nothing is in flight,
            so the server may be restarted: each request has everything that the server needs.

    Raises:
        UpstreamCallError: the server asks for input that it cannot get, or asks too often.
        Exception: any exception of `send`.
    """
    pause, urls_opened = FIRST_PAUSE, False
    more: dict[str, Any] = {}
    for _ in range(1 + MAX_ROUNDS):
        try:
            raw = await send({**params, **more})
        except UrlElicitationRequired as required:
            if call.asking is None:
                raise
            if urls_opened:
                why = "still needs the user to finish in a browser; repeat the call when that is done"
                raise failure(call, why) from required
            await _open_urls(required, call)
            urls_opened = True
            continue
        if not needs_input(raw):
            return raw
        if call.asking is None:
            raise failure(call, NO_PERSON)
        try:
            requests, more = read_input_required(raw)
        except ValueError as error:
            raise failure(call, f"asks for input in a way that is not valid MCP: {error}") from None
        if requests:
            more["inputResponses"] = await ask_all(requests, call)
            pause = FIRST_PAUSE
        else:
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)
    raise failure(call, f"asks for further input again after {MAX_ROUNDS} rounds; it was given up")


async def ask_all(requests: Mapping[str, tuple[str, JsonObject]], call: CallQuestions) -> dict[str, JsonObject]:
    """Ask all questions at the same time and return their answers. If one is refused, the others are withdrawn."""
    answers: dict[str, JsonObject] = {}
    refusals: list[QuestionRefused] = []

    async def ask(key: str, method: str, params: JsonObject) -> None:
        try:
            answers[key] = await call.ask(method, params)
        except QuestionRefused as refusal:
            refusals.append(refusal)
            asking.cancel_scope.cancel()

    try:
        call.count(len(requests))
        for method, params in requests.values():
            check_question(method, params)
        # Stopped once for all questions, so that the clock does not run between two of them.
        with call.clock_stopped():
            async with anyio.create_task_group() as asking:
                for key, (method, params) in requests.items():
                    asking.start_soon(ask, key, method, params)
        if refusals:
            raise refusals[0]
    except QuestionRefused as refusal:
        raise failure(call, f"needs input that it cannot get: {refusal}") from refusal
    # In the order of the questions, not of the answers.
    return {key: answers[key] for key in requests}


async def _open_urls(required: UrlElicitationRequired, call: CallQuestions) -> None:
    """Ask the user to open each URL. Then wait until the server has reported the end of all, at most `URL_WAIT`."""
    requests: dict[str, tuple[str, JsonObject]] = {}
    for item in required.elicitations:
        match item:
            case {"url": str(), "elicitationId": str() as identity} if item.get("mode", "url") == "url":
                requests[identity] = ("elicitation/create", {**item, "mode": "url"})
            case _:
                raise failure(call, "asks the user to open a URL, but not in a way that is valid MCP") from required
    if not requests:
        raise required
    answers = await ask_all(requests, call)
    for identity, answer in answers.items():
        if (action := answer.get("action")) != "accept":
            _, params = requests[identity]
            how = "declined" if action == "decline" else "did not answer"
            raise failure(call, f"needs the user to open {params['url']} first, and the user {how}") from required
    with call.clock_stopped(), anyio.move_on_after(URL_WAIT):
        await required.completed(list(requests))


def failure(call: CallQuestions, what: str) -> UpstreamCallError:
    """Return the error of a call without a result. `what` continues a sentence about the tool."""
    return UpstreamCallError(call.server, f"server {call.server!r}: {call.subject} {what}", dispatched=True)


def read_input_required(raw: JsonObject) -> tuple[dict[str, tuple[str, JsonObject]], dict[str, Any]]:
    """Read an answer with `resultType: "input_required"`.

    Returns:
        The method and params of each question, by the server's own keys, and the params to add to the repeated request:
        the server's state, which is sent back unread.

    Raises:
        ValueError: the answer is malformed, or a question has another method; the text says what is wrong.
    """
    state = {key: raw[key] for key in ("requestState",) if raw.get(key) is not None}
    items = raw.get("inputRequests")
    if items is None:
        items = {}
    if not isinstance(items, dict):
        raise ValueError("inputRequests is not an object")
    if not items and not state:
        raise ValueError("it has neither inputRequests nor requestState")
    requests: dict[str, tuple[str, JsonObject]] = {}
    for key, item in items.items():
        match item:
            case {"method": str() as method} if method in METHODS:
                params = {} if item.get("params") is None else item["params"]
            case {"method": str() as method}:
                raise ValueError(f"{method[:100]!r} is not one of {', '.join(sorted(METHODS))}")
            case _:
                raise ValueError(f"inputRequests.{key[:100]} names no method")
        if not isinstance(params, dict):
            raise ValueError(f"params of inputRequests.{key[:100]} is not an object")
        requests[key] = (method, params)
    return requests, state
