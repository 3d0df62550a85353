"""The progress of a run in this process, from its events: a line with the number of calls, and a trace. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.audit.timeline import duration, trace_of
from codemode_mcp.audit.trajectory import document_of
from codemode_mcp.control.display import columns, cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.audit.events import Event
    from codemode_mcp.audit.redaction import Inputs
    from codemode_mcp.audit.timeline import Trace

MAX_EVENTS: Final = 200_000
"""Maximum number of events that are kept for a trace. Further events are counted as lost."""

MAX_INPUTS: Final = 64 * 1024 * 1024
"""Maximum number of characters of inputs that are kept for a trace."""


class Progress:
    """The numbers of nested calls of a run in each state.

    Args:
        called: maps the id of a tool to the expression with which a program calls this tool.
    """

    def __init__(self, called: Callable[[str], str] = str) -> None:
        self._called = called
        self._running: dict[str, tuple[str, float]] = {}
        """The tool and start time of each running call, by the id of the call, in the order of their start."""
        self._asked: set[str] = set()
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        return f"<Progress: {len(self._running)} running, {self.done} done, {self.failed} failed>"

    @property
    def begun(self) -> int:
        """Return the number of calls that have left the queue."""
        return len(self._running) + self.done + self.failed

    def listen(self, event: Event) -> None:
        """Update the counts from an event. Pass this method to an auditor as a listener."""
        match event.kind:
            case "call_started":
                self._running[event.id] = str(event.fields.get("tool", "")), event.time
            case "call_asked":
                self._asked.add(event.id)
            case "call_decided":
                self._asked.discard(event.id)
            case "call_ended" if self._running.pop(event.id, None) is not None:
                self._asked.discard(event.id)
                if event.fields.get("status") == "completed":
                    self.done += 1
                else:
                    self.failed += 1

    def line(self, now: float, width: int, made: int = 0) -> str:
        """Return a line such as `3 running, 41 done, 1 failed, 12 queued · MCP.github.listIssues 1.2 s`.

        The last part is the call that has run for the longest time. The line is empty before the first call.

        Args:
            now: Unix seconds.
            width: largest number of columns.
            made: number of all calls that the program has made, including queued ones.
        """
        running = [each for call, each in self._running.items() if call not in self._asked]
        counts = {
            "running": len(running),
            "waiting for approval": len(self._asked),
            "done": self.done,
            "failed": self.failed,
            "queued": max(0, made - self.begun),
        }
        text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if running:
            tool, since = running[0]
            took = f" {duration(round(max(0.1, now - since), 1))}"
            room = width - columns(text) - len(took) - 3
            name = cut(self._called(tool), max(0, room))
            while name and columns(name) > room:
                name = cut(name[:-2], room)
            if room >= 12:
                text += f" · {name}{took}"
        return text if columns(text) <= width else cut(text, width)


class Record:
    """The events of one run, kept for its trace."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._run: str | None = None
        self._inputs = 0
        self._lost = 0

    def __repr__(self) -> str:
        return f"<Record: {len(self._events)} events>"

    def listen(self, event: Event) -> None:
        """Keep an event. Pass this method to an auditor as a listener."""
        if event.kind == "run_started":
            self._run = event.id
        size = len(event.inputs or "")
        if len(self._events) >= MAX_EVENTS or self._inputs + size > MAX_INPUTS:
            self._lost += 1
            return
        self._inputs += size
        self._events.append(event)

    def trace(self, inputs: Inputs, redact: Callable[[str], str]) -> Trace | None:
        """Return the trace of the run, or None if no run has started.

        The trace is the same as one that is read from a trajectory.
        """
        if self._run is None:
            return None
        documents = [document_of(event, inputs, redact) for event in self._events]
        if self._lost:
            documents.append({"time": self._events[-1].time, "kind": "lost", "events": self._lost})
        return trace_of(self._run, documents)
