"""Calls that are sent without a task of their own: the same promises hold as for all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Unpack

import anyio
import pytest

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench
from tests.stores.replicas import replica
from upstream_clients.eager import Reply
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import ScriptedSource
from upstream_clients.tools import Annotations, CallOptions, JsonObject, Tool, ToolOutcome

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO = Tool("echo", input_schema=TEXT, annotations=Annotations(read_only=True))
WRITE = Tool("write", input_schema=TEXT, annotations=Annotations(read_only=False, idempotent=False))


class InFlight:
    def __init__(self, source: DirectFake, arguments: JsonObject) -> None:
        self.arguments = arguments
        self.cancelled = False
        self.reply: Reply[ToolOutcome] = Reply()
        self._source = source

    def end(self, end: ToolOutcome | Exception | None = None) -> None:
        self._source.in_flight.remove(self)
        if end is None:
            result = {"content": [{"type": "text", "text": self.arguments.get("text", "")}]}
            end = ToolOutcome(result, (), json.dumps(result))
        if isinstance(end, Exception):
            self.reply.fail(end)
        else:
            self.reply.bring(end)


class DirectFake(ScriptedSource):
    """A source that sends immediately. Its calls stay in flight until the test ends them."""

    def __init__(self) -> None:
        super().__init__("up", {}, tools=[ECHO, WRITE])
        self.sent: list[Any] = []
        self.in_flight: list[InFlight] = []
        self.has_sent = anyio.Event()

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        if (begin := options.get("begin")) is not None:
            await begin()
        if (admit := options.get("admit")) is not None:
            admit(next(each for each in (ECHO, WRITE) if each.name == tool))
        if (on_sent := options.get("on_sent")) is not None:
            on_sent()
        call = InFlight(self, arguments)
        self.sent.append(arguments.get("text"))
        self.in_flight.append(call)
        self.has_sent.set()
        try:
            return await call.reply
        except anyio.get_cancelled_exc_class():
            call.cancelled = True
            self.in_flight.remove(call)
            raise

    async def end_first(self, end: ToolOutcome | Exception | None = None) -> None:
        """End the first call, once it is in flight."""
        await self.has_sent.wait()
        self.in_flight[0].end(end)


CALL = "return (await MCP.up.echo({text: 'a'})).content[0].text"


async def test_a_call_is_sent_in_the_turn_that_makes_it_and_its_text_is_given_as_it_came(engine: Engine) -> None:
    source = DirectFake()
    result = {"content": [{"type": "text", "text": "parsed"}]}
    async with bench(engine, source) as it, anyio.create_task_group() as group:
        group.start_soon(source.end_first, ToolOutcome(result, (), '{"content": [{"text": "as it came"}]}'))
        outcome = await it.execute(CALL)
    assert (outcome.status, outcome.value) == ("completed", "as it came")
    (record,) = outcome.usage.calls
    assert (record.status, record.dispatched) == ("completed", True)


@pytest.mark.parametrize(
    ("code", "rules", "expected"),
    [
        ("return MCP.up.echo({text: 1})", PolicyRules(), "invalid arguments, nothing was sent"),
        ("return MCP.up.echo({})", PolicyRules(deny=("mcp:up:echo",)), "may not be called"),
        ("return tools.call('mcp:up:nothing', {})", PolicyRules(), "there is no tool"),
    ],
)
async def test_what_is_refused_is_not_sent(code: str, rules: PolicyRules, expected: str, engine: Engine) -> None:
    source = DirectFake()
    # Denied after the program has begun: its catalog still has the tool.
    async with bench(engine, source) as it:
        it.dispatcher.apply(it.dispatcher_settings(rules))
        outcome = await it.execute(code)
    assert outcome.status == "failed"
    assert expected in outcome.error
    assert source.sent == []
    assert outcome.usage.calls[0].dispatched is False


async def test_an_error_of_the_source_says_whether_the_call_was_sent(engine: Engine) -> None:
    source = DirectFake()
    code = "try { await MCP.up.echo({}) } catch (error) { return [error.message, error.data.dispatched] }"
    async with bench(engine, source) as it, anyio.create_task_group() as group:
        group.start_soon(source.end_first, UpstreamCallError("up", "it broke", dispatched=True))
        outcome = await it.execute(code)
    assert outcome.value == ["MCP.up.echo: it broke", True]


async def test_no_more_calls_are_in_flight_than_the_limit_and_they_are_sent_in_order(engine: Engine) -> None:
    source = DirectFake()
    most = 0
    async with bench(engine, source, max_pending_tool_calls=3) as it, anyio.create_task_group() as group:

        async def answer() -> None:
            nonlocal most
            await source.has_sent.wait()
            while len(source.sent) < 20 or source.in_flight:
                most = max(most, len(source.in_flight))
                if source.in_flight:
                    source.in_flight[0].end()
                await anyio.lowlevel.checkpoint()

        group.start_soon(answer)
        outcome = await it.execute(
            "const made = Array.from({length: 20}, (_, i) => MCP.up.echo({text: String(i)}));"
            "return (await Promise.all(made)).map((each) => each.content[0].text)"
        )
    assert outcome.value == [str(number) for number in range(20)]
    assert (most, source.sent) == (3, outcome.value)


async def test_calls_in_flight_are_cancelled_with_their_program(engine: Engine) -> None:
    source = DirectFake()
    async with bench(engine, source, timeout_ms=200) as it:
        waiting = await it.execute(CALL)
        (call,) = source.in_flight
        ended = await it.observe(waiting.run_id, cancel=True)
        await anyio.wait_all_tasks_blocked()
        assert (ended.code, call.cancelled, source.in_flight) == ("aborted", True, [])
        assert it.manager.operator.view(waiting.run_id).calls[0].status == "failed"


async def test_a_call_that_is_not_awaited_is_cancelled_if_it_only_reads_and_continues_if_not(engine: Engine) -> None:
    source = DirectFake()
    code = (
        "MCP.up.echo({text: 'r'}); MCP.up.write({text: 'w'}); await new Promise((done) => setTimeout(done)); return 1"
    )
    async with bench(engine, source) as it:
        outcome = await it.execute(code)
        await anyio.wait_all_tasks_blocked()
        assert [each.arguments["text"] for each in source.in_flight] == ["w"]
        ends = ("Not waited for, still in flight: mcp:up:write", "Not waited for, cancelled: mcp:up:echo")
        assert outcome.notes == ends
        source.in_flight[0].end()
        assert not source.in_flight


async def test_a_call_of_the_last_turn_that_only_reads_is_never_sent(engine: Engine) -> None:
    source = DirectFake()
    async with bench(engine, source) as it:
        outcome = await it.execute("MCP.up.echo({text: 'r'}); MCP.up.write({text: 'w'}); return 1")
        await anyio.wait_all_tasks_blocked()
    assert source.sent == ["w"]
    assert outcome.notes[1] == "Not waited for, never sent: mcp:up:echo; await such calls"


async def test_a_program_is_suspended_with_a_call_in_flight_and_resumed_with_its_result(engine: Engine) -> None:
    source = DirectFake()
    async with bench(engine, source, timeout_ms=200) as it:
        waiting = await it.execute(CALL)
        assert [(each.tool, each.status) for each in waiting.pending] == [("mcp:up:echo", "executing")]
        source.in_flight[0].end()
        assert (await it.observe(waiting.run_id)).value == "a"


async def test_the_end_of_a_stored_call_is_stored_before_its_program_gets_it(engine: Engine, tmp_path: Path) -> None:
    source = DirectFake()
    async with replica(engine, tmp_path, source) as it:
        waiting = await it.execute("return (await MCP.up.write({text: 'once'})).content[0].text")
        assert waiting.status == "waiting"
        source.in_flight[0].end()
        await anyio.wait_all_tasks_blocked()
    # That process has ended. The call is not sent again: its end is known.
    other = DirectFake()
    async with replica(engine, tmp_path, other) as it:
        assert (await it.observe(waiting.run_id)).value == "once"
    assert other.sent == []


async def test_a_call_that_must_not_be_repeated_waits_for_the_store_once_the_run_is_stored(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DirectFake()
    async with replica(engine, tmp_path, source) as it:
        waiting = await it.execute("await MCP.up.echo({text: 'r'}); await MCP.up.write({text: 'w'}); return 'done'")
        stored: list[str] = []
        dispatching = it.store.dispatching

        async def claim(run: str, call: int) -> bool:
            stored.append(",".join(source.sent))
            return await dispatching(run, call)

        monkeypatch.setattr(it.store, "dispatching", claim)
        source.has_sent = anyio.Event()
        source.in_flight[0].end()
        async with anyio.create_task_group() as group:
            group.start_soon(source.end_first)
            assert (await it.observe(waiting.run_id)).value == "done"
    assert (stored, source.sent) == (["r"], ["r", "w"])
