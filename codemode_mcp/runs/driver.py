"""Drive one run: step the guest, dispatch what it asks for, step again as soon as anything has settled, until it ends
or must be suspended.

A run has one driver at a time, in a task of the manager's group. Requests do not touch the guest: they open an
`Observation` and wait for its outcome.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import re
import secrets
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from codemode_mcp.audit.events import Auditor
from codemode_mcp.calls.outcome import Outcome, PendingCall, PendingStatus, SnapshotUse, Usage
from codemode_mcp.catalog.entries import within_line
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.errors import CodeModeError, Exceeded, InternalError, ProgramError, StoreUnavailable
from codemode_mcp.json_text import json_text, whole_characters
from codemode_mcp.policy.approval import ApprovalQuestion
from codemode_mcp.program.hints import NO_TOOL, mistaken_names
from codemode_mcp.program.time_zones import named_zones
from codemode_mcp.runs.calls import RETRY_SECONDS, Calls
from codemode_mcp.runs.questions import WINDOW
from codemode_mcp.runs.records import calls_of, printed_of, record_of
from codemode_mcp.runs.rendering import exceeds
from codemode_mcp.runs.run import RECENT_CALLS, Observation, Run
from codemode_mcp.runs.slots import Slots
from codemode_mcp.runs.spare import SpareGuest
from codemode_mcp.runs.store import EndedRun, Fenced, StoredCatalog, SuspendedRun, is_bearer
from codemode_mcp.runs.values import Get, Put
from codemode_mcp.sandbox import messages, snapshot
from codemode_mcp.sandbox.engine import GUESTS_PER_THREAD
from codemode_mcp.sandbox.guest import MAX_TURN_BYTES, Guest, finish
from codemode_mcp.sandbox.messages import Completion, GuestError, decode_turn, deliver_message, start_message
from codemode_mcp.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.calls.outcome import WaitingReason
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.program.compile import Program
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import LiveCall
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.guest import Steps, Turn
    from codemode_mcp.sandbox.messages import Lookup, Request, Thrown, TurnReport, UncheckedError
    from codemode_mcp.settings import CodeModeSettings
    from upstream_clients.tools import Question

log = logging.getLogger("codemode_mcp.runs")

DEADLINE_GRACE = 0.25
"""Seconds a guest that computes at the deadline gets to reach the end of its turn (SPEC 7)."""

KEEP_LESS: Final = "keep less at once"
RETURN_LESS: Final = (
    "return a part or a summary of it; store(key, part) keeps what later programs need, in parts with an awaited call "
    "between them"
)
"""Advice on what does not fit into the memory or out of the guest."""

SHORT_TURN = 0.002
"""Seconds that a turn may compute in the event loop, about. Then it goes on in a thread."""

THREADED_TURNS = 16
"""Short turns that are computed in a thread after a long one, so that a program with some long turns holds the event
loop with few of them."""

LONG_MESSAGE = 100_000
"""Characters of a message to a guest from which on its turn is computed in a thread."""

LOOK_UP_SLICE = 0.002
"""Seconds of look-ups that are answered in one go: they are worked out on the event loop, which others need too."""

LOOK_UP_SECONDS = 2.0
"""Of look-ups that one run may ask for."""

BATCH_CHARACTERS = 8 * 1024 * 1024
"""Results delivered in one turn; more wait for the next."""

KEPT_AT_ONCE = 256
"""Values that are stored and loaded in one go."""

OUTPUT_CHARACTERS = 8 * 1024 * 1024
"""Output one run may produce before the guest throws the rest away."""

SEARCHED_AT_ONCE = 1000
"""Characters of a program in which an error is looked for on the event loop; in longer ones, in a thread."""

LARGE_CATALOG = 200
"""Tools from which on a catalog is made text in a thread."""

LEAST_RECORD = 8 * 1024 * 1024
"""Bytes of what is written down of a suspended program besides its memory and its calls, at least; otherwise as many as
its snapshot may have."""

SHOWN_PENDING = 20
SHOWN_QUESTIONS = 5
OWN_KEYS = "codemode-mcp "
"""Begin of the keys under which this product itself stores values, such as the prompt's."""
MAX_UNCHECKED = 32
"""Results with `isError` that the guest watches; see `30_bridge.js`."""
SHOWN_UNCHECKED = 3
SHOWN_TEXT = 300
"""Characters of a result with `isError` that its program did not check."""


class Driver:
    """Drives runs; holds no state of any.

    Args:
        spawn: start a task that outlives the request.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        on_late, on_late_failure: see `Calls`.
        program: the command that runs this program at a terminal, quoted for a shell.
        shelter: where a run is suspended for the first time while `store` does not answer.
        notify: see `Calls`.
    """

    def __init__(
        self,
        *,
        engine: Callable[[], Awaitable[Engine]],
        dispatcher: Dispatcher,
        store: RunStore,
        values: Values,
        settings: CodeModeSettings,
        spawn: Callable[..., object],
        clock: Callable[[], float],
        auditor: Auditor | None = None,
        wall: Callable[[], float] = time.time,
        on_late: Callable[[str], None] = lambda _: None,
        on_late_failure: Callable[[str, str], None] = lambda _owner, _note: None,
        shelter: RunStore | None = None,
        program: str = "codemode-mcp",
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._shelter = shelter or store
        self._program = program
        self._engine = engine
        self._dispatcher = dispatcher
        self._store = store
        self._values = values
        self._settings = settings
        self._spawn = spawn
        self._clock = clock
        self._wall = wall
        self._auditor = auditor or Auditor()
        self.calls = Calls(dispatcher, store, settings, spawn, clock, self._auditor, on_late, notify, on_late_failure)
        self._turns = Slots(settings.max_running_runs)
        self._rooms = Slots(GUESTS_PER_THREAD * settings.max_running_runs)
        self._spare = SpareGuest()

    def apply(self, settings: CodeModeSettings) -> None:
        """See `RunManager.apply`."""
        self._settings = settings
        self.calls.apply(settings)

    async def start(self, run: Run, program: Program, observation: Observation) -> Outcome | SyntaxFault:
        """Run a program until it ends or is suspended. A `SyntaxFault` when the engine does not take its text."""
        run.positions = program.positions
        run.observed_by(observation)
        engine = await self._engine()
        try:
            zones = await anyio.to_thread.run_sync(named_zones, program.code) if "timeZone" in program.code else {}
            message = start_message(
                code=program.code,
                fallback=program.fallback,
                seed=secrets.token_bytes(32),
                output_limit=min(OUTPUT_CHARACTERS, self._settings.memory_limit_bytes // 4),
                call_limit=self._settings.max_pending_tool_calls + self._settings.max_queued_tool_calls,
                elapsed_ms=self._elapsed_ms(run),
                file=program.positions.file if program.positions.language == "javascript" else None,
                label=f"cell_{secrets.token_hex(8)}" if program.suspect else None,
                zones=zones,
                args=run.args,
                namespaces=run.namespaces.text,
            )
            if not await self._admit(run, observation):
                return await self._turned_away(run, observation)
            try:
                turn = await self._launch(engine, run, observation, message)
            finally:
                self._turns.release(run.share, run.owner)
            return await self._drive(engine, run, observation, turn)
        except CodeModeError as error:
            return await self._fault(run, error)
        finally:
            self._leave(run)
            run.questions.let_go()
            run.observation = None

    async def resume(self, run: Run, suspended: SuspendedRun, observation: Observation) -> Outcome:
        """Go on with a suspended run: wait for the first thing to settle, restore, deliver, drive on."""
        run.waits += 1
        run.observed_by(observation)
        try:
            run.advance("resume")
            for yielded in run.yields:
                run.settled.append(Completion(yielded, of_call=False))
            run.yields.clear()
            while observation.aborted or (not run.ready(self._clock()) and run.can_settle):
                self._check_fence(run)
                if observation.aborted:
                    return await self._abort(run)
                self._ask(run, observation)
                now = self._clock()
                ends = observation.ends(now, held=run.questions.being_asked)
                answered = now >= self._questions_due(run, observation)
                if run.questions.calls:
                    # Another client may answer them, once this one has let go. An approval comes from a terminal as
                    # well, while this one waits.
                    answered = answered or self._nobody_answers(run, observation.client)
                if observation.released or now >= ends or answered:
                    return await self._suspend_again(run, suspended)
                await run.wait_for_change(self._next_event(run, observation, ends), self._clock)
            engine = await self._engine()
            if not await self._find_room(run, observation):
                return await self._turned_away(run, observation, suspended)
            began = self._clock()
            await self._on_thread(engine, self._restore, engine, run, suspended)
            run.restored += 1
            run.snapshot_size = len(suspended.snapshot)
            self._auditor.emit(
                "restored", run.id, ms=round((self._clock() - began) * 1000, 3), snapshot_bytes=len(suspended.snapshot)
            )
            ended = await self._drive(engine, run, observation, None)
            assert not isinstance(ended, SyntaxFault)
            return ended
        except CodeModeError as error:
            return await self._fault(run, error)
        finally:
            self._leave(run)
            run.questions.let_go()
            run.observation = None

    # the loop

    async def _drive(
        self, engine: Engine, run: Run, observation: Observation, turn: Turn | None
    ) -> Outcome | SyntaxFault:
        while True:
            self._check_fence(run)
            if turn is not None:
                ended = await self._absorb(run, observation, turn)
                if ended is not None:
                    return ended
                if run.custody == "needs_checkpoint":
                    await self._checkpoint(engine, run)
            if observation.aborted:
                return await self._abort(run)
            if run.yields:
                return await self._suspend(engine, run, "yield")
            if not run.can_settle:
                return await self._stuck(run, full=turn is not None and turn.full)
            self._ask(run, observation)
            now = self._clock()
            ends = observation.ends(now, held=run.questions.being_asked)
            # What is there at the deadline is still delivered, within the grace that a turn has anyway.
            late = now >= ends + (DEADLINE_GRACE if run.ready(now) else 0.0)
            if late or observation.released:
                return await self._suspend(engine, run, "pending_tools")
            if run.ready(now):
                if turn is not None:
                    # Turns are computed in the event loop: others come in between.
                    await asyncio.sleep(0)
                turn = None
                # Not while it has a turn, which others wait for: a database may be slow.
                await self._carry_out(run)
                if await self._get(self._turns, run, observation, ends + DEADLINE_GRACE):
                    try:
                        turn = await self._deliver(engine, run, observation)
                    finally:
                        self._turns.release(run.share, run.owner)
            elif now >= self._questions_due(run, observation) or self._nobody_answers(run, observation.client):
                return await self._suspend(engine, run, "pending_tools")
            else:
                turn = None
                await run.wait_for_change(self._next_event(run, observation, ends), self._clock)

    async def _deliver(self, engine: Engine, run: Run, observation: Observation) -> Turn | None:
        self._check_fence(run)
        if run.kept and not self._store.holds():
            raise StoreUnavailable(
                "the store of suspended programs does not answer, so that another process may have taken the program "
                "over; call wait again later"
            )
        batch = self._take(run, self._clock())
        self.calls.go_on(run)
        if not batch:
            return None
        assert run.guest is not None
        message = deliver_message(batch, elapsed_ms=self._elapsed_ms(run))
        return await self._compute(engine, run, run.guest.deliver_steps, message, self._budget(observation))

    async def _absorb(self, run: Run, observation: Observation, turn: Turn) -> Outcome | SyntaxFault | None:
        """Take in what a turn brought; its end, if it was the last."""
        report = None
        if turn.text is not None:
            try:
                report = decode_turn(turn.text)
            except InternalError:
                if turn.stopped is None:
                    raise  # otherwise they are the last words of an engine that may be damaged
        if report is not None:
            run.outputs.extend(report.outputs)
            run.history.extend(report.outputs)
            run.tell(report.outputs)
            run.dropped = report.dropped_size
            over = self._over_cap(run) if report.outputs else None
            if over is not None and report.state == "pending":
                run.cancel_unsent()
                figure = len(json_text(list(run.outputs)).encode("utf-8", "replace"))
                run.exceeded = Exceeded("maxOutputBytes", figure, self._settings.max_output_bytes)
                return await self._fail(run, "output_limit_exceeded", over)
            if report.state != "syntax" and over is None:
                self._accept(run, report.requests, over=report.state != "pending")
        if turn.stopped is not None:
            return await self._stopped(run, observation, turn, report)
        assert report is not None
        match report.state:
            case "done" if report.too_large:
                return await self._refuse(run, report.too_large, report.rejections, returned=True)
            case "done":
                return await self._complete(run, report)
            case "failed":
                assert report.error is not None
                return await self._thrown(run, report.error, report, full=turn.full)
            case "syntax":
                assert report.error is not None
                return SyntaxFault(report.error)
            case "pending":
                return None

    def _over_cap(self, run: Run) -> str | None:
        """Say why a program has printed too much, where that is to end it."""
        if self._settings.on_output_limit != "fail":
            return None
        return exceeds(run.outputs, self._settings.max_output_bytes)

    def _accept(self, run: Run, requests: Iterable[Request], *, over: bool) -> None:
        """Take in what a turn asks for. `over`: it was the last one, so that its calls are begun only after it."""
        now = self._clock()
        for request in requests:
            match request:
                case messages.ToolCall():
                    self.calls.accept(run, request, now, begins=not over)
                case messages.NamespaceCall():
                    self.calls.accept(run, run.namespaces.tool_call(request), now, begins=not over)
                case messages.Timer(id=timer, ms=ms):
                    run.timers[timer] = now + ms / 1000
                    run.timers_began[timer] = now
                    heapq.heappush(run.timer_heap, (run.timers[timer], timer))
                    run.tidy_timers()
                case messages.ClearTimer(target=timer):
                    run.timers.pop(timer, None)
                    run.timers_began.pop(timer, None)
                case messages.YieldControl(id=yielded, reason=reason):
                    run.yields.append(yielded)
                    run.yield_reason = reason
                case _:
                    run.asked.append(request)

    def _take(self, run: Run, now: float) -> list[Completion]:
        """What to deliver now, within bounds: a timer alone, so that its callback's promises settle before the next
        callback runs, and in turn with everything else, so that neither keeps the other waiting."""
        due = run.next_timer
        if due is not None and due <= now and not run.timer_was_last:
            return self._fire(run)
        batch: list[Completion] = []
        size = 0
        slice_ends = time.perf_counter() + LOOK_UP_SLICE
        while size < BATCH_CHARACTERS:
            if run.settled:
                completion = run.settled.popleft()
            elif (
                run.asked
                and not isinstance(run.asked[0], messages.Store | messages.Load)
                and (not batch or time.perf_counter() < slice_ends)
            ):
                completion = self._look_up(run, run.asked[0])
                run.asked.popleft()
            else:
                break
            batch.append(completion)
            size += completion.size
        if not batch and due is not None and due <= now:
            return self._fire(run)
        run.timer_was_last = False
        return batch

    def _fire(self, run: Run) -> list[Completion]:
        _, timer = heapq.heappop(run.timer_heap)
        del run.timers[timer]
        run.timers_began.pop(timer, None)
        run.timer_was_last = True
        return [Completion(timer)]

    def _look_up(self, run: Run, asked: Lookup) -> Completion:
        if run.looking_up > LOOK_UP_SECONDS:
            message = f"this program has used {LOOK_UP_SECONDS:g} s for look-ups in API and $api; make fewer"
            return Completion(asked.id, error=GuestError(message))
        began = time.perf_counter()
        completion = self._dispatcher.answer(asked, run.context)
        run.looking_up += time.perf_counter() - began
        if completion.error is None:
            run.results.keep(_LOOK_UPS[type(asked)], completion.value)
        return completion

    async def _carry_out(self, run: Run) -> None:
        """Have what is stored and loaded next settle, if that is what the program has asked for next."""
        asked: list[messages.Store | messages.Load] = []
        for each in run.asked:
            if not isinstance(each, messages.Store | messages.Load) or len(asked) == KEPT_AT_ONCE:
                break
            asked.append(each)
        room = BATCH_CHARACTERS - run.settled.size if asked else 0
        if room > 0:
            for completion in await self._kept(run, asked, room):
                run.asked.popleft()
                run.settled.append(completion)

    async def _kept(self, run: Run, asked: Sequence[messages.Store | messages.Load], room: int) -> list[Completion]:
        """The answers to what comes first of `asked`, at least to one; see `Values.carry_out`."""
        self._check_fence(run)
        if is_bearer(run.owner):
            message = "store() and load() keep values for somebody, and nobody is known here; return the value instead"
            return [Completion(each.id, error=GuestError(message), of_call=False) for each in asked]
        orders = [
            Put(each.key, whole_characters(each.value)) if isinstance(each, messages.Store) else Get(each.key)
            for each in asked
        ]
        try:
            answers = await self._values.carry_out(run.owner, orders, room)
        except CodeModeError as error:
            answers = [error] * len(asked)
        completions = []
        for each, answer in zip(asked, answers, strict=False):
            if isinstance(answer, CodeModeError):
                completions.append(Completion(each.id, error=GuestError.of(answer), of_call=False))
            elif isinstance(each, messages.Load):
                if answer is None:
                    run.not_stored = each.key
                completions.append(Completion(each.id, "[]" if answer is None else f"[{answer}]", of_call=False))
            else:
                completions.append(Completion(each.id, of_call=False))
        return completions

    # questions of upstream servers

    def _ask(self, run: Run, observation: Observation) -> None:
        """Put what can be asked at once to the client of the open request."""
        if run.approvals.gathers:
            run.approvals.gather(self._clock(), on_the_way=run.approaching)
        for opened in run.questions.to_ask(observation.client):
            assert observation.client is not None
            self._spawn(run.questions.ask, opened, observation.client)

    def _questions_due(self, run: Run, observation: Observation) -> float:
        """When the request is answered with the questions that its client takes that way."""
        returned = run.questions.returned_to(observation.client)
        if not returned:
            return math.inf
        oldest = min(each.began for each in returned)
        return oldest if run.executing <= len(run.questions.calls) else oldest + WINDOW

    def _nobody_answers(self, run: Run, client: Client | None) -> bool:
        """Whether all that the program waits for are answers that this client cannot give."""
        questions = run.questions
        return (
            bool(questions.open or run.approvals.calls)
            and not questions.has_answer
            and not run.approvals.gathers
            and not questions.being_asked
            and not questions.returned_to(client)
            and not run.timers
            and run.executing <= len(questions.calls)
        )

    # ends

    async def _stopped(self, run: Run, observation: Observation, turn: Turn, report: TurnReport | None) -> Outcome:
        if observation.aborted:
            return await self._abort(run)
        rejections = () if report is None else report.rejections
        fault = None if report is None else report.fault
        where = "" if fault is None or run.positions is None else _places(run.positions, fault)
        match turn.stopped:
            case "time":
                seconds = self._settings.timeout_ms / 1000
                late = max(0.0, self._clock() - observation.deadline)
                run.exceeded = Exceeded("timeoutMs", round((seconds + late) * 1000), self._settings.timeout_ms)
                return await self._fail(
                    run,
                    "timeout",
                    f"the program was still computing when its time of {seconds:g} s was over{_function(fault)}; "
                    "do less in one go, or let tools do the work",
                    rejections,
                )
            case "memory":
                return await self._fail(run, "memory_limit_exceeded", self._out_of_memory(where), rejections)
            case "size":
                return await self._refuse(run, turn.size, rejections, returned=turn.done)
            case _:
                # What the engine says where it has not even memory for an error.
                if fault is not None and (
                    _is_out_of_memory(fault, full=turn.full) or fault.message == "[uninitialized]"
                ):
                    return await self._fail(run, "memory_limit_exceeded", self._out_of_memory(where), rejections)
                detail = turn.detail or (fault.message if fault is not None else "")
                return await self._fail(run, "internal_error", f"the sandbox stopped the program: {detail}", rejections)

    async def _thrown(self, run: Run, error: Thrown, report: TurnReport, *, full: bool) -> Outcome:
        assert run.positions is not None
        if _is_out_of_memory(error, full=full):
            where = " while its value was written as JSON" if report.returning else _places(run.positions, error)
            advice = RETURN_LESS if report.returning else KEEP_LESS
            message = self._out_of_memory(where, advice)
            return await self._fail(run, "memory_limit_exceeded", message, report.rejections)
        code: ErrorCode = "internal_error"
        match error.code:
            case "too_many_pending_tool_calls" | "module_access_denied" as known:
                code = known
                if known == "too_many_pending_tool_calls":
                    most = self._settings.max_pending_tool_calls + self._settings.max_queued_tool_calls
                    run.exceeded = run.exceeded or Exceeded("maxQueuedToolCalls", most + 1, most)
            case str():
                code = "nested_tool_failed"
        describe = partial(run.positions.describe, error, results=run.results.of(run.context.catalog))
        short = len(run.positions.code) <= SEARCHED_AT_ONCE
        message = describe() if short else await anyio.to_thread.run_sync(describe)
        message = _with_expression(message, error, run.context.catalog)
        message = _with_nearest_function(message, error, run.namespaces)
        return await self._fail(run, code, message, report.rejections, report.unchecked)

    def _out_of_memory(self, where: str, advice: str = KEEP_LESS) -> str:
        limit = self._settings.memory_limit_bytes // MIB
        return f"the program used more than its memory of {limit} MiB{where}; {advice}"

    async def _refuse(self, run: Run, size: int, rejections: tuple[Thrown, ...], *, returned: bool) -> Outcome:
        """End a run whose guest has more to hand over than is taken."""
        run.exceeded = Exceeded("turnBytes", size, MAX_TURN_BYTES)
        return await self._fail(run, "output_limit_exceeded", _too_large(size, returned=returned), rejections)

    async def _stuck(self, run: Run, *, full: bool) -> Outcome:
        if full:
            # Without memory the engine drops what should have settled a promise.
            return await self._fail(run, "memory_limit_exceeded", self._out_of_memory(""))
        return await self._fail(
            run,
            "internal_error",
            "the program awaits something that nothing can settle: no call, timer or yield_control is pending",
        )

    async def _complete(self, run: Run, report: TurnReport) -> Outcome:
        run.advance("complete")
        notes = self._rejection_notes(run, report.rejections) + _unchecked_notes(run, report.unchecked)
        notes += self._leave_calls(run)
        run.empty = report.value is None and not run.history
        if run.empty and run.not_stored is not None and not run.not_stored.startswith(OWN_KEYS):
            notes += (f"load({json_text(run.not_stored[:100])}) gave undefined: nothing is stored under this key.",)
        return await self._end(
            run, Outcome(run.id, run.owner, "completed", self._usage(run), notes=notes, value=report.value)
        )

    async def _fail(
        self,
        run: Run,
        code: ErrorCode,
        message: str,
        rejections: tuple[Thrown, ...] = (),
        unchecked: tuple[UncheckedError, ...] = (),
    ) -> Outcome:
        run.advance("fail")
        if code == "memory_limit_exceeded":
            run.exceeded = Exceeded("memoryLimitBytes", run.memory_size, run.memory_limit)
        notes = self._rejection_notes(run, rejections) + _unchecked_notes(run, unchecked) + self._leave_calls(run)
        return await self._end(
            run, Outcome(run.id, run.owner, "failed", self._usage(run), notes=notes, error=message, code=code)
        )

    async def _abort(self, run: Run) -> Outcome:
        run.advance("abort")
        run.cancel_calls()
        error = "the program was cancelled; calls that were under way were cancelled too"
        return await self._end(run, Outcome(run.id, run.owner, "failed", self._usage(run), error=error, code="aborted"))

    async def _end(self, run: Run, outcome: Outcome) -> Outcome:
        outcome = self._with_outputs(run, outcome, await self._keep_stored(run))
        if run.snapshots or run.kept:
            whole = replace(outcome, outputs=tuple(run.history))
            size = sum(len(str(item)) for item in whole.outputs) + len(str(whole.value)) + 1000
            now = self._clock()
            expires = now + self._settings.snapshot_ttl_seconds
            view = replace(run.view(now), code=outcome.code if outcome.status == "failed" else None)
            ended = EndedRun(run.id, run.owner, (outcome, whole), size, expires, run.state, view)
            async with run.writing:
                self._check_fence(run)
                try:
                    await (run.home or self._store).end(ended)
                except StoreUnavailable as error:
                    log.error("the end of run %s is not written down yet: %s", run.id[:12], error.message)
                    self._spawn(self._end_later, run, ended)
                    return outcome
                # Nobody can go back to before this, so that calls of the last turn may be sent.
                run.take("end")
                for live in run.calls.values():
                    live.note_recorded()
        return outcome

    async def _end_later(self, run: Run, ended: EndedRun) -> None:
        """Until it is written down, calls of the last turn wait."""
        while self._clock() < ended.expires:
            await anyio.sleep(RETRY_SECONDS)
            try:
                await self._store.end(ended)
            except StoreUnavailable:
                continue
            except Fenced:
                break
            run.take("end")
            for live in run.calls.values():
                live.note_recorded()
            return
        else:
            self._store.forget(run.id)
        # Others go on from before its last turn, or may: what that has asked for is not this process's to send.
        run.give_up()

    async def _fault(self, run: Run, error: CodeModeError) -> Outcome:
        """The end of a run that has failed for a reason of ours; what a store has of it stays, where that is it."""
        if isinstance(error, Fenced) or (isinstance(error, StoreUnavailable) and run.kept):
            raise error
        run.exceeded = error.exceeded or run.exceeded
        return await self._fail(run, error.code, error.message)

    def _check_fence(self, run: Run) -> None:
        if run.fenced:
            raise Fenced(run.id)

    def _leave_calls(self, run: Run) -> tuple[str, ...]:
        """What becomes of calls that are still unsettled when their program is over."""
        cancelled: list[str] = []
        dropped: list[str] = []
        left: list[str] = []
        unasked: list[str] = []
        run.approvals.end()
        for live in list(run.calls.values()):
            if live.record.status == "queued" and self._waits_for_approval(run, live):
                unasked.append(live.record.tool)
                live.cancel()
                continue
            if live.record.read_only:
                (cancelled if live.record.dispatched else dropped).append(live.record.tool)
                live.cancel()
            else:
                left.append(live.record.tool)
                live.left = True
        self.calls.go_on(run)
        notes = []
        if left:
            notes.append(f"Not waited for, still going on: {counted(left)}")
        if cancelled:
            notes.append(f"Not waited for, cancelled: {counted(cancelled)}")
        if dropped:
            notes.append(f"Not waited for, never sent: {counted(dropped)}; {_how_to_await(run)}")
        if unasked:
            notes.append(f"Not waited for, given up before anybody approved: {counted(unasked)}; await such calls")
        return tuple(notes)

    def _waits_for_approval(self, run: Run, live: LiveCall) -> bool:
        if live.call.id in run.approvals.calls:
            return True
        if live.state != "queued":
            return False
        tool = live.record.tool
        return not run.approvals.remembers(tool) and self._dispatcher.asks_for(tool, run.context)

    def _rejection_notes(self, run: Run, rejections: tuple[Thrown, ...]) -> tuple[str, ...]:
        positions = run.positions
        assert positions is not None
        short = len(positions.code) <= SEARCHED_AT_ONCE
        return tuple(
            f"Unhandled rejection: {positions.describe(each, search=short and number == 0)}"
            for number, each in enumerate(rejections)
        )

    async def _keep_stored(self, run: Run) -> tuple[str, ...]:
        """Carry out the `store()`s of the last turn, which nothing awaits; what was refused, for the reader."""
        stores = [asked for asked in run.asked if isinstance(asked, messages.Store)]
        run.asked.clear()
        refused: list[str] = []
        while stores:
            answers = await self._kept(run, stores[:KEPT_AT_ONCE], BATCH_CHARACTERS)
            del stores[: len(answers)]
            refused += [answer.error.message for answer in answers if answer.error is not None]
        return tuple(dict.fromkeys(refused))

    # suspending

    async def _suspend(self, engine: Engine, run: Run, reason: WaitingReason) -> Outcome:
        assert run.guest is not None
        data = await self._on_thread(engine, run.guest.snapshot)
        self._check_size(data)
        # Counted first: what is written down of the run says so too.
        run.snapshots += 1
        run.snapshot_size = len(data)
        try:
            await self._keep(run, data, run.manifest, reason)
        except CodeModeError:
            run.snapshots -= 1
            raise
        self._leave(run)
        self._auditor.emit("parked", run.id, reason=reason, snapshot_bytes=len(data), pending=len(run.calls))
        return self._waiting(run, reason)

    async def _suspend_again(self, run: Run, suspended: SuspendedRun) -> Outcome:
        """Nothing has settled: the snapshot is as good as before."""
        await self._keep(run, suspended.snapshot, suspended.manifest, "pending_tools")
        return self._waiting(run, "pending_tools")

    async def _keep(self, run: Run, data: bytes, manifest: str, reason: WaitingReason) -> None:
        home, first = run.home or self._store, run.home is None
        # From now on no call is sent that the store will not know of.
        if home.durable:
            run.take("store")
        client = None if run.observation is None else run.observation.client
        told = not run.questions.returned_to(client)
        try:
            run.expires = await self._write(run, data, manifest, reason, home, told=told)
        except CodeModeError as error:
            if isinstance(error, StoreUnavailable) and error.unsure:
                raise  # another process may go on with it, so that this one must not
            if first:
                # It is not stored, so that nothing has to be stored before they are sent.
                if home.durable:
                    run.take("unstore")
                for live in run.calls.values():
                    live.note_recorded()
            if not first or not isinstance(error, StoreUnavailable):
                raise
            log.error("run %s is suspended in this process alone: %s", run.id[:12], error.message)
            run.note(f"The program is suspended in this process alone, and would end with it: {error.message}")
            home = self._shelter
            run.expires = await self._write(run, data, manifest, reason, home, told=told)
        run.home = home
        run.advance("suspend")

    async def _checkpoint(self, engine: Engine, run: Run) -> None:
        """Write down how things stand before calls are sent that must not be sent again."""
        assert run.guest is not None
        data = await self._on_thread(engine, run.guest.snapshot)
        self._check_size(data)
        await self._write(run, data, run.manifest, "pending_tools", self._store, told=False, checkpoint=True)
        run.take("checkpoint")

    async def _write(
        self,
        run: Run,
        data: bytes,
        manifest: str,
        reason: WaitingReason,
        home: RunStore,
        *,
        told: bool,
        checkpoint: bool = False,
    ) -> float:
        """When it expires. `told`: what was printed goes out with the answer that is to be given now."""
        if home.durable and run.stored_catalog is None:
            run.stored_catalog = await _stored(run.context.catalog)
        async with run.writing:
            self._check_fence(run)
            now = self._clock()
            expires = now + self._settings.snapshot_ttl_seconds
            suspended = SuspendedRun(run.id, run.owner, data, manifest, reason, now, expires, share=run.share)
            noted = list(run.calls.values())
            if home.durable:
                wall = self._wall()
                suspended = replace(
                    suspended,
                    record=record_of(run, now=now, wall=wall, told=told),
                    calls=calls_of(run, now=now, wall=wall),
                    catalog=run.stored_catalog,
                    view=replace(run.view(now), state="waiting", observed=False),
                    printed=printed_of(run),
                    printed_from=run.written,
                )
                if len(suspended.record) > max(self._settings.max_snapshot_bytes, LEAST_RECORD):
                    raise ProgramError(
                        "snapshot_limit_exceeded",
                        f"suspending the program takes {len(suspended.record)} bytes besides its memory, for its text, "
                        "its timers and what it has asked for; have fewer of these while waiting",
                        Exceeded(
                            "maxSnapshotBytes",
                            len(suspended.record),
                            max(self._settings.max_snapshot_bytes, LEAST_RECORD),
                        ),
                    )
            printed, ends = len(run.history), frozenset(each.id for each in run.settled if each.of_call)
            await (home.checkpoint(suspended) if checkpoint else home.suspend(suspended))
            if home.durable:
                run.written, run.ends_kept = printed, ends
            for live in noted:
                live.note_recorded()
        return expires

    def _check_size(self, data: bytes) -> None:
        if len(data) > self._settings.max_snapshot_bytes:
            raise ProgramError(
                "snapshot_limit_exceeded",
                f"suspending the program takes {len(data)} bytes, more than maxSnapshotBytes "
                f"({self._settings.max_snapshot_bytes}); keep less data while waiting",
                Exceeded("maxSnapshotBytes", len(data), self._settings.max_snapshot_bytes),
            )

    def _waiting(self, run: Run, reason: WaitingReason) -> Outcome:
        client = None if run.observation is None else run.observation.client
        outcome = Outcome(
            run.id,
            run.owner,
            "waiting",
            self._usage(run),
            reason=reason,
            pending=tuple(self._pending(run)),
            pending_total=len(run.calls) + len(run.timers),
            yielded=run.yield_reason if reason == "yield" else None,
            questions=run.questions.hand_out(client),
            unanswerable=self._nobody_answers(run, client) and not run.questions.put_later(client),
            asked=self._asked(run),
        )
        # An answer that puts questions has no place for what was printed: it comes with the next one.
        return outcome if outcome.questions else self._with_outputs(run, outcome)

    def _asked(self, run: Run) -> tuple[str, ...]:
        """Say what is asked of a person, and who can answer, a sentence each."""
        asked: list[str] = []
        approval = None
        for each in run.questions.open:
            if isinstance(each.question, ApprovalQuestion):
                approval = each
            elif len(asked) < SHOWN_QUESTIONS:
                how = "This client cannot be asked."
                if each.asking is not None:
                    how = "The client is being asked."
                elif each.way is not None and each.way[1] == "later":
                    how = "The next wait asks the client."
                whose = "The program" if each.question.by_program else f"Server {each.question.server!r}"
                asked.append(f"{whose} asks {_asked_for(each.question)}. {how}")
        if run.approvals.calls:
            client = None if run.observation is None else run.observation.client
            tools = counted([request.tool for request in run.approvals.requests])
            how = "The next wait asks the user."
            if approval is not None and approval.asking is not None:
                how = "The user is being asked."
            elif (elsewhere := run.approvals.elsewhere) is not None:
                how = f"{elsewhere} {self._how_to_approve(run)}"
            elif client is None or (approval is not None and client.way(approval.question) == "none"):
                how = f"This client cannot ask the user. {self._how_to_approve(run)}"
            asked.append(f"A person has to approve {tools}. {how}")
        return tuple(asked)

    def _how_to_approve(self, run: Run) -> str:
        """Say what a user does whose client does not ask."""
        return f"To approve, the user runs in a terminal: `{self._program} runs approve {run.id}` (or `runs deny`)."

    def _pending(self, run: Run) -> Iterable[PendingCall]:
        now = self._clock()
        shown = 0
        asking = run.questions.calls
        for live in run.calls.values():
            if shown == SHOWN_PENDING:
                return
            status: PendingStatus = "queued" if live.record.status == "queued" else "executing"
            if live.call.id in asking:
                status = "needs_input"
            elif live.call.id in run.approvals.calls:
                status = "needs_approval"
            why = ""
            if status == "queued":
                why = live.record.why_queued if live.holds else _behind(run)
            yield PendingCall(str(live.call.id), live.record.tool, status, live.record.milliseconds(now), why)
            shown += 1
        for timer in list(run.timers)[: SHOWN_PENDING - shown]:
            began = run.timers_began.get(timer, now)
            yield PendingCall(str(timer), "core:timer", "executing", round((now - began) * 1000))

    # details

    def _with_outputs(self, run: Run, outcome: Outcome, notes: tuple[str, ...] = ()) -> Outcome:
        """Return an outcome with what was printed and noted since the last one, and with these notes."""
        notes = (*outcome.notes, *notes, *run.take_notes())
        outputs = tuple(run.outputs)
        run.outputs.clear()
        return replace(outcome, notes=notes, outputs=outputs, dropped=run.dropped)

    def _usage(self, run: Run) -> Usage:
        counts = run.context.counts
        return Usage(
            catalog_size=len(run.context.catalog),
            sources=run.context.catalog.sources,
            execs=1,
            waits=run.waits,
            searches=counts.search,
            describes=counts.describe,
            call_count=counts.call,
            calls=tuple([*run.recent, *(live.record for live in run.calls.values())][-RECENT_CALLS:]),
            snapshots=run.snapshots,
            ms=round(self._elapsed_ms(run)),
            snapshot=None if run.home is None else self._snapshot_use(run, run.home),
            exceeded=run.exceeded,
        )

    def _snapshot_use(self, run: Run, home: RunStore) -> SnapshotUse:
        return SnapshotUse(run.snapshot_size, home.kind, run.restored, run.taken_over)

    def _elapsed_ms(self, run: Run) -> float:
        return round((self._clock() - run.began) * 1000, 3)

    def _budget(self, observation: Observation) -> float:
        return observation.remaining(self._clock()) + DEADLINE_GRACE

    def _next_event(self, run: Run, observation: Observation, ends: float) -> float:
        due = run.next_timer
        asked = run.approvals.due(on_the_way=run.approaching) if run.approvals.gathers else math.inf
        return min(ends, math.inf if due is None else due, self._questions_due(run, observation), asked)

    # guests

    async def _launch(self, engine: Engine, run: Run, observation: Observation, message: str) -> Turn:
        image = engine.cached_image(run.manifest)
        if image is None:
            image = await self._on_thread(engine, engine.image, run.manifest)
        run.guest = self._spare.take(engine, image, run.memory_limit)
        if observation.aborted:
            run.guest.interrupt()
        return await self._compute(engine, run, run.guest.start_steps, message, self._budget(observation))

    async def _compute(
        self,
        engine: Engine,
        run: Run,
        begin: Callable[[str, float, float | None], Steps],
        message: str,
        budget: float,
    ) -> Turn:
        """Compute a turn: in the event loop while it is short, which spares two changes of threads, then on a thread.

        A program whose turn was longer is computed on threads, until `THREADED_TURNS` were short again.
        """
        if run.threaded_turns or len(message) > LONG_MESSAGE:
            steps = begin(message, budget, None)
        else:
            steps = begin(message, budget, SHORT_TURN)
            try:
                next(steps)
            except StopIteration as ended:
                short: Turn = ended.value
                return short
            run.threaded_turns = THREADED_TURNS + 1
        turn: Turn
        turn, seconds = await self._on_thread(engine, _finish_timed, steps)
        run.threaded_turns = THREADED_TURNS if seconds >= SHORT_TURN else max(0, run.threaded_turns - 1)
        return turn

    def _restore(self, engine: Engine, run: Run, suspended: SuspendedRun) -> None:
        image = engine.image(suspended.manifest)
        limit = self._settings.memory_limit_bytes
        snapshot.check_limits(
            suspended.snapshot,
            snapshot.about(suspended.snapshot).pages,
            image_bytes=image.size,
            made_within=run.memory_limit,
            memory_limit=limit,
            max_bytes=self._settings.max_snapshot_bytes,
        )
        run.memory_limit = min(run.memory_limit, limit)
        run.guest = Guest(engine, image, memory_limit=run.memory_limit, suspended=suspended.snapshot)

    # queueing

    async def _admit(self, run: Run, observation: Observation) -> bool:
        """Queue for room in memory and for the first turn; time spent here is not the program's. False when the request
        has to be answered, or was given up, before."""
        if not await self._find_room(run, observation):
            return False
        began = self._clock()
        if not await self._get(self._turns, run, observation, observation.latest):
            return False
        observation.deadline = min(observation.deadline + self._clock() - began, observation.latest)
        return True

    async def _find_room(self, run: Run, observation: Observation) -> bool:
        began = self._clock()
        run.has_room = await self._get(self._rooms, run, observation, observation.latest)
        observation.deadline = min(observation.deadline + self._clock() - began, observation.latest)
        return run.has_room

    async def _get(self, slots: Slots, run: Run, observation: Observation, until: float) -> bool:
        if observation.aborted or observation.released:
            return False
        if slots.try_acquire(run.share, run.owner):
            return True
        with anyio.move_on_after(max(0.0, until - self._clock())) as observation.queueing:
            await slots.acquire(run.share, run.owner)
            return True
        return False

    async def _turned_away(self, run: Run, observation: Observation, suspended: SuspendedRun | None = None) -> Outcome:
        if observation.aborted:
            return await self._abort(run)
        if suspended is not None:
            return await self._suspend_again(run, suspended)
        if observation.released:
            return await self._fail(
                run, "aborted", "the server is about to end, and nothing of the program has run; try again"
            )
        return await self._fail(
            run,
            "timeout",
            "other programs kept the server busy until the request had to be answered; nothing of this one has run, "
            "try again",
        )

    def close(self) -> None:
        """Free what is kept for programs to come."""
        self._spare.close()

    def _leave(self, run: Run) -> None:
        guest, run.guest = run.guest, None
        if guest is not None:
            self._spare.give_back(guest, make_next=run.state != "waiting")
        run.results.clear()
        run.silence()
        if run.has_room:
            run.has_room = False
            self._rooms.release(run.share, run.owner)

    async def _on_thread(self, engine: Engine, work: Callable[..., Any], *args: Any) -> Any:
        # Shielded: a guest must be at rest before anything else is done with it. What is computed is bounded in time.
        with anyio.CancelScope(shield=True):
            return await asyncio.wrap_future(engine.threads.submit(work, *args))


def _finish_timed(steps: Steps) -> tuple[Turn, float]:
    """Compute a turn to its end. Returns it, and the seconds that this took."""
    began = time.perf_counter()
    return finish(steps), time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """The engine does not take the program's text; nothing of it has run."""

    error: Thrown


_LOOK_UPS: Final = {
    messages.ApiList: "API.list",
    messages.ApiRead: "API.read",
    messages.ApiSearch: "API.search",
    messages.Header: "$api",
    messages.ToolSearch: "tools.search",
    messages.Describe: "tools.describe",
}
"""The expressions by which a program makes look-ups."""


async def _stored(catalog: Catalog) -> StoredCatalog:
    # Of a large one it takes a while, the first time.
    large = len(catalog) > LARGE_CATALOG
    found = await anyio.to_thread.run_sync(catalog_hash, catalog) if large else catalog_hash(catalog)
    return StoredCatalog(found, lambda: catalog_text(catalog))


def _is_out_of_memory(thrown: Thrown, *, full: bool) -> bool:
    """Whether an error says so. With its memory full, the engine throws null when it cannot make an error, and what it
    says of a regular expression is no error of its own kind."""
    if full and (
        thrown.is_null or thrown.is_blank or (thrown.name, thrown.message) == ("SyntaxError", "out of memory")
    ):
        return True
    return thrown.engine and ("out of memory" in thrown.message or thrown.message == "string too long")


def _with_expression(message: str, error: Thrown, catalog: Catalog) -> str:
    """Add, after the first line, what to write for a name that the program took for a tool or a server."""
    first, newline, frames = message.partition("\n")
    expressions = list(filter(None, map(catalog.expression_for, mistaken_names(error, first))))
    if expressions:
        first = first.removesuffix(NO_TOOL) + "".join(f" (write {each})" for each in expressions)
    return first + newline + frames


_NO_FUNCTION = re.compile(r"(?<![\w$.])([\w$]+(?:\.[\w$]+)+) is not a function")
"""It begins where a word begins: tried at each character of one, it takes time with the square of its length."""


def _with_nearest_function(message: str, error: Thrown, namespaces: OpenNamespaces) -> str:
    """Add, after the first line, the nearest function of a namespace to one that is not there."""
    first, newline, frames = message.partition("\n")
    match = _NO_FUNCTION.search(first) if error.name == "TypeError" else None
    found = None if match is None else namespaces.nearest_function(match[1])
    return message if found is None else f"{first} (nearest: {found}){newline}{frames}"


def _function(fault: Thrown | None) -> str:
    """Which function was interrupted. Where in it cannot be told: a loop without calls has no positions."""
    match = None if fault is None else re.match(r"\s*at (\S+) \(<input>", fault.stack)
    return "" if match is None or match[1] == "anonymous" else f", in {match[1]}"


def _too_large(size: int, *, returned: bool) -> str:
    """Say what was too large to leave the guest, and what to do."""
    taken, most = f"{math.ceil(10 * size / MIB) / 10:g} MiB", f"{MAX_TURN_BYTES // MIB} MiB"
    if returned:
        return f"the program returned a value of {taken} as JSON, and at most {most} can leave a program; {RETURN_LESS}"
    return (
        f"the program sent {taken} at once, in arguments of calls and values for store(), and at most {most} can leave "
        "a program at once; send less, or in parts with an await between them"
    )


def _places(positions: Positions, thrown: Thrown) -> str:
    frames = positions.frames(thrown)
    return f" ({frames[0].removeprefix('at ')})" if frames else ""


_FOR_EACH: Final = re.compile(r"\.forEach\(\s*async\b")


def _how_to_await(run: Run) -> str:
    """Say how calls are awaited that nothing has waited for."""
    if run.positions is not None and _FOR_EACH.search(run.positions.code):
        return "forEach does not wait: write `for (const x of list)` with await inside"
    return "await such calls"


def _behind(run: Run) -> str:
    """Say why a call waits that has no place among those of its own program."""
    return f"waits for its turn: {run.executing} calls of this program are in flight"


def _quoted(text: str, limit: int) -> str:
    """Return the begin of a server's text in quotation marks, with escapes for what would not be seen as it is."""
    quoted = json_text(text if len(text) <= limit else text[:limit] + "...")
    return within_line(quoted, len(quoted))


def _asked_for(question: Question) -> str:
    """What a server wants, in words; its own words are cut and quoted."""
    match question.method:
        case "elicitation/create":
            message = str(question.params.get("message", ""))
            return f"the user {_quoted(message, 200)}"
        case "sampling/createMessage":
            return "the client's model"
        case "roots/list":
            return "for the client's folders"


def _unchecked_notes(run: Run, unchecked: Sequence[UncheckedError]) -> tuple[str, ...]:
    """Name the calls whose results say `isError` and were never looked at."""
    tools = {record.id: record.tool for record in run.recent}
    notes = []
    for each in unchecked[-SHOWN_UNCHECKED:]:
        text = f": {_quoted(each.text, SHOWN_TEXT)}" if each.text else ""
        tool = within_line(tools.get(each.call, f"call {each.call}"))
        notes.append(
            f"{tool} returned isError, and the program did not check it{text}. unwrap(result) throws on isError."
        )
    if len(unchecked) > SHOWN_UNCHECKED:
        least = "At least " if len(unchecked) >= MAX_UNCHECKED else ""
        notes.append(f"{least}{len(unchecked) - SHOWN_UNCHECKED} more results with isError were not checked.")
    return tuple(notes)


def counted(tools: list[str]) -> str:
    """The ids of tools, each once, with how often."""
    counted = [tool if count == 1 else f"{tool} ({count} times)" for tool, count in Counter(tools).items()]
    shown = ", ".join(counted[:10])
    return shown + (f" and {len(counted) - 10} more tools" if len(counted) > 10 else "")
