"""The runs of this process, and those that several processes share through a durable store.

Any process that serves an owner can continue the owner's suspended runs. To do so, it claims the run. The store then
increases the run's fencing token. No other process can claim the run until this one has suspended, released or ended
it, or is dead. Every write contains the token of its process. So a process that has lost a run without notice cannot
change the run: it is `Fenced`.

Invariants:

- A claim cannot be cancelled before it is complete. Otherwise a run could be claimed without a task that drives it, and
  no other process could claim it as long as this process lives.
- If a claimed run cannot be restored, it is released, or its end (`snapshot_restore_failed`) is stored. Otherwise the
  next `wait` would find it claimed.
- The state of a run in this process is valid only if the claim is `current`: no other process has continued the run
  since. Otherwise this process forgets its state and restores the run from the store.
- Calls in flight stay with this process, even if it has given away their run. It stores their ends (`persisting`),
  whichever process has the run by then.
- To cancel a run that another process drives, this process asks the other one through the store. Then it tries to claim
  the run or its end every `CANCEL_SECONDS`.

A notification says only that something has happened to a run. `look_up` asks the store for details. Notifications can
be lost. Then every run is looked up, at most `MAX_LOOKS` at a time. Executors can die without notice. While a client
waits for a run with calls of other executors, the run is looked up every `WATCH_SECONDS`, and the store finds out which
of its executors are dead. Without a waiting client, the process listens only from time to time, because each poll wakes
the machine.

The first suspension is a special case. A store that does not have the run yet answers as for a run that was dropped. So
`_look_up` waits for the driver of such a run. Before it did so, a notification at this moment could end the calls in
flight of a run that was being stored.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, structs

from codemode_mcp.audit.recordings.format import End
from codemode_mcp.base.errors import CodeModeError, ErrorCode, ProgramError, StoreUnavailable
from codemode_mcp.runs.outputs import Transcript, Transcripts
from codemode_mcp.runs.store import Claim, EndedRun, RunStore, SuspendedRun, unknown_run
from codemode_mcp.runs.views import Ledger, RunView, Track

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.audit.events import Auditor
    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.manager import Services
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.restoring import Restoring
    from codemode_mcp.runs.run import Run


log = logging.getLogger("codemode_mcp.runs")

WATCH_SECONDS = 1.0
"""Poll interval for the liveness of processes that executed in-flight calls of runs with a waiting client."""

CANCEL_SECONDS = 0.05
"""Poll interval for the end, or the suspension, of a run that another process was asked to cancel."""

MAX_LOOKS = 4
"""Maximum number of runs that are looked up in the store at the same time."""


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
        self._looks = anyio.CapacityLimiter(MAX_LOOKS)
        self._observed = anyio.Event()
        self._claims = 0  # that are open
        self._claim_ended = anyio.Event()
        self._failure: str | None = None
        """The latest message about a failure of the store; None while the store works."""

    def note_observed(self) -> None:
        """Listen to notifications without pauses, because a request waits for a run now."""
        self._observed.set()

    # claims

    async def claim(
        self, run_id: str, owner: str, caller: Caller | None, *, cancel: bool = False
    ) -> tuple[Run, SuspendedRun] | EndedRun:
        """Claim a run, so that no other process continues it.

        Args:
            caller: the owner as known now; None to use the owner as known when the run was stored.
            cancel: abort the run. If another process drives it, ask that process to abort it.

        Returns:
            The run in this process with its stored form, or the end of the run.

        Raises:
            CodeModeError: there is no such run, it has expired, or it is observed already.
        """
        found: tuple[Run, SuspendedRun] | EndedRun | None = None
        self._claims += 1
        # See the invariants at the top of the module.
        with anyio.CancelScope(shield=True):
            try:
                claimed = await self._claim(run_id, owner, cancel=cancel)
                found = claimed if isinstance(claimed, EndedRun) else await self._continue(claimed, owner, caller)
            finally:
                self._claims -= 1
                self._claim_ended.set()
        assert found is not None
        return found

    async def _continue(self, claimed: Claim, owner: str, caller: Caller | None) -> tuple[Run, SuspendedRun] | EndedRun:
        try:
            run = await self._take_over(claimed, caller)
        except BaseException:
            with suppress(StoreUnavailable):
                await self._store.release(claimed.run.id, owner)
            self._store.forget(claimed.run.id)
            raise
        return run if isinstance(run, EndedRun) else (run, claimed.run)

    async def claims_ended(self) -> None:
        """Wait until no request claims a run. The caller has seen to it that no other claim begins."""
        while self._claims:
            self._claim_ended = anyio.Event()
            await self._claim_ended.wait()

    async def _claim(self, run_id: str, owner: str, *, cancel: bool) -> Claim | EndedRun:
        until = self._clock() + self._settings().max_request_ms / 1000
        retry = cancel
        while True:
            try:
                return await self._live.store_of(run_id).claim(run_id, owner)
            except ProgramError:
                # To be cancelled, the run must be ended by the process that drives it, which is asked below. If no
                # process drives it, it was released just now, and the next claim succeeds or raises.
                if not retry or self._live.closing or self._clock() > until:
                    raise
            run = self._live.runs.get(run_id)
            if run is not None and run.owner == owner and run.observation is not None:
                stop(run, run.observation)  # another request of this process has claimed the run first
            else:
                retry = await self._store.cancel(run_id, owner)
            await anyio.sleep(CANCEL_SECONDS)

    async def _take_over(self, claimed: Claim, caller: Caller | None) -> Run | EndedRun:
        """Return a claimed run, from this process or restored from the store, or its end if that fails."""
        suspended = claimed.run
        run = self._live.runs.get(suspended.id)
        if run is not None and claimed.current:
            if self._store.durable:
                async with run.driving:
                    pass  # the driver that suspended the run may not have returned yet
                self._restoring.accept_news(run, suspended.calls)
            return run
        if run is not None:
            self._live.forget(run)  # outdated, because another process has continued the run
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
        """Forget a run that another process has, or that may be newer in a store which does not answer."""
        # If this is another `Run`, this process has claimed the run again. Then the store's knowledge is of that claim.
        if self._live.runs.get(run.id) is run:
            self._store.forget(run.id)
        self._live.forget(run)

    # news

    def look_up(self, run_id: str) -> None:
        """Start a task that asks the store what other processes have done to a run."""
        run = self._live.runs.get(run_id)
        if run is not None and run.is_durable:
            self._spawn(self._look_up, run)

    async def _look_up(self, run: Run) -> None:
        if run.store is None:
            # The run is being stored for the first time; see the top of the module.
            async with run.driving:
                pass
            if not run.is_durable:
                return
        try:
            # After lost notifications, all runs are looked up, and other tasks need the store, too.
            async with self._looks:
                # The run may have been forgotten or claimed again while this waited. Checked after each wait.
                if self._live.runs.get(run.id) is not run:
                    return
                news = await self._store.news_of(run.id)
        except StoreUnavailable as error:
            self.report_failure(error)
            return
        except CodeModeError as error:
            log.warning("cannot find out what other processes did to run %s: %s", run.id[:12], error.message)
            return
        if self._live.runs.get(run.id) is not run:
            return
        if news.fenced or news.ended is not None:
            self.forget(run)
            if run.guest is not None:
                run.guest.interrupt()
            # No program waits for the calls now. Those of a completed run that may change something continue, as in
            # `driver.leave_calls`.
            if news.ended in ("aborted", "expired", "failed"):
                run.cancel_calls()
            elif news.ended == "completed":
                for live in list(run.calls.values()):
                    if live.record.read_only:
                        live.cancel()
            return
        if news.cancelled and run.observation is not None:
            stop(run, run.observation)
        # A call of a dead executor that must not be sent again has no executor from now on.
        self._restoring.accept_news(
            run,
            [
                structs.replace(each, executor="nobody")
                if each.result is None and each.status == "dispatched" and not each.task
                else each
                for each in news.calls
            ],
        )

    async def listen_forever(self) -> None:
        """Act on notifications of other processes, until cancelled.

        While no request waits for a run, check for notifications only every `WATCH_SECONDS`, because each check wakes
        the machine.
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
                # With 0 seconds, only notifications are read that have already arrived.
                with anyio.move_on_after(WATCH_SECONDS if observed else 0):
                    while True:
                        run_id = await self._store.next_notification()
                        for each in list(runs) if run_id is None else (run_id,):
                            self.look_up(each)
            except CodeModeError:
                await anyio.sleep(WATCH_SECONDS)

    async def watch_executors_forever(self) -> None:
        """Find calls whose executors have died without notice, until cancelled."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            for run in list(self._live.runs.values()):
                if run.observation is not None and run.awaits_other_executor:
                    self.look_up(run.id)

    def look_up_expired(self) -> None:
        """Look up the runs that have expired by the clock of this process. Others may have continued them."""
        now = self._clock()
        for run in list(self._live.runs.values()):
            if run.has_expired(now):
                self.look_up(run.id)

    # the health of the store

    def report_failure(self, error: StoreUnavailable) -> None:
        """Log that the store fails. The same message is logged once, although the store is asked every second."""
        if error.message != self._failure:
            self._failure = error.message
            log.warning(
                "expired runs are not dropped, and it is unknown what other processes do to suspended runs: %s",
                error.detail,
            )

    def report_success(self) -> None:
        if self._failure is not None:
            self._failure = None
            log.info("the store of suspended runs works again")


# The runs of this process, and the runs that ended recently.


SHOWN_ENDED = 200
"""Maximum number of recently ended runs that are listed."""

MAX_LATE = 5
"""Maximum number of notes for one owner about calls that failed after their program had ended."""

MAX_LATE_OWNERS = 200
"""Maximum number of owners with such notes. The owner whose last note is the oldest is dropped first."""

_OUTCOMES = {"completed": "ok", "expired": "aborted"}
"""Outcomes in events, by status. Other statuses are outcomes themselves. A completed program without a result has the
outcome `empty`."""


class _Ended(Struct, frozen=True):
    """A run that has ended, for listings. Of its calls, only the records are kept."""

    last: RunView
    track: Track
    began: float
    ended: float

    def view(self, now: float) -> RunView:
        age, since = (round((now - then) * 1000) for then in (self.began, self.ended))
        return structs.replace(self.last, age_ms=age, ended_ms=since)


class LiveRuns:
    """The runs of this process by their ids, and the runs that ended recently.

    Args:
        fallback: the store of runs that are suspended in this process alone.
        clock: monotonic seconds.

    Attributes:
        closing: True if the process accepts no more requests.
    """

    def __init__(self, store: RunStore, fallback: RunStore, auditor: Auditor, clock: Callable[[], float]) -> None:
        self._store = store
        self._fallback = fallback
        self._auditor = auditor
        self._clock = clock
        self.runs: dict[str, Run] = {}
        self.ledger = Ledger()
        self.closing = False
        self._late: dict[tuple[str, str | None], list[str]] = {}
        self._ended: deque[_Ended] = deque(maxlen=SHOWN_ENDED)
        self._transcripts = Transcripts()
        self._ended_in_fallback: deque[str] = deque(maxlen=SHOWN_ENDED)

    def store_of(self, run_id: str) -> RunStore:
        run = self.runs.get(run_id)
        if run is not None and run.store is not None:
            return run.store
        return self._fallback if run_id in self._ended_in_fallback else self._store

    def forget(self, run: Run) -> None:
        """Forget a run that another process has. Calls that were sent from here continue."""
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self._auditor.emit("left", run.id, pending=len(run.calls))
        if run.recorder is not None:
            run.recorder.leave()
        run.track.forget()
        run.give_up()

    def end(self, run: Run, code: ErrorCode | None, outcome: Outcome | None = None) -> None:
        """Move a run that has ended to the recently ended runs.

        Args:
            outcome: its last answer, if there is one.
        """
        if self.runs.pop(run.id, None) is None:
            return
        if run.store is self._fallback is not self._store:
            self._ended_in_fallback.append(run.id)
        run.programs.close(self._clock())
        self._report_end(run, code)
        if run.recorder is not None:
            run.recorder.end(
                End("completed" if code is None else "failed", code=code)
            )  # for runs that no driver has ended
        last = run.view(self._clock())
        if last.state == "running":  # no driver has ended it, for example because the program was refused
            last = structs.replace(last, state="failed")
        last = structs.replace(last, code=code, observed=False, timers=0)
        # Calls in flight may continue without their program. Their records still change, so these are not packed.
        run.track.pack(run.calls)
        if len(self._ended) == self._ended.maxlen:
            self._ended[0].track.forget()
        self._transcripts.keep(run.id, transcript_of(run, outcome))
        self._ended.append(_Ended(last, run.track, run.began, self._clock()))

    def _report_end(self, run: Run, code: ErrorCode | None) -> None:
        status = {None: "completed", "aborted": "aborted", "snapshot_expired": "expired"}.get(code, "failed")
        self._auditor.emit(
            "run_ended",
            run.id,
            status=status,
            outcome=_OUTCOMES.get(status, status) if not run.empty else "empty",
            code=code,
            ms=round((self._clock() - run.began) * 1000),
            calls=run.context.counts.call,
            waits=run.waits,
            snapshots=run.snapshots,
        )

    # listings

    @property
    def listed(self) -> set[str]:
        return {each.last.id for each in self._ended} | self.runs.keys()

    def views(self) -> list[RunView]:
        """Return all runs and the recently ended ones, the newest first, without their calls."""
        now = self._clock()
        found: list[Run | _Ended] = [*self.runs.values(), *self._ended]
        found.sort(key=lambda each: each.began, reverse=True)
        return [each.view(now) for each in found]

    def view(self, run_id: str) -> RunView | None:
        """Return the view of one of these runs, with its calls; None if the run is unknown or was forgotten."""
        now = self._clock()
        run = self.runs.get(run_id)
        if run is not None:
            return structs.replace(run.view(now), calls=run.call_views(now))
        for each in self._ended:
            if each.last.id == run_id:
                return structs.replace(each.view(now), calls=each.track.views(now))
        return None

    def transcript(self, run_id: str) -> Transcript | None:
        run = self.runs.get(run_id)
        return self._transcripts.of(run_id) if run is None else transcript_of(run, None)

    # calls that failed after the end of their program

    def note_late_failure(self, run: Run, note: str) -> None:
        """Keep a note about a call of a run for the next answer to its owner, or to its client of the owner."""
        key = run.owner, run.context.caller.client
        notes = self._late.pop(key, [])
        if len(notes) < MAX_LATE:
            notes.append(note)
        self._late[key] = notes
        if len(self._late) > MAX_LATE_OWNERS:
            del self._late[next(iter(self._late))]

    def take_late_notes(self, owner: str | None, client: str | None) -> tuple[str, ...]:
        return tuple(self._late.pop((owner, client), ())) if owner is not None else ()


def transcript_of(run: Run, outcome: Outcome | None) -> Transcript:
    if outcome is None:
        return Transcript(run.source, tuple(run.history))
    failed = outcome.status == "failed"
    return Transcript(run.source, tuple(run.history), None if failed else outcome.value, outcome.error, ended=True)


def stop(run: Run, observation: Observation) -> None:
    """Make the driver of a run abort the run, and stop its turn."""
    observation.aborted = True
    _wake(run, observation)
    if run.guest is not None:
        run.guest.interrupt()


def release(run: Run, observation: Observation) -> None:
    """Make the driver of a run answer its request as soon as possible."""
    observation.released = True
    _wake(run, observation)


def _wake(run: Run, observation: Observation) -> None:
    if observation.queueing is not None:
        observation.queueing.cancel()
    run.change()
