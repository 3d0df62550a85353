"""One nested call of a run that has not ended, its limits, and saved programs that have not ended."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.runs.calls.host_calls import SavedCalls, program_error
from codemode_mcp.runs.state import UNSENT, CallEvent, CallState, advance_call
from codemode_mcp.sandbox.messages import Completion, ProgramEnd, ToolCall

if TYPE_CHECKING:
    from codemode_mcp.runs.calls.outcome import CallEvents, CallRecord
    from codemode_mcp.runs.run import Run
    from upstream_clients.eager import Scope


class LiveCall(Struct, eq=False):
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
        if self._news is not None:
            self._news.set()

    async def wait(self) -> None:
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


# The saved programs that have begun in a guest and have not ended.
#
# The call of a saved program is answered as soon as its program begins. Its line in the list of calls and its events
# cover the whole program, until the guest reports its end, or the run ends.


_PREFIX: Final = program_id("")

SEARCHED_IN_LOOP: Final = 1000
"""A program of at most so many characters is searched for an error in the event loop, a longer one in a thread."""

DESCRIBE_SECONDS: Final = 1.0
"""Seconds of searches for the positions of errors in saved programs of one run."""


def is_program(target: str) -> bool:
    return target.startswith(_PREFIX)


def begins_program(tool: str, completion: Completion | None) -> bool:
    return completion is not None and completion.error is None and is_program(tool)


class OpenPrograms:
    """The open programs of one run, by the numbers of their calls: the record of each, and the reporter of its end."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[CallRecord, CallEvents]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def records(self) -> list[CallRecord]:
        return [record for record, _ in self._open.values()]

    def begin(self, record: CallRecord, events: CallEvents) -> None:
        record.status, record.ended, record.size = "executing", None, 0
        self._open[record.id] = record, events

    def restore(self, record: CallRecord, events: CallEvents) -> None:
        """Add a program that another process has begun, unless it is known."""
        if record.id not in self._open:
            self.begin(record, events)

    def end(self, end: ProgramEnd, now: float) -> None:
        """End a program that the guest reports. An invented one is ignored."""
        if end.target in self._open:
            code = None if end.error is None else end.error.code or "nested_tool_failed"
            self._end(end.target, now, code, max(0, end.bytes))

    def close(self, now: float) -> None:
        for call in list(self._open):
            self._end(call, now, "aborted")

    def _end(self, call: int, now: float, code: str | None, size: int = 0) -> None:
        record, events = self._open.pop(call)
        record.ended, record.size = now, size
        record.status = "completed" if code is None else "failed"
        events.ended(record, code, now)


async def failure(saved: SavedCalls, run: Run, end: ProgramEnd) -> Completion:
    assert end.error is not None
    entry = run.context.catalog.get(program_id(end.name))
    compiled = None
    try:
        if entry is not None:
            compiled = await saved.compile(entry, run.context)
    except CodeModeError:
        pass  # another process has compiled it, and this one cannot
    began = time.perf_counter()
    # A program may fail again and again, and the search for a position takes time of this process.
    search = run.describing < DESCRIBE_SECONDS
    if search and compiled is not None and len(compiled.code) > SEARCHED_IN_LOOP:
        describe = partial(program_error, end.name, end.error, compiled, search=True)
        error = await anyio.to_thread.run_sync(describe)
    else:
        error = program_error(end.name, end.error, compiled, search=search)
    run.describing += time.perf_counter() - began
    return Completion(end.id, error=error, of_call=False)
