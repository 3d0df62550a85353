"""The runs of this process, and the runs that ended recently."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codemode_mcp.runs.transcripts import Transcript, Transcripts
from codemode_mcp.runs.views import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.audit.events import Auditor
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.runs.views import RunView, Track

SHOWN_ENDED = 200
"""Maximum number of recently ended runs that are listed."""

MAX_LATE = 5
"""Maximum number of notes for one owner about calls that failed after their program had ended."""

MAX_LATE_OWNERS = 200
"""Maximum number of owners with such notes. The owner whose last note is the oldest is dropped first."""

_OUTCOMES = {"completed": "ok", "expired": "aborted"}
"""Outcomes in events, by status. Other statuses are outcomes themselves. A completed program without a result has the
outcome `empty`."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, for listings. Of its calls, only the records are kept."""

    last: RunView
    track: Track
    began: float
    ended: float

    def view(self, now: float) -> RunView:
        age, since = (round((now - then) * 1000) for then in (self.began, self.ended))
        return replace(self.last, age_ms=age, ended_ms=since)


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
        """Return the store that has a suspended run, or its end."""
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
            run.recorder.end(completed=code is None, code=code)  # for runs that no driver has ended
        last = run.view(self._clock())
        if last.state == "running":  # no driver has ended it, for example because the program was refused
            last = replace(last, state="failed")
        last = replace(last, code=code, observed=False, timers=0)
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
        """The ids of all runs that `views` returns."""
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
            return replace(run.view(now), calls=run.call_views(now))
        for each in self._ended:
            if each.last.id == run_id:
                return replace(each.view(now), calls=each.track.views(now))
        return None

    def transcript(self, run_id: str) -> Transcript | None:
        """Return the program of one of these runs and its output so far; None if they were forgotten."""
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
        """Return the notes for an owner, or for one of several clients of an owner, and forget them."""
        return tuple(self._late.pop((owner, client), ())) if owner is not None else ()


def transcript_of(run: Run, outcome: Outcome | None) -> Transcript:
    """Return the program of a run and its output so far."""
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
