"""The promises that hold whichever process is killed and whenever, checked against real acts and answers.

- a call that may not be repeated is acted on once at most;
- what a program has seen of its calls is what was done: done, once; unknown, perhaps; not sent, never;
- a call is never unknown if its process knew that its task was recorded: another process has followed the task;
- everything done that may not be repeated was asked for by the program whose end the client got, in the state in which
  it says that it asked: nothing comes from a process that continued it in parallel, or from a past that did not count;
- two processes never compute for one run at the same time; one call after the other stays so;
- all that was printed is there once and in order;
- a run whose id a client has ends, and stays ended;
- whatever states runs, calls and custodies go through, and whenever a call is sent, the tables of
  `codemode_mcp.runs.state` permit it: see `histories`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.crash_programs import NOT_REPEATABLE, Account, Program, account_of
from tests.faults.histories import Broken, Histories


@dataclass(slots=True)
class Act:
    tool: str
    past: int
    serial: str
    pid: int


@dataclass(slots=True)
class Model:
    """The state of the promises so far.

    Attributes:
        histories: holds processes that were stopped for a while; these may end a turn that they had begun before.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    acts: dict[str, dict[int, list[Act]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    order: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    histories: Histories = field(default_factory=Histories)
    told: dict[str, list[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(list))
    _turns: dict[str, dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, int] = field(default_factory=dict)
    """The processes whose calls were answered with tasks, by the keys of the calls."""

    def begin(self, program: Program) -> None:
        self.programs[program.tag] = program

    def take(self, lines: Iterable[dict[str, Any]]) -> None:
        """Take in the next lines of the ledger. Raises `Broken`."""
        for line in lines:
            pid = line["pid"]
            self.histories.take(line)
            match line["what"]:
                case "act":
                    self._act(line["key"], Act(line["tool"], line["past"], line["serial"], pid))
                case "turn":
                    turns = self._turns[line["run"]]
                    for other in turns:
                        turns[other] = turns[other] or other != pid  # another process has begun one meanwhile
                    turns[pid] = False
                case "turned":
                    overlapped = self._turns[line["run"]].pop(pid, False)
                    if overlapped and pid not in self.histories.stopped:
                        raise Broken(f"two processes have computed for {line['run']} at the same time")
                case "task":
                    self.tasks[line["key"]] = pid
                case "followed":
                    self.counts["tasks"] += 1
                    self.counts["tasks of others"] += self.tasks.get(line["key"]) != pid
                case "fault":
                    raise Broken(f"a process has logged: {line['text']}")

    def _act(self, key: str, act: Act) -> None:
        tag, _, step = key.partition("/")
        acts = self.acts[tag][int(step)]
        self.counts["acts"] += 1
        self.counts["repeated"] += bool(acts)
        acts.append(act)
        if act.tool in NOT_REPEATABLE:
            # What may be repeated may have had the same number in a past that did not count.
            alike = [each for each in acts if each.tool in NOT_REPEATABLE]
            if len(alike) > 1:
                raise Broken(f"{key} {act.tool} was done twice: {alike}")
            self.order[tag].append(int(step))

    def answered(self, tag: str, outputs: Sequence[str]) -> None:
        """Check an answer of a run that has not ended.

        Of two requests that were open at the same time, the earlier answer may come later, if its process was stopped.
        So answers are put in order by the numbers of their lines.
        """
        if outputs:
            self.told[tag].append(tuple(outputs))

    def ended(self, tag: str, status: str, code: str | None, said: str) -> None:
        """Check the end of a run that the client did not cancel. Raises `Broken`."""
        if status != "completed":
            raise Broken(f"{tag} ended as {status} ({code}: {said})")

    def completed(self, value: Any, whole: Sequence[str]) -> None:
        """A program's own account, with all that it has printed. Raises `Broken`."""
        account = account_of(value)
        tag = account.tag
        self.counts["completed"] += 1
        self.counts["calls"] += len(account.made)
        if tuple(whole) != account.lines:
            raise Broken(f"{tag} has printed {list(account.lines)}, but {list(whole)} is there")
        told = [line for answer in sorted(self.told[tag], key=_first_number) for line in answer]
        if not _in_order(told, account.lines):
            raise Broken(f"{tag} has printed {list(account.lines)}, but its client was told {told}")
        if account.wrong:
            raise Broken(f"{tag}: {'; '.join(account.wrong)}")
        self._hold_calls(account)
        self._hold_order(account)

    def _hold_calls(self, account: Account) -> None:
        acts = self.acts[account.tag]
        for step, each in acts.items():
            for act in each:
                if act.tool in NOT_REPEATABLE and (act.tool, act.past) != account.made.get(step):
                    raise Broken(f"{account.tag}/{step} was done, and its program has not asked for it so: {act}")
        for step, (tool, _) in account.made.items():
            done = [act for act in acts.get(step, ()) if act.tool == tool]
            self._hold_call(f"{account.tag}/{step} {tool}", tool, done, account.seen.get(step))

    def _hold_call(self, name: str, tool: str, acts: list[Act], seen: dict[str, Any] | None) -> None:
        if seen is None:
            self.counts["not waited for"] += 1
        elif seen["end"] == "done":
            if not any(act.serial == seen["serial"] for act in acts):
                raise Broken(f"{name} is said to be done, but was not: {seen} {acts}")
        elif seen["outcome"] == "unknown":
            self.counts["unknown"] += 1
            self.counts["unknown, and done"] += bool(acts)
            if name.split()[0] in self.tasks:
                raise Broken(f"{name} is said to be unknown, but it had a task that was recorded")
            if tool not in NOT_REPEATABLE:
                raise Broken(f"{name} may be repeated, but is said to be unknown")
            if seen["code"] != "nested_tool_failed" or seen["dispatched"] is not True:
                raise Broken(f"{name} is unknown, and told as {seen}")
        elif seen["dispatched"] is False:
            self.counts["not sent"] += 1
            if acts and tool in NOT_REPEATABLE:
                raise Broken(f"{name} is said not to be sent, but was done: {seen}")
        elif tool != "broken_append":
            raise Broken(f"{name} has failed: {seen}")
        elif not acts:
            raise Broken(f"{name} is said to have failed in its server, which knows nothing of it: {seen}")

    def _hold_order(self, account: Account) -> None:
        if not self.programs[account.tag].sequential:
            return
        unsure = {step for step, end in account.seen.items() if end.get("outcome") == "unknown"}
        order = [step for step in self.order[account.tag] if step not in unsure]
        if order != sorted(order):
            raise Broken(f"{account.tag} makes one call after the other, but they were done as {order}")


def _first_number(answer: tuple[str, ...]) -> int:
    return int(answer[0].split(" ", 1)[0])


def _in_order(some: Sequence[str], whole: Sequence[str]) -> bool:
    """Tell whether these are lines of the whole in its order, each once."""
    rest = iter(whole)
    return all(line in rest for line in some)
