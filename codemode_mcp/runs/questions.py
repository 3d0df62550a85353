"""The open questions of one run: from upstream servers, and from this server for approvals (`approvals`).

A server's question belongs to the call in which the server asked it. The question stays open while the run is
suspended, and is put to the next client that observes the run. There are three kinds of clients:

- Some can be asked while their request is open.
- Some get the questions as the answer to their request, and send their answers with the next request (MCP revision
  2026-07-28).
- Some can do neither.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
from msgspec import Struct, field

from codemode_mcp.rules.policy import approval
from declarations.untrusted_text import escape_line
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from codemode_mcp.base.settings import Via
    from upstream_clients.tools import JsonObject, Question, QuestionMethod

    OnAnswer = Callable[[JsonObject | QuestionRefused, float | None], None]
    """Called with the answer to a question of `Questions.show`, and the seconds for which the client had the question.
    The seconds are None if unknown."""


log = logging.getLogger("codemode_mcp.runs")

Way = Literal["ask", "return", "later", "none"]
"""The way in which a client gets a question.

`ask`: by a request to the client. `return`: as the answer to the client's request. `later`: as the answer to the
client's next request, because the present one was answered with questions often enough. `none`: not at all."""

WINDOW = 0.1
"""Seconds that a request waits for questions of other calls before it is answered with the open questions."""

MAX_TURNED_DOWN = 5
"""Number of consecutive questions of a program that a user can turn down before the program can ask no more.

Otherwise a program in a loop could ask until the user gives in."""


class RunNotes(Protocol):
    """Notes to the relay of a client about the run of one request.

    If this process is killed, the relay tells the client which run its request had, and whether calls were sent. So a
    note about calls has to be written before the first call is sent.
    """

    @property
    def are_written(self) -> bool:
        """True if everything for the relay is written, or the relay has gone."""
        ...

    def write(self, run_id: str | None, *, dispatched: bool) -> bool:
        """Write a note without waiting.

        Args:
            run_id: None for a call without a program.
            dispatched: True if a call of the run may have been sent, in this request or an earlier one.

        Returns:
            False if the note is not written yet. It is written as soon as the relay reads.
        """
        ...

    async def written(self) -> None:
        """Wait until all notes are written, or the relay has gone."""
        ...


class Client(Protocol):
    """The client behind one open `exec` or `wait`."""

    @property
    def notes(self) -> RunNotes | None:
        """The notes about the run of the request; None for a client without a relay."""
        ...

    @property
    def lasting(self) -> bool:
        """True if a question may stay open at the client after the client's request has ended."""
        ...

    @property
    def polls(self) -> bool:
        """True if the client asks for the state of a run again and again.

        Then only the end of the run has its output, and the client may get a question many times.
        """
        ...

    @property
    def supported(self) -> frozenset[QuestionMethod]: ...

    def progress(self, source: str, message: str) -> None:
        """Report progress of the open request. A message replaces an earlier unsent message of the same source."""
        ...

    def way(self, question: Question | approval.ApprovalQuestion) -> Way: ...

    async def ask(self, question: Question | approval.ApprovalQuestion) -> JsonObject:
        """Ask a question whose way is "ask", and return the MCP result.

        Raises:
            QuestionRefused: the client does not answer.
        """
        ...


class OpenQuestion(Struct, eq=False):
    """One question without an answer.

    Attributes:
        call: the id of its call; None for an approval.
        began: monotonic seconds.
        on_answer: called once with the answer to a question of `show`.
        shown: monotonic seconds at which a client last got the question; None if no client has got it.
        asking: cancels the request to the client; None if no client is being asked.
        lasting: True if the client may answer after its own request has ended.
        way: the client that last observed the run, and its way. It is kept, because finding it out takes long for a
            large question.
        answered: set when there is an `answer`.
    """

    key: str
    question: Question | approval.ApprovalQuestion
    call: int | None
    began: float
    on_answer: OnAnswer | None = None
    shown: float | None = None
    asking: anyio.CancelScope | None = None
    lasting: bool = False
    way: tuple[Client, Way] | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: JsonObject | QuestionRefused | None = None

    @property
    def title(self) -> str:
        """The kind of question and its server, for the log."""
        if isinstance(self.question, approval.ApprovalQuestion):
            return "a question for approval"
        return f"a question of server {self.question.server!r}"


_TAKEN_OVER = "its program was taken over by another process, where this question cannot be put"


class Questions:
    """The open questions of one run.

    Args:
        on_change: called when a question is opened, answered or withdrawn.
    """

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_change = on_change
        self._clock = clock
        self._open: dict[str, OpenQuestion] = {}
        self._unclaimed: dict[str, JsonObject | QuestionRefused] = {}
        """Answers in the open request to questions that are not open, by key."""
        self._count = 0
        self._turned_down = 0
        self._refuses = False

    def __repr__(self) -> str:
        return f"<Questions: {len(self._open)} open>"

    @property
    def open(self) -> Collection[OpenQuestion]:
        """The questions without an answer."""
        return self._open.values()

    @property
    def state(self) -> tuple[int, int]:
        """The state that is stored with a run: the number of questions so far, from which their keys are made, and the
        number of consecutive questions that were turned down."""
        return self._count, self._turned_down

    def restore(self, count: int, turned_down: int) -> None:
        self._count, self._turned_down = count, turned_down

    @property
    def calls(self) -> set[int]:
        """The calls whose servers wait for an answer."""
        return {each.call for each in self._open.values() if each.call is not None}

    @property
    def being_asked(self) -> bool:
        return bool(self._open) and any(each.asking is not None for each in self._open.values())

    @property
    def has_answer(self) -> bool:
        """True if a question was answered, but its call has not taken the answer yet."""
        return any(each.answer is not None for each in self._open.values())

    def returned_to(self, client: Client | None) -> list[OpenQuestion]:
        """Return the open questions that the client gets as the answer to its request."""
        if client is None or not self._open:
            return []
        return [each for each in self._open.values() if _way(each, client) == "return"]

    def hand_out(self, client: Client | None) -> tuple[tuple[str, Question | approval.ApprovalQuestion], ...]:
        """Return the questions for the answer to the client's request, by key, and mark them as shown."""
        found = self.returned_to(client)
        for each in found:
            if each.shown is None or client is None or not client.polls:
                each.shown = self._clock()
        return tuple((each.key, each.question) for each in found)

    def put_later(self, client: Client | None) -> bool:
        """Return True if the client gets a question with its next request."""
        return client is not None and any(_way(each, client) == "later" for each in self._open.values())

    async def put(self, call: int, question: Question | approval.ApprovalQuestion, now: float) -> JsonObject:
        """Put a question and wait for its answer. Cancelling withdraws the question.

        Raises:
            QuestionRefused: the client does not answer, or the program has asked the user too often.
        """
        if self._refuses:
            raise QuestionRefused(_TAKEN_OVER)
        if _to_user_by_program(question) and self._turned_down >= MAX_TURNED_DOWN:
            raise QuestionRefused(
                f"the user has turned down {MAX_TURNED_DOWN} questions of this program in a row, and is not asked again"
            )
        self._count += 1
        opened = OpenQuestion(f"question-{self._count}", question, call, now)
        self._open[opened.key] = opened
        self._on_change()
        try:
            await opened.answered.wait()
        finally:
            del self._open[opened.key]
            if opened.asking is not None:
                opened.asking.cancel()
            self._on_change()
        assert opened.answer is not None
        if _to_user_by_program(question):
            accepted = isinstance(opened.answer, dict) and opened.answer.get("action") == "accept"
            self._turned_down = 0 if accepted else self._turned_down + 1
        if isinstance(opened.answer, QuestionRefused):
            raise opened.answer
        return opened.answer

    def show(
        self,
        key: str,
        question: approval.ApprovalQuestion,
        now: float,
        on_answer: OnAnswer,
    ) -> None:
        """Put a question without waiting for its answer.

        Args:
            key: the unique key of the question. Only a client that was shown the question can know it.
        """
        self._open[key] = OpenQuestion(key, question, None, now, on_answer)
        self._on_change()

    def holds_unclaimed(self, keys: Iterable[str]) -> bool:
        """Return True if one of these keys has an answer that `take_unclaimed` may still take."""
        return any(key in self._unclaimed for key in keys)

    def take_unclaimed(self, key: str) -> JsonObject | QuestionRefused | None:
        """Take the answer to a question that another process has put, if the open request has one; None otherwise."""
        return self._unclaimed.pop(key, None)

    def withdraw(self, key: str) -> None:
        """Withdraw a question of `show`. Later answers to it are ignored."""
        opened = self._open.pop(key, None)
        if opened is not None:
            if opened.asking is not None:
                opened.asking.cancel()
            self._on_change()

    def answer(self, answers: Iterable[tuple[str, JsonObject | QuestionRefused]]) -> None:
        """Accept answers by key. Answers to questions that are not open, or have an answer, are ignored."""
        for key, answer in answers:
            opened = self._open.get(key)
            if opened is not None and opened.answer is None:
                opened.answer = answer or {}  # a client may send null, which was not validated
                opened.answered.set()
                if opened.on_answer is not None:
                    self.withdraw(key)
                    seconds = None if opened.shown is None else self._clock() - opened.shown
                    opened.on_answer(answer, seconds)

    def accept_answers(self, answers: Mapping[str, JsonObject]) -> None:
        """Accept the answers in a request.

        Answers to questions that are not open are kept during the request. This process may have just taken the run
        over, and may still put these questions.
        """
        self._unclaimed |= {key: answer or {} for key, answer in answers.items() if key not in self._open}
        self.answer(answers.items())

    def refuse(self) -> None:
        """Refuse the questions of servers, because another process has the run and its clients."""
        self._refuses = True
        servers = [key for key, each in self._open.items() if each.call is not None]
        self.answer((key, QuestionRefused(_TAKEN_OVER)) for key in servers)

    def to_ask(self, client: Client | None) -> list[OpenQuestion]:
        """Return the questions to put to the client now, and mark them as being asked."""
        if client is None or not self._open:
            return []
        found = [
            each
            for each in self._open.values()
            if each.asking is None and each.answer is None and _way(each, client) == "ask"
        ]
        for each in found:
            each.asking, each.lasting = anyio.CancelScope(), client.lasting
            each.shown = self._clock()
        return found

    async def ask(self, opened: OpenQuestion, client: Client) -> None:
        assert opened.asking is not None
        answer: JsonObject | QuestionRefused | None = None
        with opened.asking:
            try:
                answer = await client.ask(opened.question)
            except QuestionRefused as refusal:
                answer = refusal
            except Exception:
                # An exception of this task would cancel all other tasks of its group.
                log.exception("%s could not be put", opened.title)
                answer = QuestionRefused("the question could not be put to the client")
        opened.asking = None
        if answer is not None:
            self.answer([(opened.key, answer)])
        self._on_change()

    def end_request(self) -> None:
        """Withdraw the questions that are bound to the open request, because it ends. They can be put again."""
        self._unclaimed = {}
        for each in self._open.values():
            if each.asking is not None and not each.lasting:
                each.asking.cancel()


def _to_user_by_program(question: Question | approval.ApprovalQuestion) -> bool:
    return (
        not isinstance(question, approval.ApprovalQuestion)
        and question.by_program
        and question.method == "elicitation/create"
    )


def _way(opened: OpenQuestion, client: Client) -> Way:
    if opened.way is None or opened.way[0] is not client:
        opened.way = client, client.way(opened.question)
    return opened.way[1]


# The calls of one run that wait for a person's approval, and the decisions that count for the whole run.
#
# One question asks about all waiting calls for which it has room, and the next question asks about the others. If a
# call is decided in another way meanwhile, or is given up, the question is withdrawn and a new one asks about the
# remaining calls. A program cannot influence decisions: they come from the operator, or from a client that was shown
# the question and so knows its key.


GATHER_SECONDS = 0.1
"""Seconds from the latest waiting call to the question, so that it can ask about other calls of the turn, too."""

MAX_GATHER_SECONDS = 1.0
"""Maximum seconds from the first waiting call to the question."""

MIN_DISMISS_SECONDS = 1.0
"""Minimum seconds that a person needs to dismiss a question. A faster dismissal was made by the client itself."""

MAX_DENIED = 3
"""Number of consecutive denied questions after which no person is asked any more. Otherwise a program in a loop could
ask until a person gives in."""


class _Waiting(Struct, eq=False):
    """One waiting call. `since`: monotonic seconds."""

    request: approval.ApprovalRequest
    since: float
    decided: anyio.Event = field(default_factory=anyio.Event)
    verdict: approval.Verdict | None = None


class Approvals:
    """The calls of one run that wait for an approval.

    Args:
        run_id: for the log.
        on_change: called when a call starts or stops waiting.
        remember: stores approvals of tools for later programs; None if they cannot be stored.
        operated: True if the client's user may approve tools for later programs.
        via: the way in which a person is asked; see `settings.ApprovalSettings`.
    """

    def __init__(
        self,
        run_id: str,
        questions: Questions,
        on_change: Callable[[], None],
        remember: Callable[[Collection[str]], None] | None = None,
        *,
        operated: bool = False,
        via: Via = "auto",
    ) -> None:
        self._run_id = run_id
        self._questions = questions
        self._on_change = on_change
        self._remember = remember
        self._operated = operated
        self._via = via
        self._dismissed = False
        self._waiting: dict[int, _Waiting] = {}
        self._approved: set[str] = set()
        self._denied = 0
        self._secret = secrets.token_hex(16)
        self._key: str | None = None
        self._asked: tuple[_Waiting, ...] = ()
        self._over = False

    def __repr__(self) -> str:
        return f"<Approvals: {len(self._waiting)} calls wait, {len(self._asked)} are asked for>"

    @property
    def calls(self) -> Collection[int]:
        return self._waiting.keys()

    @property
    def requests(self) -> tuple[approval.ApprovalRequest, ...]:
        """The requests of the waiting calls, the oldest first."""
        return tuple(waiting.request for waiting in self._waiting.values())

    def remembers(self, tool: str) -> bool:
        return tool in self._approved

    @property
    def state(self) -> tuple[frozenset[str], int, str]:
        """The state that is stored with a run: the tools approved for it, the number of consecutive denied questions,
        and the secret with which the keys of questions are made."""
        return frozenset(self._approved), self._denied, self._secret

    def restore(self, approved: Iterable[str], denied: int, secret: str) -> None:
        self._approved, self._denied, self._secret = set(approved), denied, secret

    @property
    def gathers(self) -> bool:
        """True if calls wait for which a question has not been put yet, and may be put."""
        return bool(self._waiting) and self._key is None and not self._over and self.unasked_reason is None

    @property
    def unasked_reason(self) -> str | None:
        """The reason why the client is not asked, as a sentence; None if the client is asked."""
        if self._via == "terminal":
            return "Approvals are given in a terminal here, not by this client."
        if self._dismissed:
            return "The client dismissed the question without asking a person, so nothing is decided."
        return None

    def known(self, request: approval.ApprovalRequest) -> approval.Verdict | None:
        """Return the verdict on a call for which no person has to be asked; None if a person has to be asked."""
        if request.tool in self._approved:
            return approval.Verdict(approved=True, remember="run", by="remembered")
        if self._over:
            return approval.Verdict(
                approved=False, why="its program was over before a person could be asked", by="nobody"
            )
        if self._denied >= MAX_DENIED:
            why = f"no person is asked after {MAX_DENIED} denials in this program"
            return approval.Verdict(approved=False, why=why, by="nobody")
        return None

    async def wait(self, request: approval.ApprovalRequest, now: float) -> approval.Verdict:
        """Wait for the verdict on a call. Cancelling ends the wait of the call."""
        waiting = self._waiting[request.call] = _Waiting(request, now)
        self._on_change()
        try:
            await waiting.decided.wait()
        finally:
            if waiting.verdict is None:
                self._remove(waiting)
                self._on_change()
        assert waiting.verdict is not None
        return waiting.verdict

    def end(self) -> None:
        """Put no more questions, because the program has ended. The caller gives up the waiting calls."""
        self._over = True
        self._withdraw()

    # asking the client

    def due(self, *, more_may_come: bool) -> float:
        """Return the time at which the question is put, monotonic seconds.

        Args:
            more_may_come: True if other calls may still have to wait for an approval.
        """
        if not self.gathers:
            return math.inf
        every = self._waiting.values()
        if not more_may_come:
            return 0.0
        # The dict keeps the order of the calls.
        first, latest = next(iter(every)).since, next(reversed(every)).since
        return min(latest + GATHER_SECONDS, first + MAX_GATHER_SECONDS)

    def gather(self, now: float, *, more_may_come: bool) -> None:
        """Put the question if it is due."""
        if now < self.due(more_may_come=more_may_come):
            return
        every = tuple(self._waiting.values())
        remember = self._remember_of(each.request.tool for each in every)
        question, count = approval.ask_for([each.request for each in every], remember=remember)
        self._asked = every[:count]
        log.info("a person is asked about %d call%s of run %s", count, "" if count == 1 else "s", self._run_id[:8])
        key = self._key_of(question)
        # Another process may have put the same question. Then the client of this request may have sent the answer.
        answer = self._questions.take_unclaimed(key)
        if answer is not None:
            self._answered(remember, answer, None)
            return
        self._key = key
        self._questions.show(key, question, self._asked[0].since, partial(self._answered, remember))

    def _key_of(self, question: approval.ApprovalQuestion) -> str:
        """Return the key of a question. Every process that continues the run makes the same key for the same question.

        Different questions have different keys, because the numbers of the calls are part of the message.
        """
        shown = f"{self._run_id}\n{','.join(question.remember)}\n{question.message}".encode("utf-8", "surrogatepass")
        return "approval-" + hmac.new(self._secret.encode(), shown, hashlib.sha256).hexdigest()[:32]

    def _remember_of(self, tools: Iterable[str]) -> tuple[approval.Remember, ...]:
        lasting = self._remember is not None and approval.may_be_always(tools, operates=self._operated)
        return ("run", "always") if lasting else ("run",)

    def _answered(
        self, remember: tuple[approval.Remember, ...], answer: JsonObject | QuestionRefused, seconds: float | None
    ) -> None:
        """Decide the calls of the question.

        Args:
            seconds: the time for which the client had the question; None if unknown.
        """
        asked, self._asked, self._key = self._asked, (), None
        if self._via == "auto" and seconds is not None and seconds < MIN_DISMISS_SECONDS and approval.is_cancel(answer):
            # Nothing is decided. The calls wait for a decision in a terminal.
            self._dismissed = True
            log.info("the client of run %s dismissed a question without asking a person", self._run_id[:8])
            self._on_change()
            return
        if isinstance(answer, QuestionRefused):
            verdict = approval.Verdict(approved=False, why=str(answer))
        else:
            verdict = approval.verdict_of(answer, remember)
        self._denied = 0 if verdict.approved else self._denied + 1
        self._decide(asked, verdict, "the client's user")

    # deciding

    def decide(self, calls: Collection[int] | None, verdict: approval.Verdict, by: str) -> list[int]:
        """Decide waiting calls, and return their numbers. Calls that do not wait are ignored.

        Args:
            calls: the numbers of the calls; None for all waiting calls.
            by: the person or program that decides, in words.

        Raises:
            ValueError: the approvals cannot be remembered for later programs.
        """
        chosen = [each for call, each in self._waiting.items() if calls is None or call in calls]
        if verdict.remember == "always" and not (
            self._remember is not None and approval.may_be_always(each.request.tool for each in chosen)
        ):
            raise ValueError("these approvals cannot be remembered for later programs; use --remember run")
        self._decide(chosen, verdict, by)
        return [each.request.call for each in chosen]

    def _decide(self, chosen: Collection[_Waiting], verdict: approval.Verdict, by: str) -> None:
        tools = dict.fromkeys(each.request.tool for each in chosen)
        if verdict.approved and verdict.remember != "no":
            # Other waiting calls of the same tools are approved with these.
            self._approved.update(tools)
            chosen = [*chosen, *(each for each in self._waiting.values() if each.request.tool in self._approved)]
        for waiting in dict.fromkeys(chosen):
            self._remove(waiting)
            waiting.verdict = verdict
            waiting.decided.set()
            log.info(
                "call %d of run %s, %s: %s by %s%s",
                waiting.request.call,
                self._run_id[:8],
                escape_line(waiting.request.tool),
                "approved" if verdict.approved else "denied",
                by,
                "" if verdict.remember == "no" else f", remembered ({verdict.remember})",
            )
        if verdict.approved and verdict.remember == "always" and self._remember is not None:
            self._remember(tuple(tools))
        self._on_change()

    def _remove(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting.request.call, None)
        if waiting in self._asked:
            self._withdraw()

    def _withdraw(self) -> None:
        if self._key is not None:
            self._questions.withdraw(self._key)
        self._key, self._asked = None, ()
