"""Runs whose clients poll their state, instead of waiting for an answer.

A poll starts a driver, waits a moment for the outcome, and returns. The driver works until its deadline, as it does for
a `wait`, and the next poll finds the run working, suspended or ended. So a run works on as long as its client polls it,
and is suspended and dropped as any other run after the client has stopped.

Invariants:

- A poll changes nothing that a later poll needs. Output and notes stay with the run until its end (`Client.polls`), and
  the end is kept in the store. So all polls of an ended run have the same outcome, in every process.
- Answers are taken before `answer` returns: the calls that a person has approved are recorded as sent, or were refused.
  A process that is killed after that does not lose the decision.
- Another request may drive the run meanwhile, here or in another process. A poll then finds the run working, and an
  answer waits until it can be given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from codemode_mcp.runs.live import stop
from codemode_mcp.runs.store import EndedRun, RunObserved, bearer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.runs.live import LiveRuns
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.state import CallState
    from codemode_mcp.settings import CodeModeSettings
    from upstream_clients.tools import JsonObject

ANSWER_SECONDS: Final = 10.0
"""Seconds for which `Polling.answer` waits until answers are taken."""

LOOK_SECONDS: Final = 0.02
"""Interval at which `Polling.answer` looks whether answers are taken."""

_DECIDED: Final[frozenset[CallState]] = frozenset(("awaiting_approval", "ready", "recorded", "sending"))
"""States of calls that are about to be sent, unless they still wait for an approval."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The state of a run.

    Attributes:
        outcome: its latest outcome; None while it works. The outcome of an ended run has all output since the start.
        age: seconds from the start of the run until now, or until its end; None if this process does not know it.
        left: seconds until the run is dropped, if it is not polled again.
    """

    outcome: Outcome | None
    age: float | None
    left: float


class Begin(Protocol):
    """Claim a suspended run and start its driver, or return the end of the run; see `RunManager.observe`."""

    async def __call__(
        self,
        run_id: str,
        owner: str,
        caller: Caller | None,
        *,
        client: Client | None,
        answers: Mapping[str, JsonObject] | None = None,
        cancel: bool = False,
    ) -> tuple[Run, Observation] | EndedRun: ...


class Polling:
    """The runs of a manager, for clients that poll them. It holds no state of any run.

    Every method takes the owner as `RunManager.observe` does, and raises its errors.
    """

    def __init__(
        self, live: LiveRuns, begin: Begin, settings: Callable[[], CodeModeSettings], clock: Callable[[], float]
    ) -> None:
        self._live = live
        self._begin = begin
        self._settings = settings
        self._clock = clock

    async def poll(self, run_id: str, owner: str | None, caller: Caller, client: Client, seconds: float) -> Polled:
        """Return the state of a run, and make it work until the next poll.

        Args:
            seconds: time to wait for an outcome. Cancelling does not stop the run.
        """
        owner = owner or bearer_of(run_id)
        until = self._clock() + seconds
        if (driven := self._driven(run_id, owner)) is not None:
            run, observation = driven
            if not await self._settles(observation, until):
                return self._working(run)
        try:
            begun = await self._begin(run_id, owner, caller, client=client)
        except RunObserved:
            return self._working(self._live.runs.get(run_id))
        if isinstance(begun, EndedRun):
            return self._ended(begun)
        run, observation = begun
        if not await self._settles(observation, until):
            return self._working(run)
        outcome = await observation.outcome()
        if outcome.status != "waiting":
            outcome = replace(outcome, outputs=tuple(run.history))
        return Polled(outcome, outcome.usage.ms / 1000, run.lifetime(self._settings()))

    async def answer(
        self, run_id: str, owner: str | None, caller: Caller, client: Client, answers: Mapping[str, JsonObject]
    ) -> frozenset[str]:
        """Give answers to the questions of a run, by key. Answers to other questions are ignored.

        Returns:
            The keys of the questions that are still open, when the answers are taken, or after `ANSWER_SECONDS`.
        """
        owner = owner or bearer_of(run_id)
        until = self._clock() + ANSWER_SECONDS
        while self._clock() < until:
            driven = self._driven(run_id, owner)
            if driven is not None:
                run, observation = driven
                run.questions.accept_answers(answers)
            else:
                try:
                    begun = await self._begin(run_id, owner, caller, client=client, answers=answers)
                except RunObserved:
                    if self._clock() + LOOK_SECONDS >= until:
                        raise
                    await anyio.sleep(LOOK_SECONDS)
                    continue
                if isinstance(begun, EndedRun):
                    break
                run, observation = begun
            # When the observation ends, the run forgets the answers to questions that were not put again in time.
            unclaimed = _holds_unclaimed(run, answers)
            while not (observation.is_settled and unclaimed):
                if not observation.is_settled:
                    unclaimed = _holds_unclaimed(run, answers)
                if self._clock() >= until or not (unclaimed or _has_untaken(run)):
                    return frozenset(each.key for each in run.questions.open)
                await anyio.sleep(LOOK_SECONDS)
        return frozenset()

    async def cancel(self, run_id: str, owner: str | None, caller: Caller, client: Client) -> None:
        """Abort a run, and return when it has ended. An ended run stays as it is."""
        owner = owner or bearer_of(run_id)
        if (driven := self._driven(run_id, owner)) is not None:
            run, observation = driven
            stop(run, observation)
            await observation.settled()
            return
        begun = await self._begin(run_id, owner, caller, client=client, cancel=True)
        if not isinstance(begun, EndedRun):
            await begun[1].settled()

    def _driven(self, run_id: str, owner: str) -> tuple[Run, Observation] | None:
        """Return a run of the owner that a request drives in this process, and this request."""
        run = self._live.runs.get(run_id)
        if run is None or run.owner != owner or run.observation is None:
            return None
        return run, run.observation

    async def _settles(self, observation: Observation, until: float) -> bool:
        with anyio.move_on_after(max(0.0, until - self._clock())):
            await observation.settled()
        return observation.is_settled

    def _working(self, run: Run | None) -> Polled:
        age = None if run is None else self._clock() - run.began
        left = self._settings().snapshot_ttl_seconds if run is None else run.lifetime(self._settings())
        return Polled(None, age, left)

    def _ended(self, ended: EndedRun) -> Polled:
        outcome = ended.outcome[1]
        age_ms = outcome.usage.ms
        if not age_ms and ended.view is not None:  # a run that could not be restored
            age_ms = ended.view.age_ms
        return Polled(outcome, age_ms / 1000, max(0.0, ended.expires - self._clock()))


def _holds_unclaimed(run: Run, answers: Mapping[str, JsonObject]) -> bool:
    """Return True if a run that was just taken over may still put a question that one of the answers is for."""
    return run.questions.holds_unclaimed(answers) and (run.approvals.gathers or run.has_undecided_calls)


def _has_untaken(run: Run) -> bool:
    """Return True if a call has an answer or an approval, and has not used it yet."""
    waiting = run.approvals.calls
    return run.questions.has_answer or any(
        live.state in _DECIDED and live.call.id not in waiting for live in run.calls.values()
    )
