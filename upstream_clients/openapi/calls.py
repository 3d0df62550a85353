"""Calls of operations: from a tool and its arguments to an answer of MCP.

A call that got no HTTP answer fails with an `HttpFault` that leaves the connection usable: an API has no session that
could be lost, and the next call opens a new HTTP connection if it has to.

A call is an eager coroutine (`eager`): its request is written in the step that makes it, if a connection is free, and a
successful answer is passed on where it is received.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread

from upstream_clients import direct
from upstream_clients.eager import EagerTasks, Scope
from upstream_clients.error_mapping import HttpFault
from upstream_clients.errors import LoginError
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, without_surrogates
from upstream_clients.openapi.api import Api, ApiResponse, ArgumentProblem
from upstream_clients.openapi.client import ApiClient, NoAnswer
from upstream_clients.questions import CURRENT, CallQuestions
from upstream_clients.results import LargeResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import TaskGroup

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

    async def call(
        self, tool: object, arguments: Mapping[str, Any], questions: CallQuestions | None
    ) -> direct.Answer | direct.Refusal:
        """Make a call, with the retries of `client`, and return its answer. It ends with the operation as it is now.

        Args:
            questions: the call as `questions.CURRENT` has it, which knows its deadline.
        """
        if not isinstance(tool, str) or tool not in self._tools:
            return direct.Refusal(INVALID_PARAMS, f"there is no operation {tool!r}", None)
        try:
            try:
                request = self.api.request(tool, arguments)
            except UnicodeEncodeError:
                request = self.api.request(tool, without_surrogates(dict(arguments)))
        except ArgumentProblem as error:
            return self._refusal(f"{tool}: {error}", sent=False, code=INVALID_PARAMS)
        place = self._places[self.api.server_of(tool)]
        try:
            response = await place.client.send(
                request,
                is_repeatable=self.api.is_repeatable(tool),
                # Questions may move the deadline of a call.
                deadline=None if questions is None else lambda: questions.deadline,
            )
            if len(response.body) < direct.THREAD_BYTES:
                return self._answer(tool, place, response)
            return await anyio.to_thread.run_sync(self._large_answer, tool, place, response)
        except NoAnswer as error:
            sent = "it is unknown whether the API acted on it" if error.sent else "nothing was sent"
            # The reason may quote any number of bytes of an answer that is not HTTP.
            reason = self._spec.cut(self._spec.redact(str(error)), _MAX_REASON)
            why = f"{tool} got no answer from {place.client.address}: {reason}; {sent}"
            return self._refusal(why, sent=error.sent)
        except LoginError as error:
            fault = HttpFault(None, sent=False, login=True, usable=True)
            return direct.Refusal(INTERNAL_ERROR, self._spec.redact(str(error)), fault.to_data())

    def _answer(self, tool: str, place: Place, response: ApiResponse) -> direct.Answer:
        result = self.api.result(tool, response, secrets=self._spec.sent_secrets)
        _advise(place, response, result)
        return direct.Answer(result, None)

    def _large_answer(self, tool: str, place: Place, response: ApiResponse) -> direct.Answer:
        """Return the answer of a call for a large answer of the API, in a way that lets other threads run.

        It has its text, which would take long to make again.
        """
        read: list[tuple[Any, str]] = []

        def read_json(body: bytes) -> Any:
            if body.count(b",") > MAX_VALUES:
                raise NoAnswer(f"the answer has more than {MAX_VALUES} values; ask for less at a time", sent=True)
            text = str(body, "utf-8")
            value = direct.read_large_json(text)
            if direct.has_surrogates(text):
                return without_surrogates(value)
            read.append((value, text))
            return value

        result = self.api.result(tool, response, read_json, self._spec.sent_secrets)
        _advise(place, response, result)
        match result:
            case {"content": [], "structuredContent": value, **rest} if read and value is read[0][0]:
                more = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in rest.items())
                text = f'{{"content":[],"structuredContent":{read[0][1].strip()}{more}}}'
            case _:
                text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        return direct.Answer(LargeResult(result, text), text)

    def _refusal(self, why: str, *, sent: bool, code: int = INTERNAL_ERROR) -> direct.Refusal:
        return direct.Refusal(code, self._spec.redact_own(why), HttpFault(None, sent=sent, usable=True).to_data())


def _advise(place: Place, response: ApiResponse, result: dict[str, Any]) -> None:
    if response.status == HTTPStatus.UNAUTHORIZED:
        result["content"].append({"type": "text", "text": place.advice})


class DirectCalls(direct.RequestsInFlight):
    """The direct calls in flight to one API. Nothing is encoded: the arguments are used as they are."""

    def __init__(self, current: Callable[[], ApiCalls], tasks: TaskGroup) -> None:
        """Prepare to send.

        Args:
            current: returns the calls of the API as the list of tools that is in use describes it.
            tasks: the task group of the connection.
        """
        super().__init__()
        self._current = current
        self._eager = EagerTasks(tasks.start_soon)
        self._scopes: dict[int, Scope] = {}

    def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: direct.OnAnswer,
        on_progress: ProgressFn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int | None:
        if self._closed or method != "tools/call":
            return None
        request_id = next(self._ids)
        self._pending[request_id] = direct.Pending(b"", on_answer, on_progress)
        # The calls now, and not when the request is sent: it was admitted by the list that is in use now.
        self._eager.start(self._call(request_id, self._current(), params, CURRENT.get()))
        return request_id

    def _give_up(self, request_id: int, body: bytes) -> None:
        scope = self._scopes.get(request_id)
        if scope is not None:
            scope.cancel()

    async def _call(
        self, request_id: int, calls: ApiCalls, params: Mapping[str, Any], questions: CallQuestions | None
    ) -> None:
        if request_id not in self._pending:
            return  # given up before it was sent
        scope = self._scopes[request_id] = Scope()
        answer: direct.Answer | direct.Refusal
        try:
            with scope:
                answer = await calls.call(params["name"], params["arguments"], questions)
        except Exception:
            logger.exception("a call of an API failed")
            answer = internal_error()
        finally:
            del self._scopes[request_id]
        if request_id in self._pending:  # not given up
            self.count += 1
            self.resolve(request_id, answer)


def internal_error() -> direct.Refusal:
    """Return the answer to a call after an exception that no API can cause."""
    fault = HttpFault(None, sent=True, usable=True)
    return direct.Refusal(INTERNAL_ERROR, "the call failed because of an internal error; see the log", fault.to_data())
