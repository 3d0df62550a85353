"""The states of a run, of a nested call and of the custody of a run, as tables. Pure.

Every change of these states is decided here. Finishing, failing, cancelling and expiring race: the first one counts,
and the others get `IllegalTransition`. `may_send` decides whether this process may send a call now. That is the
question on which several processes must agree.
"""

from __future__ import annotations

from typing import Literal, TypeVar

State = TypeVar("State", bound=str)
Event = TypeVar("Event", bound=str)

# a run

RunState = Literal["running", "waiting", "completed", "failed", "expired", "aborted"]

RunEvent = Literal["suspend", "resume", "complete", "fail", "expire", "abort"]

TRANSITIONS: dict[RunState, dict[RunEvent, RunState]] = {
    "running": {"suspend": "waiting", "complete": "completed", "fail": "failed", "abort": "aborted"},
    "waiting": {"resume": "running", "fail": "failed", "expire": "expired", "abort": "aborted"},
    "completed": {},
    "failed": {},
    "expired": {},
    "aborted": {},
}
"""The next state for each state and event. Missing events are illegal."""

ENDED: frozenset[RunState] = frozenset(state for state, events in TRANSITIONS.items() if not events)


class IllegalTransition(Exception):
    """An event that is illegal in a state.

    Attributes:
        ended: True if a run had already ended, so that the event came too late.
    """

    def __init__(self, state: str, event: str, of: str = "run") -> None:
        super().__init__(f"a {of} that is {state} cannot {event}")
        self.state = state
        self.event = event
        self.ended = of == "run" and state in ENDED


def _next(table: dict[State, dict[Event, State]], state: State, event: Event, of: str) -> State:
    try:
        return table[state][event]
    except KeyError:
        raise IllegalTransition(state, event, of) from None


def advance(state: RunState, event: RunEvent) -> RunState:
    """Return the state after `event`.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    return _next(TRANSITIONS, state, event, "run")


# a nested call

CallState = Literal["queued", "awaiting_approval", "ready", "recorded", "sending", "dispatched", "settled", "abandoned"]
"""The state of a nested call in this process.

`queued`: nothing is decided yet. `awaiting_approval`: a person is asked. `ready`: policy, arguments, hooks and people
admit the call. `recorded`: the call is ready, and a durable store has it. `sending`: this process is recording in the
store that it sends the call. `dispatched`: the tool may have received the call, from this process or another one.
`settled`: the call has ended. `abandoned`: the call was given up.
"""

CallEvent = Literal["ask", "approve", "admit", "record", "claim", "retract", "send", "settle", "abandon"]

CALL_TRANSITIONS: dict[CallState, dict[CallEvent, CallState]] = {
    "queued": {"ask": "awaiting_approval", "admit": "ready", "settle": "settled", "abandon": "abandoned"},
    "awaiting_approval": {"approve": "ready", "settle": "settled", "abandon": "abandoned"},
    "ready": {"record": "recorded", "send": "dispatched", "settle": "settled", "abandon": "abandoned"},
    "recorded": {"claim": "sending", "send": "dispatched", "settle": "settled", "abandon": "abandoned"},
    "sending": {"retract": "recorded", "send": "dispatched", "settle": "settled", "abandon": "abandoned"},
    # A server that needs answers first is sent the same call again, with the answers.
    "dispatched": {"send": "dispatched", "settle": "settled", "abandon": "abandoned"},
    "settled": {},
    "abandoned": {},
}
"""The next state of a call for each state and event. Missing events are illegal.

`record`: a durable store has the call. `claim`: this process asks the store for the permission to send the call.
`retract`: the store has refused it or does not answer, so nothing is sent.
"""

UNSENT: frozenset[CallState] = frozenset(("queued", "awaiting_approval", "ready", "recorded"))
"""States in which no tool has received the call, and none is about to receive it."""


def advance_call(state: CallState, event: CallEvent) -> CallState:
    """Return the state of a call after `event`.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    return _next(CALL_TRANSITIONS, state, event, "call")


# the custody of a run

Custody = Literal["local", "stored", "needs_checkpoint", "fallback", "lost", "over"]
"""The knowledge of this process about which process and which store have a run.

`local`: only this process has the run. `stored`: a durable store has the run, with all calls that must not be sent
twice. `needs_checkpoint`: a durable store has the run, but some calls that must not be sent twice were made since.
`fallback`: the run is suspended in this process only, because the durable store did not answer. `lost`: another process
has the run, or will have it. `over`: the end of the run is stored.
"""

CustodyEvent = Literal["store", "unstore", "call", "checkpoint", "lose", "end"]

CUSTODY_TRANSITIONS: dict[Custody, dict[CustodyEvent, Custody]] = {
    "local": {"store": "stored", "call": "local", "lose": "lost", "end": "over"},
    "stored": {
        "store": "stored",
        "unstore": "fallback",
        "call": "needs_checkpoint",
        "checkpoint": "stored",
        "lose": "lost",
        "end": "over",
    },
    "needs_checkpoint": {
        # This event comes before the write of the suspension, which may fail. So it does not count as a checkpoint.
        "store": "needs_checkpoint",
        "unstore": "fallback",
        "call": "needs_checkpoint",
        "checkpoint": "stored",
        "lose": "lost",
        "end": "over",
    },
    "fallback": {"call": "fallback", "lose": "lost", "end": "over"},
    "lost": {"call": "lost", "checkpoint": "lost", "lose": "lost", "end": "lost"},
    "over": {"call": "over", "lose": "over", "end": "over"},
}
"""The next custody for each custody and event. Missing events are illegal.

`store`: the run is about to be stored for a suspension, and calls wait for the store from now on. `unstore`: the run
could not be stored. `call`: the run has made a call that must not be sent twice.
"""

DURABLE: frozenset[Custody] = frozenset(("stored", "needs_checkpoint", "lost"))
"""Custodies in which a durable store has the run, and the run is not over."""


def advance_custody(custody: Custody, event: CustodyEvent) -> Custody:
    """Return the custody after `event`.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    return _next(CUSTODY_TRANSITIONS, custody, event, "custody")


Permission = Literal["send", "claim", "wait", "never"]
"""Permission to send a call, for this process and now.

`send`: now. `claim`: after the store has recorded that this process sends the call. `wait`: after the store has the
call. `never`: another process may send it.
"""


def may_send(custody: Custody, state: CallState, *, recorded: bool, repeatable: bool) -> Permission:
    """Decide whether this process may send a call now.

    Args:
        recorded: True if a durable store has the call.
        repeatable: True if the call may be sent twice without harm.

    Raises:
        IllegalTransition: the call is in a state in which it cannot be sent.
    """
    if "send" not in CALL_TRANSITIONS[state]:
        raise IllegalTransition(state, "send", "call")
    if state in ("sending", "dispatched"):
        return "send"  # the store has recorded that this process sends it, or it was sent already
    if custody == "lost":
        return "never"
    if custody not in DURABLE:
        return "send"  # no other process can have the run
    if recorded:
        return "claim"
    # The store does not have the call. If this process died, another one would continue the run from before the call,
    # and would make the call again.
    return "send" if repeatable else "wait"
