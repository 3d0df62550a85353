"""The client behind one open request: progress to it, and the questions of upstream servers in the way of its era.

Clients of the legacy revisions are asked by requests of ours while theirs is open. Those of 2026-07-28 get the
questions as an `InputRequiredResult` and repeat their request with the answers.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from codemode_mcp.errors import StoreUnavailable
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.session import ServerSession

    from codemode_mcp.approval import ApprovalQuestion
    from codemode_mcp.runs.questions import Way
    from upstream_clients.tools import JsonObject, Question, QuestionMethod, RootsFn

log = logging.getLogger("codemode_mcp.client")

PROGRESS_SECONDS = 2.0
"""Interval of the signs of life that an open request sends to its client."""

PROGRESS_INTERVAL = 0.25
"""Seconds between two progress messages of one request, after the first few."""

PROGRESS_BURST = 5
"""Progress messages of one request that may follow each other immediately."""

MAX_ROUNDS = 8
"""How often one request is answered with questions. Clients give up after ten; then `wait` begins anew."""

Request = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest

PROGRAM_ASKS = "[the program]"
"""What a question begins with that a program puts. Of a server's, it is the server's configured name in brackets; what
we ask ourselves never begins with a bracket."""

_REQUESTS: dict[str, type[Request]] = {
    "elicitation/create": types.ElicitRequest,
    "sampling/createMessage": types.CreateMessageRequest,
    "roots/list": types.ListRootsRequest,
}
_RESULTS: dict[str, type[BaseModel]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResultWithTools,
    "roots/list": types.ListRootsResult,
}


@dataclass(frozen=True, slots=True)
class Continued:
    """What a client of 2026-07-28 brings back with its answers: which run they are for.

    Attributes:
        run_id: empty for a request that continues nothing.
        round: how often this request was answered with questions already.
        answers: by the keys of the questions; nobody has looked at them.
    """

    run_id: str = ""
    round: int = 0
    answers: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Continued:
        """What `params` say; their state has been verified to be of our own making (see `guard_state`)."""
        if params.request_state is None:
            return Continued()
        run_id, rounds = json.loads(params.request_state)
        return Continued(run_id, rounds, (context.params or {}).get("inputResponses") or {})

    def asks_again(
        self, run_id: str, questions: Iterable[tuple[str, Question | ApprovalQuestion]]
    ) -> types.InputRequiredResult:
        """The answer to this request that puts questions, by their keys."""
        return types.InputRequiredResult(
            input_requests={key: as_request(question) for key, question in questions},
            request_state=json.dumps([run_id, self.round + 1]),
        )


def guard_state(server: Server[Any], seconds: float, keys: StateKeys | None = None) -> None:
    """What a client brings back says which run or call its answers are for: nobody else may make that up, and it holds
    for so long.

    Args:
        keys: of 32 bytes each, that other processes have too which may get what this one has given out; asked for when
            the first state is given out or comes back. None, or none of them: it is understood by this process alone.
    """
    server.middleware.append(_Boundary(seconds, keys))


StateKeys = Callable[[], Awaitable[Sequence[bytes]]]
"""Raises `StoreUnavailable` while they cannot be had."""


class _Boundary(RequestStateBoundary):
    def __init__(self, seconds: float, keys: StateKeys | None) -> None:
        self._own = os.urandom(32)
        self._keys = keys
        self._state_security = RequestStateSecurity(keys=[self._own], ttl=seconds)
        super().__init__(self._state_security, default_audience="codemode-mcp")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        async def then_share(given: ServerRequestContext[Any, Any]) -> HandlerResult:
            result = await call_next(given)
            if is_input_required(result):
                await self._share()
            return result

        if (ctx.params or {}).get("requestState") is not None:
            await self._share()
        return await super().__call__(ctx, then_share)

    async def _share(self) -> None:
        if self._keys is None:
            return
        with suppress(StoreUnavailable):  # then programs are suspended in this process alone
            shared = await self._keys()
            self._state_security.codec = AESGCMRequestStateCodec([*shared, self._own])
            self._keys = None


class McpClient:
    """Satisfies `runs.questions.Client`.

    Args:
        progress: takes progress messages; None if the client has not asked for any.
        rounds: how often this request was answered with questions already.
    """

    def __init__(
        self,
        context: ServerRequestContext[Any],
        progress: LatestProgress | None,
        *,
        rounds: int,
        lasting: bool,
    ) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._progress = progress
        self._rounds = rounds
        self._modern = context.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.lasting = lasting and not self._modern
        self.supported = supported(context.session.client_capabilities)

    def progress(self, source: str, message: str) -> None:
        if self._progress is not None:
            self._progress.put(source, (None, None, message))

    def way(self, question: Question | ApprovalQuestion) -> Way:
        if question.method == "roots/list" and not self.supports(question):
            return "ask"  # see there
        if not self.supports(question):
            return "none"
        if not self._modern:
            return "ask"
        if _request_of(question) is None:
            return "ask"  # which refuses it
        return "return" if self._rounds < MAX_ROUNDS else "later"

    async def ask(self, question: Question | ApprovalQuestion) -> JsonObject:
        """Ask now; see `runs.questions.Client`."""
        if question.method == "roots/list" and not self.supports(question):
            return {"roots": []}  # nobody need be asked for what the client does not have
        request = _request_of(question)
        if request is None:
            raise QuestionRefused(f"the params of {question.method} are nothing that can be put to a client")
        related = None if self.lasting else ServerMessageMetadata(related_request_id=self._request_id)
        try:
            answer = await self._session.send_request(request, _RESULTS[question.method], metadata=related)
        except MCPError as error:
            raise QuestionRefused(f"the client answered with error {error.code}: {error.message[:200]}") from error
        except ValidationError as error:
            raise QuestionRefused("the client's answer is not valid MCP") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise QuestionRefused("the client is gone") from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    def supports(self, question: Question | ApprovalQuestion) -> bool:
        """Whether the client has declared that it answers such questions."""
        declared = self._session.client_capabilities
        if declared is None:
            return False
        match question.method:
            case "elicitation/create":
                elicitation = declared.elicitation
                if elicitation is None:
                    return False
                if question.params.get("mode") == "url":
                    return elicitation.url is not None
                # An empty capability is the form mode alone (2025-11-25).
                return elicitation.form is not None or elicitation.url is None
            case "sampling/createMessage":
                with_tools = question.params.keys() & {"tools", "toolChoice"}
                return declared.sampling is not None and (not with_tools or declared.sampling.tools is not None)
            case "roots/list":
                return declared.roots is not None


def supported(declared: types.ClientCapabilities | None) -> frozenset[QuestionMethod]:
    """What a client of these capabilities answers."""
    if declared is None:
        return frozenset()
    found: dict[QuestionMethod, bool] = {
        # An empty capability is the form mode alone (2025-11-25).
        "elicitation/create": declared.elicitation is not None
        and (declared.elicitation.form is not None or declared.elicitation.url is None),
        "sampling/createMessage": declared.sampling is not None,
        "roots/list": declared.roots is not None,
    }
    return frozenset(method for method, answers in found.items() if answers)


def as_request(question: Question | ApprovalQuestion) -> Request:
    """The MCP request that puts a question.

    Raises:
        ValueError: its params, which are an upstream's, are not valid, or nothing to show to somebody.
    """
    from codemode_mcp.approval import ApprovalQuestion  # not before somebody asks: a list of tools needs none of it

    # Progress and tasks of the upstream's are nothing to this client.
    params = {key: value for key, value in question.params.items() if key not in ("_meta", "task")}
    if question.method == "elicitation/create" and not isinstance(question, ApprovalQuestion):
        # The client shows the question as ours. Whose it is must not be left to the server's own words, which could
        # also erase or imitate it.
        words = _UNSHOWN.sub("", str(params.get("message", ""))).replace("\n", "\n  ")
        params["message"] = f"{PROGRAM_ASKS} {words}" if question.by_program else f"[{question.server}] {words}"
        if params.get("mode") == "url":
            if urlsplit(str(params.get("url"))).scheme not in ("http", "https"):
                raise ValueError("only pages of http and https can be opened")
            # Obliged in 2025-11-25, gone in 2026-07-28.
            params.setdefault("elicitationId", secrets.token_hex(16))
    request = _REQUESTS[question.method].model_validate({"method": question.method, "params": params}, by_name=False)
    request.model_dump(by_alias=True, mode="json")  # raises here, and not when it is sent
    return request


_UNSHOWN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What moves the cursor, turns the direction of text or is not seen."""


def roots_of(session: ServerSession) -> RootsFn | None:
    """How to ask a client for its folders at any time; None where its era or its capabilities do not allow that."""
    declared = session.client_capabilities
    modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
    if modern or declared is None or declared.roots is None:
        return None

    async def roots() -> JsonObject:
        try:
            answer = await session.send_request(types.ListRootsRequest(), types.ListRootsResult)
        except (MCPError, ValidationError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            log.warning("the client did not name its roots: %s", type(error).__name__)
            return {"roots": []}
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return roots


def _request_of(question: Question | ApprovalQuestion) -> Request | None:
    try:
        return as_request(question)
    except ValueError:
        return None


Message = tuple[float | None, float | None, str | None]
"""The progress, total and text of one message. Without a progress, messages are counted."""


class LatestProgress:
    """Progress messages to the client of one request: the last one of each source, a few a second, one write at a time.

    An upstream may report progress faster than the client reads. Every message that is queued delays the answers, which
    share one stream with them. So beyond the first few a message replaces the one of its source that is not yet sent,
    and `close` drops all that are left: the answer says more than they do.
    """

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._session = context.session
        self._unsent: list[tuple[str, Message]] = []
        self._free_at = -math.inf
        """When the pauses after all that was sent are over."""
        self._news = anyio.Event()
        self._closed = False
        self._count = 0

    def put(self, source: str, message: Message) -> None:
        at = next((at for at, (whose, _) in reversed([*enumerate(self._unsent)]) if whose == source), None)
        could_go = PROGRESS_BURST - max(0.0, self._free_at - anyio.current_time()) / PROGRESS_INTERVAL
        if at is None or len(self._unsent) < could_go:
            self._unsent.append((source, message))
        else:
            self._unsent[at] = source, message
        self._news.set()

    def close(self) -> None:
        """Drop what is not yet sent, and end `run`."""
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Send messages until `close`."""
        while True:
            await self._news.wait()
            await anyio.sleep(max(0.0, self._free_at - anyio.current_time() - PROGRESS_BURST * PROGRESS_INTERVAL))
            if self._closed:
                return
            _, message = self._unsent.pop(0)
            if not self._unsent:
                self._news = anyio.Event()
            self._free_at = max(self._free_at, anyio.current_time()) + PROGRESS_INTERVAL
            await self._send(*message)

    async def _send(self, progress: float | None, total: float | None, text: str | None) -> None:
        self._count += 1
        # When the client has gone, its request is about to be cancelled.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._session.report_progress(float(self._count) if progress is None else progress, total, text)


def progress_to(context: ServerRequestContext[Any]) -> LatestProgress | None:
    """Return where progress of an open request goes; None if its client has not asked for progress."""
    meta = context.meta or {}
    return None if meta.get("progressToken", meta.get("progress_token")) is None else LatestProgress(context)


@asynccontextmanager
async def open_client(context: ServerRequestContext[Any], *, rounds: int, lasting: bool) -> AsyncIterator[McpClient]:
    """Open the client of a request, with progress: messages as they come, and a sign of life in between."""
    progress = progress_to(context)
    if progress is None:
        yield McpClient(context, None, rounds=rounds, lasting=lasting)
        return
    began = time.monotonic()

    async def tick() -> None:
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            progress.put("", (None, None, f"running for {time.monotonic() - began:.0f} s"))

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        group.start_soon(progress.run)
        yield McpClient(context, progress, rounds=rounds, lasting=lasting)
        group.cancel_scope.cancel()
