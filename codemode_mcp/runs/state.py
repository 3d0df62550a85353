"""The life of a run, as data. Pure. Whatever affects the state of a run is decided here.

Finishing, failing, cancelling and expiring race; the first to get here wins, and the others are told that the run has
already ended.
"""

from __future__ import annotations

from typing import Literal

RunState = Literal["running", "waiting", "completed", "failed", "expired", "aborted"]

RunEvent = Literal["park", "resume", "complete", "fail", "expire", "abort"]

TRANSITIONS: dict[RunState, dict[RunEvent, RunState]] = {
    "running": {"park": "waiting", "complete": "completed", "fail": "failed", "abort": "aborted"},
    "waiting": {"resume": "running", "fail": "failed", "expire": "expired", "abort": "aborted"},
    "completed": {},
    "failed": {},
    "expired": {},
    "aborted": {},
}
"""Event by event, what each state becomes. What is not here may not happen."""

ENDED: frozenset[RunState] = frozenset(state for state, events in TRANSITIONS.items() if not events)


class IllegalTransition(Exception):
    """An event that the state has no place for.

    Attributes:
        ended: the run has already ended, so that the event merely came too late.
    """

    def __init__(self, state: RunState, event: RunEvent) -> None:
        super().__init__(f"a run that is {state} cannot {event}")
        self.state: RunState = state
        self.event: RunEvent = event
        self.ended = state in ENDED


def advance(state: RunState, event: RunEvent) -> RunState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None
