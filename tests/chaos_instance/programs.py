"""Programs of the campaign: phases of parallel calls, with a suspension between two phases. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

CODE = """
const outcomes = {};
async function call([tool, key, ms]) {
  try {
    const result = await MCP.box[tool]({ key, ms });
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

TOOLS: Final = ("append", "append", "put", "read")
DEADLINE_MS: Final = 400
"""Time limit of a request. Programs with slower calls are suspended while these are in flight."""

NO_CALL_SENT: Final = re.compile(
    r"None of (?:the program's|its) calls was sent|No call to a tool was sent|nothing of the program has run"
)
IS_STORED: Final = "The program is stored."
HAS_ENDED: Final = "The program itself has ended."
CONNECTION_CLOSED: Final = "Connection closed"
"""The answer to open requests of a client that leaves."""

UNKNOWN_RUN: Final = "there is no run "
BUSY_RUN: Final = re.compile(
    "another request is waiting for run|was taken over by another process|the store cannot be used now"
)
_RUN: Final = re.compile(r'call wait(?: again)? with runId "?([\w-]+)', re.IGNORECASE)


@dataclass(slots=True)
class Program:
    """A program of one client, and what the client knows about it.

    Attributes:
        name: unique; the keys of its calls begin with it.
        tools: the tool of each key.
        run: the id of its run.
        stored: the client was told that the run is stored, so it must not be lost.
        end: `completed`, or `unknown` if the run is lost and was never stored; empty before that.
        history: the answers so far.
    """

    name: str
    token: str
    code: str
    tools: dict[str, str]
    run: str | None = None
    stored: bool = False
    end: str = ""
    history: list[str] = field(default_factory=list)

    @property
    def request(self) -> dict[str, Any]:
        """The parameters of the next `tools/call` for this program."""
        if self.run is not None:
            return {"name": "wait", "arguments": {"runId": self.run}}
        return {"name": "exec", "arguments": {"code": self.code}}


def make_program(name: str, token: str, calls: int, chance: Random) -> Program:
    """Return a program with so many calls."""
    keys = [f"{name}/{number}" for number in range(calls)]
    tools = {key: chance.choice(TOOLS) for key in keys}
    rows = [[tools[key], key, chance.choice((0, 5, 50, 200, 600))] for key in keys]
    first = chance.choice((calls, calls, calls // 2))
    phases = [rows[:first], rows[first:]] if first < calls else [rows]
    return Program(name, token, CODE % (json.dumps(phases), json.dumps(token)), tools)


def named_run(text: str) -> str | None:
    """Return the id of the run that an error tells the client to wait for."""
    found = _RUN.search(text)
    return None if found is None else found[1]
