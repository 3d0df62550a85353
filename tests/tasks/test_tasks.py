"""Ten tasks are solved in each mode, and `auto` costs little more than the best mode."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import REPOSITORY, quickstart
from tests.tasks.solving import model
from tests.tasks.tasks import TASKS, Task

pytestmark = pytest.mark.anyio

OFFICES = ("berlin", "bogota", "cairo", "hanoi", "lagos", "lima", "lisbon", "nairobi", "osaka", "porto", "quito")


def write(folder: Path, mode: str, offices: int, allow: list[str] | None = None) -> Path:
    """Write a configuration with the servers of the tasks, and others that no task needs."""
    servers: dict[str, Any] = quickstart()
    script = REPOSITORY / "examples" / "many_servers" / "office.py"
    for name in OFFICES[:offices]:
        servers[name] = {"command": sys.executable, "args": [str(script), name.title(), "5"]}
    tools = {} if allow is None else {"allow": allow}
    path = folder / f"{mode}.json"
    path.write_text(json.dumps({"mcpServers": servers, "expose": {"mode": mode}, "tools": tools}), "utf-8")
    return path


async def costs(folder: Path, mode: str, offices: int, allow: list[str] | None) -> tuple[list[Any], int]:
    """Return the answers of all tasks, and the bytes of all conversations: each task is one of its own."""
    answers, total = [], 0
    tasks = TASKS if allow is None else [each for each in TASKS if _needs_reports_alone(each)]
    async with model(write(folder, mode, offices, allow)) as first:
        for task in tasks:
            one = type(first)(first.client, first.tools)
            answers.append(await one.solve(task))
            total += one.cost
    return answers, total


@pytest.mark.parametrize(
    ("offices", "allow"), [(0, ["mcp:reports:*"]), (0, None), (11, None)], ids=["3 tools", "9 tools", "42 tools"]
)
async def test_all_modes_solve_the_tasks_and_auto_costs_little_more_than_the_best(
    tmp_path: Path, offices: int, allow: list[str] | None
) -> None:
    """Solve all tasks; with three tools, only those of their server."""
    found = {mode: await costs(tmp_path, mode, offices, allow) for mode in ("code", "search", "direct", "auto")}
    answers = [answer for answer, _ in found.values()]
    assert answers == [answers[0]] * 4
    total = {mode: cost for mode, (_, cost) in found.items()}
    assert total["auto"] <= 1.1 * min(total.values()), total
    print(total)


def _needs_reports_alone(task: Task) -> bool:
    return all(path.startswith("reports.") for path in task.looks_for)
