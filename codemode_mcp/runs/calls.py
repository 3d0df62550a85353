"""The nested calls of a run: queued, begun, carried to their tools, ended.

Each call under way is a task of the manager's group. What settles is left with the run, for its driver to deliver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from codemode_mcp.bridge import Completion, GuestError, json_text
from codemode_mcp.outcome import CallRecord
from codemode_mcp.runs.run import LiveCall

if TYPE_CHECKING:
    from collections.abc import Callable

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
    ) -> None:
        self._dispatcher = dispatcher
        self._settings = settings
        self._spawn = spawn
        self._clock = clock

    def apply(self, settings: CodeModeSettings) -> None:
        """See `RunManager.apply`."""
        self._settings = settings

    def accept(self, run: Run, call: ToolCall, now: float) -> None:
        """Begin a call, or queue it; what there is no room for is refused."""
        record = CallRecord(call.id, call.target, now)
        entry = run.context.catalog.get(call.target)
        if entry is not None:
            record.repeatable = entry.repeatable
            record.read_only = entry.effects.read_only
        live = LiveCall(call, record)
        if run.executing < self._settings.max_pending_tool_calls:
            run.calls[call.id] = live
            self._begin(run, live)
        elif len(run.queue) < self._settings.max_queued_tool_calls:
            run.calls[call.id] = live
            run.queue.append(live)
        else:
            error = GuestError(
                f"too many calls at once: {run.executing} are under way and {len(run.queue)} are queued; "
                "await some before making more",
                name="ToolCallError",
                code="too_many_pending_tool_calls",
                data=json_text({"tool": call.target, "dispatched": False, "repeatable": record.repeatable}),
            )
            run.settled.append(Completion(call.id, error=error))

    def _begin(self, run: Run, live: LiveCall) -> None:
        run.executing += 1
        self._spawn(self._carry, run, live)

    async def _carry(self, run: Run, live: LiveCall) -> None:
        completion = None

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            observation = run.observation
            if observation is not None and observation.client is not None:
                share = _number(progress) if total is None else f"{_number(progress)}/{_number(total)}"
                await observation.client.progress(f"{live.record.tool}: {share}{f' {message}' if message else ''}")

        async def ask(question: Question) -> JsonObject:
            return await run.questions.put(live.call.id, question, self._clock())

        try:
            with live.scope:
                # One call of a run begins in a round of the event loop: checking its arguments takes time that others
                # need too.
                await run.pace.acquire()
                pause = REFUSED_PAUSE if run.refused > MANY_REFUSED else 0.0
                asyncio.get_running_loop().call_later(pause, run.pace.release)
                # Given up before it began: nothing is sent.
                await anyio.lowlevel.checkpoint_if_cancelled()
                completion = await self._dispatcher.call(live.call, run.context, live.record, on_progress, ask)
        finally:
            run.executing -= 1
            run.calls.pop(live.call.id, None)
            run.recent.append(live.record)
            if not live.record.dispatched:
                run.refused += 1
            if completion is None:
                live.record.status = "failed"
                live.record.ended = self._clock()
                completion = _cancelled(live)
            if run.state in ("running", "waiting"):
                run.settled.append(completion)
                run.change()
            if run.queue:
                self._begin(run, run.queue.popleft())


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
