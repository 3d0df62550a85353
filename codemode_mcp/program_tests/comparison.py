"""The comparison of what a saved program did with what is expected of it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET

from codemode_mcp.program_tests.expectation import Snapshot, missing_parts, wrong_counts
from codemode_mcp.replay.divergence import differences

if TYPE_CHECKING:
    from codemode_mcp.program_tests.expectation import Expectation, Failure

_LIMITS = frozenset({"timeout", "memory_limit_exceeded", "output_limit_exceeded"})
"""Codes of errors whose messages have figures of the host."""

_POSITION = re.compile(r"(?:cell\.[jt]s|programs/[^\s:()]+\.[jt]s)(?::\d+)+")


@dataclass(frozen=True, slots=True)
class Seen:
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
    """Return lines about the result, the outputs and the error."""
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
    """Return the names of the parts that a new snapshot changes."""
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
