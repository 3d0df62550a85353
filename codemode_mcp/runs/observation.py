"""Requests for a run: open ones, polls, and those of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import anyio
from msgspec import Struct, structs

from codemode_mcp.base.errors import CodeModeError, ProgramError, StoreUnavailable
from codemode_mcp.rules.policy.approval import AT_PAGE, ApprovalRequest, Remember, Verdict
from codemode_mcp.runs.store import EndedRun, RunObserved, Totals, bearer_of, unknown_run
from codemode_mcp.runs.takeover import LiveRuns, Takeover, stop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from codemode_mcp.base.settings import CodeModeSettings, StoreKind
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.manager import RunManager, Services
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.state import CallState
    from codemode_mcp.runs.views import RunView
    from upstream_clients.tools import JsonObject


class Observation:
    """One open `exec` or `wait`.

    Args:
        deadline: monotonic seconds at which the request has to be answered.
        latest: the latest time to which the deadline may move. It moves while the program waits in a queue, for a
            person who is asked, or for starting servers alone.

    Attributes:
        paused_since: the time since which the program waits for a person who is asked, or for starting servers alone;
            None if it does not. The deadline is extended by this time.
        queueing: cancels the wait of the program for its turn or for memory.
        released: True if the request has to be answered as soon as possible. The run is then suspended.
        aborted: True if the run has to be aborted.
        noted: True if the client's relay knows that calls of the run may have been sent, or if there is no relay.
    """

    def __init__(self, deadline: float, client: Client | None, *, latest: float | None = None) -> None:
        self.deadline = deadline
        self.latest = deadline if latest is None else latest
        self.client = client
        self._notes = None if client is None else client.notes
        self._noting = False  # a note about calls is written, or waits to be written
        self.noted = self._notes is None
        self.paused_since: float | None = None
        self.queueing: anyio.CancelScope | None = None
        self.released = False
        self.aborted = False
        self._done = anyio.Event()
        self._outcome: Outcome | CodeModeError | None = None

    def extended_deadline(self, now: float, *, paused: bool) -> float:
        """Return the time at which the request has to be answered.

        Args:
            paused: see `Run.is_paused`.
        """
        if paused:
            if self.paused_since is None:
                self.paused_since = now
            return self.latest
        if self.paused_since is not None:
            self.deadline = min(self.latest, self.deadline + now - self.paused_since)
            self.paused_since = None
        return self.deadline

    def remaining(self, now: float) -> float:
        """Return the seconds that the program may still compute."""
        return max(0.0, self.deadline - (now if self.paused_since is None else self.paused_since))

    # notes to the relay of the client, see `RunNotes`

    def note_run(self, run_id: str, *, dispatched: bool) -> None:
        """Tell the relay which run the request has. Call this before anything of the run is sent for the request."""
        if self._notes is not None:
            written = self._notes.write(run_id, dispatched=dispatched)
            self._noting, self.noted = dispatched, dispatched and written

    def note_sending(self, run_id: str) -> bool:
        """Tell the relay that a call is about to be sent. Return False if the note is not written yet."""
        if self._notes is not None and not self.noted:
            self.noted = self._notes.are_written if self._noting else self._notes.write(run_id, dispatched=True)
            self._noting = True
        return self.noted

    async def sending_noted(self) -> None:
        if self._notes is not None and not self.noted:
            await self._notes.written()
            self.noted = True

    def settle(self, outcome: Outcome | CodeModeError) -> None:
        self._outcome = outcome
        self._done.set()

    @property
    def is_settled(self) -> bool:
        return self._done.is_set()

    async def settled(self) -> None:
        await self._done.wait()

    async def outcome(self) -> Outcome:
        """Wait for the outcome. If the driver ended with a `CodeModeError`, raise it."""
        await self._done.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, CodeModeError):
            raise self._outcome
        return self._outcome


# Runs whose clients poll their state, instead of waiting for an answer.
#
# A poll starts a driver, waits a moment for the outcome, and returns. The driver works until its deadline, as it does
# for a `wait`, and the next poll finds the run working, suspended or ended. So a run works on as long as its client
# polls it, and is suspended and dropped as any other run after the client has stopped.
#
# Invariants:
#
# - A poll changes nothing that a later poll needs. Output and notes stay with the run until its end (`Client.polls`),
#   and the end is kept in the store. So all polls of an ended run have the same outcome, in every process.
# - Answers are taken before `answer` returns: the calls that a person has approved are recorded as sent, or were
#   refused. A process that is killed after that does not lose the decision.
# - Another request may drive the run meanwhile, here or in another process. A poll then finds the run working, and an
#   answer waits until it can be given.


ANSWER_SECONDS: Final = 10.0
"""Seconds for which `Polling.answer` waits until answers are taken."""

LOOK_SECONDS: Final = 0.02
"""Interval at which `Polling.answer` looks whether answers are taken."""

_DECIDED: Final[frozenset[CallState]] = frozenset(("awaiting_approval", "ready", "recorded", "sending"))
"""States of calls that are about to be sent, unless they still wait for an approval."""


class Polled(Struct, frozen=True):
    """The state of a run.

    Attributes:
        outcome: its latest outcome; None while it works. The outcome of an ended run has all output since the start.
        age: seconds from the start of the run until now, or until its end; None if this process does not know it.
        left: seconds until the run is dropped, if it is not polled again.
    """

    outcome: Outcome | None
    age: float | None
    left: float


class Polling:
    """The runs of a manager, for clients that poll them. It holds no state of any run.

    Every method takes the owner as `RunManager.observe` does, and raises its errors.
    """

    def __init__(self, manager: RunManager, live: LiveRuns, clock: Callable[[], float]) -> None:
        self._manager = manager
        self._live = live
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
            begun = await self._manager.begin(run_id, owner, caller, client=client)
        except RunObserved:
            return self._working(self._live.runs.get(run_id))
        if isinstance(begun, EndedRun):
            return self._ended(begun)
        run, observation = begun
        if not await self._settles(observation, until):
            return self._working(run)
        outcome = await observation.outcome()
        if outcome.status != "waiting":
            outcome = structs.replace(outcome, outputs=tuple(run.history))
        return Polled(outcome, outcome.usage.ms / 1000, run.lifetime(self._manager.settings()))

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
                    begun = await self._manager.begin(run_id, owner, caller, client=client, answers=answers)
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
        begun = await self._manager.begin(run_id, owner, caller, client=client, cancel=True)
        if not isinstance(begun, EndedRun):
            await begun[1].settled()

    def _driven(self, run_id: str, owner: str) -> tuple[Run, Observation] | None:
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
        left = self._manager.settings().snapshot_ttl_seconds if run is None else run.lifetime(self._manager.settings())
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


TAKEOVER_SECONDS = 2.0
"""Maximum seconds to wait until the calls of a run that was taken over wait for an approval."""


class Operator:
    """The operator's access to runs: listings, approvals, takeovers and cancellation.

    Args:
        cancel: cancels a run, given by its id and its owner.
    """

    def __init__(
        self,
        services: Services,
        settings: Callable[[], CodeModeSettings],
        live: LiveRuns,
        takeover: Takeover,
        cancel: Callable[[str, str], Awaitable[Outcome]],
    ) -> None:
        self._settings = settings
        self._store = services.store
        self._clock = services.clock
        self._live = live
        self._takeover = takeover
        self._cancel = cancel
        self.views = live.views
        self.view = live.view
        self.transcript = live.transcript

    @property
    def store(self) -> tuple[StoreKind, str]:
        return self._store.kind, self._store.name

    async def totals(self) -> Totals:
        return await self._store.totals()

    async def stored_views(self) -> list[RunView]:
        """Return the runs that only the store has, the newest first, without their calls.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        if not self._store.durable:
            return []
        if not self._store.claims_are_valid():
            # Not queried: a query that fails may take longer than a person waits.
            raise StoreUnavailable(
                "the store{at} does not answer: runs that only the store has are not shown", at=f" {self._store.name}"
            )
        here = self._live.listed
        return [view for view in await self._store.views() if view.id not in here]

    def approvals(self, run_id: str) -> Sequence[ApprovalRequest]:
        """Return the calls of a run that wait for a person, in order. The result is empty if there is no such run."""
        run = self._live.runs.get(run_id)
        return () if run is None else run.approvals.requests

    def decide(
        self, run_id: str, calls: Collection[int] | None, *, approved: bool, remember: Remember = "no", by: str
    ) -> list[int]:
        """Decide about calls of a run that wait for an approval, and withdraw questions to a client about them.

        Args:
            calls: the numbers of the calls; None for all waiting calls. Calls that do not wait are ignored.
            by: the person or program that decided, in words.

        Returns:
            The calls that were decided.

        Raises:
            ProgramError: `invalid_input`: there is no such run, or an approval cannot be remembered for later
                programs.
        """
        run = self._live.runs.get(run_id)
        if run is None or run.has_expired(self._clock()):
            raise unknown_run(run_id)
        origin: Literal["page", "terminal"] = "page" if by == AT_PAGE else "terminal"
        verdict = Verdict(approved, "" if approved else f"denied by {by}", remember if approved else "no", origin)
        try:
            decided = run.approvals.decide(calls, verdict, by)
        except ValueError as error:
            raise ProgramError("invalid_input", str(error)) from None
        if decided:
            # The store is told with the decided calls; the operator sees the new time now.
            run.prolong(self._clock() + self._settings().approval_ttl_seconds)
        return decided

    async def take_over(self, run_id: str, serves: Callable[[str], bool] = bool) -> bool:
        """Take over a suspended run that no process drives, so that its calls can be decided here.

        Args:
            serves: returns True if this process serves an owner. Runs of other owners need other servers and rules.

        Returns:
            False if there is no such run.
        """
        if run_id in self._live.runs:
            return True
        owner = await self._store.owner_of(run_id) if self._store.durable and not self._live.closing else None
        if owner is None or not serves(owner):
            return False
        found = await self._takeover.claim(run_id, owner, None)
        if isinstance(found, EndedRun):
            return False
        await self._store.release(run_id, owner)
        run = self._live.runs.get(run_id)
        with anyio.move_on_after(TAKEOVER_SECONDS):
            # If a request has resumed the run meanwhile, its driver waits for changes instead.
            while run is not None and run.observation is None and run.has_undecided_calls and run.id in self._live.runs:
                await run.wait_undriven()
        return True

    async def cancel(self, run_id: str, serves: Callable[[str], bool] = bool) -> bool:
        """End a run.

        Args:
            serves: see `take_over`.

        Returns:
            False if there is no such run, or if it ended before.
        """
        run = self._live.runs.get(run_id)
        if run is not None:
            owner: str | None = run.owner
        else:
            # The process that drives the run is asked to end it. If no process drives it, this process ends it.
            owner = await self._store.owner_of(run_id) if self._store.durable else None
        if owner is None:
            return False
        if run is None and not serves(owner):
            return await self._store.cancel(run_id, owner)
        try:
            outcome = await self._cancel(run_id, owner)
        except StoreUnavailable:
            raise
        except CodeModeError:
            return False
        return outcome.code == "aborted" if run is None else run.state == "aborted" or outcome.code == "aborted"
