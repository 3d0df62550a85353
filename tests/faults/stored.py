"""The evidence of a campaign: a store seen from outside with every change that was committed to it, and the ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.campaign import Figures
from tests.faults.histories import Histories

WAITING = "SELECT id FROM runs WHERE state = 'waiting' ORDER BY id"

LEFT = {
    "calls of runs that have ended": (
        "SELECT COUNT(*) FROM calls WHERE run NOT IN (SELECT id FROM runs WHERE state = 'waiting')"
    ),
    "snapshots of runs that have ended": (
        "SELECT COUNT(*) FROM snapshots WHERE run NOT IN (SELECT id FROM runs WHERE state = 'waiting')"
    ),
    "outputs of runs that have ended": (
        "SELECT COUNT(*) FROM outputs WHERE run NOT IN (SELECT id FROM runs WHERE state = 'waiting')"
    ),
    "ended runs that are claimed": "SELECT COUNT(*) FROM runs WHERE state <> 'waiting' AND holder IS NOT NULL",
}

CHANGES = "SELECT line FROM crash_changes ORDER BY number"

RUN, CALL = ("state", "token", "holder"), ("status", "carrier")
"""Columns whose changes are recorded. Nothing else in a row says who may do what."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A store of the processes under test.

    Attributes:
        ask: the rows of a statement with one column, as text.
        script: carries out statements.
        check: what the database itself finds wrong.
        triggers: the statements that have changes recorded, in the dialect of the database.
    """

    ask: Callable[[str], list[str]]
    script: Callable[[str], object]
    check: Callable[[], list[str]]
    triggers: str

    def look(self) -> tuple[list[str], list[str]]:
        """Return the ids of suspended runs, and what is there that should not be when there is none."""
        wrong = self.check()
        wrong += [f"{count} {what}" for what, statement in LEFT.items() if (count := self.ask(statement)[0]) != "0"]
        return [str(json.loads(f'"{run}"')) for run in self.ask(WAITING)], wrong

    def watch(self) -> None:
        """Have every change of a run or a call recorded from now on, in the transaction that makes it."""
        self.script(self.triggers)

    def changes(self) -> list[str]:
        """Return all changes in order: `run|id|...|...` and `call|run|id|...|...|repeatable`, old before new.

        The columns are those of `RUN` and `CALL`, empty where there was, or is, no row.
        """
        return self.ask(CHANGES)


def in_sqlite(path: Path) -> Stored:
    def ask(sql: str) -> list[str]:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            return [str(row[0]) for row in connection.execute(sql)]

    def script(sql: str) -> None:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.executescript(sql)

    return Stored(ask, script, lambda: [row for row in ask("PRAGMA integrity_check") if row != "ok"], _of_sqlite())


def in_postgres(sql: Callable[[str], str], schema: str) -> Stored:
    """`sql`: returns what psql prints."""

    def ask(statement: str) -> list[str]:
        return sql(f'SET search_path TO "{schema}"; {statement}').splitlines()

    return Stored(ask, ask, list, _of_postgres())


def _line(kind: str, old: str, new: str) -> str:
    """Return an expression for a change. `old`, `new`: names of the row before and after; empty: there is none."""
    key, columns = (("id",), RUN) if kind == "run" else (("run", "id"), CALL)
    row = new or old
    parts = [f"'{kind}'", *(f"{row}.{name}" for name in key)]
    for each in (old, new):
        parts += [f"COALESCE(CAST({each}.{name} AS TEXT), '')" if each else "''" for name in columns]
    if kind == "call":
        parts.append(f"{row}.repeatable")
    return " || '|' || ".join(parts)


def _triggers() -> list[tuple[str, str, str, str]]:
    """Return name, event, table and the expression of a line for each trigger."""
    return [
        ("run_made", "INSERT", "runs", _line("run", "", "NEW")),
        ("run_changed", f"UPDATE OF {', '.join(RUN)}", "runs", _line("run", "OLD", "NEW")),
        ("call_made", "INSERT", "calls", _line("call", "", "NEW")),
        ("call_changed", f"UPDATE OF {', '.join(CALL)}", "calls", _line("call", "OLD", "NEW")),
        ("call_dropped", "DELETE", "calls", _line("call", "OLD", "")),
    ]


def _of_sqlite() -> str:
    made = ["CREATE TABLE crash_changes (number INTEGER PRIMARY KEY, line TEXT NOT NULL)"]
    made += [
        f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN INSERT INTO crash_changes (line) VALUES ({line}); END"
        for name, event, table, line in _triggers()
    ]
    return f"BEGIN; {'; '.join(made)}; COMMIT;"


def _of_postgres() -> str:
    made = ["CREATE TABLE crash_changes (number BIGSERIAL PRIMARY KEY, line TEXT NOT NULL)"]
    for name, event, table, line in _triggers():
        made += [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
            f"$$ BEGIN INSERT INTO crash_changes (line) VALUES ({line}); RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
        ]
    return "; ".join(made)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A campaign that is over, with the evidence that its processes and its store have left."""

    figures: Figures
    lines: tuple[dict[str, Any], ...]
    changes: tuple[str, ...]

    def judge(self) -> Histories:
        histories = Histories()
        for line in self.lines:
            histories.take(line)
        histories.judge_rows(self.changes)
        return histories
