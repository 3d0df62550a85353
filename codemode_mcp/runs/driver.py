"""The driver of a run: it computes a turn of the guest, accepts its requests, delivers completions, and repeats.

The module is long because suspending, ending and resuming share one loop, whose order matters.

A run has one driver at a time, in a task of the manager's group. Requests of clients never touch the guest: an `exec`
or `wait` opens an `Observation` and waits for its outcome. The driver ends when the program has ended, or when the run
is suspended because its request wants an answer first. The next `wait` starts a driver again.

Invariants:

- The guest is touched only between turns, by its driver. `Guests.on_thread` cannot be cancelled, so a guest is at rest
  before anything else is done with it.
- A suspension always makes a snapshot and frees the guest, even if the next `wait` comes soon.
- Before each turn and each write, `Run.check_fence` stops a driver whose run another process has taken over. A driver
  whose durable store does not answer delivers nothing to the guest, because it may have lost the run without notice.
- If a turn of a stored run makes a call that must not be sent twice, a checkpoint follows the turn (custody
  `needs_checkpoint`). The call is sent only after the store has it. See `runs.state.may_send`.
- The end of a run is decided by the table in `runs.state`. Finishing, failing, cancelling and expiring race, and the
  first one counts.
- A `CodeModeError` becomes the end of the run. There is one exception: if a durable store has the run and another
  process may continue it, the driver raises the error, and the stored run stays.

The order in one round of the loop matters:

1. The results of a turn are accepted before anything can end the run, so that no output is lost.
2. Completions that have arrived at the deadline are still delivered, within `DEADLINE_GRACE`.
3. Values are stored and loaded before the run waits for its turn. A database may be slow, and a run that has the turn
   keeps others waiting.
4. One turn takes all completions that have arrived, but a timer comes alone (`Deliveries.take`).

A turn is computed in the event loop for about 2 ms and then moves to a thread. So most turns need no change of threads.
In an earlier design, each turn was computed in a thread from its beginning. Because turns now hold the event loop, the
driver lets other tasks run between two of them (`asyncio.sleep(0)`).

The driver contains only the sequence. `answers` decides about a turn, and `answers` makes the answer for a client:
both return values and change nothing. `persisting` writes, `guests` computes, and `deliveries` and `calls` answer the
guest's requests.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio.to_thread

from codemode_mcp.base.errors import CodeModeError, Exceeded, InternalError, StoreUnavailable
from codemode_mcp.program.time_zones import named_zones
from codemode_mcp.runs import answers, run_notes, verdicts
from codemode_mcp.runs.answers import counted, is_unanswerable, questions_due
from codemode_mcp.runs.calls.outcome import Outcome, WaitingReason
from codemode_mcp.runs.deliveries import Deliveries, bounded_proposal
from codemode_mcp.runs.guests import Guests
from codemode_mcp.runs.persisting import Persisting
from codemode_mcp.runs.run_calls import Calls
from codemode_mcp.runs.run_notes import how_to_await
from codemode_mcp.runs.run_recording import record_end, record_start
from codemode_mcp.runs.store import Fenced, RunStore, SuspendedRun
from codemode_mcp.runs.views import after_loss, repeat_note
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, StartParts, decode_turn, deliver_message, start_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.program.prepare import Program
    from codemode_mcp.runs.calls.dispatch import Dispatcher
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.manager import Services
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.run import Run
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.guest import Turn
    from codemode_mcp.sandbox.messages import Request, TurnReport

DEADLINE_GRACE = 0.25
"""Seconds after the deadline in which a guest that is computing may finish its turn."""

EXPLAINED_IN_LOOP = 300
"""The empty result of a program of at most so many characters is explained in the event loop, otherwise in a thread."""

OUTPUT_CHARACTERS = 8 * 1024 * 1024
"""Characters of output that one run may produce before the guest discards the rest."""


class Driver:
    """The driver of all runs. It holds no state of any run.

    Args:
        fallback: the store for a run whose first suspension `Services.store` does not answer.
        spawn: starts a task that outlives the request.
        on_late, on_late_failure: see `Calls`.
    """

    def __init__(
        self,
        services: Services,
        settings: Callable[[], CodeModeSettings],
        *,
        fallback: RunStore,
        spawn: Callable[..., object],
        on_late: Callable[[str], None],
        on_late_failure: Callable[[Run, str], None],
    ) -> None:
        self._persisting = Persisting(services, settings, fallback, spawn)
        self.calls = Calls(services, settings, spawn, on_late, on_late_failure, self._persisting.prolong)
        self._services = services
        self._settings = settings
        self._spawn = spawn
        self._clock = services.clock
        self._guests = Guests(settings, services.clock)
        self._deliveries = Deliveries(services.dispatcher, services.values, services.proposer)

    def close(self) -> None:
        self._guests.close()

    async def start(self, run: Run, program: Program, observation: Observation) -> Outcome | verdicts.SyntaxFault:
        """Run a program until it ends or is suspended. Return a `SyntaxFault` if the engine refuses its text."""
        run.positions = program.positions
        run.observed_by(observation)
        engine = await self._services.engine()
        try:
            zones = await anyio.to_thread.run_sync(named_zones, program.code) if "timeZone" in program.code else {}
            parts = StartParts(
                code=program.code,
                fallback=program.fallback,
                seed=secrets.token_bytes(32),
                output_limit=min(OUTPUT_CHARACTERS, self._settings().memory_limit_bytes // 4),
                call_limit=self._settings().max_pending_tool_calls + self._settings().max_queued_tool_calls,
                elapsed_ms=self._elapsed_ms(run),
                file=program.positions.file,
                lines=program.positions.guest_lines,
                label=f"cell_{secrets.token_hex(8)}" if program.suspect else None,
                zones=zones,
                args=run.args,
                namespaces=run.namespaces.text,
                saving=(program.positions.language, run.source) if "save_program" in run.source else None,
            )
            message = start_message(**parts)
            if run.recorder is not None:
                record_start(run, parts)
            if not await self._guests.admit(run, observation):
                return await self._turned_away(run, observation)
            try:
                turn = await self._guests.launch(engine, run, observation, message, self._budget(observation))
            finally:
                self._guests.end_turn(run)
            return await self._drive(engine, run, observation, turn)
        except CodeModeError as error:
            return await self._fault(run, error)
        finally:
            self._leave(run)

    async def resume(self, run: Run, suspended: SuspendedRun, observation: Observation) -> Outcome:
        """Resume a suspended run: wait for a completion, restore the guest, and run until its end or suspension."""
        run.waits += 1
        run.observed_by(observation)
        try:
            run.advance("resume")
            run.settled.extend(Completion(yielded, of_call=False) for yielded in run.yields)
            run.yields.clear()
            # Without a guest: it is restored only when there is something to deliver.
            while observation.aborted or (not run.ready(self._clock()) and run.can_settle):
                run.check_fence()
                if observation.aborted:
                    return await self._abort(run)
                self._ask(run, observation)
                now = self._clock()
                deadline = observation.extended_deadline(now, paused=run.is_paused(now))
                answered = now >= questions_due(run, observation)
                if run.questions.calls:
                    # This client cannot answer the questions of servers, but the client of a later request may. So this
                    # request need not wait. For an approval it waits, because the approval may come from a terminal.
                    answered = answered or is_unanswerable(run, observation.client)
                if observation.released or now >= deadline or answered:
                    return await self._suspend_unchanged(run, suspended)
                await run.wait_for_change(_next_event(run, observation, deadline), self._clock)
            engine = await self._services.engine()
            if not await self._guests.find_room(run, observation):
                return await self._turned_away(run, observation, suspended)
            began = self._clock()
            await self._guests.restore(engine, run, suspended)
            if run.recorder is not None:
                run.recorder.resumed(self._elapsed_ms(run))
            run.restored += 1
            run.snapshot_size = len(suspended.snapshot)
            self._services.auditor.emit(
                "restored", run.id, ms=round((self._clock() - began) * 1000, 3), snapshot_bytes=len(suspended.snapshot)
            )
            ended = await self._drive(engine, run, observation, None)
            assert not isinstance(ended, verdicts.SyntaxFault)
            return ended
        except CodeModeError as error:
            return await self._fault(run, error)
        finally:
            self._leave(run)

    def _leave(self, run: Run) -> None:
        """Free everything that a run has only during a request."""
        self._guests.take_back(run)
        run.questions.end_request()
        run.observation = None

    # the loop

    async def _drive(
        self, engine: Engine, run: Run, observation: Observation, turn: Turn | None
    ) -> Outcome | verdicts.SyntaxFault:
        while True:
            run.check_fence()
            if turn is not None:
                ended = await self._absorb(run, observation, turn)
                if ended is not None:
                    return ended
                if run.custody == "needs_checkpoint":
                    data = await self._guests.snapshot(engine, run)
                    if run.recorder is not None:
                        await run.recorder.checkpoint(data)
                    await self._persisting.checkpoint(run, data)
            if observation.aborted:
                return await self._abort(run)
            if run.yields:
                return await self._suspend(engine, run, "yield")
            if not run.can_settle:
                return await self._fail(run, verdicts.stuck(self._settings(), full=turn is not None and turn.full))
            self._ask(run, observation)
            now = self._clock()
            deadline = observation.extended_deadline(now, paused=run.is_paused(now))
            # Completions that have arrived are still delivered, within the grace that a turn has anyway.
            overdue = now >= deadline + (DEADLINE_GRACE if run.ready(now) else 0.0)
            if overdue or observation.released:
                return await self._suspend(engine, run, "pending_tools")
            if run.ready(now):
                if turn is not None:
                    # Turns are computed in the event loop, so other tasks must run between two of them.
                    await asyncio.sleep(0)
                turn = None
                # Before the turn: a database may be slow, and other runs wait for the turn.
                await self._deliveries.execute_values(run)
                if await self._guests.get_turn(run, observation, deadline + DEADLINE_GRACE):
                    try:
                        turn = await self._deliver(engine, run, observation)
                    finally:
                        self._guests.end_turn(run)
            elif now >= questions_due(run, observation) or is_unanswerable(run, observation.client):
                return await self._suspend(engine, run, "pending_tools")
            else:
                turn = None
                await run.wait_for_change(_next_event(run, observation, deadline), self._clock)

    async def _deliver(self, engine: Engine, run: Run, observation: Observation) -> Turn | None:
        run.check_fence()
        if run.is_durable and not self._services.store.claims_are_valid():
            raise StoreUnavailable(
                "the store of suspended programs does not answer, so that another process may have taken the program "
                "over; call wait again later"
            )
        batch = self._deliveries.take(run, self._clock())
        self.calls.begin_queued(run)  # calls wait while too many results are undelivered, and some were just taken
        if not batch:
            return None
        elapsed = self._elapsed_ms(run)
        if run.recorder is not None:
            run.recorder.turn(batch, elapsed)
        message = deliver_message(batch, elapsed_ms=elapsed)
        return await self._guests.deliver(engine, run, message, self._budget(observation))

    async def _absorb(self, run: Run, observation: Observation, turn: Turn) -> Outcome | verdicts.SyntaxFault | None:
        """Accept the results of a turn. Return the end of the run if it was the last turn."""
        report = None
        if turn.text is not None:
            try:
                report = decode_turn(turn.text)
            except InternalError:
                if turn.stopped is None:
                    raise  # a stopped engine may be damaged, so its report need not be valid
        if report is not None:
            if run.recorder is not None:
                run.recorder.requests(report.calls)
            run.outputs.extend(report.outputs)
            run.history.extend(report.outputs)
            run.show_output(report.outputs)
            run.dropped = report.dropped_size
            over = verdicts.over_output_limit(run.outputs, self._settings()) if report.outputs else None
            if over is not None and report.state == "pending":
                run.cancel_unsent()
                return await self._fail(run, over)
            if report.state != "syntax" and over is None:
                self._accept(run, report.requests, last_turn=report.state != "pending")
        if turn.stopped is None and report is not None and report.state == "pending":
            return None
        if turn.stopped is not None and observation.aborted:
            return await self._abort(run)
        return await self._judge(run, observation, turn, report)

    async def _judge(
        self, run: Run, observation: Observation, turn: Turn, report: TurnReport | None
    ) -> Outcome | verdicts.SyntaxFault | None:
        assert run.positions is not None
        failed = turn.stopped is None and report is not None and report.state == "failed"
        catalog = run.context.catalog
        about = verdicts.Circumstances(
            settings=self._settings(),
            positions=run.positions,
            catalog=catalog,
            namespaces=run.namespaces,
            results=run.results.of(catalog) if failed else (),
            exceeded=run.exceeded,
            overdue_seconds=max(0.0, self._clock() - observation.deadline),
        )
        if failed and about.takes_long:
            found = await anyio.to_thread.run_sync(verdicts.verdict, turn, report, about)
        else:
            found = verdicts.verdict(turn, report, about)
        match found:
            case verdicts.Completed():
                return await self._complete(run, found.report)
            case verdicts.Failed():
                return await self._fail(run, found)
        return found

    def _accept(self, run: Run, requests: Iterable[Request], *, last_turn: bool) -> None:
        """Accept the requests of a turn.

        Args:
            last_turn: True if the program has ended in this turn. Its calls begin after the verdict on the turn.
        """
        now = self._clock()
        for request in requests:
            match request:
                case messages.ToolCall():
                    self.calls.accept(run, request, now, begins=not last_turn)
                case messages.NamespaceCall():
                    self.calls.accept(run, run.namespaces.tool_call(request), now, begins=not last_turn)
                case messages.Timer(id=timer, ms=ms):
                    run.timers[timer] = now + ms / 1000
                    run.timers_began[timer] = now
                    heapq.heappush(run.timer_heap, (run.timers[timer], timer))
                    run.tidy_timers()
                case messages.ClearTimer(target=timer):
                    run.timers.pop(timer, None)
                    run.timers_began.pop(timer, None)
                case messages.ProgramEnd(error=error):
                    run.programs.end(request, now)
                    if error is not None:
                        run.requests.append(request)
                case messages.SaveProgram():
                    run.requests.append(bounded_proposal(run, request))
                case messages.YieldControl(id=yielded, reason=reason):
                    run.yields.append(yielded)
                    run.yield_reason = reason
                case _:
                    run.requests.append(request)

    def _ask(self, run: Run, observation: Observation) -> None:
        """Put the open questions to the client of the open request, if it can be asked during a request."""
        if run.approvals.gathers:
            run.approvals.gather(self._clock(), more_may_come=run.has_undecided_calls)
        for opened in run.questions.to_ask(observation.client):
            assert observation.client is not None
            self._spawn(run.questions.ask, opened, observation.client)

    # ends

    async def _complete(self, run: Run, report: TurnReport) -> Outcome:
        run.advance("complete")
        catalog = run.context.catalog
        notes = run_notes.program_notes(run.positions, run.recent_tools, catalog, report)
        notes += self._leave_calls(run)
        run.empty = report.value is None and not report.lost and not run.history
        notes += run_notes.absent_value_notes(run.absent_key) if run.empty else ()
        notes += run_notes.lost_value_notes(report.lost)
        if run_notes.needs_explanation(report.value, run.history):
            explain = partial(run_notes.unread_notes, run.positions, run.results.of(catalog), nothing=run.empty)
            short = run.positions is not None and len(run.positions.code) <= EXPLAINED_IN_LOOP
            notes += explain() if short else await anyio.to_thread.run_sync(explain)
        made = run.made() if self._settings().on_output_limit == "fail" else ()
        return await self._end(run, "completed", notes=notes, value=report.value, made=made)

    async def _fail(self, run: Run, failed: verdicts.Failed) -> Outcome:
        run.advance("fail")
        run.exceeded = failed.exceeded or run.exceeded
        if failed.code == "memory_limit_exceeded":
            used = 0 if run.guest is None else run.guest.memory_size
            run.exceeded = Exceeded("memoryLimitBytes", used, run.memory_limit)
        notes = run_notes.program_notes(run.positions, run.recent_tools, run.context.catalog, failed)
        notes += self._leave_calls(run)
        return await self._end(run, "failed", notes=notes, error=failed.message, code=failed.code)

    async def _abort(self, run: Run) -> Outcome:
        run.advance("abort")
        run.cancel_calls()
        error = "the program was cancelled, and its calls in flight too"
        return await self._end(run, "failed", error=error, code="aborted")

    async def _end(
        self, run: Run, status: Literal["completed", "failed"], notes: tuple[str, ...] = (), **parts: Any
    ) -> Outcome:
        # The stores first: reasons why some were refused are notes in the outcome.
        refused = await self._deliveries.execute_last_stores(run)
        if status == "failed":
            keeps = self._services.keeps_finished_calls
            kept = await self._deliveries.keep_finished_calls(run) if keeps else ()
            notes = (*repeat_note(run.made()), *kept, *notes)
        outcome = Outcome(run.id, run.owner, status, run.usage(self._clock()), notes=notes, **parts)
        outcome = run.with_outputs(outcome, refused)
        await self._persisting.end(run, outcome)
        if run.recorder is not None:
            record_end(run, outcome, self._elapsed_ms(run))
        return outcome

    async def _fault(self, run: Run, error: CodeModeError) -> Outcome:
        """Fail a run because of an error outside its program. Raise if another process may continue the run."""
        if isinstance(error, Fenced) or (isinstance(error, StoreUnavailable) and run.is_durable):
            raise error
        lost = error.code == "snapshot_restore_failed" and not run.made()  # otherwise a note says what to do
        message = f"{error.message}; {after_loss(())}" if lost else error.message
        return await self._fail(run, verdicts.Failed(error.code, message, exceeded=error.exceeded))

    def _leave_calls(self, run: Run) -> tuple[str, ...]:
        notes = leave_calls(run, self._services.dispatcher)
        self.calls.begin_queued(run)
        return notes

    async def _turned_away(self, run: Run, observation: Observation, suspended: SuspendedRun | None = None) -> Outcome:
        if observation.aborted:
            return await self._abort(run)
        if suspended is not None:
            return await self._suspend_unchanged(run, suspended)
        return await self._fail(run, verdicts.turned_away(released=observation.released))

    # suspending

    async def _suspend(self, engine: Engine, run: Run, reason: WaitingReason) -> Outcome:
        data = await self._guests.snapshot(engine, run)
        # Before the write, because the counts are written, too.
        run.snapshots += 1
        run.snapshot_size = len(data)
        if run.recorder is not None:
            await run.recorder.suspended(reason, data, durable=self._services.store.durable)
        try:
            await self._persisting.suspend(run, data, run.manifest, reason)
        except CodeModeError:
            run.snapshots -= 1
            raise
        self._guests.take_back(run)
        self._services.auditor.emit("parked", run.id, reason=reason, snapshot_bytes=len(data), pending=len(run.calls))
        return self._waiting(run, reason)

    async def _suspend_unchanged(self, run: Run, suspended: SuspendedRun) -> Outcome:
        """Suspend a run again with its earlier snapshot, because nothing has settled."""
        await self._persisting.suspend(run, suspended.snapshot, suspended.manifest, "pending_tools")
        return self._waiting(run, "pending_tools")

    def _waiting(self, run: Run, reason: WaitingReason) -> Outcome:
        address = self._services.page_address(run.id)
        client = None if run.observation is None else run.observation.client
        keeps_output = answers.keeps_output(run, client)
        now, wall = self._clock(), self._services.wall()
        outcome = answers.waiting(run, reason, now, wall, self._services.terminal_command, address)
        if keeps_output:
            return outcome
        outcome = run.with_outputs(outcome)
        if run.recorder is not None:
            run.recorder.noted(outcome.notes)
        return outcome

    # times

    def _elapsed_ms(self, run: Run) -> float:
        return round((self._clock() - run.began) * 1000, 3)

    def _budget(self, observation: Observation) -> float:
        return observation.remaining(self._clock()) + DEADLINE_GRACE


def _next_event(run: Run, observation: Observation, deadline: float) -> float:
    """Return the next time at which the driver has something to do, even if the run does not change."""
    due = run.next_timer
    asked = run.approvals.due(more_may_come=run.has_undecided_calls) if run.approvals.gathers else math.inf
    return min(deadline, math.inf if due is None else due, questions_due(run, observation), asked)


def leave_calls(run: Run, dispatcher: Dispatcher) -> tuple[str, ...]:
    """Cancel the calls that only read or that need an approval, and let the others finish.

    A call that may change something is not cancelled: it may have acted already, and its failure is reported later.

    Returns:
        Notes about these calls for the reader of the run's result.
    """
    cancelled: list[str] = []
    dropped: list[str] = []
    left: list[str] = []
    unasked: list[str] = []
    run.approvals.end()
    for live in list(run.calls.values()):
        if live.record.status == "queued" and _waits_for_approval(run, live, dispatcher):
            unasked.append(live.record.tool)
            live.cancel()
            continue
        if live.record.read_only:
            (cancelled if live.record.dispatched else dropped).append(live.record.tool)
            live.cancel()
        else:
            left.append(live.record.tool)
            live.unawaited = True
    unfinished = [record.tool for record in run.programs.records]
    notes = []
    if unfinished:
        notes.append(f"Not waited for, ended with the program: {counted(unfinished)}; {how_to_await(run)}")
    if left:
        notes.append(f"Not waited for, still in flight: {counted(left)}")
    if cancelled:
        notes.append(f"Not waited for, cancelled: {counted(cancelled)}")
    if dropped:
        notes.append(f"Not waited for, never sent: {counted(dropped)}; {how_to_await(run)}")
    if unasked:
        notes.append(f"Not waited for, cancelled before a person approved: {counted(unasked)}; await such calls")
    return tuple(notes)


def _waits_for_approval(run: Run, live: LiveCall, dispatcher: Dispatcher) -> bool:
    if live.call.id in run.approvals.calls:
        return True
    if live.state != "queued":
        return False
    tool = live.record.tool
    return not run.approvals.remembers(tool) and dispatcher.asks_for(tool, run.context)
