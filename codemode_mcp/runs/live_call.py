"""One nested call of a run that has not ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import anyio

from codemode_mcp.runs.state import UNSENT, advance_call

if TYPE_CHECKING:
    from codemode_mcp.calls.events import CallEvents
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.runs.state import CallEvent, CallState
    from codemode_mcp.sandbox.messages import ToolCall
    from upstream_clients.eager import Scope


@dataclass(slots=True, eq=False)
class LiveCall:
    """One call that has not ended.

    Attributes:
        state: the state by the table in `runs.state`. Only `advance` changes it.
        has_slot: True if the call counts in `Run.executing`. A call that waits for a person does not.
        recorded: True if a durable store has the call, or if the call need not wait for a store.
        executor: the process that sends the call or has sent it. If it is another process, that one stores its end.
        unawaited: True if the program has ended without awaiting the call.
        cancelled: True if the call was given up.
        start_reported: True if the start of the call was reported to the auditor.
        begins: True in the step of the event loop that begins the call.
        scope: the scope of the coroutine that executes the call; None before it begins.
        task: the handle of the task with which the server has answered, as text; empty without one.
        task_stored: True if a durable store has the task, so that a later process can follow it.
    """

    call: ToolCall
    record: CallRecord
    events: CallEvents
    state: CallState = "queued"
    has_slot: bool = False
    recorded: bool = False
    executor: Literal["here", "elsewhere"] = "here"
    unawaited: bool = False
    cancelled: bool = False
    start_reported: bool = False
    begins: bool = True
    scope: Scope | None = None
    task: str = ""
    task_stored: bool = False
    _news: anyio.Event | None = None
    """Set by `wake`. A call waits until it is recorded, or has a slot again."""

    def advance(self, event: CallEvent) -> None:
        """Change the state by the table of `runs.state`. Raises `IllegalTransition`."""
        self.state = advance_call(self.state, event)

    def admit(self) -> None:
        """Record that policy, arguments, hooks and people admit the call."""
        if self.state == "queued":
            self.advance("admit")
        if self.state == "ready" and self.recorded:
            self.advance("record")

    def note_recorded(self) -> None:
        """Record that a durable store has the call, or that the call need not wait for a store."""
        self.recorded = True
        if self.state == "ready":
            self.advance("record")
        self.wake()

    def wake(self) -> None:
        """Wake the task that executes the call."""
        if self._news is not None:
            self._news.set()

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        self._news = anyio.Event()
        await self._news.wait()

    @property
    def is_unsent(self) -> bool:
        """True if no tool has received the call, and none is about to receive it."""
        return self.state in UNSENT

    @property
    def is_left(self) -> bool:
        """True if a later process follows the task of the call when this one ends."""
        return self.task_stored and not self.cancelled

    def cancel(self) -> None:
        """Give the call up, and cancel it at its server."""
        if self.cancelled:
            return
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()
