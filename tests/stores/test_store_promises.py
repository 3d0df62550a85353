"""The promises of a durable store under whatever order of events: several processes, some of them dead, some merely
taken for dead, and a clock that jumps.

`STORE_EXAMPLES=5000 .venv/bin/python -m pytest tests/stores/test_store_promises.py` continues for longer.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.runs.calls.outcome import Outcome, Usage
from codemode_mcp.runs.store import Claim, EndedRun, Fenced, StoredCall, StoredCatalog, SuspendedRun
from tests.stores.shared_database import Process, SharedSqlite

Result = TypeVar("Result")

EXAMPLES = int(os.environ.get("STORE_EXAMPLES", "30"))
STEPS = 60
TTL = 900.0
MOST = 2
OWNERS = ("stdio:me", "http:you")
NUMBERS = st.integers(0, 3)
ACTIONS = {
    "suspend a new one": 1,
    "claim": 7,
    "claim of another": 1,
    "suspend": 4,
    "checkpoint": 2,
    "release": 1,
    "end": 1,
    "forget": 1,
    "send": 4,
    "settle": 3,
    "prolong": 1,
    "look": 3,
    "dies": 1,
    "time": 1,
    "sweep": 1,
}
"""Weights of the steps."""
PROCESSES = st.integers(0, 2)
SETTINGS = CodeModeSettings(max_suspended_runs=MOST, max_suspended_runs_per_owner=MOST)


@dataclass
class Call:
    """Attributes:
    sent: by whom, each time that a person was told to send it."""

    repeatable: bool
    sent: list[int] = field(default_factory=list)
    result: str | None = None


@dataclass
class Known:
    """Facts that must hold of one run.

    Attributes:
        driver: who has claimed it last and not let go; None: no one.
        data: of the last snapshot that was taken.
        ended: the value it ended with.
    """

    owner: str
    expires: float
    data: bytes
    driver: int | None = None
    claims: int = 0
    calls: dict[int, Call] = field(default_factory=dict)
    ended: str | None = None
    expired: bool = False


class Promises(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="cm-")
        self.shared = SharedSqlite(Path(self.folder.name) / "s" / "runs.sqlite3")
        self.processes: list[Process] = [self.do(self.shared.process(SETTINGS)) for _ in range(3)]
        self.dead: set[int] = set()
        """Indexes of those that others take for dead. They continue trying."""
        self.runs: dict[str, Known] = {}
        self.claims: dict[tuple[int, str], int] = {}
        """Claims of runs that a process has, by number."""
        self.written = 0

    def one(self, number: int) -> tuple[str, Known]:
        """Return one of the latest runs; most of the time one that is not over."""
        known = list(self.runs.items())[-4:]
        in_progress = [(run_id, each) for run_id, each in known if each.ended is None and not each.expired]
        if in_progress and number < 3:
            known = in_progress
        return known[number % len(known)]

    def do(self, what: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(what)

    def teardown(self) -> None:
        self.do(self.shared.__aexit__())
        self.loop.close()
        self.folder.cleanup()

    # Chosen here and not between rules, of which Hypothesis would leave most out in each example.
    @rule(
        action=st.sampled_from([name for name, weight in ACTIONS.items() for _ in range(weight)]),
        p=PROCESSES,
        run=NUMBERS,
        number=NUMBERS,
        flag=st.booleans(),
    )
    def something_happens(self, action: str, p: int, run: int, number: int, flag: bool) -> None:
        driver = self.one(run)[1].driver
        if flag and driver is not None and action in ("suspend", "checkpoint", "release", "end", "look"):
            p = driver
        match action:
            case "suspend a new one":
                self.suspend_a_new_one(p, OWNERS[flag], [flag, not flag][: number + 1])
            case "claim":
                self.claim(p, run)
            case "claim of another":
                self.claim_of_another(p, run)
            case "suspend" | "checkpoint":
                self.write(p, run, action == "suspend", number == 0)
            case "release":
                self.release(p, run)
            case "end":
                self.end(p, run)
            case "forget":
                self.forget(p, run)
            case "send":
                self.send(p, run)
            case "settle":
                self.settle(p, run, number)
            case "prolong":
                self.prolong(p, run, (1.0, 900.0, 2000.0, 9000.0)[number])
            case "look":
                self.look(p, run)
            case "dies":
                self.is_taken_for_dead(p)
            case "time":
                self.time_passes((1.0, 1.0, 100.0, 1000.0)[number])
            case _:
                self.sweep(p)

    # what is asked of the store, and what comes of it

    def run_of(self, p: int, run_id: str, owner: str, calls: dict[int, Call]) -> SuspendedRun:
        self.written += 1
        now = self.shared.clock()
        pending = tuple(
            StoredCall(number, "t", "queued", call.repeatable, body=f"call {number}") for number, call in calls.items()
        )
        data = f"{self.written} by {p}".encode()
        return SuspendedRun(
            run_id, owner, data, "{}", "yield", now, now + TTL, "{}", pending, StoredCatalog("h", lambda: "t")
        )

    @initialize(p=PROCESSES)
    def begin(self, p: int) -> None:
        self.suspend_a_new_one(p, OWNERS[0], [False, True, False])

    def suspend_a_new_one(self, p: int, owner: str, calls: list[bool]) -> None:
        run_id = f"run_{len(self.runs)}"
        pending = {number: Call(repeatable) for number, repeatable in enumerate(calls[:3])}
        run = self.run_of(p, run_id, owner, pending)
        now = self.shared.clock()
        suspended = sum(
            1
            for known in self.runs.values()
            if known.ended is None and not known.expired and (known.expires > now or known.driver is not None)
        )
        try:
            self.do(self.processes[p].store.suspend(run))
        except ProgramError as refused:
            full = refused.code == "too_many_pending_tool_calls"
        else:
            full = False
        if full:
            assert suspended >= MOST
            return
        assert suspended < MOST
        self.runs[run_id] = Known(owner, run.expires, run.snapshot, calls=pending)
        self.claims[p, run_id] = 0

    def claim(self, p: int, number: int) -> None:
        run_id, known = self.one(number)
        self.claim_for(p, run_id, known.owner)

    def claim_of_another(self, p: int, number: int) -> None:
        self.claim_for(p, self.one(number)[0], "http:another")

    def claim_for(self, p: int, run_id: str, owner: str) -> None:
        known, now = self.runs.get(run_id), self.shared.clock()
        try:
            found = self.do(self.processes[p].store.claim(run_id, owner))
        except ProgramError as refused:
            self.check_refusal(p, known, owner, refused)
            return
        assert known is not None
        assert known.owner == owner
        if isinstance(found, EndedRun):
            assert found.outcome[0].value == known.ended
            return
        assert known.ended is None
        assert not known.expired
        assert known.expires > now
        # One driver at a time.
        assert known.driver is None or (known.driver in self.dead and known.driver != p)
        # Nothing of it is lost.
        assert found.run.snapshot == known.data
        if found.current:
            assert self.claims[p, run_id] == known.claims
        self.check_calls(p, known, found)
        known.driver = p
        known.claims += 1
        self.claims[p, run_id] = known.claims

    def check_refusal(self, p: int, known: Known | None, owner: str, refused: ProgramError) -> None:
        if known is None or known.owner != owner:
            assert "there is no run" in refused.message
        elif "already" in refused.message:
            assert known.driver is not None
            assert known.driver == p or known.driver not in self.dead
        else:
            assert refused.code == "snapshot_expired"
            assert known.ended is None
            assert known.expired or known.expires <= self.shared.clock()

    def check_calls(self, p: int, known: Known, claim: Claim) -> None:
        assert [call.id for call in claim.run.calls] == sorted(known.calls)
        for stored in claim.run.calls:
            call = known.calls[stored.id]
            assert (stored.status == "settled", stored.result) == (call.result is not None, call.result)
            if stored.status == "settled":
                continue
            if stored.status == "queued":
                assert stored.executor == "here"
                assert not call.sent or call.repeatable
            elif stored.executor == "elsewhere":
                assert call.sent[-1] != p
                assert call.sent[-1] not in self.dead
            elif stored.executor == "here":
                assert call.sent[-1] == p
            else:
                assert not call.repeatable
                assert call.sent

    def may_write(self, p: int, run_id: str) -> bool:
        known = self.runs[run_id]
        return known.ended is None and not known.expired and self.claims.get((p, run_id)) == known.claims

    def write(self, p: int, number: int, lets_go: bool, more: bool) -> None:
        """Suspend or checkpoint in any process: the program has got all ends, and has made another call."""
        run_id, known = self.one(number)
        if (p, run_id) not in self.claims:
            return
        calls = {number: call for number, call in known.calls.items() if call.result is None}
        if more:
            calls[max(known.calls, default=-1) + 1] = Call(repeatable=False)
        run = self.run_of(p, run_id, known.owner, calls)
        store = self.processes[p].store
        try:
            self.do(store.suspend(run) if lets_go else store.checkpoint(run))
        except Fenced:
            assert not self.may_write(p, run_id)
            del self.claims[p, run_id]
            return
        assert self.may_write(p, run_id)
        known.calls, known.data, known.expires = calls, run.snapshot, run.expires
        known.driver = None if lets_go else p

    def prolong(self, p: int, number: int, seconds: float) -> None:
        run_id, known = self.one(number)
        now = self.shared.clock()
        self.do(self.processes[p].store.prolong(run_id, now + seconds))
        if self.may_write(p, run_id) and known.expires > now:
            known.expires = max(known.expires, now + seconds)

    def release(self, p: int, number: int) -> None:
        run_id, known = self.one(number)
        self.do(self.processes[p].store.release(run_id, known.owner))
        if self.may_write(p, run_id):
            known.driver = None

    def end(self, p: int, number: int) -> None:
        run_id, known = self.one(number)
        if (p, run_id) not in self.claims:
            return
        self.written += 1
        value = f"ended {self.written}"
        outcome = Outcome(run_id, known.owner, "completed", Usage(), value=value)
        end = EndedRun(run_id, known.owner, (outcome, outcome), 10, self.shared.clock() + 1e9)
        try:
            self.do(self.processes[p].store.end(end))
        except Fenced:
            assert not self.may_write(p, run_id)
            del self.claims[p, run_id]
            return
        assert self.may_write(p, run_id)
        known.ended, known.driver = value, None
        known.calls = {}
        del self.claims[p, run_id]

    def forget(self, p: int, number: int) -> None:
        run_id, known = self.one(number)
        if self.claims.pop((p, run_id), None) is None:
            return
        self.processes[p].store.forget(run_id)
        if known.driver == p:
            # It is no one's now, though others do not know that before this process is dead.
            self.taken_back(p, run_id, known)

    def taken_back(self, p: int, run_id: str, known: Known) -> None:
        if known.expires <= self.shared.clock() or known.expired or known.ended is not None:
            known.driver = None if known.expired else known.driver
            return
        found = self.do(self.processes[p].store.claim(run_id, known.owner))
        assert isinstance(found, Claim)
        assert not found.current
        assert found.run.snapshot == known.data
        self.check_calls(p, known, found)
        known.claims += 1
        self.claims[p, run_id] = known.claims

    def send(self, p: int, run: int) -> None:
        run_id, known = self.one(run)
        for number in [*known.calls, 99]:
            self.send_one(p, run_id, known, number)

    def send_one(self, p: int, run_id: str, known: Known, number: int) -> None:
        sends = self.do(self.processes[p].store.dispatching(run_id, number))
        call = known.calls.get(number)
        if not sends:
            return
        assert call is not None
        assert call.result is None
        call.sent.append(p)
        assert len(call.sent) == 1 or call.repeatable
        # No one sends for another one that is alive.
        assert all(before == p or before in self.dead for before in call.sent)

    def call_of(self, known: Known, number: int) -> int:
        """Return one of the calls of a run, or an unknown one."""
        return [*known.calls, 99][number % (len(known.calls) + 1)]

    def settle(self, p: int, run: int, number: int) -> None:
        run_id, known = self.one(run)
        number = self.call_of(known, number)
        for each in (p, p, (p + 1) % 3):
            self.settle_one(each, run_id, known, number)

    def settle_one(self, p: int, run_id: str, known: Known, number: int) -> None:
        self.written += 1
        result = f"result {self.written}"
        settled = self.do(self.processes[p].store.settle(run_id, number, result))
        call = known.calls.get(number)
        if settled:
            assert call is not None
            assert call.result is None
            # No one has an end for another one that is alive and has sent it.
            assert not call.sent or call.sent[-1] == p or call.sent[-1] in self.dead
            call.result = result

    def look(self, p: int, number: int) -> None:
        run_id, known = self.one(number)
        news = self.do(self.processes[p].store.news_of(run_id))
        assert (news.ended is not None) == (known.ended is not None or known.expired)
        if (p, run_id) not in self.claims or news.ended is not None:
            return
        assert news.fenced == (not self.may_write(p, run_id))
        if known.driver == p and not news.fenced:
            told = {call.id: call for call in news.calls}
            for number, call in known.calls.items():
                assert call.result is None or told[number].result == call.result
            for stored in news.calls:
                if stored.status == "queued":
                    assert known.calls[stored.id].repeatable
                elif stored.status == "dispatched":
                    assert any(before in self.dead for before in known.calls[stored.id].sent)

    def is_taken_for_dead(self, p: int) -> None:
        if self.dead:
            return
        self.do(self.shared.kill(self.processes[p]))
        self.dead.add(p)

    def time_passes(self, seconds: float) -> None:
        self.do(self.shared.advance(seconds))

    def sweep(self, p: int) -> None:
        gone = self.do(self.processes[p].store.sweep())
        now = self.shared.clock()
        for known in self.runs.values():
            driven = known.driver is not None and (known.driver not in self.dead or known.driver == p)
            if known.ended is None and known.expires <= now and not driven:
                known.expired, known.driver, known.calls = True, None, {}
        assert all(self.runs[run_id].expired for run_id in gone)

    @invariant()
    def nothing_is_half_written(self) -> None:
        if not self.processes:
            return
        odd = self.do(
            self.shared.rows(
                "SELECT runs.id FROM runs LEFT JOIN snapshots ON snapshots.run = runs.id "
                "WHERE (runs.state = 'waiting') <> (snapshots.run IS NOT NULL)"
            )
        )
        assert odd == []


TestPromises = Promises.TestCase
TestPromises.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize="STORE_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
