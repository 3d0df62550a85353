"""Calls of the tools of a task in this process. No server is started, so a test of all tasks takes milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.agents.task import Refused
from benchmarks.agents.worlds import WORLDS
from benchmarks.agents.worlds.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from benchmarks.agents.task import Task
    from benchmarks.agents.worlds.base import Row


class LocalCalls:
    """Calls of new servers of a task."""

    def __init__(self, task: Task) -> None:
        self.worlds = {name: WORLDS[name]() for name in task.servers}
        self.called: set[str] = set()

    async def __call__(self, path: str, **arguments: Any) -> Any:
        return (await self.together([(path, arguments)]))[0]

    async def all(self, *parts: Coroutine[Any, Any, Any]) -> list[Any]:
        return [await part for part in parts]

    async def together(self, calls: Sequence[tuple[str, Row]], *, refusals: bool = False) -> list[Any]:
        found: list[Any] = []
        for path, arguments in calls:
            self.called.add(path)
            server, _, name = path.partition(".")
            try:
                found.append(self.worlds[server].call(name, arguments))
            except ToolError as error:
                if not refusals:
                    raise Refused(str(error)) from error
                found.append(Refused(str(error)))
        return found
