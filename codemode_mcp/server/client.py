"""The client of one open request: progress messages and questions to it, as its protocol era sends them.

A client of the handshake revisions gets a request from us while its own request is open. A client of 2026-07-28 gets
the questions as an `InputRequiredResult`, and repeats its request with the answers.
"""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct, field

from codemode_mcp.server.notifications import Outbox
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import TASKS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from codemode_mcp.rules.policy.approval import ApprovalQuestion
    from codemode_mcp.runs.questions import RunNotes, Way
    from codemode_mcp.server.exchange import Client, Exchange, Session
    from upstream_clients.tools import JsonObject, Question, QuestionMethod, RootsFn


log = logging.getLogger("codemode_mcp.client")

PROGRESS_SECONDS = 2.0
"""Seconds between two progress messages which only say that a request is still running."""

PROGRESS_INTERVAL = 0.25
"""Seconds between two progress messages of one request, after the first `PROGRESS_BURST` messages."""

PROGRESS_BURST = 5
"""Progress messages of one request that are sent without a pause."""

MAX_ROUNDS = 8
"""Most rounds of questions for one request. Clients give up after ten rounds. The next `wait` counts from 0."""


class Continued(Struct, frozen=True):
    """State that a client of 2026-07-28 sends back with its answers.

    Attributes:
        run_id: the run or call that asked; empty for a new request.
        round: number of times that this request was answered with questions.
        answers: unchecked answers by the keys of the questions.
    """

    run_id: str = ""
    round: int = 0
    answers: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(params: Mapping[str, Any]) -> Continued:
        """Read the `params` of a call. The SDK has verified that their `requestState` comes from this server."""
        state = params.get("requestState")
        if state is None:
            return Continued()
        run_id, rounds = json.loads(state)
        return Continued(run_id, rounds, params.get("inputResponses") or {})

    def input_required_result(
        self, run_id: str, questions: Iterable[tuple[str, Question | ApprovalQuestion]]
    ) -> dict[str, Any]:
        from codemode_mcp.server.client_questions import as_request

        return {
            "resultType": "input_required",
            "inputRequests": {key: as_request(question) for key, question in questions},
            "requestState": json.dumps([run_id, self.round + 1]),
        }


class McpClient:
    """The client of a request, as a `runs.questions.Client`.

    Args:
        progress: takes progress messages; None if the client wants none.
        rounds: number of times that this request was answered with questions.
        lasting: the client stays connected after the request.
        notes, polls: see `runs.questions.Client`.
    """

    def __init__(
        self,
        exchange: Exchange,
        progress: LatestProgress | None,
        *,
        rounds: int,
        lasting: bool,
        notes: RunNotes | None = None,
        polls: bool = False,
    ) -> None:
        self._session = exchange.session
        self._request_id = exchange.request_id
        self._progress = progress
        self._rounds = rounds
        self._modern = exchange.session.modern
        self.lasting = lasting and not self._modern
        self.notes = notes
        self.polls = polls
        self.supported = supported(exchange.session.capabilities)

    def progress(self, source: str, message: str) -> None:
        """Send a progress message. It replaces an unsent message of the same source."""
        if self._progress is not None:
            self._progress.report(source, (None, None, message))

    def way(self, question: Question | ApprovalQuestion) -> Way:
        """Return how the question reaches the client; see `runs.questions.Client`."""
        if not self.supports(question):
            return "ask" if question.method == "roots/list" else "none"  # `ask` answers without the client
        if not self._modern or _request_of(question) is None:  # `ask` refuses an invalid question
            return "ask"
        return "return" if self._rounds < MAX_ROUNDS else "later"

    async def ask(self, question: Question | ApprovalQuestion) -> JsonObject:
        """Send the question now and return the answer; see `runs.questions.Client`."""
        if question.method == "roots/list" and not self.supports(question):
            return {"roots": []}  # the client has no folders
        request = _request_of(question)
        if request is None:
            raise QuestionRefused(f"the params of {question.method} are not valid for a client")
        related = None if self.lasting else self._request_id
        return await self._session.request(question.method, request.get("params", {}), related)

    def supports(self, question: Question | ApprovalQuestion) -> bool:
        declared = self._session.capabilities or {}
        if question.method == "elicitation/create" and question.params.get("mode") == "url":
            return (declared.get("elicitation") or {}).get("url") is not None
        if question.method == "sampling/createMessage" and question.params.keys() & {"tools", "toolChoice"}:
            return (declared.get("sampling") or {}).get("tools") is not None
        return question.method in self.supported


def supported(declared: Mapping[str, Any] | None) -> frozenset[QuestionMethod]:
    if declared is None:
        return frozenset()
    found: dict[QuestionMethod, bool] = {
        "elicitation/create": _fills_forms(declared),
        "sampling/createMessage": declared.get("sampling") is not None,
        "roots/list": declared.get("roots") is not None,
    }
    return frozenset(method for method, answers in found.items() if answers)


def _fills_forms(declared: Mapping[str, Any]) -> bool:
    elicitation = declared.get("elicitation")
    if elicitation is None:
        return False
    # An empty capability means forms alone (revision 2025-11-25).
    return elicitation.get("form") is not None or elicitation.get("url") is None


def roots_of(session: Session) -> RootsFn | None:
    """Return a function that asks a client for its folders at any time; None if the client does not support that."""
    declared = session.capabilities
    if session.modern or declared is None or declared.get("roots") is None:
        return None

    async def roots() -> JsonObject:
        try:
            return await session.request("roots/list", {})
        except QuestionRefused as refusal:
            log.warning("the client did not list its roots: %s", refusal)
            return {"roots": []}

    return roots


def _request_of(question: Question | ApprovalQuestion) -> JsonObject | None:
    from codemode_mcp.server.client_questions import as_request

    try:
        return as_request(question)
    except ValueError:
        return None


Message = tuple[float | None, float | None, str | None]
"""The progress, total and text of one message. If the progress is None, the number of messages is sent instead."""


class LatestProgress(Outbox):
    """Progress messages to the client of one request, at a limited rate: the latest message of each source.

    An upstream may report progress faster than the client reads, and queued messages delay answers on the same stream.
    So after the first few messages, a message replaces the unsent message of its source. `close` drops unsent messages,
    because the answer follows.
    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(self._report, seconds=math.inf)  # the last message of a source must not be lost
        self._exchange = exchange
        self._free_at = -math.inf
        """Time at which the intervals of all sent messages have passed. Up to a burst of messages is sent before it."""
        self._count = 0

    def report(self, source: str, message: Message) -> None:
        """Send a message as soon as the rate allows it."""
        last = next((key for key in reversed(self.waiting) if key[0] == source), None)
        # The number of messages that could be sent now. While that many are not queued, no message has to be replaced.
        allowed = PROGRESS_BURST - max(0.0, self._free_at - anyio.current_time()) / PROGRESS_INTERVAL
        replaces = last is not None and len(self.waiting) >= allowed
        self.put(message, last if replaces else (source, object()))

    async def pause(self) -> None:
        await anyio.sleep(max(0.0, self._free_at - anyio.current_time() - PROGRESS_BURST * PROGRESS_INTERVAL))
        self._free_at = max(self._free_at, anyio.current_time()) + PROGRESS_INTERVAL

    async def _report(self, message: Message) -> None:
        progress, total, text = message
        self._count += 1
        await self._exchange.report_progress(float(self._count) if progress is None else progress, total, text)


def progress_to(exchange: Exchange) -> LatestProgress | None:
    """Return the progress messages of an open request; None if its client wants none."""
    return LatestProgress(exchange) if exchange.wants_progress else None


def knows_tasks(client: Client) -> bool:
    """Return True if a client may get a task as the answer to its request."""
    extensions = (client.capabilities or {}).get("extensions")
    return client.modern and isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)


@asynccontextmanager
async def open_client(
    exchange: Exchange, *, rounds: int, lasting: bool, notes: RunNotes | None = None, polls: bool = False
) -> AsyncIterator[McpClient]:
    """Open the client of a request for the duration of the context, and report that the request is running."""
    progress = progress_to(exchange)
    if progress is None:
        yield McpClient(exchange, None, rounds=rounds, lasting=lasting, notes=notes, polls=polls)
        return
    began = time.monotonic()

    async def tick() -> None:
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            progress.report("", (None, None, f"running for {time.monotonic() - began:.0f} s"))

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        group.start_soon(progress.run)
        yield McpClient(exchange, progress, rounds=rounds, lasting=lasting, notes=notes, polls=polls)
        group.cancel_scope.cancel()
