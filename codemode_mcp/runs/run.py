"""One run as it lives in this process, and the requests that observe it."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel

from codemode_mcp.errors import CodeModeError
from codemode_mcp.runs.approvals import Approvals
from codemode_mcp.runs.namespaces import OpenNamespaces
from codemode_mcp.runs.questions import Questions
from codemode_mcp.runs.recent_results import RecentResults
from codemode_mcp.runs.state import DURABLE, UNSENT, RunState, advance, advance_call, advance_custody
from codemode_mcp.runs.store import Fenced
from codemode_mcp.runs.views import CallView, Ledger, RunView, Track
from codemode_mcp.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.events import CallEvents
    from codemode_mcp.calls.outcome import CallRecord, Outcome
    from codemode_mcp.errors import Exceeded
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.state import CallEvent, CallState, Custody, CustodyEvent, RunEvent
    from codemode_mcp.runs.store import RunStore, StoredCatalog
    from codemode_mcp.sandbox import messages
    from codemode_mcp.sandbox.guest import Guest
    from codemode_mcp.sandbox.messages import Completion, Lookup, ToolCall
    from upstream_clients.tools import Question, SentCall

    OnOutput = Callable[[Sequence[Mapping[str, Any]]], None]
    """Takes the outputs of each turn of a program as they come, in order and once, as `Outcome.outputs` has them later.

    It is called in the event loop and must not wait."""

log = logging.getLogger("codemode_mcp.runs")

RECENT_CALLS = 8
"""Latest calls that an answer lists."""

MAX_NOTES = 20
"""Notes of hooks and others that the answers of one run show."""


class Observation:
    """One open `exec` or `wait`.

    Args:
        deadline: monotonic seconds at which the request wants its answer.
        latest: the latest time to which the deadline may move, because the program queues or a person has to answer.
    """

    def __init__(self, deadline: float, client: Client | None, *, latest: float | None = None) -> None:
        self.deadline = deadline
        self.latest = deadline if latest is None else latest
        self.client = client
        self.held_since: float | None = None
        self.queueing: anyio.CancelScope | None = None
        self.released = False
        self.aborted = False
        self._done = anyio.Event()
        self._outcome: Outcome | CodeModeError | None = None

    def ends(self, now: float, *, held: bool) -> float:
        """Return the time at which the request wants its answer.

        Args:
            held: a person is being asked. The deadline is extended by that time.
        """
        if held:
            if self.held_since is None:
                self.held_since = now
            return self.latest
        if self.held_since is not None:
            self.deadline = min(self.latest, self.deadline + now - self.held_since)
            self.held_since = None
        return self.deadline

    def remaining(self, now: float) -> float:
        """Return the seconds that the program may still compute."""
        return max(0.0, self.deadline - (now if self.held_since is None else self.held_since))

    def settle(self, outcome: Outcome | CodeModeError) -> None:
        self._outcome = outcome
        self._done.set()

    async def outcome(self) -> Outcome:
        """Wait for the outcome. Raises the `CodeModeError` with which the driver ended, if any."""
        await self._done.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, CodeModeError):
            raise self._outcome
        return self._outcome


@dataclass(slots=True, eq=False)
class LiveCall:
    """One call that has not ended.

    Attributes:
        state: only `advance` changes it.
        has_slot: it is one of the `Run.executing`. A call that waits for a person is not.
        recorded: a durable store has it, or it need not wait for one.
        executor: the process that has sent it, or will: this one, or another that stores its end.
        left: its program has ended without awaiting it.
        sent: set while the call is in flight without a task of its own.
        scope: set while a task executes the call.
        cancelled: it was given up.
        start_reported: the auditor has its start.
        on_cancel: called when a call without a task is given up.
    """

    call: ToolCall
    record: CallRecord
    events: CallEvents
    state: CallState = "queued"
    has_slot: bool = False
    recorded: bool = False
    executor: Literal["here", "elsewhere"] = "here"
    left: bool = False
    cancelled: bool = False
    start_reported: bool = False
    sent: SentCall | None = None
    scope: anyio.CancelScope | None = None
    on_cancel: Callable[[LiveCall], None] | None = None
    _news: anyio.Event | None = None
    """Wakes the task that waits until the call is recorded, or has a slot again."""

    def advance(self, event: CallEvent) -> None:
        """Change the state by the table.

        Raises:
            IllegalTransition: the table has no such transition.
        """
        self.state = advance_call(self.state, event)

    def admit(self) -> None:
        """Note that the call may be sent, as far as policy, arguments, hooks and people are concerned."""
        if self.state == "queued":
            self.advance("admit")
        if self.state == "ready" and self.recorded:
            self.advance("record")

    def note_recorded(self) -> None:
        """Note that a durable store has the call, or that it need not wait for one."""
        self.recorded = True
        if self.state == "ready":
            self.advance("record")
        self.wake()

    def wake(self) -> None:
        """Wake the task that executes the call."""
        if self._news is not None:
            self._news.set()

    async def wait(self) -> None:
        """Return after the next `wake`."""
        self._news = anyio.Event()
        await self._news.wait()

    @property
    def is_unsent(self) -> bool:
        """Tell whether no tool has got the call and none is about to."""
        return self.state in UNSENT

    def cancel(self) -> None:
        """Give the call up, and cancel it at its server."""
        if self.cancelled:
            return
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()
        elif self.on_cancel is not None:
            self.on_cancel(self)


class SettledQueue(deque["Completion"]):
    """Completions that were not delivered yet, with their size. Only the methods below change it.

    Attributes:
        size: characters of all of them, about.
    """

    def __init__(self, completions: Iterable[Completion] = ()) -> None:
        super().__init__()
        self.size = 0
        self.extend(completions)

    def append(self, completion: Completion) -> None:
        """Add a completion at the end."""
        super().append(completion)
        self.size += completion.size

    def extend(self, completions: Iterable[Completion]) -> None:
        """Add several, in order."""
        for completion in completions:
            self.append(completion)

    def popleft(self) -> Completion:
        """Take the first completion. Raises `IndexError` if there is none."""
        completion = super().popleft()
        self.size -= completion.size
        return completion


class Run:
    """The state of one run in this process.

    It has the guest while the run is not suspended, the unsettled calls and timers, and the completions that were not
    delivered yet.
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
        self.context = context
        self.manifest = manifest
        self.began = began
        self.memory_limit = memory_limit
        self.home: RunStore | None = None
        """The store that has it since it was first suspended."""
        self.custody: Custody = "local"
        """The process and the store that have it; only `take` changes it."""
        self.stored_catalog: StoredCatalog | None = None
        self.writing = anyio.Lock(fast_acquire=True)
        """Held while it is written to a store."""
        self.driving = anyio.Lock(fast_acquire=True)
        """Held by its driver."""
        self.state: RunState = "running"
        self.guest: Guest | None = None
        self.threaded_turns = 0
        """Turns that are still computed in a thread after one that was too long for the event loop."""
        self.has_room = False
        self.positions: Positions | None = None
        self.observation: Observation | None = None
        self.last_observation: Observation | None = None
        """The latest observation, also after its end."""
        self.calls: dict[int, LiveCall] = {}
        self.last_call = 0
        self.executing = 0
        self.refused = 0
        self.pace = anyio.Semaphore(1, fast_acquire=True)
        self.begun_enough = self.begins_soon = False
        """Calls that begin have used up their time in this round of the event loop; others begin in the next."""
        self.begin_until = 0.0
        self.queue: deque[LiveCall] = deque()
        self.resuming: deque[LiveCall] = deque()
        self.settled = SettledQueue()
        self.asked: deque[Lookup | messages.Store | messages.Load] = deque()
        self.timers: dict[int, float] = {}
        self.timers_began: dict[int, float] = {}
        self.timer_heap: list[tuple[float, int]] = []
        self.timer_was_last = False
        self.yields: list[int] = []
        self.yield_reason: str | None = None
        self.questions = Questions(self.change)
        self.namespaces = OpenNamespaces()
        self.args: tuple[str, ...] = ()
        self.approvals = Approvals(
            self.id,
            self.questions,
            self.change,
            None if remember is None else partial(remember, self),
            operated=context.caller.operates,
            via=context.approval_via,
        )
        self.outputs: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.written = 0
        """The number of outputs in `history` that a durable store has."""
        self.ends_kept: frozenset[int] = frozenset()
        """The calls in `settled` whose ends a durable store has."""
        self.on_output = on_output
        self.dropped = 0
        self.empty = False
        """It has completed and produced neither a value nor output."""
        self.not_stored: str | None = None
        """The last key that it loaded and that has no value."""
        self.results = RecentResults()
        self.looking_up = 0.0
        self.recent: deque[CallRecord] = deque(maxlen=RECENT_CALLS)
        self.track = Track(ledger or Ledger(), began)
        self.expires: float | None = None
        self.waits = 0
        self.snapshots = 0
        self.snapshot_size = 0
        """Bytes of the latest snapshot."""
        self.restored = 0
        """The number of times that this process has restored it."""
        self.taken_over = False
        """Another process had it before this one."""
        self.exceeded: Exceeded | None = None
        """The latest limit that it was beyond."""
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._has_changed = False
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        """The timer that ends the wait for a change. It fires at `_alarm_at`, seconds on the clock of the driver."""
        self._alarm_at = math.inf
        self._listener: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id[:12]} {self.state}: {len(self.calls)} calls, {len(self.timers)} timers>"

    @property
    def owner(self) -> str:
        return self.context.owner

    @property
    def share(self) -> str:
        return self.context.share

    def know_scopes(self) -> None:
        """Add the members of the open namespaces to declarations."""
        shapes = self.namespaces.shapes
        if shapes:
            self.context = replace(self.context, catalog=self.context.catalog.with_scopes(shapes))

    def observed_by(self, observation: Observation) -> None:
        self.observation = self.last_observation = observation

    def can_answer(self, question: Question) -> bool:
        """Tell if the client that observes the run, or did last, is able to answer a question."""
        if self.last_observation is None:
            return True  # taken over from another process: its client may still come here
        client = self.last_observation.client
        return client is not None and client.way(question) != "none"

    @property
    def given_up(self) -> bool:
        """Tell whether no client wants its end any more."""
        return self.state in ("aborted", "expired") or (self.observation is not None and self.observation.aborted)

    def is_past(self, now: float) -> bool:
        """Tell whether it was suspended for too long, and is about to be dropped. `now`: monotonic seconds."""
        suspended = self.state == "waiting" and self.observation is None
        return suspended and self.expires is not None and self.expires <= now

    def advance(self, event: RunEvent) -> None:
        """Change the state by the table. Raises `IllegalTransition`."""
        self.state = advance(self.state, event)

    def take(self, event: CustodyEvent) -> None:
        """Change the custody by the table. Raises `IllegalTransition`."""
        self.custody = advance_custody(self.custody, event)

    @property
    def kept(self) -> bool:
        """Tell whether a durable store has it, so that every action for it is stored before it is done."""
        return self.custody in DURABLE

    @property
    def fenced(self) -> bool:
        """Tell whether another process has it now."""
        return self.custody == "lost"

    def check_fence(self) -> None:
        """Raise `Fenced` if another process has the run now."""
        if self.fenced:
            raise Fenced(self.id)

    def note(self, text: str) -> None:
        """Add a note to the run's next answer, unless an earlier answer had the same one."""
        if text in self._noted or len(self._noted) > MAX_NOTES:
            return
        self._noted.add(text)
        self._notes.append(text if len(self._noted) <= MAX_NOTES else "There are more notes, which are not shown.")

    def show_output(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        """Pass the outputs of a turn to `on_output`."""
        if self.on_output is None or not outputs:
            return
        try:
            self.on_output(outputs)
        except Exception:
            log.exception("the output of run %s could not be shown while it ran", self.id[:12])

    def with_outputs(self, outcome: Outcome, notes: tuple[str, ...] = ()) -> Outcome:
        """Return an outcome with what was printed and noted since the last one, and with these notes."""
        notes = (*outcome.notes, *notes, *self.take_notes())
        outputs = tuple(self.outputs)
        self.outputs.clear()
        return replace(outcome, notes=notes, outputs=outputs, dropped=self.dropped)

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes since the last time, and forget them."""
        notes, self._notes = tuple(self._notes), []
        return notes

    @property
    def notes(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """The notes for the next answer, and all notes so far."""
        return tuple(self._notes), frozenset(self._noted)

    def restore_notes(self, notes: Iterable[str], noted: Iterable[str]) -> None:
        """Continue with the notes of another process; see `notes`."""
        self._notes, self._noted = list(notes), set(noted)

    def change(self) -> None:
        """Wake the driver, because something has happened that it may be waiting for."""
        self._has_changed = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._listener is not None:
            self._listener.set()

    async def wait_for_change(self, until: float, clock: Callable[[], float]) -> None:
        """Return after the next `change`, or at `until`, or earlier. Only the driver calls this.

        The timer of an earlier wait is kept if it fires before `until`: a program waits thousands of times, mostly
        until the same time.
        """
        if not self._has_changed:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            if until < self._alarm_at:
                self._set_alarm(until, loop.call_later(max(0.0, until - clock()), self._ring))
            try:
                await waiter
            finally:
                self._waiter = None
        if self.calls and self._has_changed:
            # Calls that end in this round of the event loop belong to the same batch.
            await anyio.lowlevel.checkpoint()
        self._has_changed = False

    def silence(self) -> None:
        """Cancel the timer of a wait."""
        self._set_alarm(math.inf, None)

    def _set_alarm(self, at: float, alarm: asyncio.TimerHandle | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = alarm, at

    def _ring(self) -> None:
        self.silence()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait_undriven(self) -> None:
        """Return after the next `change` of a run that has no driver."""
        if self._has_changed:
            if self.observation is None:
                self._has_changed = False
            return
        if self._listener is None or self._listener.is_set():
            self._listener = anyio.Event()
        await self._listener.wait()
        if self.observation is None:
            self._has_changed = False

    @property
    def next_timer(self) -> float | None:
        while self.timer_heap:
            due, timer = self.timer_heap[0]
            if self.timers.get(timer) == due:
                return due
            heapq.heappop(self.timer_heap)
        return None

    def tidy_timers(self) -> None:
        """Remove cleared timers from the heap, where they would stay until they are due, if there are many."""
        if len(self.timer_heap) > 2 * len(self.timers) + 1000:
            self.timer_heap = [(due, timer) for timer, due in self.timers.items()]
            heapq.heapify(self.timer_heap)

    def ready(self, now: float) -> bool:
        """Tell whether there is anything to deliver."""
        if self.settled or self.asked or self.yields:
            return True
        due = self.next_timer
        return due is not None and due <= now

    @property
    def can_settle(self) -> bool:
        """Tell whether anything can still settle a promise of the guest."""
        return bool(self.calls or self.timers or self.settled or self.asked or self.yields)

    @property
    def has_undecided_calls(self) -> bool:
        """Tell whether any call may still come to wait for an approval: it neither waits nor was sent."""
        waiting, asking = self.approvals.calls, self.questions.calls
        return len(waiting) < len(self.calls) and any(
            live.record.status == "queued" and call not in waiting and call not in asking
            for call, live in self.calls.items()
        )

    @property
    def awaits_other_executor(self) -> bool:
        """Tell whether it waits for calls that another process has sent."""
        return any(live.executor == "elsewhere" for live in self.calls.values())

    def give_up(self) -> None:
        """Leave the run to another process. Calls that were sent continue here, since their ends are still needed."""
        self.take("lose")
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
        """Cancel the calls that no tool has got."""
        for live in list(self.calls.values()):
            if live.is_unsent:
                live.cancel()

    def view(self, now: float) -> RunView:
        """Return the view of the run as it is now, without its calls."""
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
        )

    def call_views(self, now: float) -> tuple[CallView, ...]:
        """Return the views of all calls that are remembered or have not ended."""
        live = [(each.call, each.record) for each in self.calls.values()]
        return self.track.views(now, live, self.approvals.calls, self.questions.calls)
