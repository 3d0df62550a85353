"""Random programs that give a full account of what they did and saw. Pure.

A program counts its calls: the number of one, its step, is its key, with the program's tag before it. Each call carries
`past`, a digest of all that the program had seen when it was made. What comes of a program is `Account`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOT_REPEATABLE = frozenset(("append", "slow_append", "broken_append", "task_append"))
TOOLS = (
    *("append", "append", "read", "put", "slow_append", "slow_append", "slow_read", "slow_put", "broken_append"),
    *("task_append", "task_append", "task_put"),
)

_HEAD = """
const TAG = "%s";
const seen = {}, made = {}, lines = [], wrong = [];
let step = 0, past = 0;
function say(line) { lines.push(`${lines.length} ${line}`); text(lines.at(-1)); }
function saw(word) { for (const c of word) past = (past * 31 + c.codePointAt(0)) | 0; }
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function call(tool) {
  const at = ++step;
  made[at] = [tool, past];
  say(`${at} ${tool}`);
  try {
    const { serial } = unwrap(await MCP.box[tool]({ key: `${TAG}/${at}`, step: at, past }));
    seen[at] = { end: "done", serial };
  } catch (error) {
    const { dispatched = null, outcome = null } = error.data ?? {};
    seen[at] = { end: "failed", code: error.code ?? null, dispatched, outcome, message: error.message };
  }
  saw(`${at}${seen[at].end}${seen[at].serial ?? seen[at].message}`);
  say(`${at} ${seen[at].end}`);
  return seen[at];
}
async function kept(name, value) {
  store(TAG + name, value);
  const found = await load(TAG + name);
  if (found !== value) wrong.push(`${name} is ${found}, not ${value}`);
}
"""
_TAIL = """
say("over");
return { tag: TAG, seen, made, lines, wrong, left: step - Object.keys(seen).length };
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        sequential: it makes no call while another one is in flight.
    """

    tag: str
    code: str
    sequential: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The facts that a program reports about itself.

    Attributes:
        made: tool and `past` of each call, by step.
        seen: how those ended that it has seen the end of.
        lines: all that it has printed.
        wrong: what it has found to be otherwise than it must be.
    """

    tag: str
    made: dict[int, tuple[str, int]]
    seen: dict[int, dict[str, Any]]
    lines: tuple[str, ...]
    wrong: tuple[str, ...]


def account_of(value: Any) -> Account:
    return Account(
        value["tag"],
        {int(step): (tool, past) for step, (tool, past) in value["made"].items()},
        {int(step): end for step, end in value["seen"].items()},
        tuple(value["lines"]),
        tuple(value["wrong"]),
    )


def program(random: random.Random, tag: str, shapes: tuple[str, ...] = ()) -> Program:
    """Any program. `shapes`: of its parts, in order; none: whatever comes."""
    chosen = shapes or tuple(random.choice(tuple(SHAPES)) for _ in range(random.randint(1, 3)))
    parts = [SHAPES[shape](random) for shape in chosen]
    return Program(tag, _HEAD % tag + "\n".join(parts) + _TAIL, all(shape in _SEQUENTIAL for shape in chosen))


def _tool(random: random.Random, tools: tuple[str, ...] = TOOLS) -> str:
    return random.choice(tools)


def _calls(random: random.Random, most: int) -> str:
    return ", ".join(f'call("{_tool(random)}")' for _ in range(random.randint(2, most)))


def _in_turn(random: random.Random) -> str:
    return "\n".join(f'await call("{_tool(random)}");' for _ in range(random.randint(1, 5)))


def _all(random: random.Random) -> str:
    return f"await Promise.{random.choice(('all', 'allSettled'))}([{_calls(random, 6)}]);"


def _race(random: random.Random) -> str:
    after = random.choice(("await Promise.all(racing);", f'await call("{_tool(random)}"); await Promise.all(racing);'))
    return (
        f'{{ const racing = [call("{_tool(random, ("slow_append", "slow_read", "slow_put"))}"), {_calls(random, 4)}];\n'
        f"const first = await Promise.race(racing); saw(first.end);\n{after} }}"
    )


def _loop(random: random.Random) -> str:
    tools = [_tool(random) for _ in range(3)]
    return (
        f"for (let n = 0; n < {random.randint(2, 5)}; n++) {{\n"
        f"  const end = await call({tools!r}[n % 3]);\n"
        '  if (end.outcome === "unknown") await call("read");\n'
        '  if (end.end === "failed") { saw("again"); await call("put"); }\n}'
    )


def _timer(random: random.Random) -> str:
    ms = random.choice((0, 5, 40, 150))
    return random.choice(
        (
            f"await pause({ms}); say('woken');",
            f'await Promise.all([pause({ms}).then(() => call("{_tool(random)}")), call("{_tool(random)}")]);',
            f'await Promise.race([pause({ms}), call("slow_append")]); say("whichever");',
        )
    )


def _yield(random: random.Random) -> str:
    return "await yield_control('so far');" + random.choice(("", f'\nawait call("{_tool(random)}");'))


def _kept(random: random.Random) -> str:
    return f'await kept("a", {random.randint(0, 9)}); await call("{_tool(random)}"); await kept("a", {{ b: step }}.b);'


def _two(random: random.Random) -> str:
    first, second = (
        f"(async () => {{ {'; '.join(f'await call({_tool(random)!r})' for _ in range(random.randint(1, 3)))} }})()"
        for _ in range(2)
    )
    return f"await Promise.all([{first}, {second}]);"


def _left(random: random.Random) -> str:
    return f'void call("{_tool(random)}");' + random.choice(("", "await pause(1);", 'void call("append");'))


SHAPES: dict[str, Callable[[random.Random], str]] = {
    "in_turn": _in_turn,
    "all": _all,
    "race": _race,
    "loop": _loop,
    "timer": _timer,
    "yield": _yield,
    "kept": _kept,
    "two": _two,
    "left": _left,
    # of the harness's own tests
    "suspended_append": lambda _: 'await yield_control(); await call("append"); await call("append");',
    "suspended_task": lambda _: 'await yield_control(); await call("task_append"); await call("task_append");',
    "suspended_slow": lambda _: 'await call("slow_append"); await call("append"); await call("slow_append");',
}
_SEQUENTIAL = frozenset(("in_turn", "loop", "yield", "kept", "suspended_append", "suspended_slow", "suspended_task"))
