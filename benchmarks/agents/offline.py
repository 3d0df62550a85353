"""The bytes that each arm costs, measured without a model: scripts make the calls of a model that makes no mistake.

The scripts are run against real servers. The values of programs and the tables at the end are checked. Counted are the
bytes that a model would read (tools in the prompt, results) and write (names and arguments of calls). The words of
users and models are not counted: they are the same in each arm.

Every step reads the prompt and the conversation again. `read` is the sum over all steps, the last answer included.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio

from benchmarks.agents.arms import ARMS, Result, Toolbox, connected, opened
from benchmarks.agents.task import Task, camel, is_right, tool_at
from benchmarks.agents.worlds import Row
from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.base.text import utf8_size
from codemode_mcp.server.descriptions import prompt_bytes


@dataclass(frozen=True)
class Cost:
    """Bytes of one task in one arm.

    Attributes:
        prompt: tools in the prompt, once.
        results: results of all calls, once.
        written: names and arguments of all calls.
        steps: requests to the model, the one for its answer included.
        read: bytes that the model reads in all steps.
        calls: tools that it has called.
    """

    prompt: int
    results: int
    written: int
    steps: int
    read: int
    calls: int

    @property
    def into(self) -> int:
        """Bytes that come into the context, each once."""
        return self.prompt + self.results


class ScriptFailed(Exception):
    """A script that has not solved its task."""


@dataclass
class _Request:
    calls: Sequence[tuple[str, Row]]
    results: list[Result] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)


class Script:
    """A conversation that follows a script, and its bytes so far."""

    def __init__(self, task: Task, box: Toolbox) -> None:
        self._task = task
        self._box = box
        self._known: set[str] = set()
        self._prompt = prompt_bytes(box.tools)
        self._results = self._written = self._read = self._calls = 0
        self._steps = 0
        self._parts = 1
        self._waiting: list[_Request] = []

    async def step(self, calls: Sequence[tuple[str, Row]]) -> list[Result]:
        """Make calls as one step of a model, together with those of parts that are solved side by side."""
        request = _Request(calls)
        self._waiting.append(request)
        await self._step_if_all_wait()
        await request.done.wait()
        return request.results

    async def follow(self, steps: Sequence[Any]) -> None:
        """Make the calls of a task. Parts that run side by side share steps."""
        for step in steps:
            if isinstance(step, dict):
                self._parts += len(step["all"]) - 1
                async with anyio.create_task_group() as tasks:
                    for part in step["all"]:
                        tasks.start_soon(self._part, part)
                self._parts += 1
            else:
                await self._calls_of([(path, arguments) for path, *each in step for arguments in each])

    async def _part(self, steps: Sequence[Any]) -> None:
        await self.follow(steps)
        self._parts -= 1
        await self._step_if_all_wait()

    async def _step_if_all_wait(self) -> None:
        """Make one step if every part waits for one."""
        if not self._waiting or len(self._waiting) < self._parts:
            return
        requests, self._waiting = self._waiting, []
        results = await self._step([call for request in requests for call in request.calls])
        for request in requests:
            request.results, results = results[: len(request.calls)], results[len(request.calls) :]
            request.done.set()

    async def _step(self, calls: Sequence[tuple[str, Row]]) -> list[Result]:
        self._steps += 1
        self._read += self._prompt + self._results + self._written
        results = [await self._box.call(name, arguments) for name, arguments in calls]
        self._calls += len(calls)
        self._written += sum(utf8_size(name) + utf8_size(compact_json(arguments)) for name, arguments in calls)
        self._results += sum(utf8_size(result.text) for result in results)
        return results

    def cost(self) -> Cost:
        """Return the bytes of the conversation, with the step in which the model answers."""
        read = self._read + self._prompt + self._results + self._written
        return Cost(self._prompt, self._results, self._written, self._steps + 1, read, self._calls)

    async def _calls_of(self, calls: Sequence[tuple[str, Row]]) -> None:
        """Make calls of tools by their paths in one step. Some of them may be refused."""
        if {tool["name"] for tool in self._box.tools} == {"search", "call"}:
            await self._look_up({path for path, _ in calls})
            await self.step([("call", {"name": in_programs(path), "arguments": each}) for path, each in calls])
        else:
            await self.step([(path.replace(".", "__"), arguments) for path, arguments in calls])

    async def _look_up(self, paths: set[str]) -> None:
        """Search for tools that no search has shown yet."""
        while missing := sorted(paths - self._known):
            query = tool_at(missing[0]).sought
            (result,) = await self.step([("search", {"query": query})])
            self._known |= {path for path in self._task.needs if f"{in_programs(path)}(" in result.text}
            if missing[0] not in self._known:
                raise ScriptFailed(f"{self._task.name}: a search for {query!r} does not find {missing[0]}")

    async def programs(self) -> Any:
        """Read the types of the tools as the description of `exec` advises, and run the programs of the task."""
        await self._read_types()
        value = None
        for program in self._task.programs:
            value = await self._run(program)
        return value

    async def _read_types(self) -> None:
        """Read the type of one tool by a search; or the files of the servers, which are overviews if they are long."""
        if len(self._task.needs) == 1:
            (path,) = self._task.needs
            hits = await self._run(f"return await API.search({json.dumps(tool_at(path).sought)}, 3)")
            if in_programs(path) in [hit["call"] for hit in hits]:
                return
        files = [f"mcp/{server}.d.ts" for server in dict.fromkeys(path.partition(".")[0] for path in self._task.needs)]
        text = await self._run(f"return (await API.read({', '.join(map(json.dumps, files))})).content")
        for path in self._task.needs:
            if f"{camel(path.partition('.')[2])}(" not in text:
                raise ScriptFailed(f"{self._task.name}: API.read() does not show the type of {path}")

    async def _run(self, code: str) -> Any:
        (result,) = await self.step([("exec", {"code": code})])
        if result.is_error or (result.structured or {}).get("status") != "completed":
            raise ScriptFailed(f"{self._task.name}: a program has failed: {result.text}")
        return result.structured["value"]


def in_programs(path: str) -> str:
    server, _, name = path.partition(".")
    return f"MCP.{server}.{camel(name)}"


async def measure(task: Task, arm: str, which: str = "needed") -> Cost:
    """Return the cost of a task in an arm.

    Raises:
        ScriptFailed: a program has not given the right value, or the script has left wrong tables.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with opened(arm, connected(task.servers, which), Path(folder)) as box:
            script = Script(task, box)
            try:
                problem = await _problem(task, arm, script, box)
            except ScriptFailed as wrong:  # raised outside of the groups of tasks that the servers run in
                problem = str(wrong)
    if problem:
        raise ScriptFailed(problem)
    return script.cost()


async def _problem(task: Task, arm: str, script: Script, box: Toolbox) -> str | None:
    """Run a script, and return its mistake."""
    if arm == "code":
        value, wanted = await script.programs(), task.answer if task.value is None else task.value
        if not is_right(value, wanted):
            return f"{task.name}, {arm}: {value!r} is not {wanted!r}"
    else:
        await script.follow(task.calls)
    if problems := box.differences(task.tables()):
        return f"{task.name}, {arm}: {'; '.join(problems)}"
    return None


async def measure_all(tasks: Sequence[Task], which: str) -> dict[str, dict[str, Cost]]:
    """Return the costs by task and arm."""
    costs: dict[str, dict[str, Cost]] = {}
    for number, task in enumerate(tasks, 1):
        print(f"{number}/{len(tasks)} {task.name}", file=sys.stderr, flush=True)
        costs[task.name] = {arm: await measure(task, arm, which) for arm in ARMS}
    return costs


def to_json(costs: dict[str, dict[str, Cost]]) -> dict[str, Any]:
    return {task: {arm: asdict(cost) for arm, cost in arms.items()} for task, arms in costs.items()}


def from_json(data: dict[str, Any]) -> dict[str, dict[str, Cost]]:
    return {task: {arm: Cost(**cost) for arm, cost in arms.items()} for task, arms in data.items()}
