"""Tests of calls that were answered with tasks, whose processes end: the next one follows the task."""

from __future__ import annotations

from typing import Any, Unpack

import anyio
import pytest

from codemode_mcp.audit.events import Event
from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.runs import persisting
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.runs import DurableStore
from tests.runs.bench import FakeClient, ran
from tests.stores.replicas import READ, WRITE, Replicas, until_done
from tests.waiting import until
from upstream_clients.errors import TaskLost, UpstreamCallError
from upstream_clients.testing import ScriptedSource
from upstream_clients.tools import CallOptions, JsonObject, Question, TaskOptions, ToolOutcome

CODE = "const r = await MCP.files.%s({n: 1}); return unwrap(r).text"
UNKNOWN = (
    "try { await MCP.files.write({n: 1}); return 'made' }"
    "catch (error) { return [error.code, error.data.dispatched, error.data.outcome, error.message] }"
)


class TaskSource(ScriptedSource):
    """A source that answers each call with a task, whose handle is `task of <tool> <n>`.

    Attributes:
        tasks: True to answer the next calls with tasks. Until then, they wait.
        done: set when all tasks have ended.
        followed: the handles of tasks of earlier processes.
        cancelled: number of tasks that were cancelled at the server.
        left: number of tasks that were left to a later process.
        error: what following a task of an earlier process raises.
    """

    def __init__(self, *, done: bool = False, error: Exception | None = None, asks: bool = False) -> None:
        super().__init__("files", {"read": {}, "write": {}}, tools=[READ, WRITE])
        self.tasks = anyio.Event()
        self.tasks.set()
        self.done = anyio.Event()
        if done:
            self.done.set()
        self.followed: list[str] = []
        self.created = 0
        self.cancelled = 0
        self.left = 0
        self._error = error
        self._asks = asks

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        task = options.get("task")
        assert task is not None
        if task.known:
            self.followed.append(task.known)
            return await self._follow(task.known, task, options)
        await self._begin(tool, options)
        self._record(tool, arguments, options.get("on_sent"))
        await self.tasks.wait()
        handle = f"task of {tool} {arguments.get('n')}"
        assert task.created is not None
        await task.created(handle)
        self.created += 1
        return await self._follow(handle, task, options)

    async def _follow(self, handle: str, task: TaskOptions, options: CallOptions) -> ToolOutcome:
        if task.known and self._error is not None:
            raise self._error
        answer: Any = None
        try:
            if task.known and self._asks:
                asking = options.get("asking")
                assert asking is not None
                answer = await asking.ask(Question("files", "elicitation/create", {"message": "Name?"}))
            await self.done.wait()
        except anyio.get_cancelled_exc_class():
            if task.is_left():
                self.left += 1
            else:
                self.cancelled += 1
            raise
        text = f"done {handle}" if answer is None else f"done {handle} {answer['content']}"
        return ToolOutcome({"content": [], "structuredContent": {"text": text}})


@pytest.mark.parametrize("tool", ["read", "write"])
async def test_a_task_is_followed_by_the_next_process(replicas: Replicas, tool: str) -> None:
    first_source, source = TaskSource(), TaskSource(done=True)
    async with replicas(first_source) as first:
        waiting = await first.execute(CODE % tool)
        assert waiting.status == "waiting"
    assert (first_source.left, first_source.cancelled) == (1, 0)
    outcome = await replicas.end(source, waiting.run_id)
    assert (outcome.status, outcome.value) == ("completed", f"done task of {tool} 1")
    assert (source.followed, source.calls) == ([f"task of {tool} 1"], [])


async def test_a_task_that_is_created_while_the_program_is_suspended_is_recorded_too(replicas: Replicas) -> None:
    first_source, source = TaskSource(), TaskSource(done=True)
    first_source.tasks = anyio.Event()
    async with replicas(first_source) as first:
        waiting = await first.execute(CODE % "write")
        first_source.tasks.set()
        await until(lambda: first_source.created == 1)
    assert (await replicas.end(source, waiting.run_id)).value == "done task of write 1"
    assert source.calls == []


async def test_a_third_process_follows_it_when_the_second_ends_too(replicas: Replicas) -> None:
    sources = TaskSource(), TaskSource(), TaskSource(done=True)
    waiting = await replicas.execute(sources[0], CODE % "write")
    async with replicas(sources[1]) as second:
        assert (await second.observe(waiting.run_id)).status == "waiting"
        assert sources[1].followed == ["task of write 1"]
        # A wait of the same process does not follow it a second time.
        assert (await second.observe(waiting.run_id)).status == "waiting"
        assert sources[1].followed == ["task of write 1"]
    assert sources[1].left == 1
    assert (await replicas.end(sources[2], waiting.run_id)).value == "done task of write 1"
    assert [each.cancelled for each in sources] == [0, 0, 0]


async def test_a_process_that_waits_for_a_task_of_a_dying_one_follows_it(replicas: Replicas) -> None:
    ends: list[Any] = []
    source = TaskSource(done=True)

    async def wait() -> None:
        ends.append(await second.observe(waiting.run_id))

    with anyio.fail_after(30):
        async with replicas(source, timeout_ms=20_000) as second, anyio.create_task_group() as group:  # noqa: SIM117 - the first one ends before
            async with replicas(TaskSource()) as first:
                waiting = await first.execute(CODE % "write")
                group.start_soon(wait)
                await until(lambda: second.manager.operator.view(waiting.run_id) is not None)
    assert (ends[0].value, source.followed) == ("done task of write 1", ["task of write 1"])


async def test_a_run_that_the_next_process_cancels_has_its_task_cancelled(replicas: Replicas) -> None:
    waiting = await replicas.execute(TaskSource(), CODE % "write")
    source = TaskSource()
    async with replicas(source) as second:
        assert (await second.observe(waiting.run_id)).status == "waiting"
        assert (await second.observe(waiting.run_id, cancel=True)).code == "aborted"
        await until(lambda: source.cancelled == 1)
    assert source.left == 0


async def test_a_task_that_the_server_does_not_know_leaves_the_outcome_unknown(replicas: Replicas) -> None:
    waiting = await replicas.execute(TaskSource(), UNKNOWN)
    lost = TaskLost("files", "server 'files' does not know the task")
    code, dispatched, outcome, message = (await replicas.end(TaskSource(error=lost), waiting.run_id)).value
    assert (code, dispatched, outcome) == ("nested_tool_failed", True, "unknown")
    assert "does not know the task" in message


async def test_a_task_that_has_failed_is_not_unknown(replicas: Replicas) -> None:
    waiting = await replicas.execute(TaskSource(), UNKNOWN)
    error = UpstreamCallError("files", "it is broken", dispatched=True)
    code, dispatched, outcome, _ = (await replicas.end(TaskSource(error=error), waiting.run_id)).value
    assert (code, dispatched, outcome) == ("nested_tool_failed", True, None)


async def test_a_question_of_a_task_of_an_earlier_process_reaches_the_client_of_the_next(replicas: Replicas) -> None:
    waiting = await replicas.execute(TaskSource(), CODE % "write")
    client = FakeClient("ask", replies=[{"action": "accept", "content": "Ada"}])
    outcome = await replicas.end(TaskSource(done=True, asks=True), waiting.run_id, client=client)
    assert outcome.value == "done task of write 1 Ada"


async def test_a_task_is_recorded_when_the_store_is_back(replicas: Replicas) -> None:
    replicas.patch.setattr(persisting, "RETRY_SECONDS", 0.001)
    errors = [StoreUnavailable("away"), StoreUnavailable("away")]
    inner = DurableStore.note_task

    async def note_task(self: DurableStore, run_id: str, call: int, task: str) -> bool:
        if errors:
            raise errors.pop()
        return await inner(self, run_id, call, task)

    replicas.patch.setattr(DurableStore, "note_task", note_task)
    first_source = TaskSource()
    first_source.tasks = anyio.Event()
    async with replicas(first_source) as first:
        waiting = await first.execute(CODE % "write")
        first_source.tasks.set()
        (live,) = first.manager._live.runs[waiting.run_id].calls.values()
        await until(lambda: live.task_stored)
        assert not errors
    assert (await replicas.end(TaskSource(done=True), waiting.run_id)).value == "done task of write 1"


async def test_a_task_of_a_program_that_ends_with_its_process_is_cancelled(engine: Engine) -> None:
    source = TaskSource()
    assert (await ran(engine, CODE % "write", source, timeout_ms=200)).status == "waiting"
    assert (source.cancelled, source.left) == (1, 0)


async def test_events_say_that_a_call_was_a_task(replicas: Replicas) -> None:
    events: list[Event] = []
    source = TaskSource()
    waiting = await replicas.execute(source, CODE % "write")
    async with replicas(TaskSource(done=True)) as second:
        second.auditor.add(events.append)
        await until_done(second, waiting.run_id)
    (ended,) = [each for each in events if each.kind == "call_ended"]
    assert ended.fields["task"] is True
    assert ended.fields["status"] == "completed"
