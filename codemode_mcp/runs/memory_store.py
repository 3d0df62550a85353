"""The store of suspended and ended runs in the memory of this process."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from codemode_mcp.runs.store import (
    Claim,
    EndedRun,
    RunStore,
    SuspendedRun,
    Totals,
    already_observed,
    check_quotas,
    expired_run,
    unknown_run,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.settings import CodeModeSettings, StoreKind


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
            self._suspended[run_id] = replace(run, expires=expires)

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
            self._expired[run.id] = replace(run, snapshot=b"", manifest="")
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
