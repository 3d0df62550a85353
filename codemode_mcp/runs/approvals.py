"""The calls of one run that wait for a person's approval, and what was decided to count for the whole run.

All that wait come up together in one question, as far as it has room for them; the rest in the next one, when that is
answered. A call may be decided in another way meanwhile, or be given up: then the question is taken back, and what is
left is asked for anew. Nothing that a program can say reaches this: it takes answers to questions that a client was
shown, by their key, and what the operator says.
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

from codemode_mcp.catalog.entries import within_line
from codemode_mcp.policy.approval import Verdict, ask_for, is_cancel, lasts, verdict_of
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.policy.approval import ApprovalQuestion, ApprovalRequest, Remember
    from codemode_mcp.runs.questions import Questions
    from codemode_mcp.settings import Via
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.runs")

GATHER_SECONDS = 0.1
"""After the latest call that came to wait, for others of the same turn that are still on their way."""

MOST_GATHER_SECONDS = 1.0
"""After the first one."""

LEAST_SECONDS = 1.0
"""A question that is dismissed in less time was dismissed by the client itself: a person takes longer."""

MAX_DENIED = 3
"""Questions in a row that a person denied. After these nobody is asked any more: a program in a loop would ask until
somebody approves to be rid of it."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One call that waits. `since`: monotonic seconds."""

    request: ApprovalRequest
    since: float
    decided: anyio.Event = field(default_factory=anyio.Event)
    verdict: Verdict | None = None


class Approvals:
    """See the module.

    Args:
        run_id: for the log.
        keep: has approvals of tools remembered for ever; None where that cannot be.
        operated: whether the run is of somebody who may say so to a question.
        via: way in which a person is asked; see `settings.ApprovalSettings`.
        on_change: called when a call comes to wait or waits no more.
    """

    def __init__(
        self,
        run_id: str,
        questions: Questions,
        on_change: Callable[[], None],
        keep: Callable[[Collection[str]], None] | None = None,
        *,
        operated: bool = False,
        via: Via = "auto",
    ) -> None:
        self._run_id = run_id
        self._questions = questions
        self._on_change = on_change
        self._keep = keep
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
        """The calls that wait."""
        return self._waiting.keys()

    @property
    def requests(self) -> tuple[ApprovalRequest, ...]:
        """Likewise, whole, those that wait for longest first."""
        return tuple(waiting.request for waiting in self._waiting.values())

    def remembers(self, tool: str) -> bool:
        """Whether calls of a tool (its id) are approved for this run."""
        return tool in self._approved

    @property
    def state(self) -> tuple[frozenset[str], int, str]:
        """What outlives a process: the tools that are approved for this run, how many questions in a row were denied,
        and what keys of questions are made with."""
        return frozenset(self._approved), self._denied, self._secret

    def go_on(self, approved: Iterable[str], denied: int, secret: str) -> None:
        """From where it was in another process."""
        self._approved, self._denied, self._secret = set(approved), denied, secret

    @property
    def gathers(self) -> bool:
        """Whether there will be a question that is not there yet."""
        return bool(self._waiting) and self._key is None and not self._over and self.elsewhere is None

    @property
    def elsewhere(self) -> str | None:
        """Reason for not asking the client, in words; None if it is asked."""
        if self._via == "terminal":
            return "Approvals are given in a terminal here, not by this client."
        if self._dismissed:
            return "The client dismissed the question by itself, so no person has seen it and nothing is decided."
        return None

    def at_once(self, request: ApprovalRequest) -> Verdict | None:
        """What is known of a call without anybody being asked."""
        if request.tool in self._approved:
            return Verdict(approved=True, remember="run", by="remembered")
        if self._over:
            return Verdict(approved=False, why="its program was over before anybody could be asked", by="nobody")
        if self._denied >= MAX_DENIED:
            why = f"nobody is asked after {MAX_DENIED} denials in this program"
            return Verdict(approved=False, why=why, by="nobody")
        return None

    async def wait(self, request: ApprovalRequest, now: float) -> Verdict:
        """The verdict on a call. Cancelling this withdraws it."""
        waiting = self._waiting[request.call] = _Waiting(request, now)
        self._on_change()
        try:
            await waiting.decided.wait()
        finally:
            if waiting.verdict is None:
                self._take(waiting)
                self._on_change()
        assert waiting.verdict is not None
        return waiting.verdict

    def end(self) -> None:
        """The program is over, and nobody is asked any more; the calls that wait are for the caller to give up."""
        self._over = True
        self._withdraw()

    # asking the client

    def due(self, *, on_the_way: bool) -> float:
        """When the question is put, monotonic seconds; `on_the_way`: other calls may still come to wait."""
        if not self.gathers:
            return math.inf
        every = self._waiting.values()
        if not on_the_way:
            return 0.0
        # In the order in which they came.
        first, latest = next(iter(every)).since, next(reversed(every)).since
        return min(latest + GATHER_SECONDS, first + MOST_GATHER_SECONDS)

    def gather(self, now: float, *, on_the_way: bool) -> None:
        """Put the question, when it is due."""
        if now < self.due(on_the_way=on_the_way):
            return
        every = tuple(self._waiting.values())
        remember = self._remember_of(each.request.tool for each in every)
        question, count = ask_for([each.request for each in every], remember=remember)
        self._asked = every[:count]
        log.info("a person is asked about %d calls of run %s", count, self._run_id[:8])
        key = self._key_of(question)
        answer = self._questions.take_brought(key)
        if answer is not None:
            self._answered(answer, remember, None)
            return
        self._key = key
        self._questions.show(key, question, self._asked[0].since, partial(self._answered, remember=remember))

    def _key_of(self, question: ApprovalQuestion) -> str:
        """The same in each process that goes on with the run, and another one for whatever else is asked: the calls
        are in the question, by their numbers."""
        shown = f"{self._run_id}\n{','.join(question.remember)}\n{question.message}".encode("utf-8", "surrogatepass")
        return "approval-" + hmac.new(self._secret.encode(), shown, hashlib.sha256).hexdigest()[:32]

    def _remember_of(self, tools: Iterable[str]) -> tuple[Remember, ...]:
        lasting = self._operated and self._keep is not None and all(map(lasts, tools))
        return ("run", "always") if lasting else ("run",)

    def _answered(
        self, answer: JsonObject | QuestionRefused, remember: tuple[Remember, ...], seconds: float | None
    ) -> None:
        """Decide the calls that were asked for. `seconds`: that the client had the question; None: not known."""
        asked, self._asked, self._key = self._asked, (), None
        if self._via == "auto" and seconds is not None and seconds < LEAST_SECONDS and is_cancel(answer):
            # The calls go on waiting, for the terminal.
            self._dismissed = True
            log.info("the client of run %s dismissed a question by itself", self._run_id[:8])
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
        """Decide calls that wait, all of them for None, and say which they were. Others are passed over."""
        chosen = [each for call, each in self._waiting.items() if calls is None or call in calls]
        if verdict.remember == "always" and not (
            self._keep is not None and all(lasts(each.request.tool) for each in chosen)
        ):
            raise ValueError("these approvals cannot be remembered for ever")
        self._decide(chosen, verdict, by)
        return [each.request.call for each in chosen]

    def _decide(self, chosen: Collection[_Waiting], verdict: Verdict, by: str) -> None:
        tools = dict.fromkeys(each.request.tool for each in chosen)
        if verdict.approved and verdict.remember != "no":
            self._approved.update(tools)
            chosen = [*chosen, *(each for each in self._waiting.values() if each.request.tool in self._approved)]
        for waiting in dict.fromkeys(chosen):
            self._take(waiting)
            waiting.verdict = verdict
            waiting.decided.set()
            log.info(
                "call %d of run %s, %s: %s by %s%s",
                waiting.request.call,
                self._run_id[:8],
                within_line(waiting.request.tool),
                "approved" if verdict.approved else "denied",
                by,
                "" if verdict.remember == "no" else f", remembered ({verdict.remember})",
            )
        if verdict.approved and verdict.remember == "always" and self._keep is not None:
            self._keep(tuple(tools))
        self._on_change()

    def _take(self, waiting: _Waiting) -> None:
        """It waits no more. A question that shows it is no longer what the client should answer."""
        self._waiting.pop(waiting.request.call, None)
        if waiting in self._asked:
            self._withdraw()

    def _withdraw(self) -> None:
        if self._key is not None:
            self._questions.withdraw(self._key)
        self._key, self._asked = None, ()
