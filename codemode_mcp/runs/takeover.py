"""Runs that several processes share through a durable store: claims, and news of what other processes have done.

Any process that serves an owner can continue the owner's suspended runs. For that, it claims the run. The store then
increases the run's fencing token, and no other process can claim the run until this one has suspended, released or
ended it, or is dead. Every write contains the token of its process. So a process that lost a run without notice cannot
change the run: it is `Fenced`.

Invariants:

- A claim is not cancelled half-way. A claim without a task would keep all other processes from the run as long as this
  process lives.
- A run that was claimed and cannot be restored is released, or its end (`snapshot_restore_failed`) is stored.
  Otherwise the next `wait` would find it claimed.
- The state of a run in this process is valid only while the store says `current`: no other process has continued the
  run since. Otherwise this process forgets its state and restores the run from the store.
- A run that this process has given away keeps its calls in flight. Their executor stores their ends (`call_storage`),
  whichever process has the run by then.
- To cancel a run that another process drives, this process asks the other one through the store. Then it tries to claim
  the run or its end every `CANCEL_SECONDS`.

News says only that something has happened to a run; `look` asks the store for details. News can be lost. Then every run
is looked up, at most `MAX_LOOKS` at a time. Executors can die without notice. While a client waits for a run with calls
of other executors, the run is looked up every `WATCH_SECONDS`, and the store says which of its executors are dead.
Without a waiting client, the process listens only from time to time, because each look wakes the machine.

The first suspension is a special case: to a store that does not have the run yet, the run seems to be dropped. So
`_look` waits for the driver of such a run. Without that, news at this moment once ended the calls in flight of a run
that was being stored.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.errors import CodeModeError, ProgramError, StoreUnavailable
from codemode_mcp.runs.live import stop
from codemode_mcp.runs.store import EndedRun, unknown_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.runs.live import LiveRuns
    from codemode_mcp.runs.restoring import Restoring
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.services import Services
    from codemode_mcp.runs.store import Claim, SuspendedRun
    from codemode_mcp.settings import CodeModeSettings

log = logging.getLogger("codemode_mcp.runs")

WATCH_SECONDS = 1.0
"""Poll interval for the liveness of processes that executed in-flight calls of runs with a waiting client."""

CANCEL_SECONDS = 0.05
"""Poll interval for the end, or the suspension, of a run that another process was asked to cancel."""

MAX_LOOKS = 4
"""Runs that are looked up in the store at the same time after news."""


class Takeover:
    """The claims of this process, and the news of what other processes do to runs.

    Args:
        spawn: starts a task that outlives the request.
    """

    def __init__(
        self,
        services: Services,
        settings: Callable[[], CodeModeSettings],
        live: LiveRuns,
        restoring: Restoring,
        spawn: Callable[..., object],
    ) -> None:
        self._store = services.store
        self._auditor = services.auditor
        self._clock = services.clock
        self._settings = settings
        self._live = live
        self._restoring = restoring
        self._spawn = spawn
        self._looking = anyio.CapacityLimiter(MAX_LOOKS)
        self._observed = anyio.Event()
        self._trouble: str | None = None

    def note_observed(self) -> None:
        """Listen to news without pauses, because a request waits for a run now."""
        self._observed.set()

    # claims

    async def claim(
        self, run_id: str, owner: str, caller: Caller | None, *, cancel: bool = False
    ) -> tuple[Run, SuspendedRun] | EndedRun:
        """Claim a run, so that no other process continues it.

        Args:
            caller: the owner as known now; None: as when the run was stored.
            cancel: abort the run. If another process drives it, that process is asked to abort it.

        Returns:
            The run in this process with its stored form, or the end of the run.

        Raises:
            CodeModeError: there is no such run, it has expired, or it is observed already.
        """
        found: tuple[Run, SuspendedRun] | EndedRun | None = None
        # A claim that is cancelled half-way would keep all other processes from the run.
        with anyio.CancelScope(shield=True):
            claimed = await self._claim(run_id, owner, cancel=cancel)
            if isinstance(claimed, EndedRun):
                found = claimed
            else:
                try:
                    run = await self._take_over(claimed, caller)
                except BaseException:
                    with suppress(StoreUnavailable):
                        await self._store.release(run_id, owner)
                    self._store.forget(run_id)
                    raise
                found = run if isinstance(run, EndedRun) else (run, claimed.run)
        assert found is not None
        return found

    async def _claim(self, run_id: str, owner: str, *, cancel: bool) -> Claim | EndedRun:
        until = self._clock() + self._settings().max_request_ms / 1000
        asked = cancel
        while True:
            try:
                return await self._live.home_of(run_id).claim(run_id, owner)
            except ProgramError:
                # Another process may drive the run, and ends it then. If none does, the run was released just now.
                if not asked or self._live.closing or self._clock() > until:
                    raise
            run = self._live.runs.get(run_id)
            if run is not None and run.owner == owner and run.observation is not None:
                stop(run, run.observation)  # another request of this process was faster
            else:
                asked = await self._store.cancel(run_id, owner)
            await anyio.sleep(CANCEL_SECONDS)

    async def _take_over(self, claimed: Claim, caller: Caller | None) -> Run | EndedRun:
        """Return a claimed run, from this process or restored from the store, or its end if that fails."""
        suspended = claimed.run
        run = self._live.runs.get(suspended.id)
        if run is not None and claimed.current:
            if self._store.durable:
                async with run.driving:
                    pass  # the request that suspended the run may not be over yet
                self._restoring.take_in(run, suspended.calls)
            return run
        if run is not None:
            self._live.set_aside(run)
        if not self._store.durable:
            raise unknown_run(suspended.id)
        try:
            run = await self._restoring.run_of(claimed, caller, self._settings())
        except CodeModeError as error:
            if error.code != "snapshot_restore_failed":
                raise
            ended = self._restoring.end_of(suspended, error, self._settings().snapshot_ttl_seconds)
            await self._store.end(ended)
            return ended
        self._live.runs[run.id] = run
        self._auditor.emit("taken_over", run.id, pending=len(run.calls))
        return run

    def forget(self, run: Run) -> None:
        """Forget a run that another process has, or whose state in an unreachable store may be newer."""
        if self._live.runs.get(run.id) is run:  # otherwise this process may have claimed the run again since
            self._store.forget(run.id)
        self._live.set_aside(run)

    # news

    def look_up(self, run_id: str) -> None:
        """Ask the store soon what other processes have done to a run."""
        run = self._live.runs.get(run_id)
        if run is not None and run.is_durable:
            self._spawn(self._look, run)

    async def _look(self, run: Run) -> None:
        if run.home is None:
            # The run is being stored for the first time. A store without it would say that it was dropped.
            async with run.driving:
                pass
            if not run.is_durable:
                return
        try:
            # After missed news, all runs are looked up, but other tasks need the store, too.
            async with self._looking:
                if self._live.runs.get(run.id) is not run:
                    return
                news = await self._store.news_of(run.id)
        except StoreUnavailable as error:
            self.report_failure(error)
            return
        except CodeModeError as error:
            log.warning("what other processes did to run %s is not known: %s", run.id[:12], error.message)
            return
        if self._live.runs.get(run.id) is not run:
            return
        if news.fenced or news.ended is not None:
            self.forget(run)
            if run.guest is not None:
                run.guest.interrupt()
            if news.ended in ("aborted", "expired", "failed"):
                run.cancel_calls()
            elif news.ended == "completed":
                for live in list(run.calls.values()):
                    if live.record.read_only:
                        live.cancel()
            return
        if news.cancelled and run.observation is not None:
            stop(run, run.observation)
        self._restoring.take_in(
            run,
            [
                replace(each, executor="nobody") if each.result is None and each.status == "dispatched" else each
                for each in news.calls
            ],
        )

    async def listen_forever(self) -> None:
        """Act on news of other processes, until cancelled.

        While no request waits for a run, it looks only every `WATCH_SECONDS`, because each look wakes the machine.
        """
        runs = self._live.runs
        while True:
            observed = any(run.observation is not None for run in runs.values() if run.is_durable)
            if not observed:
                with anyio.move_on_after(WATCH_SECONDS):
                    await self._observed.wait()
                self._observed = anyio.Event()
                if not any(run.is_durable for run in runs.values()):
                    continue
            try:
                with anyio.move_on_after(WATCH_SECONDS if observed else 0):
                    while True:
                        run_id = await self._store.next_notification()
                        for each in list(runs) if run_id is None else (run_id,):
                            self.look_up(each)
            except CodeModeError:
                await anyio.sleep(WATCH_SECONDS)

    async def watch_executors_forever(self) -> None:
        """Look for calls whose executors have died without notice, until cancelled."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            for run in list(self._live.runs.values()):
                if run.observation is not None and run.awaits_other_executor:
                    self.look_up(run.id)

    def look_up_expired(self) -> None:
        """Look up the runs that have expired in this process. Other processes may have continued them."""
        now = self._clock()
        for run in list(self._live.runs.values()):
            if run.is_past(now):
                self.look_up(run.id)

    # the health of the store

    def report_failure(self, error: StoreUnavailable) -> None:
        """Log that the store fails. The message is logged once, although the store is asked every second."""
        if error.message != self._trouble:
            self._trouble = error.message
            log.warning(
                "suspended runs are not dropped when their time is over, and what others do to them is not known: %s",
                error.detail,
            )

    def report_success(self) -> None:
        """Log that the store works again, if it had failed."""
        if self._trouble is not None:
            self._trouble = None
            log.info("the store of suspended runs works again")
