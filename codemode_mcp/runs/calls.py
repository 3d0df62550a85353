"""The nested calls of a run: queued, begun, carried to their tools, ended.

Each call under way is a task of the manager's group. What settles is left with the run, for its driver to deliver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from codemode_mcp.approval import Verdict
from codemode_mcp.audit.calls import CallEvents
from codemode_mcp.audit.events import Auditor, call_id
from codemode_mcp.bridge import Completion, GuestError, json_text
from codemode_mcp.entries import within_line
from codemode_mcp.errors import InternalError
from codemode_mcp.outcome import CallRecord
from codemode_mcp.runs.run import LiveCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.approval import ApprovalRequest
    from codemode_mcp.bridge import ToolCall
    from codemode_mcp.dispatch import Dispatcher
    from codemode_mcp.runs.run import Run
    from codemode_mcp.settings import CodeModeSettings
    from upstream_clients.tools import JsonObject, Question

MAX_PROGRESS = 1000
"""Characters of what a tool says of its progress."""

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
        record.watched = self._auditor.listening
        entry = run.context.catalog.get(call.target)
        if entry is not None:
            record.repeatable = entry.repeatable
            record.read_only = entry.effects.read_only
        live = LiveCall(call, record, CallEvents(self._auditor, call_id(run.id, call.id), run.id))
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
            live.events.decided(request, verdict)
            return verdict
        live.events.asked(request)
        self._give_slot(run, live)
        verdict = await run.approvals.wait(request, self._clock())
        if verdict.approved and run.is_past(self._clock()):
            verdict = Verdict(approved=False, why="its program was suspended for too long by then", by="nobody")
        live.events.decided(request, verdict)
        if verdict.approved:
            # Given up in the same moment: nothing is sent.
            await anyio.lowlevel.checkpoint_if_cancelled()
            live.approved = True
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
                said = f" {within_line(message, MAX_PROGRESS)}" if message else ""
                await observation.client.progress(f"{within_line(live.record.tool)}: {share}{said}")

        async def ask(question: Question) -> JsonObject:
            return await run.questions.put(live.call.id, question, self._clock())

        async def approve(request: ApprovalRequest) -> Verdict:
            return await self._approve(run, live, request)

        queued = round((self._clock() - live.record.began) * 1000)
        given = live.call.input if isinstance(live.call.input, str) else None
        live.events.started(live.record.tool, given, queued_ms=queued or None)
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
            code = None if completion.error is None else completion.error.code
            live.events.ended(live.record, code, self._clock())
            if run.state in ("running", "waiting"):
                run.settled.append(completion)
                run.change()
            self._give_slot(run, live)


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
