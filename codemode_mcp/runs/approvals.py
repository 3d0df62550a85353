"""The calls of one run that wait for a person's approval, and the decisions that count for the whole run.

One question asks about all waiting calls for which it has room, and the next question asks about the others. If a call
is decided in another way meanwhile, or is given up, the question is withdrawn and a new one asks about the remaining
calls. A program cannot influence decisions: they come from the operator, or from a client that was shown the question
and so knows its key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.policy.approval import Verdict, ask_for, can_be_remembered, is_cancel, verdict_of
from declarations.untrusted_text import escape_line
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.policy.approval import ApprovalQuestion, ApprovalRequest, Remember
    from codemode_mcp.runs.questions import Questions
    from codemode_mcp.settings import Via
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.runs")

GATHER_SECONDS = 0.1
"""Seconds from the latest waiting call to the question, so that it can ask about other calls of the turn, too."""

MAX_GATHER_SECONDS = 1.0
"""Maximum seconds from the first waiting call to the question."""

MIN_DISMISS_SECONDS = 1.0
"""Minimum seconds that a person needs to dismiss a question. A faster dismissal was made by the client itself."""

MAX_DENIED = 3
"""Number of consecutive denied questions after which no person is asked any more. Otherwise a program in a loop could
ask until a person gives in."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One waiting call. `since`: monotonic seconds."""

    request: ApprovalRequest
    since: float
    decided: anyio.Event = field(default_factory=anyio.Event)
    verdict: Verdict | None = None


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
        """The numbers of the waiting calls."""
        return self._waiting.keys()

    @property
    def requests(self) -> tuple[ApprovalRequest, ...]:
        """The requests of the waiting calls, the oldest first."""
        return tuple(waiting.request for waiting in self._waiting.values())

    def remembers(self, tool: str) -> bool:
        """Return True if calls of a tool, given by its id, are approved for this run."""
        return tool in self._approved

    @property
    def state(self) -> tuple[frozenset[str], int, str]:
        """The state that is stored with a run: the tools approved for it, the number of consecutive denied questions,
        and the secret with which the keys of questions are made."""
        return frozenset(self._approved), self._denied, self._secret

    def restore(self, approved: Iterable[str], denied: int, secret: str) -> None:
        """Set the state as it was in another process; see `state`."""
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

    def known(self, request: ApprovalRequest) -> Verdict | None:
        """Return the verdict on a call for which no person has to be asked; None if a person has to be asked."""
        if request.tool in self._approved:
            return Verdict(approved=True, remember="run", by="remembered")
        if self._over:
            return Verdict(approved=False, why="its program was over before a person could be asked", by="nobody")
        if self._denied >= MAX_DENIED:
            why = f"no person is asked after {MAX_DENIED} denials in this program"
            return Verdict(approved=False, why=why, by="nobody")
        return None

    async def wait(self, request: ApprovalRequest, now: float) -> Verdict:
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
        question, count = ask_for([each.request for each in every], remember=remember)
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

    def _key_of(self, question: ApprovalQuestion) -> str:
        """Return the key of a question. Every process that continues the run makes the same key for the same question.

        Different questions have different keys, because the numbers of the calls are part of the message.
        """
        shown = f"{self._run_id}\n{','.join(question.remember)}\n{question.message}".encode("utf-8", "surrogatepass")
        return "approval-" + hmac.new(self._secret.encode(), shown, hashlib.sha256).hexdigest()[:32]

    def _remember_of(self, tools: Iterable[str]) -> tuple[Remember, ...]:
        lasting = self._operated and self._remember is not None and all(map(can_be_remembered, tools))
        return ("run", "always") if lasting else ("run",)

    def _answered(
        self, remember: tuple[Remember, ...], answer: JsonObject | QuestionRefused, seconds: float | None
    ) -> None:
        """Decide the calls of the question.

        Args:
            seconds: the time for which the client had the question; None if unknown.
        """
        asked, self._asked, self._key = self._asked, (), None
        if self._via == "auto" and seconds is not None and seconds < MIN_DISMISS_SECONDS and is_cancel(answer):
            # Nothing is decided. The calls wait for a decision in a terminal.
            self._dismissed = True
            log.info("the client of run %s dismissed a question without asking a person", self._run_id[:8])
            self._on_change()
            return
        if isinstance(answer, QuestionRefused):
            verdict = Verdict(approved=False, why=str(answer))
        else:
            verdict = verdict_of(answer, remember)
        self._denied = 0 if verdict.approved else self._denied + 1
        self._decide(asked, verdict, "the client's user")

    # deciding

    def decide(self, calls: Collection[int] | None, verdict: Verdict, by: str) -> list[int]:
        """Decide waiting calls, and return their numbers. Calls that do not wait are ignored.

        Args:
            calls: the numbers of the calls; None for all waiting calls.
            by: the person or program that decides, in words.

        Raises:
            ValueError: the approvals cannot be remembered for later programs.
        """
        chosen = [each for call, each in self._waiting.items() if calls is None or call in calls]
        if verdict.remember == "always" and not (
            self._remember is not None and all(can_be_remembered(each.request.tool) for each in chosen)
        ):
            raise ValueError("these approvals cannot be remembered for later programs; use --remember run")
        self._decide(chosen, verdict, by)
        return [each.request.call for each in chosen]

    def _decide(self, chosen: Collection[_Waiting], verdict: Verdict, by: str) -> None:
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
        """Remove a call that no longer waits, and withdraw the question about it."""
        self._waiting.pop(waiting.request.call, None)
        if waiting in self._asked:
            self._withdraw()

    def _withdraw(self) -> None:
        if self._key is not None:
            self._questions.withdraw(self._key)
        self._key, self._asked = None, ()
