"""A database of this process alone, in memory and without threads, whose clock a test can move on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.stores.schema import migrate
from codemode_mcp.stores.work import Alive, Now, Query, Work

Result = TypeVar("Result")


class Direct:
    """A `Database`.

    Attributes:
        now: seconds since the epoch; each look at it takes one.
        asked: all statements so far.
        failing: what it raises instead of doing anything.
    """

    process = "this one"
    name = "a test's"
    blob = "BLOB"

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.asked: list[str] = []
        self.failing: CodeModeError | None = None
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self._carry_out(migrate(self.name, self.blob))

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        if self.failing is not None:
            raise self.failing
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            result = self._carry_out(work())
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        return result

    def is_alive(self) -> bool:
        return True

    async def next_notification(self) -> str | None:
        raise NotImplementedError

    def _carry_out(self, work: Work[Result]) -> Result:
        answer: Any = None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            match asked:
                case Query(sql, values):
                    self.asked.append(sql)
                    answer = self.connection.execute(sql, values).fetchall()
                case Now():
                    self.now += 1
                    answer = self.now
                case Alive(processes):
                    answer = processes & {self.process}
                case _:
                    answer = None
