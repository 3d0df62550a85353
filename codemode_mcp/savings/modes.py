"""The bytes that a model would have read for the recorded tasks in each mode of `expose`. Pure.

A model reads the tools and the whole conversation again in each of its steps: for each call, and for its last words.
The figures are estimates. In `code`, calls and answers are as recorded. In `search`, each tool costs a search first,
and each call is a step. In `direct`, a task is a recorded program or single calls, whichever costs less, and no
declarations are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codemode_mcp.exposure.auto import choose_mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.exposure.auto import Mode
    from codemode_mcp.savings.exposure import Exposure
    from codemode_mcp.savings.tasks import Task

HITS: Final = 8
"""Hits of a search by default. Each has about the size of the declaration of a tool."""

QUERY_BYTES: Final = 40
"""Bytes of the arguments of a search."""


@dataclass(frozen=True, slots=True)
class ModeCosts:
    """The bytes that a model would have read for all tasks, by mode.

    Attributes:
        auto: the mode that `auto` stands for with these tools.
    """

    code: int
    search: int
    direct: int
    auto: Mode

    @property
    def of_auto(self) -> int:
        """The bytes in the mode that `auto` stands for."""
        return self.direct if self.auto == "direct" else self.code

    @property
    def best(self) -> str:
        """The mode with the fewest bytes."""
        return min(("code", "direct", "search"), key=lambda mode: int(getattr(self, mode)))


def costs_by_mode(exposure: Exposure, tasks: Iterable[Task]) -> ModeCosts:
    """Return the costs of tasks that have ended well, and of look-ups before them.

    A task that only looked something up costs nothing in `search` and `direct`, because each tool is counted with its
    own search, or is known.
    """
    code = search = direct = 0
    own, found = exposure.own.prompt, exposure.searching.prompt
    listed = own + exposure.direct.prompt
    for task in tasks:
        if task.kind not in ("task", "single", "look-up"):
            continue
        recorded = bytes_read(own, task.through, task.requests)
        code += recorded
        if task.kind == "look-up":
            continue
        calls = task.calls - task.repeats
        by_calls = task.arguments + task.results
        looking = task.tools * (HITS * exposure.one_tool + QUERY_BYTES)
        search += bytes_read(found, by_calls + looking, calls + task.tools)
        direct += min(bytes_read(listed, by_calls, calls), bytes_read(listed, task.through, task.requests))
    return ModeCosts(code, search, direct, choose_mode(exposure.direct.prompt, None))


def bytes_read(prompt: int, through: int, steps: int) -> int:
    """Return the bytes that a model reads in a conversation.

    Args:
        prompt: bytes of the tools.
        through: bytes of all calls and their answers, which grow evenly.
        steps: number of calls. One more step is the last words of the model.
    """
    return (steps + 1) * prompt + through * (steps + 1) // 2
