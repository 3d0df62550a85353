"""The saved programs that have begun in a guest and have not ended.

The call of a saved program is answered as soon as its program begins. Its line in the list of calls and its events
cover the whole program, until the guest reports its end, or the run ends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import anyio.to_thread

from codemode_mcp.calls.saved_calls import program_error
from codemode_mcp.errors import CodeModeError
from codemode_mcp.sandbox.messages import Completion
from codemode_mcp.saved_programs.saved_program import program_id

if TYPE_CHECKING:
    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.events import CallEvents
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.calls.saved_calls import SavedCalls
    from codemode_mcp.sandbox.messages import ProgramEnd

_PREFIX: Final = program_id("")

SEARCHED_IN_LOOP: Final = 1000
"""A program of at most so many characters is searched for an error in the event loop, a longer one in a thread."""

DESCRIBE_SECONDS: Final = 1.0
"""Seconds of searches for the positions of errors in saved programs of one run."""


class Run(Protocol):
    """The part of a run that the description of an error needs.

    Attributes:
        describing: seconds that such descriptions have taken.
    """

    describing: float

    @property
    def context(self) -> CallContext: ...


def is_program(target: str) -> bool:
    """Return True for the id of a saved program."""
    return target.startswith(_PREFIX)


def begins_program(tool: str, completion: Completion | None) -> bool:
    """Return True if the answer to a call begins a saved program in the guest. `tool`: the id that was called."""
    return completion is not None and completion.error is None and is_program(tool)


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """A saved program that has begun."""

    record: CallRecord
    events: CallEvents

    def end(self, now: float, code: str | None, size: int = 0) -> None:
        """Write the end into the record, and report it. `code`: the error code; None for a completed program."""
        record = self.record
        record.ended, record.size = now, size
        record.status = "completed" if code is None else "failed"
        self.events.ended(record, code, now)


class OpenPrograms:
    """The open programs of one run, by the numbers of their calls."""

    def __init__(self) -> None:
        self._open: dict[int, OpenProgram] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def records(self) -> list[CallRecord]:
        """The records of the calls."""
        return [each.record for each in self._open.values()]

    def begin(self, record: CallRecord, events: CallEvents) -> None:
        """Add a program whose call was answered."""
        record.status, record.ended, record.size = "executing", None, 0
        self._open[record.id] = OpenProgram(record, events)

    def restore(self, record: CallRecord, events: CallEvents) -> None:
        """Add a program that another process has begun, unless it is known."""
        if record.id not in self._open:
            self.begin(record, events)

    def end(self, end: ProgramEnd, now: float) -> None:
        """End a program that the guest reports. An invented one is ignored."""
        opened = self._open.pop(end.target, None)
        if opened is not None:
            code = None if end.error is None else end.error.code or "nested_tool_failed"
            opened.end(now, code, max(0, end.bytes))

    def close(self, now: float) -> tuple[str, ...]:
        """End all programs, because their run has ended. Return the ids of their calls' tools."""
        ended = tuple(self._open.values())
        self._open.clear()
        for each in ended:
            each.end(now, "aborted")
        return tuple(each.record.tool for each in ended)


async def failure(saved: SavedCalls, run: Run, end: ProgramEnd) -> Completion:
    """Return the answer to the end of a program that has failed: the error for its caller."""
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
