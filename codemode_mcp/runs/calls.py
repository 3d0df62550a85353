"""The nested calls of a run: queued, begun, carried to their tools, ended.

Each call under way is a task of the manager's group. What settles is left with the run, for its driver to deliver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from codemode_mcp.audit.events import MAX_NAME, Auditor, call_id
from codemode_mcp.bridge import Completion, GuestError, json_text
from codemode_mcp.errors import InternalError
from codemode_mcp.outcome import CallRecord
from codemode_mcp.runs.run import LiveCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.approval import ApprovalRequest, Verdict
    from codemode_mcp.bridge import ToolCall
    from codemode_mcp.dispatch import Dispatcher
    from codemode_mcp.runs.run import Run
    from codemode_mcp.settings import CodeModeSettings
    from upstream_clients.tools import JsonObject, Question

MANY_REFUSED = 100
REFUSED_PAUSE = 0.002
"""Seconds between the calls of a run that has had so many calls refused before anything was sent: refusing is work of
ours alone, which no tool's answer slows down."""


class Calls:
    """See the module. Holds no state of any run.

    Args:
        spawn: start a task that outlives the request.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: CodeModeSettings,
        spawn: Callable[..., object],
        clock: Callable[[], float],
        auditor: Auditor | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._settings = settings
        self._spawn = spawn
        self._clock = clock
        self._auditor = auditor or Auditor()

    def apply(self, settings: CodeModeSettings) -> None:
        """See `RunManager.apply`."""
        self._settings = settings

    def accept(self, run: Run, call: ToolCall, now: float) -> None:
        """Begin a call, or queue it; what there is no room for is refused.

        Raises:
            InternalError: another call had its number. A person approves calls by these.
        """
        if call.id <= run.last_call:
            raise InternalError("the sandbox has given a number to two calls")
        run.last_call = call.id
        record = CallRecord(call.id, call.target, now, path="" if call.through is None else call.through.path)
        entry = run.context.catalog.get(call.target)
        if entry is not None:
            record.repeatable = entry.repeatable
            record.read_only = entry.effects.read_only
        live = LiveCall(call, record)
        run.track.add(call, record)
        limits = self._settings
        # Those that wait for a person are neither under way nor queued; a guest counts them too, but is not relied on.
        room = len(run.calls) < limits.max_pending_tool_calls + limits.max_queued_tool_calls
        if room and run.executing < limits.max_pending_tool_calls:
            run.calls[call.id] = live
            self._begin(run, live)
        elif room and len(run.queue) < limits.max_queued_tool_calls:
            run.calls[call.id] = live
            run.queue.append(live)
        else:
            record.status, record.ended = "failed", now
            error = GuestError(
                f"too many calls at once: {run.executing} are under way and {len(run.queue)} are queued; "
                "await some before making more",
                name="ToolCallError",
                code="too_many_pending_tool_calls",
                data=json_text({"tool": call.target, "dispatched": False, "repeatable": record.repeatable}),
            )
            run.settled.append(Completion(call.id, error=error))

    def _begin(self, run: Run, live: LiveCall) -> None:
        self._take_slot(run, live)
        self._spawn(self._carry, run, live)

    def _take_slot(self, run: Run, live: LiveCall) -> None:
        run.executing += 1
        live.holds = True

    def _give_slot(self, run: Run, live: LiveCall) -> None:
        """To the next: a call that was approved before one that has not begun."""
        if not live.holds:
            return
        live.holds = False
        run.executing -= 1
        if run.resuming:
            resumed = run.resuming.popleft()
            self._take_slot(run, resumed)
            resumed.resumes.set()
        elif run.queue:
            self._begin(run, run.queue.popleft())

    async def _approve(self, run: Run, live: LiveCall, request: ApprovalRequest) -> Verdict:
        """The verdict of a person, or what is remembered of one. Meanwhile other calls go on in this one's place."""
        verdict = run.approvals.at_once(request)
        if verdict is not None:
            self._tell_decided(run, request, verdict)
            return verdict
        self._tell_asked(run, request)
        self._give_slot(run, live)
        verdict = await run.approvals.wait(request, self._clock())
        self._tell_decided(run, request, verdict)
        if verdict.approved:
            await self._resume(run, live)
        return verdict

    async def _resume(self, run: Run, live: LiveCall) -> None:
        if run.executing < self._settings.max_pending_tool_calls:
            self._take_slot(run, live)
            return
        run.resuming.append(live)
        try:
            await live.resumes.wait()
        finally:
            if not live.holds:
                run.resuming.remove(live)

    async def _carry(self, run: Run, live: LiveCall) -> None:
        completion = None

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            observation = run.observation
            if observation is not None and observation.client is not None:
                share = _number(progress) if total is None else f"{_number(progress)}/{_number(total)}"
                await observation.client.progress(f"{live.record.tool}: {share}{f' {message}' if message else ''}")

        async def ask(question: Question) -> JsonObject:
            return await run.questions.put(live.call.id, question, self._clock())

        async def approve(request: ApprovalRequest) -> Verdict:
            return await self._approve(run, live, request)

        self._tell_started(run, live)
        try:
            with live.scope:
                # One call of a run begins in a round of the event loop: checking its arguments takes time that others
                # need too.
                await run.pace.acquire()
                pause = REFUSED_PAUSE if run.refused > MANY_REFUSED else 0.0
                asyncio.get_running_loop().call_later(pause, run.pace.release)
                # Given up before it began: nothing is sent.
                await anyio.lowlevel.checkpoint_if_cancelled()
                completion = await self._dispatcher.call(
                    live.call, run.context, live.record, on_progress, ask, approve, run.note
                )
        finally:
            run.calls.pop(live.call.id, None)
            run.recent.append(live.record)
            if not live.record.dispatched:
                run.refused += 1
            if completion is None:
                live.record.status = "failed"
                live.record.ended = self._clock()
                completion = _cancelled(live)
            self._tell_ended(run, live, completion)
            if run.state in ("running", "waiting"):
                run.settled.append(completion)
                run.change()
            self._give_slot(run, live)

    def _tell_started(self, run: Run, live: LiveCall) -> None:
        if self._auditor.listening:
            call, queued = live.call, round((self._clock() - live.record.began) * 1000)
            self._auditor.emit(
                "call_started",
                call_id(run.id, call.id),
                run.id,
                tool=live.record.tool[:MAX_NAME],
                queued_ms=queued or None,
                inputs=call.input if isinstance(call.input, str) else None,
            )

    def _tell_asked(self, run: Run, request: ApprovalRequest) -> None:
        if self._auditor.listening:
            self._auditor.emit(
                "call_asked",
                call_id(run.id, request.call),
                run.id,
                inputs=json_text(request.arguments),
                tool=request.tool[:MAX_NAME],
                reason=request.reason,
            )

    def _tell_decided(self, run: Run, request: ApprovalRequest, verdict: Verdict) -> None:
        if self._auditor.listening:
            self._auditor.emit(
                "call_decided",
                call_id(run.id, request.call),
                run.id,
                tool=request.tool[:MAX_NAME],
                approved=verdict.approved,
                remember=verdict.remember,
                by=verdict.by,
                why=verdict.why or None,
            )

    def _tell_ended(self, run: Run, live: LiveCall, completion: Completion) -> None:
        if self._auditor.listening:
            record, error = live.record, completion.error
            self._auditor.emit(
                "call_ended",
                call_id(run.id, live.call.id),
                run.id,
                tool=record.tool[:MAX_NAME],
                status="completed" if error is None else "failed",
                code=None if error is None else error.code,
                ms=record.milliseconds(self._clock()),
                bytes=record.size,
                dispatched=record.dispatched,
                repeatable=record.repeatable,
            )


def _cancelled(live: LiveCall) -> Completion:
    record = live.record
    data = {"tool": record.tool, "dispatched": record.dispatched, "repeatable": record.repeatable}
    error = GuestError("the call was cancelled", name="ToolCallError", code="aborted", data=json_text(data))
    return Completion(live.call.id, error=error)


def _number(value: float) -> str:
    """Of a server's making: it may have hundreds of digits."""
    try:
        return f"{value:g}"
    except (OverflowError, ValueError):
        return "?"
