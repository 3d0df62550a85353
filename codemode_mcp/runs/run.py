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
    """Watches a run: is called in the event loop with what each turn of the program has printed, in order and once, as
    `Outcome.outputs` has it later; whatever becomes of the run in between. Must not wait."""

log = logging.getLogger("codemode_mcp.runs")

RECENT_CALLS = 8

MAX_NOTES = 20
"""Of hooks and others, that the reader of a run's results is told."""


class Observation:
    """One open `exec` or `wait`.

    Args:
        deadline: monotonic seconds at which the request wants its answer.
        latest: until when the deadline may be put off because the program has to queue or a person has to answer.
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
        """When the request wants its answer; the deadline stands still while it is `held` by a person."""
        if held:
            if self.held_since is None:
                self.held_since = now
            return self.latest
        if self.held_since is not None:
            self.deadline = min(self.latest, self.deadline + now - self.held_since)
            self.held_since = None
        return self.deadline

    def remaining(self, now: float) -> float:
        """Seconds that the program may still compute."""
        return max(0.0, self.deadline - (now if self.held_since is None else self.held_since))

    def settle(self, outcome: Outcome | CodeModeError) -> None:
        self._outcome = outcome
        self._done.set()

    async def outcome(self) -> Outcome:
        """Raises the `CodeModeError` the driver ended with, if it did."""
        await self._done.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, CodeModeError):
            raise self._outcome
        return self._outcome


@dataclass(slots=True, eq=False)
class LiveCall:
    """One call that has not ended.

    Attributes:
        state: changed by `advance` alone.
        holds: it is one of the `Run.executing`. One that waits for a person is not.
        recorded: a durable store has it, or it need not wait for one.
        executor: the process that has sent it, or will: this one, or another that stores its end.
        left: its program is over, and did not await it.
        sent: set while the call is in flight without a task of its own.
        scope: set while a task carries the call.
        cancelled: it was given up.
        told: its begin was told to the auditor.
        on_cancel: called when a call without a task is given up.
    """

    call: ToolCall
    record: CallRecord
    events: CallEvents
    state: CallState = "queued"
    holds: bool = False
    recorded: bool = False
    executor: Literal["here", "elsewhere"] = "here"
    left: bool = False
    cancelled: bool = False
    told: bool = False
    sent: SentCall | None = None
    scope: anyio.CancelScope | None = None
    on_cancel: Callable[[LiveCall], None] | None = None
    _news: anyio.Event | None = None
    """Set for whoever waits until the call is recorded, or has a slot again."""

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
        """Wake the task that carries the call."""
        if self._news is not None:
            self._news.set()

    async def wait(self) -> None:
        """Return after the next `wake`."""
        self._news = anyio.Event()
        await self._news.wait()

    @property
    def is_unsent(self) -> bool:
        """Tell whether no tool has got it and none is about to."""
        return self.state in UNSENT

    def cancel(self) -> None:
        """Give the call up; its server is told."""
        if self.cancelled:
            return
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()
        elif self.on_cancel is not None:
            self.on_cancel(self)


class SettledQueue(deque["Completion"]):
    """Completions that were not delivered yet, with their size. Changed by the methods below alone.

    Attributes:
        size: characters of all of them, about.
    """

    def __init__(self, completions: Iterable[Completion] = ()) -> None:
        super().__init__()
        self.size = 0
        self.extend(completions)

    def append(self, completion: Completion) -> None:
        """Add what has settled last."""
        super().append(completion)
        self.size += completion.size

    def extend(self, completions: Iterable[Completion]) -> None:
        """Add several, in order."""
        for completion in completions:
            self.append(completion)

    def popleft(self) -> Completion:
        """Take what has settled first. Raises `IndexError` where there is nothing."""
        completion = super().popleft()
        self.size -= completion.size
        return completion


class Run:
    """Everything about one run that lives in this process.

    The mutable state: the guest while it is not suspended, its unsettled calls and timers, and what has settled but was
    not delivered yet.
    """

    def __init__(
        self,
        context: CallContext,
        manifest: str,
        began: float,
        ledger: Ledger | None = None,
        keep: Callable[[Run, Collection[str]], None] | None = None,
        on_output: OnOutput | None = None,
        memory_limit: int = 64 * MIB,
    ) -> None:
        self.id = context.run_id
        self.context = context
        self.manifest = manifest
        self.began = began
        self.memory_limit = memory_limit
        self.home: RunStore | None = None
        """What has it since it was first suspended."""
        self.custody: Custody = "local"
        """Who has it; changed by `take` alone."""
        self.stored_catalog: StoredCatalog | None = None
        self.writing = anyio.Lock(fast_acquire=True)
        """Held while it is being written down."""
        self.driving = anyio.Lock(fast_acquire=True)
        """Held by its driver."""
        self.state: RunState = "running"
        self.guest: Guest | None = None
        self.threaded_turns = 0
        """Turns that are computed in a thread, since one was too long for the event loop."""
        self.has_room = False
        self.positions: Positions | None = None
        self.observation: Observation | None = None
        self.last_observation: Observation | None = None
        """The latest one, also when it is over."""
        self.calls: dict[int, LiveCall] = {}
        self.last_call = 0
        self.executing = 0
        self.refused = 0
        self.pace = anyio.Semaphore(1, fast_acquire=True)
        self.begun_enough = self.begins_soon = False
        """Calls have taken enough time of this round of the event loop; others begin in the next."""
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
            None if keep is None else partial(keep, self),
            operated=context.caller.operates,
            via=context.approval_via,
        )
        self.outputs: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.written = 0
        """How many of `history` a durable store has."""
        self.ends_kept: frozenset[int] = frozenset()
        """Calls of those in `settled` whose ends a durable store has."""
        self.on_output = on_output
        self.dropped = 0
        self.empty = False
        """Tell whether it has completed and produced neither a value nor output."""
        self.not_stored: str | None = None
        """The last key that it loaded and that nothing is stored under."""
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
        """Tell whether another process suspended it."""
        self.exceeded: Exceeded | None = None
        """The latest cap that it was beyond."""
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._has_changed = False
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        """Ends the wait for a change. It rings at `_alarm_at`, seconds on the clock of the driver."""
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
        """Have declarations show what is in the namespaces, now that these are open."""
        shapes = self.namespaces.shapes
        if shapes:
            self.context = replace(self.context, catalog=self.context.catalog.with_scopes(shapes))

    def observed_by(self, observation: Observation) -> None:
        self.observation = self.last_observation = observation

    def can_answer(self, question: Question) -> bool:
        """Tell if the client that observes the run, or did last, is able to answer a question."""
        if self.last_observation is None:
            return True  # taken over from another process: its client may come here yet
        client = self.last_observation.client
        return client is not None and client.way(question) != "none"

    @property
    def given_up(self) -> bool:
        """Whether nobody wants its end any more."""
        return self.state in ("aborted", "expired") or (self.observation is not None and self.observation.aborted)

    def is_past(self, now: float) -> bool:
        """Whether it was suspended for too long, and is about to be dropped. `now`: monotonic seconds."""
        suspended = self.state == "waiting" and self.observation is None
        return suspended and self.expires is not None and self.expires <= now

    def advance(self, event: RunEvent) -> None:
        """Raises `IllegalTransition`."""
        self.state = advance(self.state, event)

    def take(self, event: CustodyEvent) -> None:
        """Change who has the run, by the table. Raises `IllegalTransition`."""
        self.custody = advance_custody(self.custody, event)

    @property
    def kept(self) -> bool:
        """Tell whether a durable store has it, so that what is done for it is stored before."""
        return self.custody in DURABLE

    @property
    def fenced(self) -> bool:
        """Tell whether another process has it now."""
        return self.custody == "lost"

    def note(self, text: str) -> None:
        """Tell the reader of the run's next result; the same text only once in the life of the run."""
        if text in self._noted or len(self._noted) > MAX_NOTES:
            return
        self._noted.add(text)
        self._notes.append(text if len(self._noted) <= MAX_NOTES else "There are more notes, which are not shown.")

    def tell(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        """Show what a turn has printed to whoever watches."""
        if self.on_output is None or not outputs:
            return
        try:
            self.on_output(outputs)
        except Exception:
            log.exception("the output of run %s could not be shown as it came", self.id[:12])

    def take_notes(self) -> tuple[str, ...]:
        """What was noted since the last time."""
        notes, self._notes = tuple(self._notes), []
        return notes

    @property
    def notes(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """What `take_notes` will give, and all that was ever noted."""
        return tuple(self._notes), frozenset(self._noted)

    def go_on_noting(self, notes: Iterable[str], noted: Iterable[str]) -> None:
        """From where it was in another process."""
        self._notes, self._noted = list(notes), set(noted)

    def change(self) -> None:
        """Something has happened that the driver may be waiting for."""
        self._has_changed = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._listener is not None:
            self._listener.set()

    async def wait_for_change(self, until: float, clock: Callable[[], float]) -> None:
        """Return after the next `change`, or at `until`. For the driver alone.

        It may return earlier than either. The alarm of an earlier wait stays where it rings before `until`: a program
        waits thousands of times, mostly until the same moment.
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
            # Whatever else has ended by now belongs to the same batch.
            await anyio.lowlevel.checkpoint()
        self._has_changed = False

    def silence(self) -> None:
        """Take the alarm of a wait back: the driver does not wait any more."""
        self._set_alarm(math.inf, None)

    def _set_alarm(self, at: float, alarm: asyncio.TimerHandle | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = alarm, at

    def _ring(self) -> None:
        self.silence()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def hear_change(self) -> None:
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
        """Timers that were cleared stay in the heap until they are due; not too many of them."""
        if len(self.timer_heap) > 2 * len(self.timers) + 1000:
            self.timer_heap = [(due, timer) for timer, due in self.timers.items()]
            heapq.heapify(self.timer_heap)

    def ready(self, now: float) -> bool:
        """Whether there is anything to deliver."""
        if self.settled or self.asked or self.yields:
            return True
        due = self.next_timer
        return due is not None and due <= now

    @property
    def can_settle(self) -> bool:
        """Whether anything can still settle a promise of the guest."""
        return bool(self.calls or self.timers or self.settled or self.asked or self.yields)

    @property
    def approaching(self) -> bool:
        """Whether any call may still come to wait for an approval: it neither waits nor was sent."""
        waiting, asking = self.approvals.calls, self.questions.calls
        return len(waiting) < len(self.calls) and any(
            live.record.status == "queued" and call not in waiting and call not in asking
            for call, live in self.calls.items()
        )

    @property
    def elsewhere(self) -> bool:
        """Whether it waits for calls that another process has sent."""
        return any(live.executor == "elsewhere" for live in self.calls.values())

    def give_up(self) -> None:
        """Another process has it now, or will: calls that were sent go on here, for their ends are still wanted."""
        self.take("lose")
        self.approvals.end()
        self.questions.refuse()
        for live in self.queue:
            live.record.status = "failed"
        self.queue.clear()
        self.cancel_unsent()
        self.change()

    def cancel_calls(self) -> None:
        """Give up all calls; those under way are cancelled upstream."""
        self.approvals.end()
        for live in self.queue:
            live.record.status = "failed"
        self.queue.clear()
        for live in list(self.calls.values()):
            live.cancel()

    def cancel_unsent(self) -> None:
        """Cancel the calls that no tool has got."""
        for live in list(self.calls.values()):
            if live.is_unsent:
                live.cancel()

    @property
    def memory_size(self) -> int:
        """Bytes of memory of its guest; 0 without one."""
        return 0 if self.guest is None else self.guest.memory_size

    def close(self) -> None:
        if self.guest is not None:
            self.guest.close()
            self.guest = None

    def view(self, now: float) -> RunView:
        """Of the run at the moment, without its calls."""
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
        """Of all calls that are remembered, or have not ended."""
        live = [(each.call, each.record) for each in self.calls.values()]
        return self.track.views(now, live, self.approvals.calls, self.questions.calls)
