"""Suspended and ended runs by id and owner: time to live, quotas, one observer at a time.

`RunStore` is what every kind of store satisfies; `MemoryStore` is the one that lives and dies with the process. What a
store keeps is plain data: the tasks of a suspended run's calls belong to the manager.
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
    """The catalog that a run sees, for those that outlive their process.

    Attributes:
        hash: of `text`; the same for catalogs that are the same in every respect.
        text: makes JSON of it; not called where a store has it already.
    """

    hash: str
    text: Callable[[], str]


StoredStatus = Literal["queued", "dispatched", "settled"]

Executor = Literal["here", "elsewhere", "nobody"]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call whose end the program has not got yet.

    Attributes:
        tool: the id of its tool.
        dispatched: it may have been sent.
        repeatable: sending it twice does no harm.
        body: JSON of what it takes to send it; empty where that must not be, or in what is written down of a call that
            was before.
        result: JSON of its end, see `records`; None while it has none, or likewise.
        executor: which process has it under way, or will.
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
        manifest: what the guest's warm image is made from.
        suspended, expires: seconds on the store's clock.
        record: JSON of all else that is known of the run, see `records`; empty in a store that is not durable.
        printed: JSON of what it has printed since it was last written down; empty where that is nothing.
        printed_from: how many outputs there were before these.
        calls: likewise; none in a store that is not durable.
        catalog: likewise.
        view: what is told of it while it is suspended; None in a store that is not durable.
        share: whose share of suspended runs it counts for; empty: its owner's.
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
    """A suspended run that belongs to whoever got this, until `suspend`, `release` or `end`.

    Attributes:
        current: nobody else has gone on with it since this process suspended it: what is known of it here still counts.
        catalog: the JSON of its catalog, where it is not current.
        printed: likewise, each `SuspendedRun.printed` in order. Whether any is missing is for whoever reads the record.
    """

    run: SuspendedRun
    current: bool = True
    catalog: str = ""
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run that was once suspended, kept for a repeated `wait`.

    Attributes:
        outcome: what was answered, and all of it from the start.
        size: bytes it counts for.
        state: how it ended.
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
    """What others have done to a run that this process has something to do with.

    Attributes:
        fenced: it belongs to another process now. Nothing that this one still does for it counts, but for the ends of
            calls that it has sent.
        ended: nobody waits for its calls any more.
        cancelled: somebody wants it to end.
        calls: those that have ended elsewhere; and those of dead processes, which this one is to make again (`queued`)
            or to give up (`dispatched`), with `executor` "here".
    """

    fenced: bool = False
    ended: RunState | None = None
    cancelled: bool = False
    calls: tuple[StoredCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """What a store has of suspended runs.

    Attributes:
        oldest: seconds since the one was suspended that has been for longest; None where there is none.
        size: bytes of their snapshots, and of what else is kept with these.
    """

    suspended: int
    oldest: float | None
    size: int


class Fenced(ProgramError):
    """Another process has taken the run over; this one must do nothing more for it."""

    def __init__(self, run_id: str) -> None:
        super().__init__("invalid_input", f"run {run_id} was taken over by another process; call wait again")


class RunStore(Protocol):
    """Where suspended runs are.

    Every method that takes an owner checks it: a run of another owner looks exactly like an unknown one.

    Attributes:
        durable: runs outlive this process, and other processes may go on with them. Then what is done for a run that
            was once suspended is written down before it is done.
        kind: for measurements.
    """

    durable: bool
    kind: StoreKind

    @property
    def name(self) -> str:
        """For messages, without secrets; the same for all processes that share it."""
        ...

    def apply(self, settings: CodeModeSettings) -> None:
        """Take other quotas and times; runs that are suspended keep theirs."""
        ...

    async def suspend(self, run: SuspendedRun) -> None:
        """Keep a run, in place of its earlier snapshot, and let go of it. A call that has ended meanwhile stays so.

        Raises:
            ProgramError: `too_many_pending_tool_calls`: a quota of suspended runs is full.
            Fenced: it is not this process's any more.
        """
        ...

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        """Become the one observer of a suspended run until `suspend`, `release` or `end`. An ended run is just given.

        Of a run that others have gone on with, calls that nobody has sent are this process's from now on; those that a
        dead one has sent are given as in `News`.

        Raises:
            ProgramError: `invalid_input` (unknown, or somebody else observes it) or `snapshot_expired`.
        """
        ...

    async def release(self, run_id: str, owner: str) -> None:
        """Let go of a claimed run that was not changed. What this process knows of it counts until it says `forget`."""
        ...

    async def end(self, run: EndedRun) -> None:
        """Put the end of a run in the place of the run. Raises `Fenced`."""
        ...

    async def sweep(self) -> list[str]:
        """Drop what is past its time and say which suspended runs expired, so that their calls can be cancelled."""
        ...

    async def totals(self) -> Totals:
        """What there is."""
        ...

    # of durable stores

    async def checkpoint(self, run: SuspendedRun) -> None:
        """As `suspend`, without letting go: should this process die, others go on from here. Raises `Fenced`."""
        ...

    async def dispatching(self, run_id: str, call: int) -> bool:
        """Record that a call of a suspended or checkpointed run is about to be sent.

        Return False when another process has the call.
        """
        ...

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        """Write down the end of such a call. False: it has been settled otherwise."""
        ...

    def holds(self) -> bool:
        """Whether this process may do anything for the runs it has claimed."""
        ...

    async def news(self) -> str | None:
        """Wait for the next run that another process has done something to; None: some may have been missed."""
        ...

    async def look(self, run_id: str) -> News:
        """What others have done to a run that this process has claimed, or suspended with calls under way."""
        ...

    async def cancel(self, run_id: str, owner: str) -> bool:
        """Have whoever has claimed a run end it. False: nobody has."""
        ...

    def forget(self, run_id: str) -> None:
        """What this process knows of a run counts no more: its next claim is not `current`."""
        ...

    async def owner_of(self, run_id: str) -> str | None:
        """Of a suspended run, for the operator."""
        ...

    async def views(self) -> list[RunView]:
        """All runs that there are, the newest first, without their calls."""
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
            # Those past their time do not count; `sweep` drops them, and whoever calls it cancels their calls.
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

    # Nobody else has any of these runs, and nothing is left when this process ends.

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
    """The same for a run that never was, one that is over and forgotten, and one of another owner."""
    return ProgramError(
        "invalid_input",
        f"there is no run {run_id[:80]!r}; a runId comes from the answer of an exec that is waiting, "
        "and is gone when the program has ended",
    )


def already_observed(run_id: str) -> ProgramError:
    return ProgramError("invalid_input", f"run {run_id} is being waited for already; use the answer of that wait")


def expired_run(run_id: str, settings: CodeModeSettings) -> ProgramError:
    return ProgramError(
        "snapshot_expired",
        f"run {run_id} was suspended for more than {settings.snapshot_ttl_seconds} s and was dropped; "
        "start the program again",
    )


def check_quotas(settings: CodeModeSettings, share: str, own: int, total: int) -> None:
    """Check that one more program may be suspended.

    Args:
        share: an owner, or the address of callers without authentication.
        own, total: how many are suspended, of the share and of all.

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
    """The owner of a run of somebody unknown: whoever holds its unguessable id (SPEC 7)."""
    return _BEARER + run_id


def is_bearer(owner: str) -> bool:
    return owner.startswith(_BEARER)
