"""Suspended and ended runs by id and owner: time to live, quotas, one observer at a time.

`RunStore` is the interface of all stores; `MemoryStore` ends with the process. A store keeps plain data: the tasks of a
suspended run's calls belong to the manager.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import anyio

from codemode_mcp.errors import Exceeded, ProgramError
from codemode_mcp.policy.callers import PEER

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.outcome import Outcome, WaitingReason
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.settings import CodeModeSettings, StoreKind


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """The catalog that a run sees, for runs that outlive their process.

    Attributes:
        hash: of `text`; equal catalogs have the same hash.
        text: makes its JSON; not called if a store has it already.
    """

    hash: str
    text: Callable[[], str]


StoredStatus = Literal["queued", "dispatched", "settled"]

Executor = Literal["here", "elsewhere", "nobody"]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call whose end was not delivered to the program.

    Attributes:
        tool: the id of its tool.
        status: `dispatched` if the call may have been sent.
        repeatable: sending it twice does no harm.
        body: JSON of what it takes to send it; empty if it must not be sent, or if the store has it already.
        result: JSON of its end, see `records`; None if it has none, or if the store has it already.
        executor: the process that sends it, or has.
    """

    id: int
    tool: str
    status: StoredStatus
    repeatable: bool
    body: str = ""
    result: str | None = None
    executor: Executor = "here"


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A suspended run.

    Attributes:
        snapshot: the guest, as `Guest.snapshot` gives it.
        manifest: the source of the guest's warm image.
        suspended, expires: seconds on the store's clock.
        record: JSON of the rest of the run, see `records`.
        printed: JSON of its outputs since it was last stored; empty if there are none.
        printed_from: number of outputs before these.
        calls: the calls whose ends were not delivered to the program.
        view: its view for the operator while it is suspended.
        share: the share of suspended runs that it counts for; empty for its owner's.

    A store that is not durable gets neither `record`, `printed`, `calls`, `catalog` nor `view`.
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

    @property
    def counts_for(self) -> str:
        return self.share or self.owner


@dataclass(frozen=True, slots=True)
class Claim:
    """A suspended run that was claimed, until `suspend`, `release` or `end`.

    Attributes:
        current: no other process has continued it since this one suspended it, so the state in this process still
            counts.
        catalog: the JSON of its catalog, if it is not current.
        printed: each `SuspendedRun.printed` in order, if it is not current. The reader of the record checks that none
            is missing.
    """

    run: SuspendedRun
    current: bool = True
    catalog: str = ""
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run that was once suspended, kept for a repeated `wait`.

    Attributes:
        outcome: the last answer, and all of the run from the start.
        size: bytes that it counts for.
        state: the state in which it ended.
    """

    id: str
    owner: str
    outcome: tuple[Outcome, Outcome]
    size: int
    expires: float
    state: RunState = "completed"
    view: RunView | None = None


@dataclass(frozen=True, slots=True)
class News:
    """The news of a run that this process has claimed, or for which it has calls in flight.

    Attributes:
        fenced: another process has it now. Of this one, only the ends of calls that it has sent still count.
        ended: the state in which it ended; no program waits for its calls any more.
        cancelled: a client or the operator has cancelled it.
        calls: calls that ended in another process, and calls of dead executors. This process is to send the latter
            again (`queued`) or to give them up (`dispatched`); their `executor` is "here".
    """

    fenced: bool = False
    ended: RunState | None = None
    cancelled: bool = False
    calls: tuple[StoredCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of suspended runs in a store.

    Attributes:
        oldest: seconds since the oldest suspension; None if there is none.
        size: bytes of their snapshots, and of all that is kept with these.
    """

    suspended: int
    oldest: float | None
    size: int


class Fenced(ProgramError):
    """Another process has taken the run over, so this one must do nothing more for it."""

    def __init__(self, run_id: str) -> None:
        super().__init__("invalid_input", f"run {run_id} was taken over by another process; call wait again")


class RunStore(Protocol):
    """A store of suspended runs.

    Every method that takes an owner checks it: a run of another owner looks exactly like an unknown one.

    Attributes:
        durable: runs outlive this process, and other processes may take them over. Then every action for a run that was
            once suspended is stored before it is done.
        kind: for measurements.
    """

    durable: bool
    kind: StoreKind

    @property
    def name(self) -> str:
        """Its name for messages, without secrets; the same for all processes that share it."""
        ...

    def apply(self, settings: CodeModeSettings) -> None:
        """Use these quotas and times from now on. Suspended runs keep theirs."""
        ...

    async def suspend(self, run: SuspendedRun) -> None:
        """Store a run in place of its earlier snapshot, and release it. A call that has ended meanwhile stays settled.

        Raises:
            ProgramError: `too_many_pending_tool_calls`: a quota of suspended runs is full.
            Fenced: another process has it.
        """
        ...

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        """Claim a suspended run until `suspend`, `release` or `end`, or return the end of a run.

        If other processes have continued the run, this one becomes the executor of its unsent calls, and calls of dead
        executors are given as in `News`.

        Raises:
            ProgramError: `invalid_input` (unknown, or observed already) or `snapshot_expired`.
        """
        ...

    async def release(self, run_id: str, owner: str) -> None:
        """Release a claimed run that was not changed. The state in this process counts until `forget`."""
        ...

    async def end(self, run: EndedRun) -> None:
        """Store the end of a run in place of the run. Raises `Fenced`."""
        ...

    async def sweep(self) -> list[str]:
        """Drop runs past their time, and return the suspended ones, so that their calls can be cancelled."""
        ...

    async def totals(self) -> Totals:
        """Return the totals of suspended runs."""
        ...

    # of durable stores

    async def checkpoint(self, run: SuspendedRun) -> None:
        """Store a run as `suspend`, but keep the claim. If this process dies, others continue from here.

        Raises:
            Fenced: another process has it.
        """
        ...

    async def dispatching(self, run_id: str, call: int) -> bool:
        """Record that a call of a suspended or checkpointed run is about to be sent.

        Returns:
            False if another process has the call.
        """
        ...

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        """Store the end of such a call. Returns False if it has another end already."""
        ...

    def holds(self) -> bool:
        """Tell whether the claims of this process still count."""
        ...

    async def news(self) -> str | None:
        """Wait for news, and return the id of the run. Returns None if news may have been missed."""
        ...

    async def look(self, run_id: str) -> News:
        """Return the news of a run that this process has claimed, or has suspended with calls in flight."""
        ...

    async def cancel(self, run_id: str, owner: str) -> bool:
        """Ask the process that has claimed a run to end it. Returns False if none has."""
        ...

    def forget(self, run_id: str) -> None:
        """Note that the state of a run in this process is outdated, so its next claim is not `current`."""
        ...

    async def owner_of(self, run_id: str) -> str | None:
        """Return the owner of a suspended run, for the operator."""
        ...

    async def views(self) -> list[RunView]:
        """Return all runs, the newest first, without their calls."""
        ...


class MemoryStore:
    """`RunStore` in this process.

    Args:
        clock: monotonic seconds.
    """

    durable = False
    kind: StoreKind = "memory"
    name = "memory"
    MAX_ENDED = 256
    MAX_ENDED_BYTES = 32 * 1024 * 1024
    MAX_EXPIRED = 4096

    def __init__(self, settings: CodeModeSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._suspended: dict[str, SuspendedRun] = {}
        self._claimed: set[str] = set()
        self._ended: OrderedDict[str, EndedRun] = OrderedDict()
        self._ended_bytes = 0
        self._expired: OrderedDict[str, str] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._suspended)} suspended, {len(self._ended)} ended>"

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def suspend(self, run: SuspendedRun) -> None:
        if run.id not in self._suspended:
            # Runs past their time do not count. `sweep` drops them, and its caller cancels their calls.
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
        if (run is not None and run.owner == owner) or self._expired.get(run_id) == owner:
            raise expired_run(run_id, self._settings)
        raise unknown_run(run_id)

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
            self._expired[run.id] = run.owner
            while len(self._expired) > self.MAX_EXPIRED:
                self._expired.popitem(last=False)
        return [run.id for run in expired]

    async def totals(self) -> Totals:
        every = self._suspended.values()
        first = min((run.suspended for run in every), default=None)
        size = sum(len(run.snapshot) for run in every)
        return Totals(len(every), None if first is None else self._clock() - first, size)

    # No other process has any of these runs, and none is left when this process ends.

    async def checkpoint(self, run: SuspendedRun) -> None:
        pass

    async def dispatching(self, run_id: str, call: int) -> bool:
        return True

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        return True

    def holds(self) -> bool:
        return True

    async def news(self) -> str | None:
        await anyio.sleep_forever()
        return None

    async def look(self, run_id: str) -> News:
        return News()

    async def cancel(self, run_id: str, owner: str) -> bool:
        return False

    def forget(self, run_id: str) -> None:
        pass

    async def owner_of(self, run_id: str) -> str | None:
        return None

    async def views(self) -> list[RunView]:
        return []

    def _drop_ended(self, run_id: str) -> None:
        run = self._ended.pop(run_id, None)
        if run is not None:
            self._ended_bytes -= run.size


def unknown_run(run_id: str) -> ProgramError:
    """Return the error for an unknown run, a forgotten one, and one of another owner. These must look the same."""
    return ProgramError(
        "invalid_input",
        f"there is no run {run_id[:80]!r}; a runId comes from the answer of an exec that is waiting, "
        "and is gone when the program has ended",
    )


def already_observed(run_id: str) -> ProgramError:
    """Return the error for a run that another request waits for."""
    return ProgramError("invalid_input", f"run {run_id} is being waited for already; use the answer of that wait")


def expired_run(run_id: str, settings: CodeModeSettings) -> ProgramError:
    """Return the error for a run that was suspended for too long."""
    return ProgramError(
        "snapshot_expired",
        f"run {run_id} was suspended for more than {settings.snapshot_ttl_seconds} s and was dropped; "
        "start the program again",
    )


def check_quotas(settings: CodeModeSettings, share: str, own: int, total: int) -> None:
    """Check that one more program may be suspended.

    Args:
        share: an owner, or the address of callers without authentication.
        own, total: suspended programs of the share, and of all.

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
            f"({name} is {limit}); finish one with wait, or cancel it with wait and cancel: true",
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
    """Return how many suspended programs a share has room for."""
    total = settings.max_suspended_runs
    if settings.max_suspended_runs_per_owner is not None:
        return min(settings.max_suspended_runs_per_owner, total)
    return total if share.startswith("stdio:") else min(total, max(8, total // 4))


_BEARER = "bearer:"


def bearer_of(run_id: str) -> str:
    """Return the owner of a run of an unknown caller, who is known only by its unguessable id."""
    return _BEARER + run_id


def is_bearer(owner: str) -> bool:
    """Tell whether an owner is known only by the id of a run."""
    return owner.startswith(_BEARER)
