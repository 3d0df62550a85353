"""Programs that report what came of each of their calls, and the books that hold every report against the ledger.

Every call has a key of its own. A call that must not be repeated is executed once at most; one that has succeeded for
its program is in the ledger, with the same serial number; one that was not sent, as a program or an answer says, is not
in it, then and later; and nothing is in it that no program has asked for.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.histories import Broken
from tests.faults.servers.ledger import Ledger

Asked = tuple[str, str, str, dict[str, Any]]
"""Server, tool, key, and further arguments of a call."""

CODE = """
const outcomes = {};
async function call([server, tool, key, more]) {
  try {
    const result = await MCP[server][tool]({ key, ...more });
    outcomes[key] = ["done", JSON.parse(result.content[0].text).serial];
  } catch (error) {
    const sent = error?.data?.dispatched;
    outcomes[key] = [sent === true ? "unknown" : sent === false ? "not sent" : "?", String(error?.message)];
  }
}
const phases = %s;
for (const [number, phase] of phases.entries()) {
  if (number > 0) await yield_control();
  await Promise.all(phase.map(call));
}
return { token: %s, outcomes };
"""


def code_of(token: str, *phases: list[Asked]) -> str:
    """Return a program that makes the calls of each phase at the same time, and is suspended between two phases."""
    return CODE % (json.dumps(phases), json.dumps(token))


@dataclass(slots=True)
class Books:
    """The ledger as it was read so far, and the statements about calls, which must agree with it.

    Attributes:
        pids: processes of each server, in order.
        executed: tool and serial number of each execution, by key.
        cancelled: keys of the calls that a server was told to cancel.
        streams: streams that the clients of the latest process of a server keep open.
    """

    path: Path
    pids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    executed: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    cancelled: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    streams: Counter[str] = field(default_factory=Counter)
    _unsent: dict[str, str] = field(default_factory=dict)
    _ledger: Ledger | None = None

    def read(self) -> None:
        """Take the new lines of the ledger. Raises `Broken` if a call was executed again."""
        if self._ledger is None:
            self._ledger = Ledger(self.path)
        for line in self._ledger.new():
            match line["what"]:
                case "started":
                    self.pids[line["server"]].append(line["pid"])
                    self.streams[line["server"]] = 0
                case "stream" if line["pid"] == self.pids[line["server"]][-1]:
                    self.streams[line["server"]] += line["more"]
                case "cancelled":
                    self.cancelled[line["server"]].add(line["key"])
                case "act":
                    key, executed = line["key"], self.executed[line["key"]]
                    executed.append((line["tool"], line["serial"]))
                    if line["tool"] == "append" and len(executed) > 1:
                        raise Broken(f"{key} was executed more than once: {executed}")

    def count(self, keys: Iterable[str]) -> int:
        """Return how many of these calls were executed so far."""
        self.read()
        return sum(key in self.executed for key in keys)

    def check_unsent(self) -> None:
        """Raise `Broken` if a call was executed that was not sent, as an answer says."""
        self.read()
        for key, text in self._unsent.items():
            if key in self.executed:
                raise Broken(f"{key} was not sent, says {text!r}, but it was executed: {self.executed[key]}")

    def check_asked(self, keys: set[str]) -> None:
        """Raise `Broken` if a call was executed that no program has asked for."""
        self.check_unsent()
        if unknown := self.executed.keys() - keys:
            raise Broken(f"no program has asked for {sorted(unknown)[:10]}")

    def note_unsent(self, keys: Iterable[str], text: str) -> None:
        """Note an answer that says that calls were not sent."""
        self._unsent.update(dict.fromkeys(keys, text))
        self.check_unsent()

    def forget_unsent(self, keys: Iterable[str]) -> None:
        """Note that calls may be sent from now on."""
        for key in keys:
            self._unsent.pop(key, None)

    def check(self, tools: dict[str, str], outcomes: dict[str, tuple[str, str]]) -> None:
        """Compare the outcomes that a program has seen of its calls with the ledger. Raises `Broken`.

        Args:
            tools: the tool of each key that the program has asked for.
        """
        if outcomes.keys() != tools.keys():
            raise Broken(f"a program has made {list(tools)}, and has outcomes of {list(outcomes)}")
        self.read()
        for key, (outcome, told) in outcomes.items():
            tool, executed = tools[key], self.executed.get(key, [])
            if outcome == "done" and (tool, told) not in executed:
                raise Broken(f"{tool} {key} has succeeded with {told}, but the ledger has {executed}")
            if outcome == "not sent" and tool == "append":
                # A call that may be repeated may have been sent before a process was killed, and not again.
                self.note_unsent([key], told)
            if outcome == "?":
                raise Broken(f"{tool} {key} has failed in an unexpected way: {told}")

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
