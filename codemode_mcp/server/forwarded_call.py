"""One call of pass-through mode: the questions of its tool's server, its approval, and its progress."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.policy.approval import Verdict, ask_for, can_be_remembered, remember_approval, verdict_of
from codemode_mcp.runs.questions import Questions
from codemode_mcp.server.client import MAX_ROUNDS
from declarations.untrusted_text import drop_hidden
from upstream_clients.errors import QuestionRefused
from upstream_clients.redaction import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.policy.approval import ApprovalQuestion, ApprovalRequest, Remember, RememberFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.sandbox.messages import Completion
    from codemode_mcp.server.client import LatestProgress, McpClient
    from upstream_clients.tools import JsonObject, Question

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
        """Wake the tasks that wait for `changed`."""
        self.changed.set()
        self.changed = anyio.Event()

    def unanswered(self) -> dict[str, Question | ApprovalQuestion]:
        """Return the open questions that have no answer yet, by their keys."""
        return {opened.key: opened.question for opened in self.questions.open if opened.answer is None}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the tool's progress to the client. Hidden characters of the message are dropped, as in errors."""
        if self.reporter is not None:
            shown = None if message is None else drop_hidden(cut(message, MAX_PROGRESS), keep="\n\t")
            self.reporter.put(self.id, (progress, total, shown))

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
        if self.remember is not None and self.caller.operates and can_be_remembered(request.tool):
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
