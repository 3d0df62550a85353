"""The form of a task: a question, its right answer, and two ways to solve it. Pure.

The right answer is computed from the data of the servers by `reference`, which uses no tool. For a task that changes
something, `reference` makes the changes too: afterwards, its tables are those that the servers must have at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.agents.worlds import WORLDS
from benchmarks.agents.worlds.base import Row, Tables, Tool


class Refused(Exception):
    """A call whose result is an error; its text is what a model reads."""


class Calls(Protocol):
    """A way to call tools by their paths, such as `crm.get_customer`."""

    async def __call__(self, path: str, **arguments: Any) -> Any:
        """Make one call, as a step of its own."""

    async def together(self, calls: Sequence[tuple[str, Row]], *, refusals: bool = False) -> list[Any]:
        """Make independent calls in one step. With `refusals`, errors are among the results."""

    async def all(self, *parts: Coroutine[Any, Any, Any]) -> list[Any]:
        """Do independent parts of a solution side by side: their calls share steps."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: a short name, the same in all reports.
        servers: names of the servers that are connected, one to five.
        question: the words of the user.
        form: the form of the answer, in words.
        needs: paths of the tools that a solution calls.
        reference: computes the right answer from the tables of the servers, and makes the right changes to them.
        calls: solves the task by calls, whose arguments a model would write itself.
        programs: solve the task one after the other. A second one is there if a model must read something in between.
        reads: makes the answer of the value of the last program, if a model has to understand a text.
    """

    name: str
    servers: tuple[str, ...]
    question: str
    form: str
    needs: tuple[str, ...]
    reference: Callable[[dict[str, Tables]], Any]
    calls: Callable[[Calls], Awaitable[Any]]
    programs: tuple[str, ...]
    reads: Callable[[Any], Any] = _same

    @property
    def prompt(self) -> str:
        """The text that a model gets."""
        return f"{self.question}\n\nThe answer is {self.form}."

    def solved(self) -> tuple[Any, dict[str, Tables]]:
        """Return the right answer, and the tables that the servers must have at the end."""
        tables = {name: WORLDS[name]().tables for name in self.servers}
        answer = self.reference(tables)
        # Tuples become lists, as in the answer of a model.
        return json.loads(json.dumps(answer)), tables


def tool_at(path: str) -> Tool:
    server, _, name = path.partition(".")
    return WORLDS[server].tools()[name]


def camel(name: str) -> str:
    """Return the name of a tool in programs."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def is_right(answer: Any, wanted: Any) -> bool:
    """Return True if an answer is the right one. Numbers may differ in the seventh digit, nothing else may."""
    if isinstance(wanted, bool) or isinstance(answer, bool):
        return answer is wanted
    if isinstance(wanted, int | float) and isinstance(answer, int | float):
        return math.isclose(answer, wanted, rel_tol=1e-7, abs_tol=1e-9)
    if isinstance(wanted, list) and isinstance(answer, list):
        return len(answer) == len(wanted) and all(map(is_right, answer, wanted))
    if isinstance(wanted, dict) and isinstance(answer, dict):
        return answer.keys() == wanted.keys() and all(is_right(answer[key], wanted[key]) for key in wanted)
    return bool(answer == wanted)


def differences(found: Tables, wanted: Tables) -> list[str]:
    """Return what differs between the tables of a server and the right ones. The order of rows counts nothing."""
    problems: list[str] = []
    for table, rows in wanted.items():
        left, extra = [*rows], []
        for row in found[table]:
            if row in left:
                left.remove(row)
            else:
                extra.append(row)
        problems += [f"{table} lacks {json.dumps(row)[:200]}" for row in left]
        problems += [f"{table} has {json.dumps(row)[:200]}" for row in extra]
    return problems
