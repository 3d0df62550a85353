"""All tasks, by the number of their servers."""

from __future__ import annotations

from benchmarks.agents.task import Task
from benchmarks.agents.tasks import changes, double, lookups, operations, single, triple, wide, widest

_MODULES = (single, changes, double, operations, triple, wide, lookups, widest)
TASKS: tuple[Task, ...] = tuple(
    sorted((task for module in _MODULES for task in module.TASKS), key=lambda task: len(task.servers))
)
