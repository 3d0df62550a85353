"""The runs of all owners, for the operator of the server. No owner is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio

from codemode_mcp.errors import CodeModeError, ProgramError, StoreUnavailable
from codemode_mcp.policy.approval import AT_PAGE, Verdict
from codemode_mcp.runs.store import EndedRun, unknown_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.policy.approval import ApprovalRequest, Remember
    from codemode_mcp.runs.live import LiveRuns
    from codemode_mcp.runs.services import Services
    from codemode_mcp.runs.store import Totals
    from codemode_mcp.runs.takeover import Takeover
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.settings import CodeModeSettings, StoreKind

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
        """The kind and the name of the store of suspended runs."""
        return self._store.kind, self._store.name

    async def totals(self) -> Totals:
        """Return the totals of suspended runs in the store."""
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
