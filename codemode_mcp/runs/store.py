"""Parked and ended runs by id and owner: time to live, quotas, one observer at a time.

`RunStore` is what every kind of store satisfies; `MemoryStore` is the one that lives and dies with the process. What a
store keeps is plain data: the tasks of a parked run's calls belong to the manager.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.outcome import WaitingReason
    from codemode_mcp.settings import CodeModeSettings


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A suspended run.

    Attributes:
        snapshot: the guest, as `Guest.snapshot` gives it.
        manifest: what the guest's warm image is made from.
        expires: seconds on the store's clock.
    """

    id: str
    owner: str
    snapshot: bytes
    manifest: str
    reason: WaitingReason
    parked: float
    expires: float


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run that was once parked, kept for a repeated `wait`.

    Attributes:
        outcome: what was answered; opaque here.
        size: bytes it counts for.
    """

    id: str
    owner: str
    outcome: Any
    size: int
    expires: float


class RunStore(Protocol):
    """Where parked runs are.

    Every method that takes an owner checks it: a run of another owner looks exactly like an unknown one.
    """

    def apply(self, settings: CodeModeSettings) -> None:
        """Take other quotas and times; runs that are parked keep theirs."""
        ...

    async def park(self, run: ParkedRun) -> None:
        """Keep a run, in place of its earlier snapshot, and let go of it.

        Raises:
            ProgramError: `too_many_pending_tool_calls`: a quota of suspended runs is full.
        """
        ...

    async def claim(self, run_id: str, owner: str) -> ParkedRun | EndedRun:
        """Become the one observer of a parked run until `park`, `release` or `end`. An ended run is just given.

        Raises:
            ProgramError: `invalid_input` (unknown, or somebody else observes it) or `snapshot_expired`.
        """
        ...

    async def release(self, run_id: str, owner: str) -> None:
        """Let go of a claimed run that was not changed."""
        ...

    async def end(self, run: EndedRun) -> None:
        """Put the end of a run in the place of the run."""
        ...

    async def sweep(self) -> list[str]:
        """Drop what is past its time and say which parked runs expired, so that their calls can be cancelled."""
        ...


class MemoryStore:
    """`RunStore` in this process.

    Args:
        clock: monotonic seconds.
    """

    MAX_ENDED = 256
    MAX_ENDED_BYTES = 32 * 1024 * 1024
    MAX_EXPIRED = 4096

    def __init__(self, settings: CodeModeSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._parked: dict[str, ParkedRun] = {}
        self._claimed: set[str] = set()
        self._ended: OrderedDict[str, EndedRun] = OrderedDict()
        self._ended_bytes = 0
        self._expired: OrderedDict[str, str] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._parked)} parked, {len(self._ended)} ended>"

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def park(self, run: ParkedRun) -> None:
        if run.id not in self._parked:
            # Those past their time do not count; `sweep` drops them, and whoever calls it cancels their calls.
            now = self._clock()
            alive = [other for other in self._parked.values() if other.expires > now or other.id in self._claimed]
            own = sum(1 for other in alive if other.owner == run.owner)
            limit = _share(self._settings, run.owner)
            name = "maxSuspendedRunsPerOwner" if limit < self._settings.max_suspended_runs else "maxSuspendedRuns"
            if own >= limit:
                raise ProgramError(
                    "too_many_pending_tool_calls",
                    f"the program would have to be suspended, but {own} programs of yours are suspended already "
                    f"({name} is {limit}); finish one with wait, or cancel it with wait and cancel: true",
                )
            if len(alive) >= self._settings.max_suspended_runs:
                raise ProgramError(
                    "too_many_pending_tool_calls",
                    "the program would have to be suspended, but there is no room for another one "
                    f"(maxSuspendedRuns is {self._settings.max_suspended_runs}); finish one of yours with wait, "
                    "cancel it with wait and cancel: true, or try again later",
                )
        self._parked[run.id] = run
        self._claimed.discard(run.id)

    async def claim(self, run_id: str, owner: str) -> ParkedRun | EndedRun:
        ended = self._ended.get(run_id)
        if ended is not None and ended.owner == owner and ended.expires > self._clock():
            return ended
        run = self._parked.get(run_id)
        if run is not None and run.owner == owner:
            if run_id in self._claimed:
                raise ProgramError(
                    "invalid_input", f"run {run_id} is being waited for already; use the answer of that wait"
                )
            if run.expires > self._clock():
                self._claimed.add(run_id)
                return run
        if (run is not None and run.owner == owner) or self._expired.get(run_id) == owner:
            raise ProgramError(
                "snapshot_expired",
                f"run {run_id} was suspended for more than {self._settings.snapshot_ttl_seconds} s and was dropped; "
                "start the program again",
            )
        raise unknown_run(run_id)

    async def release(self, run_id: str, owner: str) -> None:
        self._claimed.discard(run_id)

    async def end(self, run: EndedRun) -> None:
        self._parked.pop(run.id, None)
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
        expired = [run for run in self._parked.values() if run.expires <= now and run.id not in self._claimed]
        for run in expired:
            del self._parked[run.id]
            self._expired[run.id] = run.owner
            while len(self._expired) > self.MAX_EXPIRED:
                self._expired.popitem(last=False)
        return [run.id for run in expired]

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


def _share(settings: CodeModeSettings, owner: str) -> int:
    """How many suspended programs `owner` may have."""
    total = settings.max_suspended_runs
    if settings.max_suspended_runs_per_owner is not None:
        return min(settings.max_suspended_runs_per_owner, total)
    return total if owner.startswith("stdio:") else min(total, max(8, total // 4))


_HOLDER = "holder:"


def holder_of(run_id: str) -> str:
    """The owner of a run of somebody unknown: whoever holds its unguessable id (SPEC 7)."""
    return _HOLDER + run_id


def is_holder(owner: str) -> bool:
    return owner.startswith(_HOLDER)
