"""The transition table and the store, under every order of events."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.runs.state import (
    CALL_TRANSITIONS,
    CUSTODY_TRANSITIONS,
    DURABLE,
    ENDED,
    TRANSITIONS,
    UNSENT,
    CallEvent,
    CallState,
    Custody,
    CustodyEvent,
    IllegalTransition,
    RunEvent,
    RunState,
    advance,
    advance_call,
    advance_custody,
    may_send,
)
from codemode_mcp.runs.store import Claim, EndedRun, MemoryStore, SuspendedRun

EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)


@given(st.lists(st.sampled_from(EVENTS)))
def test_a_run_ends_once_and_nothing_changes_it_afterwards(events: list[RunEvent]) -> None:
    state: RunState = "running"
    for event in events:
        try:
            after = advance(state, event)
        except IllegalTransition as illegal:
            assert illegal.ended == (state in ENDED)  # noqa: PT017  # refusing is one of two right answers
            continue
        assert state not in ENDED
        state = after


CALL_EVENTS: tuple[CallEvent, ...] = get_args(CallEvent)
CUSTODY_EVENTS: tuple[CustodyEvent, ...] = get_args(CustodyEvent)


TABLES: dict[str, tuple[Any, Any, Any, str]] = {
    "run": (TRANSITIONS, RunState, RunEvent, "running"),
    "call": (CALL_TRANSITIONS, CallState, CallEvent, "queued"),
    "custody": (CUSTODY_TRANSITIONS, Custody, CustodyEvent, "local"),
}


@pytest.mark.parametrize(("table", "states", "events", "first"), TABLES.values(), ids=TABLES)
def test_a_table_has_all_states_and_events_and_reaches_them(table: Any, states: Any, events: Any, first: str) -> None:
    assert set(table) == set(get_args(states))
    assert {event for known in table.values() for event in known} == set(get_args(events))
    reached = {first}
    for _ in table:
        reached |= {after for state in reached for after in table[state].values()}
    assert reached == set(get_args(states))


@given(st.lists(st.tuples(st.sampled_from(CALL_EVENTS), st.booleans())))
def test_a_call_ends_once_and_is_never_unsent_again(events: list[tuple[CallEvent, bool]]) -> None:
    state: CallState = "queued"
    was_sent = ended = False
    for event, _ in events:
        try:
            state = advance_call(state, event)
        except IllegalTransition as illegal:
            assert not illegal.ended  # noqa: PT017  # refusing is one of two right answers
            continue
        assert not ended
        ended = state in ("settled", "abandoned")
        was_sent = was_sent or state == "dispatched"
        assert not (was_sent and state in UNSENT)


@given(st.lists(st.sampled_from(CUSTODY_EVENTS)))
def test_a_run_that_another_process_has_does_not_come_back(events: list[CustodyEvent]) -> None:
    custody: Custody = "local"
    lost = False
    for event in events:
        try:
            custody = advance_custody(custody, event)
        except IllegalTransition:
            continue
        assert not (lost and custody != "lost")
        lost = custody == "lost"


@given(
    st.sampled_from(get_args(Custody)),
    st.sampled_from(("ready", "recorded", "sending", "dispatched")),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_sent_that_a_crash_would_make_unknown_and_nothing_for_another_process(
    custody: Custody, state: CallState, recorded: bool, repeatable: bool
) -> None:
    permission = may_send(custody, state, recorded=recorded, repeatable=repeatable)
    claimed = state in ("sending", "dispatched")
    if custody == "lost" and not claimed:
        assert permission == "never"
    elif custody in DURABLE and not claimed and not repeatable:
        assert permission == ("claim" if recorded else "wait")
    elif custody not in DURABLE:
        assert permission == "send"


@pytest.mark.parametrize("state", ["queued", "awaiting_approval", "settled", "abandoned"])
def test_a_call_that_is_not_decided_or_over_cannot_be_sent(state: CallState) -> None:
    with pytest.raises(IllegalTransition):
        may_send("local", state, recorded=False, repeatable=True)


LIMITS = CodeModeSettings(max_suspended_runs=4, max_suspended_runs_per_owner=3, snapshot_ttl_seconds=10)
NAMES = st.sampled_from([f"run{n}" for n in range(6)])
OWNERS = st.sampled_from(["ann", "bob"])


def finished(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, str | None]:
    """The result of a coroutine that never waits, as nothing in memory has to; or the code it is refused with."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value, None
    except ProgramError as error:
        return None, error.code
    raise AssertionError("a store in memory has waited")


class StoreMachine(RuleBasedStateMachine):
    """`MemoryStore` against a model: what is suspended, claimed and ended, and until when."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = MemoryStore(LIMITS, lambda: self.now)
        self.suspended: dict[str, tuple[str, float]] = {}
        self.claimed: set[str] = set()
        self.ended: dict[str, tuple[str, float]] = {}
        self.swept: dict[str, str] = {}

    @rule(name=NAMES, owner=OWNERS)
    def suspend(self, name: str, owner: str) -> None:
        if name in self.suspended and name not in self.claimed:
            return  # only the claimer of a run suspends it again
        if name in self.ended or name in self.swept:
            return  # ids are never used again
        owner = self.suspended[name][0] if name in self.suspended else owner
        run = SuspendedRun(name, owner, b"", "", "yield", self.now, self.now + LIMITS.snapshot_ttl_seconds)
        alive = {k: v for k, v in self.suspended.items() if v[1] > self.now or k in self.claimed}
        own = sum(1 for other, _ in alive.values() if other == owner)
        full = name not in self.suspended and (own >= 3 or len(alive) >= 4)
        _, refused = finished(self.store.suspend(run))
        assert refused == ("too_many_pending_tool_calls" if full else None)
        if not full:
            self.suspended[name] = (owner, run.expires)
            self.claimed.discard(name)

    @rule(name=NAMES, owner=OWNERS)
    def claim(self, name: str, owner: str) -> None:
        found, refused = finished(self.store.claim(name, owner))
        ended, suspended = self.ended.get(name), self.suspended.get(name)
        if ended is not None and ended[0] == owner and ended[1] > self.now:
            assert isinstance(found, EndedRun)
        elif suspended is not None and suspended[0] == owner and name not in self.claimed and suspended[1] > self.now:
            assert isinstance(found, Claim)
            self.claimed.add(name)
        elif suspended is not None and suspended[0] == owner:
            assert refused == ("invalid_input" if name in self.claimed else "snapshot_expired")
        else:
            assert refused == ("snapshot_expired" if self.swept.get(name) == owner else "invalid_input")

    @rule(name=NAMES, seconds=st.floats(0, 30))
    def prolong(self, name: str, seconds: float) -> None:
        finished(self.store.prolong(name, self.now + seconds))
        owner, until = self.suspended.get(name, ("", 0.0))
        if until > self.now:
            self.suspended[name] = owner, max(until, self.now + seconds)

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        if name in self.claimed:
            finished(self.store.release(name, self.suspended[name][0]))
            self.claimed.discard(name)

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        if name in self.claimed:
            owner, _ = self.suspended.pop(name)
            self.claimed.discard(name)
            expires = self.now + LIMITS.snapshot_ttl_seconds
            finished(self.store.end(EndedRun(name, owner, "outcome", 10, expires)))
            self.ended[name] = (owner, expires)

    @rule(seconds=st.floats(0, 12))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        gone = set(finished(self.store.sweep())[0])
        expected = {k for k, (_, until) in self.suspended.items() if until <= self.now and k not in self.claimed}
        assert gone == expected
        for name in gone:
            self.swept[name] = self.suspended.pop(name)[0]

    @invariant()
    def what_is_said_of_the_store_is_true(self) -> None:
        assert f"{len(self.suspended)} suspended" in repr(self.store)


TestStore = StoreMachine.TestCase


def test_ends_are_bounded_in_number_and_bytes() -> None:
    store = MemoryStore(LIMITS, lambda: 0.0)
    for n in range(store.MAX_ENDED + 10):
        finished(store.end(EndedRun(f"run{n}", "ann", n, 1, 10.0)))
    assert finished(store.claim("run0", "ann")) == (None, "invalid_input")
    finished(store.end(EndedRun("large", "ann", 0, store.MAX_ENDED_BYTES, 10.0)))
    assert "1 ended" in repr(store)


@pytest.mark.parametrize(("owner", "share"), [("stdio:1000:file", 40), ('["token", "ada"]', 10)], ids=["stdio", "http"])
async def test_one_of_many_owners_has_a_share_of_the_suspended_programs(owner: str, share: int) -> None:
    store = MemoryStore(CodeModeSettings(max_suspended_runs=40), lambda: 0.0)
    for number in range(share):
        await store.suspend(SuspendedRun(f"run {number}", owner, b"", "", "yield", 0.0, 10.0))
    with pytest.raises(ProgramError, match=f"but {share} programs of yours are suspended already"):
        await store.suspend(SuspendedRun("one more", owner, b"", "", "yield", 0.0, 10.0))
