"""The suite's scenarios about tasks, with the product behind a front that has the suite's tools."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.integration.harness import DOWN
from tests.integration.http_harness import serve_http, write_http_config
from tests.mcp_conformance.suite import SUITE, Expected, Report, run_scenario
from tests.mcp_conformance.task_front import task_front

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not SUITE.is_dir(), reason="no conformance suite; python3 tests/run.py installs it"),
]

SCENARIOS = (
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-mrtr-composition"),
)
"""All but two. `tasks-required-task-error` is about tools that need tasks, and `exec` does not. The suite skips
`tasks-status-notifications`."""


async def test_suspended_programs_pass_the_scenarios_about_tasks(tmp_path: Path) -> None:
    expected = Expected.read("tasks")
    reports: dict[str, Report] = {}
    two = anyio.Semaphore(2)

    async def run(scenario: str) -> None:
        async with two:
            reports[scenario] = await run_scenario(scenario, url, expected, tmp_path / scenario)

    config = write_http_config(tmp_path, DOWN, store={"kind": "memory"})
    async with serve_http(config) as served:
        with task_front(served.url) as url:
            async with anyio.create_task_group() as group:
                for scenario in SCENARIOS:
                    group.start_soon(run, scenario)
    surprises = [each for scenario in SCENARIOS for each in reports[scenario].surprises(scenario)]
    assert not surprises, "\n".join(surprises)
