"""The expectation of a test, the facts in its recording, and the comparison of both. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from codemode_mcp.base.strict_json import json_text, parse_json
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.catalog.serialize import read_catalog
from codemode_mcp.extensions.program_tools.replay.ending import recorded_outcome
from codemode_mcp.extensions.program_tools.replay.script import Asked, differences, is_call, script_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.audit.recordings.format import Recording
    from codemode_mcp.runs.calls.outcome import Outcome


# The file with what a test expects, beside its recording.
#
# The file `report.first.expect.json` belongs to the recording `report.first.recording.jsonl`. All members are optional:
#
# - `input`: the input of the saved program. Without it, the test uses the recorded input.
# - `result`: a value that the result must contain: objects may have more members than these, lists may not.
# - `calls`: how often each of these tools is called. `{"MCP.tracker.listIssues": 2}`
# - `error`: a part of the error with which the program must fail.
# - `loose`: true to answer calls by their tool alone, whatever their arguments are.
# - `snapshot`: what `--update` has written. It replaces the recorded result, outputs and calls.


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 160
"""Characters of a value that are shown."""

Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class ExpectationError(Exception):
    """Error for a text that is no expectation. The message is for the user."""


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """The error of a program that failed, without positions."""

    code: str
    message: str


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a program and its calls, compared exactly.

    Attributes:
        calls: how often each tool is called.
        error: None if the program completed.
    """

    result: Any = None
    outputs: tuple[dict[str, Any], ...] = ()
    calls: dict[str, Count] = msgspec.field(default_factory=dict)
    error: Failure | None = None


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file. The docstring of this module has the members."""

    input: dict[str, Any] | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    calls: dict[str, Count] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    loose: bool = False
    snapshot: Snapshot | UnsetType = UNSET

    @property
    def is_empty(self) -> bool:
        return self == Expectation()


NOTHING = Expectation()
"""The expectation of a recording without a file."""


def read_expectation(text: str) -> Expectation:
    """Return the expectation of a file.

    Raises:
        ExpectationError: the text is no JSON, or has other members.
    """
    try:
        found = msgspec.convert(parse_json(text), Expectation)
    except msgspec.ValidationError as error:
        raise ExpectationError(f"{error}; the members are input, result, calls, error and loose") from None
    except (ValueError, RecursionError) as error:
        raise ExpectationError(f"this is not JSON: {error}") from None
    if found.result is not UNSET and found.error is not UNSET:
        raise ExpectationError("it expects both a result and an error; keep one of them")
    return found


def written(expectation: Expectation) -> str:
    text = json.dumps(msgspec.to_builtins(expectation), ensure_ascii=False, indent=2) + "\n"
    # A result may have lone surrogates, which UTF-8 cannot encode.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def missing_parts(expected: Any, actual: Any, path: str = "result") -> list[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = []
        for key, value in expected.items():
            inner = f"{path}.{key}" if key.isidentifier() else f"{path}[{json_text(key)}]"
            if key not in actual:
                found.append(f"{inner}: expected {_shown(value)}, there is no such member")
            else:
                found += missing_parts(value, actual[key], inner)
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: expected {_items(expected)}, got {_items(actual)}: {_shown(actual)}"]
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for index, (old, new) in pairs for line in missing_parts(old, new, f"{path}[{index}]")]
    # In Python, True equals 1.
    if isinstance(expected, bool) == isinstance(actual, bool) and expected == actual:
        return []
    return [f"{path}: expected {_shown(expected)}, got {_shown(actual)}"]


def _items(values: list[Any]) -> str:
    return f"{len(values)} item{'' if len(values) == 1 else 's'}"


def _shown(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def wrong_counts(expected: Mapping[str, int], actual: Mapping[str, int]) -> list[str]:
    wrong = [(tool, count) for tool, count in expected.items() if actual.get(tool, 0) != count]
    return [f"{tool}: expected {_times(count)}, got {_times(actual.get(tool, 0))}" for tool, count in wrong]


def _times(count: int) -> str:
    return "no call" if count == 0 else f"{count} call{'' if count == 1 else 's'}"


_LIMITS = frozenset({"timeout", "memory_limit_exceeded", "output_limit_exceeded"})
"""Codes of errors whose messages have figures of the host."""

_POSITION = re.compile(r"(?:cell\.[jt]s|programs/[^\s:()]+\.[jt]s)(?::\d+)+")


class Seen(Struct, frozen=True):
    """The behaviour of a program in a test.

    Attributes:
        end: how it ended, and its calls.
        diverged: lines about a call that was not recorded; such a program did not come further.
        unmade: lines about recorded calls that the program did not make.
        error: the whole error of a program that failed.
    """

    end: Snapshot
    diverged: tuple[str, ...] = ()
    unmade: tuple[str, ...] = ()
    error: str = ""


def without_positions(message: str) -> str:
    """Return the first line of an error without positions in programs, which change with every edit."""
    return _POSITION.sub("<position>", message.split("\n", 1)[0])


def problems(expectation: Expectation, recorded: Snapshot, seen: Seen) -> list[str]:
    """Return lines about all that is not as expected; none if the test has passed.

    Args:
        recorded: the end of the recorded run.
    """
    if seen.diverged:
        return [*seen.diverged, "If the program is right, record it again: see codemode-mcp run --record."]
    old, new = (recorded if expectation.snapshot is UNSET else expectation.snapshot), seen.end
    source = "recorded" if expectation.snapshot is UNSET else "in the snapshot"
    found: list[str] = []
    if expectation.calls is not UNSET:
        wrong = wrong_counts(expectation.calls, new.calls)
        found += ["the calls are not the expected ones", *_indented(wrong)] if wrong else []
    elif old.calls != new.calls:
        every = dict.fromkeys([*old.calls, *new.calls])
        wrong = wrong_counts({tool: old.calls.get(tool, 0) for tool in every}, new.calls)
        found += [f"the calls are not those {source}", *_indented(wrong), *_indented(list(seen.unmade))]
    found += _end_problems(expectation, old, seen, source)
    return found


def _end_problems(expectation: Expectation, old: Snapshot, seen: Seen, source: str) -> list[str]:
    new = seen.end
    shown = [] if new.error is None else f"{new.error.code}: {seen.error or new.error.message}".split("\n")
    if expectation.error is not UNSET:
        if new.error is None:
            return [f"the program completed, and it should fail with {expectation.error!r}"]
        is_expected = expectation.error in f"{new.error.code}: {seen.error or new.error.message}"
        return [] if is_expected else ["the error is not the expected one", *_indented(["got:", *shown])]
    if expectation.result is not UNSET:
        if new.error is not None:
            return ["the program failed, and a result is expected", *_indented(shown)]
        missing = missing_parts(expectation.result, new.result)
        return ["the result is not the expected one", *_indented(missing)] if missing else []
    if not _same_error(old.error, new.error):
        before = "it completed" if old.error is None else f"{old.error.code}: {old.error.message}"
        end = "completed" if new.error is None else "failed"
        return [f"the program {end}", f"  {source}: {before}", *_indented(["now:", *shown] if shown else [])]
    found: list[str] = []
    if result := differences(old.result, new.result):
        found += [f"the result differs from that {source}", *_indented(list(result))]
    if outputs := differences(list(old.outputs), list(new.outputs)):
        found += [f"the outputs differ from those {source}", *_indented(list(outputs))]
    return found


def _same_error(old: Failure | None, new: Failure | None) -> bool:
    """Return True if two errors are the same. The words about a limit of the host need not be."""
    if old is None or new is None or old.code not in _LIMITS:
        return old == new
    return old.code == new.code


def changes(expectation: Expectation, recorded: Snapshot, new: Snapshot) -> list[str]:
    old = recorded if expectation.snapshot is UNSET else expectation.snapshot
    parts = (
        ("result", old.result, new.result),
        ("outputs", list(old.outputs), list(new.outputs)),
        ("calls", old.calls, new.calls),
        ("error", old.error, new.error),
    )
    return [name for name, before, after in parts if before != after]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# The facts in a recording about its program: its end, its calls, and the input of a saved program.


_SAVED = program_id("")


class Recorded(Struct, frozen=True):
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
    error = None
    if outcome.status != "completed":
        error = Failure(outcome.code, without_positions(outcome.error))
    return Snapshot(outcome.value, tuple(outcome.outputs), calls, error)


def unmade_lines(recorded: Recorded, unused: Iterable[Asked]) -> tuple[str, ...]:
    left = [each for each in unused if _is_tool_call(each)]
    return tuple(f"not called: {recorded.name(each)}({each.identity.given[:160]})" for each in left)


def _is_tool_call(asked: Asked) -> bool:
    return is_call(asked.request) and not asked.identity.name.startswith(_SAVED)
