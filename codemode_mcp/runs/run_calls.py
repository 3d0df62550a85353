"""The nested calls of a run: queued, begun, sent, ended. Their completions wait in the run for its driver.

A call goes through the states of `runs.state.CALL_TRANSITIONS`. It is one eager coroutine, `_execute`
(`upstream_clients.eager`). For a common call, policy has decided, no person or hook has to be awaited, no store has to
be asked, and the server can take the call now. Such a call needs no task, and its bytes leave in the round of the event
loop in which the program made it. Every other call becomes a task at its first wait. The dispatcher awaits whatever it
must, and right before it sends the call it awaits `CallStorage.permit`.

Invariants:

- `_end` runs once for each call.
- A call that has a slot counts in `Run.executing`. It gives the slot to the next call when it ends, or while it waits
  for a person. Approved calls get a slot before calls that have not begun.
- If the client has a relay, a note that a call may have been sent is written before the first call (`RunNotes`). If the
  process is killed, the relay never says that nothing was sent although it was.
- Nothing is awaited between the last permission and the sending, so no suspension can come in between. `sent` in
  `_execute` checks that.
- If a durable store has a call, the end of the call is stored before its slot is free and before its program gets it.
  If the store does not answer, the program gets the end, and it is stored later.
- A call of the last turn begins only after the verdict on the turn. In a stored run, a call that is not repeatable is
  then sent only after the end of the run is stored. Until then, another process could continue the run from before that
  turn, and would send the call again.

Work for one run is bounded in each round of the event loop. Calls begin for at most `BEGIN_SLICE` seconds. Refused
calls cost only this process, and are slowed down by `REFUSED_PAUSE`. If a program takes its results slowly, no further
calls of it begin (`BACKLOG_CHARACTERS`). A call that ends in the
step in which it began is ended in the next round: an end begins the next call, and many refused calls in a row would
exceed Python's recursion limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from codemode_mcp.audit.events import Auditor, call_id
from codemode_mcp.base.errors import Exceeded, InternalError, StoreUnavailable
from codemode_mcp.base.settings import MIB, CodeModeSettings
from codemode_mcp.rules.policy.approval import ApprovalRequest, Verdict
from codemode_mcp.runs import run_notes
from codemode_mcp.runs.calls.outcome import CallEvents, Calling, CallRecord, error_text, outcome_of
from codemode_mcp.runs.calls.sending import tool_call_error
from codemode_mcp.runs.live_call import LiveCall, begins_program, is_program
from codemode_mcp.runs.persisting import CallStorage
from codemode_mcp.runs.run_recording import record_approval, recorded_answer
from codemode_mcp.sandbox.messages import Completion, ToolCall
from declarations.untrusted_text import escape_line
from upstream_clients.eager import EagerTasks, Scope, next_round
from upstream_clients.tools import JsonObject, Question, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.runs.manager import Services
    from codemode_mcp.runs.run import Run

log = logging.getLogger("codemode_mcp.runs")

MAX_PROGRESS = 1000
"""Maximum characters of a tool's progress message."""

MANY_REFUSED = 100
REFUSED_PAUSE = 0.002
"""Seconds between two calls of a run of which more than `MANY_REFUSED` calls ended before they were sent.

Nothing else slows such a run down, because no tool has to answer a refused call."""

BEGIN_SLICE = 0.002
"""Seconds in one round of the event loop for which calls of one run may begin."""


class Calls:
    """The calls of all runs.

    Args:
        spawn: starts a task that outlives the request.
        on_late: called with the id of a run that another process has, after this process has stored the end of one of
            its calls.
        on_late_failure: called with the run and a sentence about a call that failed after its program had ended.
        prolong: keeps a suspended run longer; see `Persisting.prolong`.
    """

    def __init__(
        self,
        services: Services,
        settings: Callable[[], CodeModeSettings],
        spawn: Callable[..., object],
        on_late: Callable[[str], None],
        on_late_failure: Callable[[Run, str], None],
        prolong: Callable[[Run], Awaitable[None]],
    ) -> None:
        self._storage = CallStorage(services.store, settings, spawn, services.clock, on_late)
        self._notify = services.notify
        self._on_late_failure = on_late_failure
        self._prolong = prolong
        self._dispatcher = services.dispatcher
        self._settings = settings
        self._spawn = spawn
        self._clock = services.clock
        self._auditor = services.auditor
        self._eager = EagerTasks(spawn)
        self._closed = False

    def accept(self, run: Run, call: ToolCall, now: float, *, begins: bool = True) -> None:
        """Begin a call, queue it, or refuse it if there is no room.

        Args:
            begins: False for a call of the last turn, which begins after the verdict on the turn.

        Raises:
            InternalError: another call had the same number.
        """
        # A person approves calls by their numbers, so no guest may use a number twice.
        if call.id <= run.last_call:
            raise InternalError("the sandbox has given a number to two calls")
        run.last_call = call.id
        live = _live_call(run, call, now, self._auditor)
        run.track.add(call, live.record)
        # The guest has the same limit on all its calls, but it is not trusted. Calls that wait for a person are neither
        # in flight nor queued, so all calls are counted.
        limits = self._settings()
        fits = arguments_fit(run, call)
        # A saved program that has begun is no longer among the calls, and takes memory until it ends.
        begun = len(run.programs) if is_program(call.target) else 0
        room = len(run.calls) + begun < limits.max_pending_tool_calls + limits.max_queued_tool_calls
        if fits and room and self._begin_or_queue(run, live, begins=begins):
            if not live.record.repeatable:
                run.advance_custody("call")
            return
        live.record.status, live.record.ended = "failed", now
        run.settled.append(refused(run, live, limits, fits=fits))

    def requeue(self, run: Run, call: ToolCall, began: float) -> None:
        """Begin or queue a call of a run that was taken over, and that this process has to send."""
        live = self._restored(run, call, began)
        # The call was accepted before, so it is queued even if there is no room.
        if not self._begin_or_queue(run, live):
            run.calls[call.id] = live
            run.queue.append(live)

    def follow(self, run: Run, call: ToolCall, began: float, task: str) -> None:
        """Follow the task of a call of a dead process. `task`: the handle of the task, as text."""
        live = self._sent_elsewhere(run, call, began)
        live.executor, live.task, live.task_stored = "here", task, True
        live.record.is_task = True
        self._take_slot(run, live)
        live.scope = Scope()
        self._spawn(self._follow, run, live)

    async def _follow(self, run: Run, live: LiveCall) -> None:
        completion = None
        assert live.scope is not None
        try:
            with live.scope:
                options = TaskOptions(known=live.task, is_left=lambda: live.is_left)
                completion = await self._dispatcher.follow(self._calling(run, live), options)
        except BaseException:
            self._end(run, live, completion)
            raise
        await self._end_stored(run, live, completion)

    def _task_options(self, run: Run, live: LiveCall) -> TaskOptions:
        async def created(handle: str) -> None:
            live.task, live.record.is_task = handle, True
            await self._storage.record_task(run, live)

        return TaskOptions(created=created, is_left=lambda: live.is_left)

    def await_other_executor(self, run: Run, call: ToolCall, began: float) -> None:
        """Wait for a call that another process has sent. Its end comes with `Restoring.accept_news`."""
        self._sent_elsewhere(run, call, began)

    def _sent_elsewhere(self, run: Run, call: ToolCall, began: float) -> LiveCall:
        live = self._restored(run, call, began)
        live.executor = "elsewhere"
        live.admit()
        live.advance("send")
        live.record.status, live.record.dispatched = "executing", True
        run.calls[call.id] = live
        return live

    def _restored(self, run: Run, call: ToolCall, began: float) -> LiveCall:
        live = _live_call(run, call, began, self._auditor)
        live.recorded = True
        run.track.add_restored(call, live.record)
        return live

    def events_of(self, run: Run, call: int) -> CallEvents:
        return CallEvents(self._auditor, call_id(run.id, call), run.id)

    def _begin_or_queue(self, run: Run, live: LiveCall, *, begins: bool = True) -> bool:
        """Begin a call or queue it. Return False if there is no room."""
        limits = self._settings()
        if begins and self._may_begin(run) and not run.queue:
            run.calls[live.call.id] = live
            self._begin(run, live)
        elif len(run.queue) < limits.max_queued_tool_calls + max(0, limits.max_pending_tool_calls - run.executing):
            run.calls[live.call.id] = live
            run.queue.append(live)
            if begins and run.executing < limits.max_pending_tool_calls:
                self._begin_soon(run)
        else:
            return False
        return True

    def _may_begin(self, run: Run) -> bool:
        return run.executing < self._settings().max_pending_tool_calls and not run.begun_enough and not is_behind(run)

    def _begin_soon(self, run: Run) -> None:
        if not run.begins_soon:
            run.begins_soon = True
            asyncio.get_running_loop().call_soon(self._next_round, run)

    def _next_round(self, run: Run) -> None:
        run.begins_soon = run.begun_enough = False
        self.begin_queued(run)

    def _begin(self, run: Run, live: LiveCall) -> None:
        self._take_slot(run, live)
        now = time.perf_counter()
        if now > run.begin_until:
            run.begin_until = now + BEGIN_SLICE  # the first call of this round
        has_begun = self._eager.start(self._execute(run, live))
        live.begins = False
        # Checking the arguments of a call that begins in the next round takes time there.
        if (not has_begun or time.perf_counter() >= run.begin_until) and not run.begun_enough:
            run.begun_enough = True
            self._begin_soon(run)

    def close(self) -> None:
        """Deliver no more ends to programs, because the server ends. Its task group cancels the calls."""
        self._closed = True

    async def _end_stored(self, run: Run, live: LiveCall, completion: Completion | None) -> None:
        try:
            ended = completion
            if ended is None and not live.is_unsent:
                ended = given_up(live)  # another process may have the run by now, and waits for this end
            if ended is not None and run.is_durable:
                await self._storage.record_end(run, live, ended)
        finally:
            self._end(run, live, completion)

    def _take_slot(self, run: Run, live: LiveCall) -> None:
        run.executing += 1
        live.has_slot = True

    def _release_slot(self, run: Run, live: LiveCall) -> None:
        """Give the slot of a call to the next one. Approved calls come before calls that have not begun."""
        if not live.has_slot:
            return
        live.has_slot = False
        run.executing -= 1
        if run.resuming:
            resumed = run.resuming.popleft()
            self._take_slot(run, resumed)
            resumed.wake()
        else:
            self.begin_queued(run)

    def begin_queued(self, run: Run) -> None:
        while run.queue and self._may_begin(run):
            self._begin(run, run.queue.popleft())

    async def _approve(self, run: Run, live: LiveCall, request: ApprovalRequest) -> Verdict:
        """Return the verdict of a person, or a remembered one. Meanwhile other calls get the slot of this call."""
        verdict = run.approvals.known(request)
        if verdict is not None:
            live.events.decided(request, verdict)
            return verdict
        live.events.asked(request)
        live.advance("ask")
        if not run.approvals.calls:
            self._notify(run.id)
        self._release_slot(run, live)
        self._spawn(self._prolong, run)
        verdict = await run.approvals.wait(request, self._clock())
        self._spawn(self._prolong, run)
        if verdict.approved and run.has_expired(self._clock()):
            verdict = Verdict(approved=False, why="its program was suspended for too long by then", by="nobody")
        live.events.decided(request, verdict)
        if run.recorder is not None:
            record_approval(run, request, verdict)
        if verdict.approved:
            # The call may have been given up at the same moment. Then nothing may be sent.
            if live.cancelled:
                await anyio.lowlevel.checkpoint()
            live.advance("approve")
            live.admit()
            await self._resume(run, live)
        return verdict

    async def _resume(self, run: Run, live: LiveCall) -> None:
        if run.executing < self._settings().max_pending_tool_calls:
            self._take_slot(run, live)
            return
        run.resuming.append(live)
        try:
            while not live.has_slot:
                await live.wait()
        finally:
            if not live.has_slot:
                run.resuming.remove(live)

    async def _ask(self, run: Run, live: LiveCall, question: Question) -> JsonObject:
        answer = partial(run.questions.put, live.call.id, question, self._clock())
        self._spawn(self._prolong, run)
        found = await (answer() if run.recorder is None else recorded_answer(run, live, question, answer))
        self._spawn(self._prolong, run)
        return found

    def _report_started(self, run: Run, live: LiveCall) -> None:
        if live.start_reported:
            return
        live.start_reported = True
        if not self._auditor.listening:
            live.events.noticed("call_started")
        else:
            queued = round((self._clock() - live.record.began) * 1000)
            given = live.call.input if isinstance(live.call.input, str) else None
            definition = run.context.catalog.definition_digest(live.record.tool)
            live.events.started(live.record.tool, given, definition=definition, queued_ms=queued or None)

    def _calling(self, run: Run, live: LiveCall) -> Calling:
        def sent() -> None:
            live.admit()
            # If a suspension came in between after all, the call is stored as unsent. Then it must not be sent here.
            if live.state != "dispatched" and self._storage.permission(run, live) != "send":
                raise StoreUnavailable(
                    f"{escape_line(live.record.tool)}: the call was not sent: its program was just being stored; "
                    "repeat the call"
                )
            live.advance("send")

        return Calling(
            live.call,
            run.context,
            live.record,
            partial(_report_progress, run, live),
            partial(self._ask, run, live),
            partial(self._approve, run, live),
            run.note,
            partial(self._permit, run, live),
            run.can_answer,
            sent,
            self._task_options(run, live),
        )

    async def _execute(self, run: Run, live: LiveCall) -> None:
        """Send a call. Anything can be awaited before it is sent."""
        completion = None
        live.scope = Scope()
        self._report_started(run, live)
        live.record.on_start = run.note_start
        try:
            with live.scope, live.events.scope():
                if run.refused > MANY_REFUSED:
                    await run.pace.acquire()
                    asyncio.get_running_loop().call_later(REFUSED_PAUSE, run.pace.release)
                # The call may have been given up before it began. Then nothing may be sent.
                if not live.cancelled:
                    completion = await self._dispatcher.call(self._calling(run, live))
            if live.begins:
                await next_round()
        except BaseException:
            self._end(run, live, completion)
            raise
        await self._end_stored(run, live, completion)

    async def _permit(self, run: Run, live: LiveCall) -> None:
        """Wait until a call may be sent; see `CallStorage.permit`. The relay of the client is told before."""
        observation = run.last_observation
        if not run.note_sending() and observation is not None:
            await observation.sending_noted()
        await self._storage.permit(run, live)

    def _end(self, run: Run, live: LiveCall, completion: Completion | None) -> None:
        """End a call, and give its slot to the next one.

        Args:
            completion: None if the call was given up.
        """
        live.advance("abandon" if completion is None else "settle")
        run.calls.pop(live.call.id, None)
        run.recent.append(live.record)
        run.exceeded = live.record.exceeded or run.exceeded
        run.add_challenges(live.record.challenges)
        if not live.record.dispatched:
            run.refused += 1
        outcome = outcome_of(live.record, completion)
        if completion is None:
            live.record.status = "failed"
            live.record.ended = self._clock()
            completion = cancelled(live)
        if begins_program(live.record.tool, completion) and run.state in ("running", "waiting"):
            run.programs.begin(live.record, live.events)
            self._deliver(run, live, completion)
            return
        if outcome is not None:
            run.made.end(live.call.id, live.record.tool, outcome)
        code = None if completion.error is None else completion.error.code
        why = late_failure(completion) if live.unawaited else None
        if self._auditor.listening:
            is_error = why is not None and code is None
            live.events.ended(live.record, code, self._clock(), late=live.unawaited, is_error=is_error)
        else:
            live.events.noticed("call_ended")
        if why is not None and not run.fenced and run.state != "aborted":  # calls of an aborted run fail on purpose
            tool, run_id = escape_line(live.record.tool), run.id[:12]
            note = f"{tool} failed after its program ({run_id}) had ended without awaiting it{why[:300]}"
            self._on_late_failure(run, note)
        if completion.error is None:
            run.results.add(live.record.tool, completion.value, live.call.input or "null")
            _note_error_text(run, live.record.tool, completion.value)
        self._deliver(run, live, completion)

    def _deliver(self, run: Run, live: LiveCall, completion: Completion) -> None:
        if run.state in ("running", "waiting") and not run.fenced and not self._closed:
            run.settled.append(completion)
            run.change()
        self._release_slot(run, live)


def _live_call(run: Run, call: ToolCall, began: float, auditor: Auditor) -> LiveCall:
    record = CallRecord(call.id, call.target, began, path="" if call.through is None else call.through.path)
    record.watched = auditor.listening
    entry = run.context.catalog.get(call.target)
    if entry is not None:
        record.repeatable = entry.repeatable
        record.read_only = entry.effects.read_only
    return LiveCall(call, record, CallEvents(auditor, call_id(run.id, call.id), run.id))


def _note_error_text(run: Run, tool: str, result: str) -> None:
    """Note a result that reads like an error without being one, once for a tool and a run."""
    entry = run.context.catalog.get(tool)
    if entry is None or entry.source != "mcp" or tool in run.context.error_texts:
        return
    text = error_text(result)
    if text is not None:
        run.context.error_texts.add(tool)
        run.note(run_notes.error_text_note(entry.path, text))


async def _report_progress(run: Run, live: LiveCall, progress: float, total: float | None, message: str | None) -> None:
    observation = run.observation
    if observation is not None and observation.client is not None:
        share = _number(progress) if total is None else f"{_number(progress)}/{_number(total)}"
        said = f" {escape_line(message, MAX_PROGRESS)}" if message else ""
        text = f"{escape_line(live.record.tool)}: {share}{said}"
        observation.client.progress(f"call {live.call.id}", text)


def _number(value: float) -> str:
    """Return a server's number as text. It may have hundreds of digits."""
    try:
        return f"{value:g}"
    except (OverflowError, ValueError):
        return "?"


BACKLOG_CHARACTERS = 32 * MIB
"""Characters of undelivered results above which no further calls of a program begin.

This limits how much one program keeps in memory and in a store: so much, and the results of the calls in flight."""

ARGUMENTS_CHARACTERS = 64 * MIB
"""Maximum characters of the arguments of all calls of a program that have not ended."""

SMALL_ARGUMENTS = 64 * 1024
"""Arguments with fewer characters are not counted. No program has enough calls to exceed the limit with these."""


MAX_MESSAGE = 1000
"""Maximum characters of an error message of a tool."""


def is_behind(run: Run) -> bool:
    """Return True if too many results wait to be delivered to a program that has not ended."""
    return run.state in ("running", "waiting") and run.settled.size > BACKLOG_CHARACTERS


def arguments_fit(run: Run, call: ToolCall) -> bool:
    return _input_size(call) < SMALL_ARGUMENTS or _arguments_size(run, call) <= ARGUMENTS_CHARACTERS


def refused(run: Run, live: LiveCall, limits: CodeModeSettings, *, fits: bool) -> Completion:
    """Return the end of a call for which there is no room.

    Args:
        fits: False if its arguments are too large.
    """
    why = f"{run.executing} are in flight and {len(run.queue)} are queued"
    if run.programs:
        why += f", and {len(run.programs)} saved programs have not ended"
    if fits:
        limit = limits.max_pending_tool_calls + limits.max_queued_tool_calls
        run.exceeded = Exceeded("maxQueuedToolCalls", len(run.calls) + 1, limit)
    else:
        run.exceeded = Exceeded("argumentsCharacters", _arguments_size(run, live.call), ARGUMENTS_CHARACTERS)
        why += f", and their arguments would have more than {ARGUMENTS_CHARACTERS} characters"
    message = f"too many calls in flight: {why}; await some before making more"
    return Completion(live.call.id, error=tool_call_error(live.record, message, "too_many_pending_tool_calls"))


def _arguments_size(run: Run, call: ToolCall) -> int:
    return _input_size(call) + sum(_input_size(live.call) for live in run.calls.values())


def _input_size(call: ToolCall) -> int:
    return len(call.input) if isinstance(call.input, str) else 0


def cancelled(live: LiveCall) -> Completion:
    return Completion(live.call.id, error=tool_call_error(live.record, "the call was cancelled", "aborted"))


def late_failure(completion: Completion) -> str | None:
    """Return why a call that outlived its program has failed, after a colon; None if it has not failed."""
    error = completion.error
    return error_of(completion.value) if error is None else f": {error.message}"


def error_of(value: str) -> str | None:
    """Return the message of an MCP result with `isError`, after a colon; None for any other result."""
    try:
        result = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(result, dict) or result.get("isError") is not True:
        return None
    match result.get("content"):
        case [{"text": str(text)}, *_] if text:
            return f": {escape_line(text, MAX_MESSAGE)}"
    return ""


def given_up(live: LiveCall) -> Completion:
    """Return the end of a cancelled call for the process that continues its program: its tool may have acted."""
    if live.record.repeatable:
        return cancelled(live)
    message = (
        f"{escape_line(live.record.tool)}: the call was cancelled after it was sent, so it is unknown whether the tool "
        "has acted. Find that out before you make the call again"
    )
    return Completion(
        live.call.id, error=tool_call_error(replace(live.record, is_unknown=True), message, "nested_tool_failed")
    )
