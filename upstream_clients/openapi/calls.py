"""Calls of operations: from a tool and its arguments to an answer of MCP.

A call that got no HTTP answer fails with an `HttpFault` that leaves the connection usable: an API has no session that
could be lost, and the next call opens a new HTTP connection if it has to.

The common call needs no task: its request is written as soon as nothing can prevent it, if a connection is free, and a
successful answer is passed on where it is received. Every other call becomes a task at the point where something has
to be awaited, with the outcome so far.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread

from upstream_clients.direct import (
    THREAD_BYTES,
    Answer,
    Pending,
    Refusal,
    RequestsInFlight,
    has_surrogates,
    read_large_json,
)
from upstream_clients.error_mapping import HttpFault
from upstream_clients.errors import LoginError
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, without_surrogates
from upstream_clients.large_results import LargeResult
from upstream_clients.openapi.api import ArgumentProblem
from upstream_clients.openapi.client import NoAnswer, is_final
from upstream_clients.openapi.exchanges import response_of
from upstream_clients.questions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import TaskGroup

    from upstream_clients.direct import OnAnswer
    from upstream_clients.openapi.answer_bytes import RawAnswer
    from upstream_clients.openapi.api import Api, ApiRequest, ApiResponse
    from upstream_clients.openapi.client import ApiClient
    from upstream_clients.questions import CallQuestions
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import ProgressFn

logger = logging.getLogger(__name__)

MAX_VALUES: Final = 2_000_000
"""Maximum number of values of an answer in JSON. An empty list has 3 bytes, compressed fewer, and 60 in memory."""

_MAX_REASON: Final = 300
"""Characters of the reason why there is no answer."""


class Place(NamedTuple):
    """A server of an API.

    Attributes:
        client: sends requests there.
        advice: the meaning of an answer 401 for the entry.
    """

    client: ApiClient
    advice: str


class PreparedCall(NamedTuple):
    """A call whose request is known.

    Attributes:
        calls: the calls of the API as it was when the call was sent. The call ends with that operation.
        place: the server to which it is sent.
        deadline: returns the end of the call's time, in seconds on the clock of the event loop; None without a limit.
    """

    calls: ApiCalls
    tool: str
    request: ApiRequest
    place: Place
    deadline: Callable[[], float] | None


class ApiCalls:
    """The calls of the operations of one API, as one reading of its document describes it."""

    def __init__(self, spec: UpstreamSpec, api: Api, base: Place, own: Mapping[str, Place]) -> None:
        """Prepare calls.

        Args:
            base: the server at the base address.
            own: the servers that single operations have, by their addresses.
        """
        self.api = api
        self.client = base.client
        self._places = {**own, "": base}
        self._spec = spec
        self._tools = frozenset(tool["name"] for tool in api.tools)

    def prepare(
        self, tool: object, arguments: Mapping[str, Any], questions: CallQuestions | None
    ) -> PreparedCall | Refusal:
        """Return a call that can be sent, or the reason why it cannot.

        Args:
            questions: the call as `questions.CURRENT` has it, which knows its deadline.
        """
        if not isinstance(tool, str) or tool not in self._tools:
            return Refusal(INVALID_PARAMS, f"there is no operation {tool!r}", None)
        try:
            try:
                request = self.api.request(tool, arguments)
            except UnicodeEncodeError:
                request = self.api.request(tool, without_surrogates(dict(arguments)))
        except ArgumentProblem as error:
            return self._refusal(f"{tool}: {error}", sent=False, code=INVALID_PARAMS)
        # Questions may move the deadline of a call.
        place = self._places[self.api.server_of(tool)]
        return PreparedCall(self, tool, request, place, None if questions is None else lambda: questions.deadline)

    async def finish(self, call: PreparedCall, first: RawAnswer | Exception | None = None) -> Answer | Refusal:
        """Send a call, with the retries of `client`, and return its answer.

        Args:
            first: the outcome of its request, if it was sent already.
        """
        tool = call.tool
        try:
            response = await call.place.client.send(
                call.request, is_repeatable=self.api.is_repeatable(tool), deadline=call.deadline, first=first
            )
            if len(response.body) < THREAD_BYTES:
                return self.answer(call, response)
            return await anyio.to_thread.run_sync(self._large_answer, call, response)
        except NoAnswer as error:
            sent = "it is unknown whether the API acted on it" if error.sent else "nothing was sent"
            # The reason may quote any number of bytes of an answer that is not HTTP.
            reason = self._spec.cut(self._spec.redact(str(error)), _MAX_REASON)
            why = f"{tool} got no answer from {call.place.client.address}: {reason}; {sent}"
            return self._refusal(why, sent=error.sent)
        except LoginError as error:
            fault = HttpFault(None, sent=False, login=True, usable=True)
            return Refusal(INTERNAL_ERROR, self._spec.redact(str(error)), fault.to_data())

    def answer(self, call: PreparedCall, response: ApiResponse) -> Answer:
        """Return the answer of a call for the answer of the API."""
        result = self.api.result(call.tool, response, secrets=self._spec.sent_secrets)
        self._advise(call, response, result)
        return Answer(result, None)

    def _large_answer(self, call: PreparedCall, response: ApiResponse) -> Answer:
        """Return the answer of a call for a large answer of the API, in a way that lets other threads run.

        It has its text, which would take long to make again.
        """
        read: list[tuple[Any, str]] = []

        def read_json(body: bytes) -> Any:
            if body.count(b",") > MAX_VALUES:
                raise NoAnswer(f"the answer has more than {MAX_VALUES} values; ask for less at a time", sent=True)
            text = str(body, "utf-8")
            value = read_large_json(text)
            if has_surrogates(text):
                return without_surrogates(value)
            read.append((value, text))
            return value

        result = self.api.result(call.tool, response, read_json, self._spec.sent_secrets)
        self._advise(call, response, result)
        match result:
            case {"content": [], "structuredContent": value, **rest} if read and value is read[0][0]:
                more = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in rest.items())
                text = f'{{"content":[],"structuredContent":{read[0][1].strip()}{more}}}'
            case _:
                text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        return Answer(LargeResult(result, text), text)

    def _advise(self, call: PreparedCall, response: ApiResponse, result: dict[str, Any]) -> None:
        if response.status == HTTPStatus.UNAUTHORIZED:
            result["content"].append({"type": "text", "text": call.place.advice})

    def _refusal(self, why: str, *, sent: bool, code: int = INTERNAL_ERROR) -> Refusal:
        return Refusal(code, self._spec.redact_own(why), HttpFault(None, sent=sent, usable=True).to_data())


class DirectCalls(RequestsInFlight):
    """The direct calls in flight to one API. Nothing is encoded: the arguments are used as they are."""

    def __init__(self, current: Callable[[], ApiCalls], tasks: TaskGroup) -> None:
        """Prepare to send.

        Args:
            current: returns the calls of the API as the list of tools that is in use describes it.
            tasks: the task group of the connection.
        """
        super().__init__()
        self._current = current
        self._tasks = tasks
        self._queued: list[tuple[int, Mapping[str, Any], ApiCalls, CallQuestions | None]] = []
        """Calls of the next `flush`, each with the `ApiCalls` of the list by which it was admitted."""
        self._give_ups: dict[int, Callable[[], None]] = {}

    def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: OnAnswer,
        on_progress: ProgressFn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int | None:
        if self._closed or method != "tools/call":
            return None
        request_id = next(self._ids)
        self._pending[request_id] = Pending(b"", on_answer, on_progress)
        self._queued.append((request_id, params, self._current(), CURRENT.get()))
        return request_id

    def flush(self) -> None:
        queued, self._queued = self._queued, []
        for each in queued:
            self._start(*each)

    def _give_up(self, request_id: int, body: bytes) -> None:
        give_up = self._give_ups.pop(request_id, None)
        if give_up is not None:
            give_up()

    def _start(
        self, request_id: int, params: Mapping[str, Any], calls: ApiCalls, questions: CallQuestions | None
    ) -> None:
        if request_id not in self._pending:
            return  # given up before it was sent
        soon = asyncio.get_running_loop().call_soon
        try:
            prepared = calls.prepare(params["name"], params["arguments"], questions)
            if isinstance(prepared, Refusal):
                soon(self._end, request_id, prepared)
                return
            give_up = prepared.place.client.try_send(prepared.request, partial(self._ended, request_id, prepared))
            if give_up is None:
                self._begin_task(request_id, prepared, None)
            else:
                self._give_ups[request_id] = give_up
        except Exception:
            logger.exception("a call of an API failed")
            soon(self._end, request_id, internal_error())

    def _ended(self, request_id: int, call: PreparedCall, outcome: RawAnswer | Exception) -> None:
        """Take the outcome of a request that was sent without a task."""
        if request_id not in self._pending:
            return  # given up
        self._give_ups.pop(request_id, None)
        try:
            if is_final(outcome):
                self._end(request_id, call.calls.answer(call, response_of(outcome)))
            else:
                self._begin_task(request_id, call, outcome)
        except Exception:
            self._fail(request_id)

    def _begin_task(self, request_id: int, call: PreparedCall, first: RawAnswer | Exception | None) -> None:
        scope = anyio.CancelScope()
        self._give_ups[request_id] = scope.cancel
        self._tasks.start_soon(self._finish, request_id, scope, call, first)

    async def _finish(
        self, request_id: int, scope: anyio.CancelScope, call: PreparedCall, first: RawAnswer | Exception | None
    ) -> None:
        try:
            with scope:
                self._end(request_id, await call.calls.finish(call, first))
        except Exception:
            self._fail(request_id)
        finally:
            self._give_ups.pop(request_id, None)

    def _end(self, request_id: int, answer: Answer | Refusal) -> None:
        if request_id in self._pending:
            self.count += 1
            self.resolve(request_id, answer)

    def _fail(self, request_id: int) -> None:
        """End a call after an exception that no API can cause."""
        logger.exception("a call of an API failed")
        if request_id in self._pending:
            self.resolve(request_id, internal_error())


def internal_error() -> Refusal:
    """Return the answer to a call after an exception that no API can cause."""
    fault = HttpFault(None, sent=True, usable=True)
    return Refusal(INTERNAL_ERROR, "the call failed because of an internal error; see the log", fault.to_data())
