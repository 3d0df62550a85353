"""The transition table and the store, under every order of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.state import ENDED, TRANSITIONS, IllegalTransition, RunEvent, RunState, advance
from codemode_mcp.runs.store import Claim, EndedRun, MemoryStore, ParkedRun
from codemode_mcp.settings import CodeModeSettings

if TYPE_CHECKING:
    from collections.abc import Coroutine

EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)


def test_the_table_has_every_state_and_only_states() -> None:
    assert set(TRANSITIONS) == set(get_args(RunState))
    assert {state for events in TRANSITIONS.values() for state in events.values()} <= set(TRANSITIONS)


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


def test_every_state_can_be_reached_from_the_start() -> None:
    reached: set[RunState] = {"running"}
    for _ in TRANSITIONS:
        reached |= {after for state in reached for after in TRANSITIONS[state].values()}
    assert reached == set(TRANSITIONS)


LIMITS = CodeModeSettings(max_suspended_runs=4, max_suspended_runs_per_owner=3, snapshot_ttl_seconds=10)
NAMES = st.sampled_from([f"run{n}" for n in range(6)])
OWNERS = st.sampled_from(["ann", "bob"])


def at_once(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, str | None]:
    """The result of a coroutine that never waits, as nothing in memory has to; or the code it is refused with."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value, None
    except ProgramError as error:
        return None, error.code
    raise AssertionError("a store in memory has waited")


class StoreMachine(RuleBasedStateMachine):
    """`MemoryStore` against a model: what is parked, claimed and ended, and until when."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = MemoryStore(LIMITS, lambda: self.now)
        self.parked: dict[str, tuple[str, float]] = {}
        self.claimed: set[str] = set()
        self.ended: dict[str, tuple[str, float]] = {}
        self.swept: dict[str, str] = {}

    @rule(name=NAMES, owner=OWNERS)
    def park(self, name: str, owner: str) -> None:
        if name in self.parked and name not in self.claimed:
            return  # only whoever has claimed a run parks it again
        if name in self.ended or name in self.swept:
            return  # ids are never used again
        owner = self.parked[name][0] if name in self.parked else owner
        run = ParkedRun(name, owner, b"", "", "yield", self.now, self.now + LIMITS.snapshot_ttl_seconds)
        alive = {k: v for k, v in self.parked.items() if v[1] > self.now or k in self.claimed}
        own = sum(1 for other, _ in alive.values() if other == owner)
        full = name not in self.parked and (own >= 3 or len(alive) >= 4)
        _, refused = at_once(self.store.park(run))
        assert refused == ("too_many_pending_tool_calls" if full else None)
        if not full:
            self.parked[name] = (owner, run.expires)
            self.claimed.discard(name)

    @rule(name=NAMES, owner=OWNERS)
    def claim(self, name: str, owner: str) -> None:
        found, refused = at_once(self.store.claim(name, owner))
        ended, parked = self.ended.get(name), self.parked.get(name)
        if ended is not None and ended[0] == owner and ended[1] > self.now:
            assert isinstance(found, EndedRun)
        elif parked is not None and parked[0] == owner and name not in self.claimed and parked[1] > self.now:
            assert isinstance(found, Claim)
            self.claimed.add(name)
        elif parked is not None and parked[0] == owner:
            assert refused == ("invalid_input" if name in self.claimed else "snapshot_expired")
        else:
            assert refused == ("snapshot_expired" if self.swept.get(name) == owner else "invalid_input")

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        if name in self.claimed:
            at_once(self.store.release(name, self.parked[name][0]))
            self.claimed.discard(name)

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        if name in self.claimed:
            owner, _ = self.parked.pop(name)
            self.claimed.discard(name)
            expires = self.now + LIMITS.snapshot_ttl_seconds
            at_once(self.store.end(EndedRun(name, owner, "outcome", 10, expires)))
            self.ended[name] = (owner, expires)

    @rule(seconds=st.floats(0, 12))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        gone = set(at_once(self.store.sweep())[0])
        expected = {k for k, (_, until) in self.parked.items() if until <= self.now and k not in self.claimed}
        assert gone == expected
        for name in gone:
            self.swept[name] = self.parked.pop(name)[0]

    @invariant()
    def what_is_said_of_the_store_is_true(self) -> None:
        assert f"{len(self.parked)} parked" in repr(self.store)


TestStore = StoreMachine.TestCase


def test_ends_are_bounded_in_number_and_bytes() -> None:
    store = MemoryStore(LIMITS, lambda: 0.0)
    for n in range(store.MAX_ENDED + 10):
        at_once(store.end(EndedRun(f"run{n}", "ann", n, 1, 10.0)))
    assert at_once(store.claim("run0", "ann")) == (None, "invalid_input")
    at_once(store.end(EndedRun("large", "ann", 0, store.MAX_ENDED_BYTES, 10.0)))
    assert "1 ended" in repr(store)


@pytest.mark.parametrize(("owner", "share"), [("stdio:1000:file", 40), ('["token", "ada"]', 10)], ids=["stdio", "http"])
@pytest.mark.anyio
async def test_one_of_many_owners_has_a_share_of_the_suspended_programs(owner: str, share: int) -> None:
    store = MemoryStore(CodeModeSettings(max_suspended_runs=40), lambda: 0.0)
    for number in range(share):
        await store.park(ParkedRun(f"run {number}", owner, b"", "", "yield", 0.0, 10.0))
    with pytest.raises(ProgramError, match=f"but {share} programs of yours are suspended already"):
        await store.park(ParkedRun("one more", owner, b"", "", "yield", 0.0, 10.0))
