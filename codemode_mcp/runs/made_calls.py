"""The calls of a run that may have had effects, for answers after which a model writes the program again.

A call counts if it was sent and is not repeatable. It does not count if its server has answered that it failed, because
then the right next step is usually to correct the call and to make it again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from codemode_mcp.calls.outcome import MadeCall
from declarations.untrusted_text import escape_line
from upstream_clients.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.calls.outcome import CallOutcome, CallRecord
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.sandbox.messages import Completion

MAX_TOOLS: Final = 20
"""Maximum number of tools that a text names."""

_ERROR: Final = re.compile(r'"isError"\s*:\s*true')
"""JSON without this text is no result with `isError`, and need not be parsed."""


class MadeCalls:
    """The calls of one run that may have had effects.

    Args:
        live: the calls of the run that have not ended, by number. It is read, not copied.
    """

    def __init__(self, live: Mapping[int, LiveCall]) -> None:
        self._live = live
        self._delivered: Counter[tuple[str, CallOutcome]] = Counter()
        self._undelivered: dict[int, tuple[str, CallOutcome]] = {}
        """Calls that have ended, and whose ends the program has not received yet. A store has them one by one."""

    def end(self, call: int, tool: str, outcome: CallOutcome) -> None:
        """Add a call that has ended."""
        self._undelivered[call] = tool, outcome

    def deliver(self, call: int) -> None:
        """Note that the program receives the end of a call."""
        ended = self._undelivered.pop(call, None)
        if ended is not None:
            self._delivered[ended] += 1

    def restore(self, delivered: Iterable[MadeCall]) -> None:
        """Set the calls whose ends the program had received in another process."""
        for tool, outcome, times in delivered:
            self._delivered[tool, outcome] += times

    def has_undelivered(self, call: int) -> bool:
        """Return True if a call is among those whose ends the program has not received yet."""
        return call in self._undelivered

    @property
    def delivered(self) -> tuple[MadeCall, ...]:
        """The calls whose ends the program has received."""
        return _listed(self._delivered)

    def __call__(self) -> tuple[MadeCall, ...]:
        """Return all calls, as they are now."""
        counts = self._delivered + Counter(self._undelivered.values())
        for live in self._live.values():
            record = live.record
            if not record.repeatable and (record.dispatched or (live.unawaited and not live.cancelled)):
                counts[record.tool, "outcome unknown" if live.cancelled else "in flight"] += 1
        return _listed(counts)


def added(made: Iterable[MadeCall], others: Iterable[tuple[str, CallOutcome | None]]) -> tuple[MadeCall, ...]:
    """Return made calls with further ones, each as its tool and its outcome; None for one that does not count."""
    counts: Counter[tuple[str, CallOutcome]] = Counter()
    for tool, outcome, times in made:
        counts[tool, outcome] += times
    for tool, found in others:
        if found is not None:
            counts[tool, found] += 1
    return _listed(counts)


def _listed(counts: Counter[tuple[str, CallOutcome]]) -> tuple[MadeCall, ...]:
    return tuple(MadeCall(*key, times) for key, times in counts.items())


def outcome_of(record: CallRecord, completion: Completion | None) -> CallOutcome | None:
    """Return the outcome of a call that has ended; None if it does not count.

    Args:
        completion: None if the call was given up.
    """
    if not record.dispatched or record.repeatable:
        return None
    if completion is None or record.is_unknown:
        return "outcome unknown"
    if completion.error is None:
        return None if is_error(completion.value) else "completed"
    if record.server_error is None:
        return "completed"  # only its answer was refused, for example because it is too large
    return "outcome unknown" if record.server_error[0] == INTERNAL_ERROR else None


def stored_outcome(completion: Completion) -> CallOutcome | None:
    """Return the outcome of a stored call that is not repeatable, from its end; None if it does not count."""
    if completion.error is None:
        return None if is_error(completion.value) else "completed"
    data = json.loads(completion.error.data)
    return "outcome unknown" if isinstance(data, dict) and data.get("dispatched") is True else None


def is_error(value: str) -> bool:
    """Return True for the JSON text of an MCP result with `isError`."""
    if _ERROR.search(value) is None:
        return False
    try:
        result = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(result, dict) and result.get("isError") is True


def made_text(made: Iterable[MadeCall]) -> str:
    """Return made calls as text for a model or a person."""
    every = list(made)
    shown = [
        f"{escape_line(tool)} ({f'{times} times, ' if times > 1 else ''}{outcome})"
        for tool, outcome, times in every[:MAX_TOOLS]
    ]
    left = sum(each.times for each in every[MAX_TOOLS:])
    return ", ".join(shown) + (f" and {left} more calls" if left else "")


def repeat_note(made: tuple[MadeCall, ...]) -> tuple[str, ...]:
    """Return a note about the calls of a failed program that the next program must not repeat."""
    if not made:
        return ()
    return (
        f"Already made, do not repeat: {made_text(made)}. Continue from there; only calls that change nothing may be "
        "made again.",
    )


def after_loss(made: tuple[MadeCall, ...] | None) -> str:
    """Say what to do about a suspended program that cannot be resumed.

    Args:
        made: its calls that may have had effects; None if they are not known.
    """
    if made is None:
        return "find out what its calls have changed before you start the program again"
    if not made:
        return "start the program again"
    return (
        f"do not start it again, because these calls were made: {made_text(made)}; write a program that continues "
        "from there"
    )
