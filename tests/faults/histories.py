"""Histories of runs and calls over processes that die, judged by the tables of `codemode_mcp.runs.state`. Pure.

The product asks these tables before each change. This module does not trust that it did: it takes evidence from three
places that do not ask, and holds each piece against the tables as they are at that moment.

- States: every value that a process gives to the state of a run or call, or to a custody, wherever it is assigned
  (`watch`). Each history in a process begins where its table begins, and each step in it is a transition of the table.
- Acts: what the tools received. A call that was received had been sent by a step that `may_send` permits in the
  custody that its run had in that process, and each such step accounts for one act.
- Rows: every change that was committed to the tables of a store (`stored`). Rows say less than states, so that each
  stands for a set of them, and a change for a path. A call that was sent after a claim was `dispatched` in the store,
  by the process that sent it.

A crash is no transition. It ends the histories of a process. What others may continue follows from the tables too: a
run whose custody `lose` makes `lost`, and that a store had; a call that is unsent, or repeatable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from codemode_mcp.runs import state

Table = Mapping[Any, Mapping[Any, str]]

RUN_BEGINS = "running"
CALL_BEGINS = "queued"
CUSTODY_BEGINS = "local"


class Broken(AssertionError):
    """A broken promise; says which, and what it is about."""


@dataclass(slots=True, eq=False)
class RunLife:
    """A run as one object of one process.

    Attributes:
        stored: a durable store has had it since.
        followed: another object stands for the run by now.
    """

    run: str
    process: str
    pid: int
    state: str = RUN_BEGINS
    custody: str = CUSTODY_BEGINS
    stored: bool = False
    followed: bool = False

    def __str__(self) -> str:
        return f"run {self.run} in process {self.pid}"


@dataclass(slots=True, eq=False)
class CallLife:
    """A call as one object of one process.

    Attributes:
        sends: permitted steps by which it was sent, less what the tool has received of them.
    """

    of: RunLife
    call: int
    key: str
    repeatable: bool
    path: list[str] = field(default_factory=lambda: [CALL_BEGINS])
    sends: int = 0

    def __str__(self) -> str:
        return f"call {self.call} ({self.key}) of {self.of}"


@dataclass(slots=True)
class Histories:
    """Histories of one campaign. Every method raises `Broken`.

    Attributes:
        stopped: ids of processes that were stopped for a while. They may complete a step after others took over.
        counts: what was judged, by kind.
        steps: for each run, what its states, its custodies and its calls went through, in order, for people.
    """

    stopped: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    steps: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _processes: dict[int, str] = field(default_factory=dict)
    _runs: dict[tuple[str, int], RunLife] = field(default_factory=dict)
    _calls: dict[tuple[str, int], CallLife] = field(default_factory=dict)
    _lives: dict[str, list[RunLife]] = field(default_factory=lambda: defaultdict(list))
    _made: dict[tuple[str, str], list[CallLife]] = field(default_factory=lambda: defaultdict(list))
    _sent: dict[str, CallLife] = field(default_factory=dict)
    _claimed: set[tuple[str, int, str]] = field(default_factory=set)

    def take(self, line: Mapping[str, Any]) -> None:
        """Judge the next line of the ledger, if it is about a state or an act."""
        match line["what"]:
            case "process":
                self._processes[line["pid"]] = line["process"]
            case "stopped":
                self.stopped.add(line["whom"])
            case "run":
                self._run(line)
            case "custody":
                self._custody(line)
            case "call":
                self._call(line)
            case "act":
                self._act(line["pid"], line["key"])

    # states

    def _run(self, line: Mapping[str, Any]) -> None:
        life = self._life_of(line)
        self._note(life, line["state"])
        if line["new"]:
            _begin(life, "its state", line["state"], RUN_BEGINS)
        else:
            self.counts["steps of runs"] += 1
            _step(state.TRANSITIONS, life.state, line["state"], life)
        life.state = line["state"]

    def _custody(self, line: Mapping[str, Any]) -> None:
        life, now = self._life_of(line), line["state"]
        self._note(life, f"custody {now}")
        if line["new"]:
            _begin(life, "its custody", now, CUSTODY_BEGINS)
        else:
            self.counts["steps of custodies"] += 1
            _step(state.CUSTODY_TRANSITIONS, life.custody, now, f"the custody of {life}")
            if life.followed and now not in (life.custody, "lost") and life.pid not in self.stopped:
                raise Broken(f"{life} was taken over while it was {life.custody}, and is {now} afterwards")
        life.custody = now
        life.stored = life.stored or now in state.DURABLE

    def _life_of(self, line: Mapping[str, Any]) -> RunLife:
        """Return the run that a line is about; the first line about an object begins its life."""
        process = self._processes[line["pid"]]
        place = (process, line["life"])
        known = self._runs.get(place)
        # The custody is what an object is given first; addresses are used again.
        if known is None or (line["new"] and line["what"] == "custody"):
            known = self._runs[place] = RunLife(line["run"], process, line["pid"])
            self._follow(known, self._lives[line["run"]])
            self._lives[line["run"]].append(known)
        return known

    def _follow(self, life: RunLife, earlier: list[RunLife]) -> None:
        """Judge whether a process could continue a run that others, or it itself, had before."""
        if not earlier:
            return
        self.counts["continued runs"] += 1
        for each in earlier:
            if state.CUSTODY_TRANSITIONS[each.custody].get("lose") != "lost":  # type: ignore[index]
                raise Broken(f"{life} was continued, but {each} is {each.custody}, which cannot be lost to others")
            each.followed = True
        if not any(each.stored for each in earlier):
            custodies = ", ".join(f"{each.custody} in process {each.pid}" for each in earlier)
            raise Broken(f"{life} was continued, but no durable store had it: it was {custodies}")

    def _call(self, line: Mapping[str, Any]) -> None:
        process = self._processes[line["pid"]]
        place = (process, line["life"])
        if line["new"]:
            life = CallLife(self._runs[process, line["of"]], line["call"], line["key"], line["repeatable"])
            self._note(life.of, f"call {life.call} ({life.key}) {line['state']}")
            _begin(life, "its state", line["state"], CALL_BEGINS)
            self._calls[place] = life
            self._made[process, life.key].append(life)
            return
        life = self._calls[place]
        was, now = life.path[-1], line["state"]
        self._note(life.of, f"call {life.call} {now}{'' if line['executor'] == 'here' else ' elsewhere'}")
        self.counts["steps of calls"] += 1
        events = _step(state.CALL_TRANSITIONS, was, now, life)
        if line["executor"] == "here":
            if "claim" in events:
                self._permitted(life, "claim", recorded=line["recorded"])
            if "send" in events:
                self._permitted(life, "send", recorded=line["recorded"])
                self._send(life, was)
        life.path.append(now)

    def _permitted(self, life: CallLife, wanted: str, *, recorded: bool) -> None:
        """Judge whether this process could claim, or send, a call at this moment."""
        was, custody = life.path[-1], life.of.custody
        known: dict[str, Any] = {"recorded": recorded, "repeatable": life.repeatable}
        try:
            permission: str = state.may_send(custody, was, **known)  # type: ignore[arg-type]
        except state.IllegalTransition as illegal:
            raise Broken(f"{life} came to {wanted}: {illegal}") from None
        if permission != wanted:
            raise Broken(
                f"{life} came to {wanted} while it was {was} and its run {custody} ({known}), where the answer to "
                f"`may_send` is {permission}"
            )

    def _send(self, life: CallLife, was: str) -> None:
        self.counts["sends"] += 1
        life.sends += 1
        if was in _after("claim"):
            self.counts["sends after a claim"] += 1
            self._claimed.add((life.of.run, life.call, life.of.process))
        if life.repeatable:
            return
        before = self._sent.setdefault(life.key, life)
        if before is not life:
            raise Broken(f"{life} was sent, after {before} was: {before.path}")

    def _note(self, life: RunLife, what: str) -> None:
        self.steps[life.run].append(f"{life.pid}: {what}")

    # acts

    def _act(self, pid: int, key: str) -> None:
        lives = self._made[self._processes[pid], key]
        for life in reversed(lives):
            if life.sends and life.path[-1] in _after("send"):
                life.sends -= 1
                self.counts["acts"] += 1
                return
        paths = "; ".join(" > ".join(life.path) for life in lives)
        raise Broken(f"{key} was received from process {pid}, where no step has sent it: {paths or 'it was unknown'}")

    # rows

    def judge_rows(self, changes: Iterable[str]) -> None:
        """Judge all that was ever committed, in order, after all processes have ended. `changes`: see `stored`."""
        gone: set[tuple[str, str]] = set()
        dispatched: set[tuple[str, int, str]] = set()
        for change in changes:
            kind, *fields = change.split("|")
            self.counts["changes of rows"] += 1
            if kind == "run":
                _judge_run(*fields)
                continue
            run, call, old_status, _, status, executor, _ = fields
            _judge_call(*fields)
            if (run, call) in gone:
                raise Broken(f"call {call} of run {run} is stored as {status} after its end was delivered")
            if not status:
                gone.add((run, call))
            if status == "dispatched" != old_status:
                dispatched.add((run, int(call), executor))
        for run, number, process in sorted(self._claimed - dispatched):
            raise Broken(f"call {number} of run {run} was sent by {process}, and the store never knew it as dispatched")


def _judge_run(run: str, old_state: str, old_token: str, old_holder: str, new: str, token: str, holder: str) -> None:
    """Judge a change of the row of a run.

    A row that is `waiting` stands for a run that runs while a process holds it. Another token means that its last
    holder has let go or is dead, so that there is only the suspended run.
    """
    if not old_state:
        was = RUN_BEGINS
    elif old_state == "waiting" and token == old_token:
        was = "running" if old_holder else "waiting"
    else:
        was = old_state
    now = "running" if new == "waiting" and holder else new
    if now != was:
        _step(state.TRANSITIONS, was, now, f"the row of run {run}")


def _judge_call(
    run: str, call: str, old_status: str, old_executor: str, status: str, executor: str, repeatable: str
) -> None:
    """Judge a change of the row of a call; the status is empty where there is no row, before it or after it."""
    what = f"the row of call {call} of run {run}"
    if old_status == "settled" and status and executor != old_executor:
        raise Broken(f"{what} is settled, and has another executor")
    if repeatable == "1" and (old_status, status) == ("dispatched", "queued"):
        return  # it is made again
    before = _stands_for(old_status) if old_status else {CALL_BEGINS}
    if not _reachable(before) & _stands_for(status):
        raise Broken(f"{what} went from {old_status} to {status}: there is no path from {before} to it")


def _stands_for(status: str) -> set[str]:
    """Return the states that a call may be in by its row; of one that has none any more, its ends."""
    match status:
        case "queued":
            return set(state.UNSENT)
        case "dispatched":
            return _after("send")
        case "settled":
            return _after("settle")
        case _:
            return _after("settle") | _after("abandon")


def _after(event: str) -> set[str]:
    """Return the states that an event leads to, for a call."""
    return {after for events in state.CALL_TRANSITIONS.values() for each, after in events.items() if each == event}


def _reachable(states: Iterable[str]) -> set[str]:
    """Return the states of a call that these lead to, themselves included."""
    table: Table = state.CALL_TRANSITIONS
    found, new = set[str](), set(states)
    while new:
        found |= new
        new = {after for each in new for after in table[each].values()} - found
    return found


def _begin(what: object, which: str, first: str, begins: str) -> None:
    if first != begins:
        raise Broken(f"{what}: {which} begins as {first}, not as {begins}")


def _step(table: Table, was: str, now: str, what: object) -> frozenset[str]:
    """Return the events that lead from one state to the next. Raises `Broken` where there is none."""
    events = frozenset(event for event, after in table.get(was, {}).items() if after == now)
    if not events:
        raise Broken(f"{what} went from {was} to {now}; by the table {was} leads to {sorted({*table[was].values()})}")
    return events
