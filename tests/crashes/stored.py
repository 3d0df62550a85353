"""What is in a store, seen from outside."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def in_sqlite(path: Path) -> Callable[[], tuple[list[str], list[str]]]:
    """See `campaign`."""

    def look() -> tuple[list[str], list[str]]:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            wrong = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
            return _seen(lambda sql: [str(row[0]) for row in connection.execute(sql)], wrong)

    return look


def in_postgres(sql: Callable[[str], str], schema: str) -> Callable[[], tuple[list[str], list[str]]]:
    """Likewise. `sql`: what psql prints."""

    def look() -> tuple[list[str], list[str]]:
        return _seen(lambda statement: sql(f'SET search_path TO "{schema}"; {statement}').split(), [])

    return look


def _seen(ask: Callable[[str], list[str]], wrong: list[str]) -> tuple[list[str], list[str]]:
    wrong += [f"{count} {what}" for what, statement in LEFT.items() if (count := ask(statement)[0]) != "0"]
    return [str(json.loads(f'"{run}"')) for run in ask(WAITING)], wrong
