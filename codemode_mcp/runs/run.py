"""The state of one run in this process.

The module is long because it declares each part of this state with its meaning.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from codemode_mcp.base.settings import MIB, CodeModeSettings
from codemode_mcp.runs.calls.outcome import MAX_CHALLENGES, CallContext, CallRecord, Outcome, SnapshotUse, Usage
from codemode_mcp.runs.live_call import LiveCall, OpenPrograms
from codemode_mcp.runs.namespaces import OpenNamespaces
from codemode_mcp.runs.questions import Approvals, Questions
from codemode_mcp.runs.run_recording import RecentResults
from codemode_mcp.runs.state import DURABLE, Custody, CustodyEvent, RunEvent, RunState, advance, advance_custody
from codemode_mcp.runs.store import Fenced, RunStore, StoredCatalog
from codemode_mcp.runs.views import CallView, Ledger, MadeCalls, RunView, Track

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from codemode_mcp.audit.recordings.recordings import Recorder
    from codemode_mcp.base.errors import Exceeded
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.sandbox import messages
    from codemode_mcp.sandbox.guest import Guest
    from codemode_mcp.sandbox.messages import Completion
    from upstream_clients.tools import Question

    OnOutput = Callable[[Sequence[Mapping[str, Any]]], None]
    """Called with the outputs of each turn of a program, in order and once, in the form of `Outcome.outputs`.

    It is called in the event loop and must not wait."""
    from collections.abc import Callable

log = logging.getLogger("codemode_mcp.runs")

RECENT_CALLS = 8
"""Number of latest calls that an answer lists."""

MAX_NOTES = 20
"""Maximum number of notes in all answers of one run together."""


class SettledQueue(deque["Completion"]):
    """The completions that were not delivered yet. Use only the methods below to change the queue.

    Attributes:
        size: approximate characters of all completions.
    """

    def __init__(self, completions: Iterable[Completion] = ()) -> None:
        super().__init__()
        self.size = 0
        self.extend(completions)

    def append(self, completion: Completion) -> None:
        super().append(completion)
        self.size += completion.size

    def extend(self, completions: Iterable[Completion]) -> None:
        for completion in completions:
            self.append(completion)

    def popleft(self) -> Completion:
        completion = super().popleft()
        self.size -= completion.size
        return completion


class Run:
    """The state of one run in this process: its guest, its calls and timers, and the completions to be delivered.

    Args:
        manifest: the source of the guest's warm image.
        began: monotonic seconds.
        remember: stores approvals of tools for later programs; None if they cannot be stored.
        on_output: called with the output of the program.
        memory_limit: bytes that the program may use.
    """

    def __init__(
        self,
        context: CallContext,
        manifest: str,
        began: float,
        ledger: Ledger | None = None,
        remember: Callable[[Run, Collection[str]], None] | None = None,
        on_output: OnOutput | None = None,
        memory_limit: int = 64 * MIB,
    ) -> None:
        self.id = context.run_id
        self.signal = ChangeSignal()
        self.change = self.signal.set
        """Wakes the driver. Called after anything has happened for which it may wait."""
        self.context = context
        self.manifest = manifest
        self.began = began
        self.memory_limit = memory_limit
        self.store: RunStore | None = None
        """The store that has the run; None before the first suspension."""
        self.custody: Custody = "local"
        """The process and the store that have the run. Only `advance_custody` changes it."""
        self.stored_catalog: StoredCatalog | None = None
        self.writing = anyio.Lock(fast_acquire=True)
        """Held while the run is written to a store."""
        self.driving = anyio.Lock(fast_acquire=True)
        """Held by the driver."""
        self.state: RunState = "running"
        self.guest: Guest | None = None
        """None while the run is suspended."""
        self.threaded_turns = 0
        """Turns that are still to be computed in a thread, after a turn that was too long for the event loop."""
        self.has_room = False
        """True if the run has one of the places for guests in memory; see `Guests.find_room`."""
        self.positions: Positions | None = None
        self.observation: Observation | None = None
        """The open request for the run; None if there is none."""
        self.last_observation: Observation | None = None
        """The latest observation, also after its end."""
        self.sent = False
        """True if a call may have been sent."""
        # Calls that have not ended, by number: all of them, then those that wait to begin, and those that were approved
        # and wait for a slot again.
        self.calls: dict[int, LiveCall] = {}
        self.made = MadeCalls(self.calls)
        """The calls that may have had effects."""
        self.queue: deque[LiveCall] = deque()
        self.resuming: deque[LiveCall] = deque()
        self.programs = OpenPrograms()
        """The saved programs that have begun in the guest."""
        self.describing = 0.0
        """Seconds that the descriptions of errors of saved programs have taken."""
        self.last_call = 0
        """The number of the latest call. Numbers only grow."""
        self.executing = 0
        """The number of calls that have a slot; see `LiveCall.has_slot`."""
        self.starting = 0
        """The number of calls that wait for the start of their server."""
        self.refused = 0
        """The number of calls that ended before they were sent."""
        self.pace = anyio.Semaphore(1, fast_acquire=True)
        """Lets calls with a task begin one after the other; see `Calls._execute`."""
        self.begin_until = 0.0
        """The end of the time in which calls may begin in this round of the event loop."""
        self.begun_enough = False
        """True if calls have used up this time. The others begin in the next round."""
        self.begins_soon = False
        """True if the next round is scheduled to begin calls."""
        # The input of the next turns: completions, requests to be answered here, timers by id and by due time.
        self.settled = SettledQueue()
        self.requests: deque[messages.Answered] = deque()
        self.timers: dict[int, float] = {}
        self.timers_began: dict[int, float] = {}
        self.timer_heap: list[tuple[float, int]] = []
        """Due times and ids of timers. Cleared timers stay in it until `next_timer` or `tidy_timers` removes them."""
        self.timer_was_last = False
        """True if the latest batch was a timer; see `Deliveries.take`."""
        self.yields: list[int] = []
        """The ids of calls of `yield_control()` that were not completed yet."""
        self.yield_reason: str | None = None
        self.questions = Questions(self.change)
        self.namespaces = OpenNamespaces()
        self.args: tuple[str, ...] = ()
        self.recorder: Recorder | None = None
        """The recorder of everything that the program gets and asks for; None if the run is not recorded."""
        self.source = ""
        """The program, as far as this process knows it."""
        self.approvals = Approvals(
            self.id,
            self.questions,
            self.change,
            None if remember is None else partial(remember, self),
            operated=context.caller.operates,
            via=context.approval_via,
        )
        self.outputs: list[dict[str, Any]] = []
        """The outputs since the latest answer."""
        self.history: list[dict[str, Any]] = []
        """All outputs since the start."""
        self.stored_outputs = 0
        """The number of outputs in `history` that a durable store has."""
        self.stored_ends: frozenset[int] = frozenset()
        """The calls in `settled` whose ends a durable store has."""
        self.on_output = on_output
        self.dropped = 0
        """Characters of output that the guest has discarded."""
        self.empty = False
        """True if the run has completed with neither a value nor output."""
        self.absent_key: str | None = None
        """The latest key that the program has loaded without finding a value."""
        self.results = RecentResults()
        self.proposed = 0
        """The number of times that the program has proposed to be saved, in this process."""
        self.looking_up = 0.0
        """Seconds that look-ups of the program have taken."""
        self.recent: deque[CallRecord] = deque(maxlen=RECENT_CALLS)
        self.track = Track(ledger or Ledger(), began)
        self.expires: float | None = None
        """The time at which the suspended run is dropped, monotonic seconds."""
        self.waits = 0
        self.snapshots = 0
        self.snapshot_size = 0
        """Bytes of the latest snapshot."""
        self.restored = 0
        """The number of times that this process has restored the run."""
        self.taken_over = False
        """True if another process had the run before this one."""
        self.exceeded: Exceeded | None = None
        """The latest limit that the run exceeded."""
        self._challenges: dict[str, None] = {}
        self._notes: list[str] = []
        self._noted: set[str] = set()

    def __repr__(self) -> str:
        return f"<Run {self.id[:12]} {self.state}: {len(self.calls)} calls, {len(self.timers)} timers>"

    @property
    def owner(self) -> str:
        return self.context.owner

    @property
    def share(self) -> str:
        return self.context.share

    @property
    def recent_tools(self) -> dict[int, str]:
        """The tools of the latest calls that have ended, by the number of the call."""
        return {record.id: record.tool for record in self.recent}

    def declare_scopes(self) -> None:
        """Add the members of the open namespaces to the declarations that the program can read."""
        shapes = self.namespaces.shapes
        if shapes:
            self.context = replace(self.context, catalog=self.context.catalog.with_scopes(shapes))

    def observed_by(self, observation: Observation) -> None:
        self.observation = self.last_observation = observation

    def begin_request(self, observation: Observation) -> None:
        """Set the request that waits for the run, and tell the relay of its client, if there is one."""
        self.observed_by(observation)
        observation.note_run(self.id, dispatched=self.sent)

    def note_sending(self) -> bool:
        """Note that a call is about to be sent. Return False if the relay of the client does not know it yet."""
        # Of the latest request, because its answer may not be written yet when calls of the last turn are sent.
        self.sent = True
        return self.last_observation is None or self.last_observation.note_sending(self.id)

    def can_answer(self, question: Question) -> bool:
        """Return True if the client of the open or the latest request is able to answer a question."""
        if self.last_observation is None:
            return True  # taken over from another process; a client that can answer may still send a request
        client = self.last_observation.client
        return client is not None and client.way(question) != "none"

    @property
    def given_up(self) -> bool:
        """True if the run was aborted or has expired, or is about to be aborted."""
        return self.state in ("aborted", "expired") or (self.observation is not None and self.observation.aborted)

    @property
    def waits_for_person(self) -> bool:
        """True if a call waits for an approval, or for an answer to a question of its server."""
        return bool(self.approvals.calls or self.questions.calls)

    def lifetime(self, settings: CodeModeSettings) -> int:
        """Return the seconds for which the run is kept if it is suspended now."""
        return settings.approval_ttl_seconds if self.waits_for_person else settings.snapshot_ttl_seconds

    def prolong(self, until: float) -> bool:
        """Keep the suspended run until a time. Return False if it is kept longer anyway, or is not suspended."""
        if self.state != "waiting" or self.observation is not None or self.expires is None or until < self.expires:
            return False
        self.expires = until
        return True

    def has_expired(self, now: float) -> bool:
        suspended = self.state == "waiting" and self.observation is None
        return suspended and self.expires is not None and self.expires <= now

    def advance(self, event: RunEvent) -> None:
        """Change the state by the table of `runs.state`. Raises `IllegalTransition`."""
        self.state = advance(self.state, event)

    def advance_custody(self, event: CustodyEvent) -> None:
        """Change the custody by the table of `runs.state`. Raises `IllegalTransition`."""
        self.custody = advance_custody(self.custody, event)

    @property
    def is_durable(self) -> bool:
        """True if a durable store has the run, so that every action for it is stored before it is done."""
        return self.custody in DURABLE

    @property
    def fenced(self) -> bool:
        """True if another process has the run now."""
        return self.custody == "lost"

    def check_fence(self) -> None:
        if self.fenced:
            raise Fenced(self.id)

    def note(self, text: str) -> None:
        """Add a note to the next answer of the run, unless an earlier answer had the same note."""
        if text in self._noted or len(self._noted) > MAX_NOTES:
            return
        self._noted.add(text)
        self._notes.append(text if len(self._noted) <= MAX_NOTES else "There are more notes, which are not shown.")

    def show_output(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        if self.on_output is None or not outputs:
            return
        try:
            self.on_output(outputs)
        except Exception:
            log.exception("the output of run %s could not be shown while it ran", self.id[:12])

    def with_outputs(self, outcome: Outcome, notes: tuple[str, ...] = ()) -> Outcome:
        """Return an outcome with the output and the notes since the previous outcome, and with further notes."""
        notes = (*outcome.notes, *notes, *self.take_notes())
        outputs, challenges = tuple(self.outputs), tuple(self._challenges)
        self.outputs.clear()
        self._challenges.clear()
        return replace(outcome, notes=notes, outputs=outputs, dropped=self.dropped, challenges=challenges)

    def add_challenges(self, challenges: Iterable[str]) -> None:
        """Add authentication challenges to the next answer of the run. It has each once, and at most eight."""
        for each in challenges:
            if len(self._challenges) < MAX_CHALLENGES:
                self._challenges[each] = None

    def take_notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    @property
    def notes(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """The notes for the next answer, and all notes so far."""
        return tuple(self._notes), frozenset(self._noted)

    def restore_notes(self, notes: Iterable[str], noted: Iterable[str]) -> None:
        self._notes, self._noted = list(notes), set(noted)

    async def wait_for_change(self, until: float, clock: Callable[[], float]) -> None:
        """Return after the next `change`, or at `until`, or earlier. Only the driver calls this."""
        await self.signal.wait(until, clock)
        if self.calls and self.signal.is_set:
            # Other calls may end in the same round of the event loop. One turn for all of them is cheaper.
            await anyio.lowlevel.checkpoint()
        self.signal.is_set = False

    async def wait_undriven(self) -> None:
        """Return after the next `change` of a run that has no driver."""
        await self.signal.listen()
        if self.observation is None:
            self.signal.is_set = False

    @property
    def next_timer(self) -> float | None:
        """The time at which the next timer is due, monotonic seconds."""
        while self.timer_heap:
            due, timer = self.timer_heap[0]
            if self.timers.get(timer) == due:
                return due
            heapq.heappop(self.timer_heap)
        return None

    def tidy_timers(self) -> None:
        """Remove cleared timers from the heap if there are many. Otherwise they would stay there until they are due."""
        if len(self.timer_heap) > 2 * len(self.timers) + 1000:
            self.timer_heap = [(due, timer) for timer, due in self.timers.items()]
            heapq.heapify(self.timer_heap)

    def ready(self, now: float) -> bool:
        """Return True if there is anything to deliver to the guest."""
        if self.settled or self.requests or self.yields:
            return True
        due = self.next_timer
        return due is not None and due <= now

    @property
    def can_settle(self) -> bool:
        return bool(self.calls or self.timers or self.settled or self.requests or self.yields)

    @property
    def has_undecided_calls(self) -> bool:
        """True if a call that was not sent may still have to wait for an approval."""
        waiting, asking = self.approvals.calls, self.questions.calls
        return len(waiting) < len(self.calls) and any(
            live.record.status == "queued" and call not in waiting and call not in asking
            for call, live in self.calls.items()
        )

    def note_start(self, begins: bool) -> None:
        """Note that a call begins or ends to wait for the start of its server."""
        self.starting += 1 if begins else -1
        self.change()

    def is_paused(self, now: float) -> bool:
        """Return True if the time does not count, because a person is asked or only starting servers are awaited."""
        if self.questions.being_asked:
            return True
        # Calls without a slot wait for those that have one, except for those that wait for a person.
        only_starts = self.starting > 0 and self.starting == self.executing and not self.timers
        return only_starts and not self.waits_for_person and not self.ready(now)

    @property
    def awaits_other_executor(self) -> bool:
        """True if the run waits for a call that another process has sent."""
        return any(live.executor == "elsewhere" for live in self.calls.values())

    def give_up(self) -> None:
        """Leave the run to another process. Calls that were sent continue here, because their ends are still needed."""
        self.advance_custody("lose")
        self.questions.refuse()
        self._drop_queue()
        self.cancel_unsent()
        self.change()

    def cancel_calls(self) -> None:
        """Give up all calls, and cancel those in flight at their servers."""
        self._drop_queue()
        for live in list(self.calls.values()):
            live.cancel()

    def _drop_queue(self) -> None:
        self.approvals.end()
        for live in self.queue:
            live.record.status = "failed"
        self.queue.clear()

    def cancel_unsent(self) -> None:
        for live in list(self.calls.values()):
            if live.is_unsent:
                live.cancel()

    def usage(self, now: float) -> Usage:
        counts, store = self.context.counts, self.store
        return Usage(
            catalog_size=len(self.context.catalog),
            sources=self.context.catalog.sources,
            execs=1,
            waits=self.waits,
            searches=counts.search,
            describes=counts.describe,
            call_count=counts.call,
            calls=tuple([*self.recent, *(live.record for live in self.calls.values())][-RECENT_CALLS:]),
            snapshots=self.snapshots,
            ms=round((now - self.began) * 1000),
            snapshot=None
            if store is None
            else SnapshotUse(self.snapshot_size, store.kind, self.restored, self.taken_over),
            exceeded=self.exceeded,
        )

    def view(self, now: float) -> RunView:
        """Return the current view of the run, without its calls."""
        return RunView(
            id=self.id,
            state=self.state,
            kind=self.context.caller.kind,
            principal=self.context.caller.principal,
            age_ms=round((now - self.began) * 1000),
            expires_ms=round((self.expires - now) * 1000) if self.state == "waiting" and self.expires else None,
            observed=self.observation is not None,
            waits=self.waits,
            snapshots=self.snapshots,
            approvals=len(self.approvals.calls),
            questions=len(self.questions.calls),
            timers=len(self.timers),
            call_count=self.track.total,
            made=self.made(),
        )

    def call_views(self, now: float) -> tuple[CallView, ...]:
        """Return the views of all calls that are remembered or have not ended."""
        live = [(each.call, each.record) for each in self.calls.values()]
        return self.track.views(now, live, self.approvals.calls, self.questions.calls)


class ChangeSignal:
    """A signal that stays set until it is cleared.

    A program waits thousands of times, mostly until the same time. So the timer of an earlier wait is kept if it fires
    soon enough, and a wait costs only one future. An `anyio.Event` with a timeout would take a new timer for each wait.

    Attributes:
        is_set: True if the signal was set since it was last cleared. The waiter clears it.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        """The time at which the alarm fires, on the clock of the driver."""
        self._listener: anyio.Event | None = None

    def set(self) -> None:
        self.is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._listener is not None:
            self._listener.set()

    async def wait(self, until: float, clock: Callable[[], float]) -> None:
        """Wait until the signal is set, or until a time. May return earlier. Only the driver of the run calls this."""
        if self.is_set:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if until < self._alarm_at:
            self._set_alarm(until, loop.call_later(max(0.0, until - clock()), self._ring))
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def listen(self) -> None:
        """Wait until the signal is set, for a run without a driver."""
        if self.is_set:
            return
        if self._listener is None or self._listener.is_set():
            self._listener = anyio.Event()
        await self._listener.wait()

    def cancel_alarm(self) -> None:
        self._set_alarm(math.inf, None)

    def _set_alarm(self, at: float, alarm: asyncio.TimerHandle | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = alarm, at

    def _ring(self) -> None:
        self.cancel_alarm()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
