"""The facts in a recording about its program: its end, its calls, and the input of a saved program. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.catalog.serialize import read_catalog
from codemode_mcp.program_tests.comparison import without_positions
from codemode_mcp.program_tests.expectation import Failure, Snapshot
from codemode_mcp.replay.ending import recorded_outcome
from codemode_mcp.replay.requests import is_call, value_of
from codemode_mcp.replay.script import script_of
from codemode_mcp.saved_programs.saved_program import program_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.recordings.reader import Recording
    from codemode_mcp.replay.script import Asked

_SAVED = program_id("")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The facts of a recording that a test needs.

    Attributes:
        end: how the recorded run ended, and its calls.
        calls: the recorded calls to tools.
        names: the expressions by which programs call tools, by their ids.
        inputs: the inputs of the saved programs that the recorded program called, by their names.
    """

    end: Snapshot
    calls: tuple[Asked, ...]
    names: Mapping[str, str]
    inputs: Mapping[str, Any]

    def counts(self, unused: Sequence[Asked] = ()) -> dict[str, int]:
        """Return how often each tool is called, without the calls that a replay did not make."""
        counts = Counter(self.name(each) for each in self.calls)
        counts.subtract(self.name(each) for each in unused if _is_tool_call(each))
        return {name: count for name, count in counts.items() if count > 0}

    def name(self, call: Asked) -> str:
        """Return the expression by which programs call a tool."""
        return self.names.get(call.identity.name, call.identity.name)

    def spelled(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return counts of calls in which each tool is named as in the program, whichever of its names is written."""
        known = {name: name for name in self.names.values()}
        known |= {name.removeprefix("MCP."): name for name in self.names.values()}
        known |= self.names
        return {known.get(name, name): count for name, count in counts.items()}


def recorded_facts(recording: Recording) -> Recorded:
    """Return the facts of a recording.

    Raises:
        ValueError: it is damaged.
        ProgramError: its catalog is damaged.
    """
    calls = [each for each in script_of(recording).asked if is_call(each.request)]
    catalog = read_catalog(recording.catalog.text)
    names = {entry.id: entry.path for entry in (*catalog.index.by_id.values(), *catalog.toolset.entries)}
    inputs: dict[str, Any] = {}
    for each in calls:
        if each.identity.name.startswith(_SAVED):
            inputs.setdefault(each.identity.name.removeprefix(_SAVED), value_of(each.identity.given))
    of_tools = tuple(filter(_is_tool_call, calls))
    without_end = Recorded(Snapshot(), of_tools, names, inputs)
    end = recording.end
    if end is None:
        return without_end
    return Recorded(snapshot_of(recorded_outcome(end), without_end.counts()), of_tools, names, inputs)


def snapshot_of(outcome: Outcome, calls: dict[str, int]) -> Snapshot:
    """Return the end of a program as a snapshot."""
    error = None
    if outcome.status != "completed":
        error = Failure(outcome.code, without_positions(outcome.error))
    return Snapshot(outcome.value, tuple(outcome.outputs), calls, error)


def unmade_lines(recorded: Recorded, unused: Iterable[Asked]) -> tuple[str, ...]:
    """Return a line for each recorded call that a program did not make."""
    left = [each for each in unused if _is_tool_call(each)]
    return tuple(f"not called: {recorded.name(each)}({each.identity.given[:160]})" for each in left)


def _is_tool_call(asked: Asked) -> bool:
    return is_call(asked.request) and not asked.identity.name.startswith(_SAVED)
