"""The interface of all stores of suspended and ended runs, `RunStore`, with its values, quotas and errors.

A store contains plain data only. The tasks of a suspended run's calls belong to the manager. `MemoryStore` is the
store of one process. `codemode_mcp.stores` has the stores that several processes share.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
from msgspec import Struct, structs

from codemode_mcp.base.errors import Exceeded, ProgramError
from codemode_mcp.rules.policy.policy import PEER
from codemode_mcp.runs.views import RunView, after_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import CodeModeSettings, StoreKind
    from codemode_mcp.runs.calls.outcome import MadeCall, Outcome, WaitingReason
    from codemode_mcp.runs.state import RunState


class StoredCatalog(Struct, frozen=True):
    """The catalog of a run, as a durable store keeps it.

    Attributes:
        hash: the hash of `text`. Equal catalogs have the same hash.
        text: returns its JSON. It is not called if the store has the catalog already.
    """

    hash: str
    text: Callable[[], str]


StoredStatus = Literal["queued", "dispatched", "settled"]

Executor = Literal["here", "elsewhere", "nobody"]


class StoredCall(Struct, frozen=True):
    """A call whose end was not delivered to the program.

    Attributes:
        tool: the id of its tool.
        status: `dispatched` if the call may have been sent.
        repeatable: True if the call may be sent twice without harm.
        body: JSON of everything that is needed to send the call; empty if it must not be sent, or if the store has the
            body already.
        result: JSON of the end of the call, see `records`; None if the call has not ended, or if the store has the
            end already.
        executor: the process that sends the call, or has sent it. The third value stands for a dead process whose call
            must not be sent again.
        task: JSON of the task with which the server has answered the call, see `records`; empty without one. In a
            claim and in news, only the task of a dead executor, which this process has to follow.
    """

    id: int
    tool: str
    status: StoredStatus
    repeatable: bool
    body: str = ""
    result: str | None = None
    executor: Executor = "here"
    task: str = ""


class SuspendedRun(Struct, frozen=True):
    """A suspended run.

    Attributes:
        snapshot: the guest, as `Guest.snapshot` returns it.
        manifest: the source of the guest's warm image.
        suspended, expires: seconds on the store's clock.
        record: JSON of the rest of the run, see `records`.
        printed: JSON of its outputs since it was last stored; empty if there are none.
        printed_from: the number of earlier outputs.
        calls: the calls whose ends were not delivered to the program.
        view: its view for the operator while it is suspended.
        share: the share in whose quotas the run counts; empty for the share of its owner.
        made: returns its calls that may have had effects, as this process knows them now.

    For a store that is not durable, `record`, `printed`, `calls`, `catalog` and `view` are empty.
    """

    id: str
    owner: str
    snapshot: bytes
    manifest: str
    reason: WaitingReason
    suspended: float
    expires: float
    record: str = ""
    calls: tuple[StoredCall, ...] = ()
    catalog: StoredCatalog | None = None
    view: RunView | None = None
    printed: str = ""
    printed_from: int = 0
    share: str = ""
    made: Callable[[], tuple[MadeCall, ...]] = tuple

    @property
    def counts_for(self) -> str:
        """The owner or share in whose quotas the run counts."""
        return self.share or self.owner


class Claim(Struct, frozen=True):
    """A claimed run. The claim ends with `suspend`, `release` or `end`.

    Attributes:
        current: True if no other process has continued the run since this one suspended it. The state in this process
            is then still valid.
        catalog: the JSON of its catalog; empty if the claim is current.
        printed: each `SuspendedRun.printed` in order; empty if the claim is current. `records.restore` checks that none
            is missing.
    """

    run: SuspendedRun
    current: bool = True
    catalog: str = ""
    printed: tuple[str, ...] = ()


class EndedRun(Struct, frozen=True):
    """The end of a run that was once suspended, kept for a repeated `wait`.

    Attributes:
        outcome: the last answer, and an answer with all output since the start.
        size: bytes of the outcome, for the limit of all ends together.
        state: the state in which the run ended.
    """

    id: str
    owner: str
    outcome: tuple[Outcome, Outcome]
    size: int
    expires: float
    state: RunState = "completed"
    view: RunView | None = None


class News(Struct, frozen=True):
    """News of a run that this process has claimed, or for which it has calls in flight.

    Attributes:
        fenced: another process has the run now. This process may only store the ends of calls that it has sent.
        ended: the state in which the run ended; None if it has not ended. No program waits for the calls of an ended
            run.
        cancelled: a client or the operator has cancelled the run.
        calls: calls that ended in another process (`settled`), and calls of dead executors. This process must send the
            latter again (`queued`), follow their task, or give them up (`dispatched`). Their `executor` is "here".
    """

    fenced: bool = False
    ended: RunState | None = None
    cancelled: bool = False
    calls: tuple[StoredCall, ...] = ()


class Totals(Struct, frozen=True):
    """The totals of suspended runs in a store.

    Attributes:
        suspended: the number of suspended runs.
        oldest: seconds since the oldest suspension; None if no run is suspended.
        size: bytes of the snapshots and of everything that is stored with them.
    """

    suspended: int
    oldest: float | None
    size: int


class Fenced(ProgramError):
    """The error for a run that another process has taken over. This process must do nothing more for the run."""

    def __init__(self, run_id: str) -> None:
        super().__init__("invalid_input", f"run {run_id} was taken over by another process; call wait again")


class RunObserved(ProgramError):
    """The error for a run of the caller that another request drives now, in this process or in another one."""


class RunStore(Protocol):
    """A store of suspended runs.

    Every method that takes an owner checks it. For another owner, a run looks exactly like an unknown run.

    Attributes:
        durable: True if runs outlive this process, and other processes may take them over. Then every action for a run
            that was once suspended is stored before the action is done.
        kind: the kind of store, for measurements.
    """

    durable: bool
    kind: StoreKind

    @property
    def name(self) -> str:
        """The name for messages, without secrets. All processes that share the store see the same name."""
        ...

    def apply(self, settings: CodeModeSettings) -> None:
        """Use these quotas and times from now on. Suspended runs keep their times."""
        ...

    async def suspend(self, run: SuspendedRun) -> None:
        """Store a run in place of its earlier snapshot, and release it. Calls that were settled meanwhile stay settled.

        Raises:
            ProgramError: `too_many_pending_tool_calls`: a quota of suspended runs is full.
            Fenced: another process has the run.
        """
        ...

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        """Claim a suspended run until `suspend`, `release` or `end`, or return the end of a run.

        This process becomes the executor of the run's unsent calls, and of repeatable calls whose executors are dead.

        Raises:
            ProgramError: `invalid_input` (unknown, or observed already) or `snapshot_expired`.
        """
        ...

    async def prolong(self, run_id: str, expires: float) -> None:
        """Keep a run that this process has suspended until a later time.

        Nothing is changed if another process has the run now, or if it has expired.
        """
        ...

    async def release(self, run_id: str, owner: str) -> None:
        """Release a claimed run that was not changed. The state in this process stays valid until `forget`."""
        ...

    async def end(self, run: EndedRun) -> None:
        """Store the end of a run in place of the run. Raises `Fenced`."""
        ...

    async def sweep(self) -> list[str]:
        """Drop expired runs. Return the ids of the dropped suspended runs, so that their calls can be cancelled."""
        ...

    async def totals(self) -> Totals: ...

    # Methods for durable stores. The defaults suit a store whose runs no other process can take over.

    async def checkpoint(self, run: SuspendedRun) -> None:
        """Store a run as `suspend` does, but keep the claim. If this process dies, others continue from this state.

        Raises:
            Fenced: another process has the run.
        """
        return

    async def dispatching(self, run_id: str, call: int) -> bool:
        """Record that a call of a suspended or checkpointed run is about to be sent.

        Returns:
            False if the call must not be sent from here, because another process is its executor or may have sent it.
        """
        return True

    async def note_task(self, run_id: str, call: int, task: str) -> bool:
        """Store the task of a call that was sent from here, so that another process can follow it.

        Returns:
            False if this process is not the executor of the call, or if the call has ended.
        """
        return True

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        """Store the end of a call of a suspended or checkpointed run.

        Returns:
            False if this process is not the executor of the call, or if the store has another end already.
        """
        return True

    def claims_are_valid(self) -> bool:
        """Return True if no other process can have taken over the runs of this process."""
        return True

    async def next_notification(self) -> str | None:
        """Wait until another process has changed a run, and return the id of the run.

        Return None if notifications may have been lost.
        """
        await anyio.sleep_forever()
        return None

    async def news_of(self, run_id: str) -> News:
        """Return the news of a run that this process has claimed, or has suspended with calls in flight."""
        return News()

    async def cancel(self, run_id: str, owner: str) -> bool:
        """Ask the process that has claimed a run to end it. Return False if no process has claimed it."""
        return False

    def forget(self, run_id: str) -> None:
        """Record that the state of a run in this process is outdated. Its next claim is then not `current`."""
        return

    async def owner_of(self, run_id: str) -> str | None:
        return None

    async def state_of(self, run_id: str, owner: str) -> RunState | None:
        """Return `waiting` for a run that can be claimed, or the state in which a run ended; None for other runs."""
        return None

    async def views(self) -> list[RunView]:
        """Return all runs, the newest first, without their calls."""
        return []


def unknown_run(run_id: str) -> ProgramError:
    """Return the error for a run that is unknown, forgotten or of another owner.

    The three cases must look the same, so that a caller learns nothing about runs of others.
    """
    return ProgramError(
        "invalid_input",
        f"there is no run {run_id[:80]!r}; use the runId of an answer whose status is waiting; "
        "a runId is no longer valid when its program has ended",
    )


def already_observed(run_id: str) -> RunObserved:
    return RunObserved(
        "invalid_input", f"another request is waiting for run {run_id} already; use the answer of that request"
    )


def observed_elsewhere(run_id: str) -> RunObserved:
    """Return the error for a run that another process holds.

    That process may have crashed a moment ago. With PostgreSQL, others know this only when its lease has ended.
    """
    return RunObserved(
        "invalid_input",
        f"another request is waiting for run {run_id} already, in another process; use the answer of that request. "
        "If there is no such request, that process has just ended: call wait again in 10 seconds",
    )


def expired_run(run_id: str, seconds: float, made: tuple[MadeCall, ...] | None) -> ProgramError:
    """Return the error for a run that was suspended for too long.

    Args:
        seconds: the time for which it was kept; less than 1 if the operator has dropped it.
        made: its calls that may have had effects; None if they are not known.
    """
    time = f" suspended for more than {round(seconds)} s and was" if seconds >= 1 else ""
    return ProgramError("snapshot_expired", f"run {run_id} was{time} dropped; {after_loss(made)}")


def check_quotas(settings: CodeModeSettings, share: str, own: int, total: int) -> None:
    """Check that one more program may be suspended.

    Args:
        share: an owner, or the address of callers without authentication.
        own: the number of suspended programs of the share.
        total: the number of all suspended programs.

    Raises:
        ProgramError: `too_many_pending_tool_calls`.
    """
    limit = _limit(settings, share)
    whose = "from your address" if share.startswith(PEER) else "of yours"
    name = "maxSuspendedRunsPerOwner" if limit < settings.max_suspended_runs else "maxSuspendedRuns"
    if own >= limit:
        raise ProgramError(
            "too_many_pending_tool_calls",
            f"the program would have to be suspended, but {own} programs {whose} are suspended already "
            f"({name} is {limit}); finish one with wait, or cancel it with wait and cancel: true; the user can end "
            "those that wait for a person with codemode-mcp runs cancel",
            Exceeded(name, own + 1, limit),
        )
    if total >= settings.max_suspended_runs:
        raise ProgramError(
            "too_many_pending_tool_calls",
            "the program would have to be suspended, but there is no room for another one "
            f"(maxSuspendedRuns is {settings.max_suspended_runs}); finish one of yours with wait, "
            "cancel it with wait and cancel: true, or try again later",
            Exceeded("maxSuspendedRuns", settings.max_suspended_runs + 1, settings.max_suspended_runs),
        )


def _limit(settings: CodeModeSettings, share: str) -> int:
    total = settings.max_suspended_runs
    if settings.max_suspended_runs_per_owner is not None:
        return min(settings.max_suspended_runs_per_owner, total)
    return total if share.startswith("stdio:") else min(total, max(8, total // 4))


_BEARER = "bearer:"


def bearer_of(run_id: str) -> str:
    """Return the owner of a run whose caller is unknown. Only the unguessable id of the run identifies this owner."""
    return _BEARER + run_id


def is_bearer(owner: str) -> bool:
    """Return True if an owner is identified only by the id of a run; see `bearer_of`."""
    return owner.startswith(_BEARER)


class MemoryStore(RunStore):
    """A `RunStore` whose runs end with the process.

    Args:
        clock: monotonic seconds.
    """

    durable = False
    kind: StoreKind = "memory"
    name = "memory"
    MAX_ENDED = 256
    MAX_ENDED_BYTES = 32 * 1024 * 1024
    """Limits of the ends that are kept. The oldest are dropped first."""
    MAX_EXPIRED = 4096
    """Maximum number of expired runs that are remembered, so that a `wait` is told that the run has expired."""

    def __init__(self, settings: CodeModeSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._suspended: dict[str, SuspendedRun] = {}
        self._claimed: set[str] = set()
        self._ended: OrderedDict[str, EndedRun] = OrderedDict()
        self._ended_bytes = 0
        self._expired: OrderedDict[str, SuspendedRun] = OrderedDict()
        """Expired runs, without their snapshots."""

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._suspended)} suspended, {len(self._ended)} ended>"

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def suspend(self, run: SuspendedRun) -> None:
        if run.id not in self._suspended:
            # Expired runs do not count. They are dropped by `sweep`, whose caller cancels their calls.
            now = self._clock()
            alive = [other for other in self._suspended.values() if other.expires > now or other.id in self._claimed]
            own = sum(1 for other in alive if other.counts_for == run.counts_for)
            check_quotas(self._settings, run.counts_for, own, len(alive))
        self._suspended[run.id] = run
        self._claimed.discard(run.id)

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        ended = self._ended.get(run_id)
        if ended is not None and ended.owner == owner and ended.expires > self._clock():
            return ended
        run = self._suspended.get(run_id)
        if run is not None and run.owner == owner:
            if run_id in self._claimed:
                raise already_observed(run_id)
            if run.expires > self._clock():
                self._claimed.add(run_id)
                return Claim(run)
        expired = run or self._expired.get(run_id)
        if expired is not None and expired.owner == owner:
            raise expired_run(run_id, expired.expires - expired.suspended, expired.made())
        raise unknown_run(run_id)

    async def prolong(self, run_id: str, expires: float) -> None:
        run = self._suspended.get(run_id)
        if run is not None and self._clock() < run.expires < expires:
            self._suspended[run_id] = structs.replace(run, expires=expires)

    async def release(self, run_id: str, owner: str) -> None:
        self._claimed.discard(run_id)

    async def end(self, run: EndedRun) -> None:
        self._suspended.pop(run.id, None)
        self._claimed.discard(run.id)
        self._drop_ended(run.id)
        self._ended[run.id] = run
        self._ended_bytes += run.size
        while len(self._ended) > self.MAX_ENDED or self._ended_bytes > self.MAX_ENDED_BYTES:
            self._drop_ended(next(iter(self._ended)))

    async def sweep(self) -> list[str]:
        now = self._clock()
        for ended in [run.id for run in self._ended.values() if run.expires <= now]:
            self._drop_ended(ended)
        expired = [run for run in self._suspended.values() if run.expires <= now and run.id not in self._claimed]
        for run in expired:
            del self._suspended[run.id]
            self._expired[run.id] = structs.replace(run, snapshot=b"", manifest="")
            while len(self._expired) > self.MAX_EXPIRED:
                self._expired.popitem(last=False)
        return [run.id for run in expired]

    async def totals(self) -> Totals:
        every = self._suspended.values()
        first = min((run.suspended for run in every), default=None)
        size = sum(len(run.snapshot) for run in every)
        return Totals(len(every), None if first is None else self._clock() - first, size)

    def _drop_ended(self, run_id: str) -> None:
        run = self._ended.pop(run_id, None)
        if run is not None:
            self._ended_bytes -= run.size
