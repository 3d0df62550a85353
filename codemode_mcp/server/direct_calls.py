"""Calls that a client makes directly: not in a program, but with a request of its own for each of them.

Every call takes the dispatch path, like the calls of programs. A call that needs an answer of the user, for an approval
or for a question of its server, puts the question to the client, or is refused.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from codemode_mcp.audit import Auditor, sizes
from codemode_mcp.audit.events import call_id
from codemode_mcp.rules.policy.approval import Verdict, ask_for, may_be_always, remember_approval, verdict_of
from codemode_mcp.runs.calls.outcome import CallContext, CallEvents, Calling, CallRecord
from codemode_mcp.runs.questions import WINDOW, Questions
from codemode_mcp.sandbox.messages import Completion, ToolCall
from codemode_mcp.server.client import MAX_ROUNDS, Continued, LatestProgress, McpClient, progress_to
from declarations.untrusted_text import drop_hidden, escape_line
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError
from upstream_clients.redaction import cut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.rules.policy.approval import ApprovalQuestion, ApprovalRequest, Remember, RememberFn
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.dispatch import Dispatcher
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.services import App
    from upstream_clients.tools import JsonObject, Question


MAX_TEXT: Final = 500
"""Maximum length in characters of a message of a server."""

RESOURCE_NOT_FOUND: Final = -32002
"""Code of the handshake revisions for an unknown resource."""

_ONLY_IN_TERMINAL: Final = (
    "approvals are given in a terminal (tools.approval.via), which only calls of programs can wait for; nothing was "
    "sent; the user can list the tool in tools.approved"
)
"""The reason why a direct call is denied without asking its client."""


class Target(Struct, frozen=True):
    """A call to make.

    Attributes:
        catalog: the catalog of the caller, which has the entry.
        arguments: JSON text of an object.
        reads_apps: see `CallContext`.
    """

    entry: Entry
    catalog: Catalog
    arguments: str
    reads_apps: bool = False


class Answer(Struct, frozen=True):
    """The answer to a request that is a direct call.

    Attributes:
        value: the result as JSON text; empty after a failure.
        failure: the reason why the call has no result; None if it has one.
        code: the code of the failure, as in `errors`; None if there is a result.
        server_error: see `CallRecord`, after a failure.
        notes: texts of hooks for the client.
        plain: True if the result is data of a plugin, and not an MCP result.
        questions: an `InputRequiredResult` that is the whole answer; None if the call has ended.
    """

    value: str = ""
    failure: str | None = None
    code: str | None = None
    server_error: tuple[int, str, Any] | None = None
    notes: tuple[str, ...] = ()
    plain: bool = False
    questions: dict[str, Any] | None = None


def request_error(answer: Answer) -> JsonRpcError:
    """Return the error for a client after a failure: that of the server, or else our own refusal."""
    if answer.server_error is not None:
        code, message, data = answer.server_error
        return JsonRpcError(code, drop_hidden(message, keep="\n\t")[:MAX_TEXT], data)
    code = INTERNAL_ERROR if answer.code == "internal_error" else INVALID_PARAMS
    return JsonRpcError(code, (answer.failure or "")[: 4 * MAX_TEXT])


def unknown_resource(exchange: Exchange, uri: str) -> JsonRpcError:
    """Return the error for a resource that does not exist, or that the client must not know about."""
    code = INVALID_PARAMS if exchange.session.modern else RESOURCE_NOT_FOUND
    return JsonRpcError(code, f"Resource not found: {escape_line(uri)}", {"uri": uri})


class DirectCalls:
    """The direct calls of one client or of several.

    Use `running` while calls are made.
    """

    def __init__(self, upstreams: App, auditor: Auditor) -> None:
        self._upstreams = upstreams
        self._auditor = auditor
        self._calls: dict[str, ForwardedCall] = {}
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make calls for the duration of the context. Leaving it cancels them."""
        async with anyio.create_task_group() as self._group:
            yield
            self._group.cancel_scope.cancel()

    async def call_tool(self, exchange: Exchange, name: str, find: Callable[[], Awaitable[Target]]) -> dict[str, Any]:
        """Call a tool. Return a `CallToolResult` or an `InputRequiredResult`.

        Args:
            name: the name of the tool in messages.
            find: see `answer`.
        """
        from codemode_mcp.server.direct_forms import tool_result  # imports the SDK

        answer = await self.answer(exchange, find)
        if answer.questions is not None:
            return answer.questions
        name = escape_line(name)
        result = tool_result(name, answer, exchange.session.protocol_version)
        if sizes.log.isEnabledFor(logging.DEBUG):
            sizes.log_answer(name, result["content"], result.get("structuredContent"))
        return result

    async def request(self, exchange: Exchange, find: Callable[[], Awaitable[Target]]) -> Answer:
        """Make a call that is no call of a tool, as `answer` does. Raise `JsonRpcError` if it fails."""
        answer = await self.answer(exchange, find)
        if answer.questions is None and answer.failure is not None:
            raise request_error(answer)
        return answer

    async def answer(self, exchange: Exchange, find: Callable[[], Awaitable[Target]]) -> Answer:
        """Make a call, or continue one whose questions the client answers, and return the answer to the request.

        Cancelling this cancels the call.

        Args:
            find: returns the call to make. It is not awaited if the request continues a call.
        """
        reporter = progress_to(exchange)
        if reporter is None:
            return await self._answer(exchange, find, None)
        assert self._group is not None
        self._group.start_soon(reporter.run)
        try:
            return await self._answer(exchange, find, reporter)
        finally:
            reporter.close()

    async def _answer(
        self, exchange: Exchange, find: Callable[[], Awaitable[Target]], reporter: LatestProgress | None
    ) -> Answer:
        request_seconds = self._upstreams.settings().code_mode.max_request_ms / 1000
        deadline = time.monotonic() + request_seconds
        caller = exchange.caller
        continued = Continued.of(exchange.params)
        # Only the tool's own progress is passed on. The client could not distinguish it from messages of ours.
        client = McpClient(exchange, None, rounds=continued.round, lasting=False)
        if continued.run_id:
            # The client repeats its request with answers to the questions of the last result (revision 2026-07-28).
            found = self._calls.get(continued.run_id)
            if found is None or found.caller != caller or found.observed:
                return Answer(failure="this call has ended or was cancelled; call the tool again", code="invalid_input")
            call = found
            call.client, call.reporter = client, reporter
            call.request_seconds, call.deadline = request_seconds, deadline
            call.questions.answer(continued.answers.items())
        else:
            target = await find()
            if (reason := no_room([each.caller for each in self._calls.values()], caller)) is not None:
                return Answer(failure=reason, code="limit_exceeded")
            secret_id = "call_" + secrets.token_urlsafe(18)
            call = ForwardedCall(
                secret_id,
                _conversation(exchange, secret_id),
                caller,
                client,
                reporter,
                request_seconds,
                deadline,
                plain=target.entry.source != "mcp",
                remember=self._upstreams.remembers(),
            )
            dispatcher = await self._upstreams.dispatcher()
            assert self._group is not None
            self._calls[call.id] = call
            self._group.start_soon(self._run, call, dispatcher, target)
        questions = await self._observe(call)
        if questions:
            return Answer(questions=continued.input_required_result(call.id, questions.items()))
        if call.completion is None:
            return Answer(failure="the call was cancelled; call the tool again", code="aborted")
        notes = tuple(call.notes)
        if call.completion.error is not None:
            error = call.completion.error
            return Answer(failure=error.message, code=error.code, server_error=call.server_error, notes=notes)
        return Answer(call.completion.value, notes=notes, plain=call.plain)

    async def _run(self, call: ForwardedCall, dispatcher: Dispatcher, target: Target) -> None:
        """Carry out a call. This is a task, because a call may outlive the request that began it."""
        entry = target.entry
        now, effects = time.monotonic(), entry.effects
        record = CallRecord(1, entry.id, now, repeatable=entry.repeatable, read_only=effects.read_only)
        record.watched = self._auditor.listening
        events = CallEvents(self._auditor, call_id(call.id, 1))
        events.started(
            entry.id,
            target.arguments,
            definition=target.catalog.definition_digest(entry.id),
            principal=call.caller.principal,
            transport=call.caller.kind,
        )

        async def approve(request: ApprovalRequest) -> Verdict:
            events.asked(request)
            if dispatcher.approval_via == "terminal":
                verdict = Verdict(approved=False, why=_ONLY_IN_TERMINAL, by="nobody")
            else:
                verdict = await call.approve(request)
            events.decided(request, verdict)
            return verdict

        try:
            with call.scope, events.scope():
                context = CallContext(
                    call.conversation,
                    call.caller.owner or call.id,
                    call.caller,
                    target.catalog,
                    reads_apps=target.reads_apps,
                )
                calling = Calling(
                    ToolCall(1, entry.id, target.arguments),
                    context,
                    record,
                    None if call.reporter is None else call.progress,
                    call.ask,
                    approve,
                    call.notes.append,
                )
                call.completion = await dispatcher.call(calling)
        finally:
            completion, call.server_error = call.completion, record.server_error
            code = "aborted" if completion is None else None if completion.error is None else completion.error.code
            events.ended(record, code, time.monotonic())
            del self._calls[call.id]
            call.change()

    async def _observe(self, call: ForwardedCall) -> dict[str, Question | ApprovalQuestion]:
        """Wait until a call has ended or has questions for its client. Return the questions by their keys.

        Cancelling this cancels the call.
        """
        call.observed, call.scope.deadline = True, math.inf
        try:
            while call.id in self._calls:
                changed = call.changed
                if call.unanswered():
                    await anyio.sleep(WINDOW)  # more questions may follow
                    questions = call.unanswered()
                    if call.id in self._calls and questions:
                        # From now on no request waits for the call. If the client does not return, the call ends then.
                        ttl = self._upstreams.settings().code_mode.snapshot_ttl_seconds
                        call.scope.deadline = anyio.current_time() + ttl
                        return questions
                else:
                    await changed.wait()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()
            raise
        finally:
            call.observed = False
        return {}


def _conversation(exchange: Exchange, call: str) -> str:
    """Return the conversation of a call, which is safe to log. Each call of an unknown caller is a conversation."""
    caller = exchange.caller
    if caller.owner is None:
        return call
    session = exchange.session.session_id or ""
    return "client_" + hashlib.sha256(f"{caller.owner}\0{caller.client or ''}\0{session}".encode()).hexdigest()[:16]


# One direct call: the questions of its tool's server, its approval, and its progress.


log = logging.getLogger("codemode_mcp.server")

MAX_CALLS: Final = 4096
"""Most calls in flight, including those that wait for a client's answer to a question."""

MAX_PROGRESS: Final = 2_000
"""Characters of a progress message of a server that are passed on."""

MAX_OWN_CALLS: Final = 1024
"""Most calls in flight of one caller, if there are several callers."""

_WORDS: Final = {
    "elicitation/create": ("the user a question", "elicitation"),
    "sampling/createMessage": ("the client's model for an answer", "sampling"),
    "roots/list": ("for the client's folders", "roots"),
}
"""The words that follow "asked" in a message, and the client's capability, by kind of question."""


class _CannotBeAsked(Exception):
    """The client does not answer questions of this kind, or has answered the most rounds of questions."""


class _AnsweredTooLate(QuestionRefused):
    """The client did not answer before the deadline of its own request."""


@dataclass(eq=False)
class ForwardedCall:
    """A call in flight. It can outlive the request that began it, because the client repeats the request with answers.

    Attributes:
        id: an id that cannot be guessed.
        conversation: the same for all calls of one client. A server of the handshake revisions does not say to which
            call its question belongs, so any call of the conversation may put it to the client.
        client: the client of the latest request.
        reporter: takes the tool's progress for the latest request; None if its client wants none.
        request_seconds: time limit of a request. After it, the request is answered without the client's answers.
        deadline: end of this time for the latest request, in monotonic seconds.
        plain: True for a tool of a plugin, whose result is data and not an MCP result.
        remember: keeps an approval for later calls; see `App.remembers`.
        observed: True while a request waits for the call.
        notes: texts of hooks for the client, which follow the result.
        server_error: see `CallRecord`.
    """

    id: str
    conversation: str
    caller: Caller
    client: McpClient
    reporter: LatestProgress | None
    request_seconds: float
    deadline: float
    plain: bool
    remember: RememberFn | None
    # The mutable state.
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: anyio.Event = field(default_factory=anyio.Event)
    completion: Completion | None = None
    observed: bool = False
    notes: list[str] = field(default_factory=list)
    server_error: tuple[int, str, Any] | None = None
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.change)

    def change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def unanswered(self) -> dict[str, Question | ApprovalQuestion]:
        return {opened.key: opened.question for opened in self.questions.open if opened.answer is None}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the tool's progress to the client. Hidden characters of the message are dropped, as in errors."""
        if self.reporter is not None:
            shown = None if message is None else drop_hidden(cut(message, MAX_PROGRESS), keep="\n\t")
            self.reporter.report(self.id, (progress, total, shown))

    async def ask(self, question: Question) -> JsonObject:
        """Put a question of the tool's server to the client and return the answer.

        Raises:
            QuestionRefused: the client does not answer.
        """
        try:
            return await self._ask_client(question)
        except _CannotBeAsked:
            pass
        except QuestionRefused:
            raise
        except Exception as error:
            log.exception("a question of server %r could not be put", question.server)
            raise QuestionRefused("the question could not be put to the client") from error
        asked, capability = _WORDS[question.method]
        but = f"this client does not support {capability}"
        if self.client.supports(question):
            but = f"questions of this call were put in {MAX_ROUNDS} rounds already, which is the limit"
        raise QuestionRefused(f"server {question.server!r} asked {asked}, but {but}")

    async def approve(self, request: ApprovalRequest) -> Verdict:
        """Ask the client's user to approve the call. If the user cannot be asked, the call is denied."""
        remember: tuple[Remember, ...] = ()
        if self.remember is not None and may_be_always([request.tool], operates=self.caller.operates):
            remember = ("always",)
        question, _ = ask_for([request], remember=remember, who="the client")
        try:
            verdict = verdict_of(await self._ask_client(question), remember)
        except _CannotBeAsked:
            why = "this client does not support elicitation, so its user cannot be asked"
            return Verdict(approved=False, why=why, by="nobody")
        except _AnsweredTooLate:
            why = (
                f"the user has not answered within {self.request_seconds:g} s (maxRequestMs), so the call was not "
                "sent; call again when the user can answer, or ask the operator to add the tool to tools.approved"
            )
            return Verdict(approved=False, why=why, by="nobody")
        except QuestionRefused as refusal:
            return Verdict(approved=False, why=str(refusal))
        if verdict.approved and verdict.remember == "always" and self.remember is not None:
            note = await remember_approval(self.remember, (request.tool,), self.caller, log, otherwise="this call")
            self.notes += filter(None, (note,))
        return verdict

    async def _ask_client(self, question: Question | ApprovalQuestion) -> JsonObject:
        match self.client.way(question):
            case "ask":
                with anyio.move_on_after(max(0.0, self.deadline - time.monotonic())):
                    return await self.client.ask(question)
                raise _AnsweredTooLate(f"the client did not answer within {self.request_seconds:g} s (maxRequestMs)")
            case "return":
                return await self.questions.put(1, question, time.monotonic())
        raise _CannotBeAsked


def no_room(callers: Sequence[Caller], caller: Caller) -> str | None:
    """Return the reason why a caller must not begin another call; None if it may.

    Args:
        callers: the callers of all calls in flight.
    """
    if len(callers) >= MAX_CALLS:
        return f"{MAX_CALLS} calls are in flight already; try again when one has ended"
    share = caller.share or caller.owner
    if caller.kind == "stdio" or share is None or len(callers) < MAX_OWN_CALLS:
        return None
    # A call stays in flight for long if its client never answers a question. One caller must not fill all places.
    if sum((each.share or each.owner) == share for each in callers) < MAX_OWN_CALLS:
        return None
    whose = "of yours" if caller.share is None else "from your address"
    return f"{MAX_OWN_CALLS} calls {whose} are in flight already; try again when one has ended"
