"""Programs whose calls are answered with tasks, through the real command: they outlive a killed process, and cancel."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import Raw, handshaken, until
from tests.ports import reserved_port

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "upstream_clients" / "servers" / "task_server.py"
PROGRAM = (
    "try { return unwrap(await MCP.jobs.work({script: {until: 'go'}, label: 'one'}, %s)).label }"
    "catch (error) { return [error.code, error.data?.outcome ?? null, error.message] }"
)


class Jobs:
    """A task server with its folder, and a configuration that has it."""

    def __init__(self, folder: Path, era: str, port: int | None) -> None:
        self.folder = folder / "jobs"
        self.folder.mkdir(exist_ok=True)
        self._era = era
        self._port = port
        entry: dict[str, Any] = {"url": f"http://127.0.0.1:{port}/mcp"}
        if port is None:
            entry = {"command": sys.executable, "args": [str(SERVER), str(self.folder), era]}
        self.trajectory = folder / "runs.jsonl"
        tools = {"codeMode": {"timeoutMs": 1500}}
        self.config = folder / "config.json"
        self.config.write_text(
            json.dumps({"mcpServers": {"jobs": entry}, "tools": tools, "audit": {"trajectory": "runs.jsonl"}})
        )
        self.env = {"XDG_STATE_HOME": str(folder / "state")}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self._port is None:
            yield
            return
        command = [sys.executable, str(SERVER), str(self.folder), self._era, str(self._port)]
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            await process.stdout.receive()
            try:
                yield
            finally:
                process.kill()

    def count(self, method: str) -> int:
        path = self.folder / "requests.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(json.loads(line)["method"] == method for line in lines)

    def finish(self) -> None:
        (self.folder / "go").touch()

    def forget(self) -> None:
        for path in self.folder.glob("*.task"):
            path.unlink()


async def call(client: Raw, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call(tool, arguments)
    content: dict[str, Any] = answer["result"]["structuredContent"]
    return content


async def ended(client: Raw, answer: dict[str, Any]) -> dict[str, Any]:
    run_id = answer.get("runId")
    while answer["status"] == "waiting":
        answer = await call(client, "wait", runId=run_id)
    return answer


@pytest.fixture(params=["modern http", "modern stdio", "legacy stdio"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    era, transport = request.param.split()
    return Jobs(tmp_path, era, reserved_port() if transport == "http" else None)


@pytest.mark.parametrize("how", ["killed", "told to stop"])
async def test_a_process_that_is_started_again_follows_the_tasks_of_suspended_programs(jobs: Jobs, how: str) -> None:
    async with jobs.running():
        async with handshaken(jobs.config, env=jobs.env) as first:
            answer = await call(first, "exec", code=PROGRAM % "{}")
            assert answer["status"] == "waiting"
            await until(lambda: jobs.count("tasks/get") > 1)
            if how == "killed":
                first.process.kill()
                await first.process.wait()
            else:
                await first.end()
        jobs.finish()
        async with handshaken(jobs.config, env=jobs.env) as second:
            answer = await ended(second, answer)
    assert (answer["status"], answer.get("value")) == ("completed", "one"), answer
    assert (jobs.count("tools/call"), jobs.count("tasks/cancel")) == (1, 0)
    events = map(json.loads, jobs.trajectory.read_text().splitlines())
    # A process that is told to stop reports that it has given the call up.
    *_, recorded = [event for event in events if event["kind"] == "call_ended"]
    assert (recorded["task"], recorded["status"]) == (True, "completed")


async def test_a_task_that_its_server_has_forgotten_meanwhile_is_unknown(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "modern", reserved_port())
    async with jobs.running():
        async with handshaken(jobs.config, env=jobs.env) as first:
            answer = await call(first, "exec", code=PROGRAM % "{}")
            await until(lambda: jobs.count("tasks/get") > 1)
            first.process.kill()
            await first.process.wait()
        jobs.forget()
        async with handshaken(jobs.config, env=jobs.env) as second:
            code, outcome, message = (await ended(second, answer))["value"]
    assert (code, outcome) == ("nested_tool_failed", "unknown")
    assert "does not know its task" in message
    assert jobs.count("tools/call") == 1
