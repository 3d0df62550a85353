"""The tasks: questions, their right answers, and two ways to solve each. They are in `tasks.json`.

The calls of a task are recorded. They are those of a careful model that sees all tools: each step has all calls that
need no result of each other. A step is a list of `[path, arguments, ...]`, with the arguments of each call of a tool;
or `{"all": [...]}`, whose parts are lists of steps that run side by side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agents.worlds import WORLDS, Row, Tables, Tool


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: a short name, the same in all reports.
        servers: names of the servers that are connected, one to five.
        question: the words of the user.
        form: the form of the answer, in words.
        needs: paths of the tools that a solution calls.
        answer: the right answer.
        value: the value of the last program, if a model has to understand a text in it; otherwise None.
        changes: rows that are gone and that are new at the end, by server and table.
        calls: solve the task by calls, whose arguments a model would write itself.
        programs: solve the task one after the other. A second one is there if a model must read something in between.
    """

    name: str
    servers: tuple[str, ...]
    question: str
    form: str
    needs: tuple[str, ...]
    answer: Any
    calls: Sequence[Any]
    programs: tuple[str, ...]
    changes: Mapping[str, Mapping[str, Mapping[str, list[Row]]]]
    value: Any = None

    @property
    def prompt(self) -> str:
        """The text that a model gets."""
        return f"{self.question}\n\nThe answer is {self.form}."

    def tables(self) -> dict[str, Tables]:
        """Return the tables that the servers must have at the end."""
        found = {name: WORLDS[name].make() for name in self.servers}
        for server, tables in self.changes.items():
            for table, rows in tables.items():
                for row in rows["gone"]:
                    found[server][table].remove(row)
                found[server][table] += rows["new"]
        return found


def _read() -> tuple[Task, ...]:
    found = []
    for each in json.loads(Path(__file__).with_name("tasks.json").read_text("utf-8")):
        programs = tuple("\n".join(lines) for lines in each.pop("programs"))
        lists = {name: tuple(each.pop(name)) for name in ("servers", "needs")}
        found.append(Task(**{"changes": {}, **each}, **lists, programs=programs))
    return tuple(found)


TASKS = _read()
"""All tasks, by the number of their servers."""


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
