"""Notes to the relay of a client: its run is named before anything is sent, and the first call is noted before it."""

from __future__ import annotations

from pathlib import Path

import anyio

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import OWNER, FakeClient, bench, ran
from tests.runs.test_direct_calls import DirectFake
from tests.stores.replicas import fast, replica
from tests.waiting import answering, until
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import JsonObject


class Notes:
    """Notes that are written immediately, unless the relay does not read."""

    def __init__(self, log: list[object]) -> None:
        self.log = log
        self._written = anyio.Event()
        self._written.set()

    def stop_reading(self) -> None:
        self._written = anyio.Event()

    def read(self) -> None:
        self._written.set()

    @property
    def are_written(self) -> bool:
        return self._written.is_set()

    def write(self, run_id: str, *, dispatched: bool) -> bool:
        self.log.append((run_id, dispatched))
        return self.are_written

    async def written(self) -> None:
        await self._written.wait()


def relayed() -> tuple[FakeClient, list[object]]:
    """Return a client with a relay, and what its relay is told."""
    client, log = FakeClient(), []
    client.notes = Notes(log)
    return client, log


def logging_source(log: list[object]) -> ScriptedSource:
    def answer(arguments: JsonObject) -> JsonObject:
        log.append("sent")
        return text_result("1")

    return ScriptedSource("up", {"a": answer, "b": answer})


async def test_the_run_is_named_first_and_its_first_call_is_noted_once_before_it_is_sent(engine: Engine) -> None:
    client, log = relayed()
    outcome = await ran(engine, "await MCP.up.a({}); await MCP.up.b({}); return 1", logging_source(log), client=client)
    assert log == [(outcome.run_id, False), (outcome.run_id, True), "sent", "sent"]


async def test_a_call_without_a_task_is_noted_before_it_is_sent(engine: Engine) -> None:
    client, log = relayed()
    source = DirectFake()
    code = "await MCP.up.echo({text: 'a'}); return 1"
    async with bench(engine, source) as it, answering(it.execute(code, client=client)) as answers:
        await source.has_sent.wait()
        log.append("sent")
        source.in_flight[0].end()
    (outcome,) = answers
    assert (outcome.value, log) == (1, [(outcome.run_id, False), (outcome.run_id, True), "sent"])


async def test_a_program_that_sends_nothing_is_never_noted_as_sending(engine: Engine) -> None:
    client, log = relayed()
    async with bench(engine, logging_source(log), rules=PolicyRules(deny=("mcp:up:b",))) as it:
        outcome = await it.execute("try { await tools.call('mcp:up:b', {}) } catch {} return 1", client=client)
        assert log == [(outcome.run_id, False)]
        outcome = await it.execute("return 1", client=client)
        assert log[1:] == [(outcome.run_id, False)]


async def test_no_call_is_sent_while_the_note_about_it_is_not_written(engine: Engine) -> None:
    client, log = relayed()
    source = ScriptedSource("up", {"write": text_result("1")})
    notes = client.notes = Notes(log)
    notes.stop_reading()
    code = "const all = [1, 2].map(() => MCP.up.write({text: 'a'})); await Promise.all(all); return 1"
    async with bench(engine, source) as it, answering(it.execute(code, client=client)) as answers:
        await until(lambda: len(log) >= 2)
        await anyio.wait_all_tasks_blocked()
        assert [each[1] for each in log] == [False, True]  # type: ignore[index]
        assert source.calls == []
        notes.read()
    assert (answers[0].value, len(source.calls), len(log)) == (1, 2, 2)


async def test_a_wait_names_the_run_and_whether_calls_were_ever_sent(engine: Engine) -> None:
    client, log = relayed()
    async with bench(engine, logging_source(log)) as it:
        unsent = await it.execute("await yield_control(); await yield_control(); await MCP.up.a({}); return 1")
        await it.observe(unsent.run_id, client=client)
        assert log == [(unsent.run_id, False)]
        await it.observe(unsent.run_id, client=client)
        assert log[1:] == [(unsent.run_id, False), (unsent.run_id, True), "sent"]
        log.clear()
        sent = await it.execute("await MCP.up.a({}); await yield_control(); await MCP.up.b({}); return 1")
        await it.observe(sent.run_id, client=client)
        assert log == ["sent", (sent.run_id, True), "sent"]


async def test_a_call_that_is_sent_after_the_program_has_ended_is_noted(engine: Engine) -> None:
    client, log = relayed()
    source = SlowSource("up", {"a": text_result("1")})
    async with bench(engine, source) as it:
        outcome = await it.execute("MCP.up.a({}); return 1", client=client)
        assert outcome.value == 1
        await until(lambda: source.pending >= 1)
        assert log == [(outcome.run_id, False), (outcome.run_id, True)]
        source.release.set()


async def test_a_run_of_another_process_may_have_sent_calls(engine: Engine, tmp_path: Path) -> None:
    client, log = relayed()
    async with replica(engine, tmp_path, fast()) as first:
        called = await first.execute("await MCP.files.read({n: 1}); await yield_control(); return 1")
        idle = await first.execute("await yield_control(); return 1")
    async with replica(engine, tmp_path, fast()) as second:
        for run in (called, idle):
            assert (await second.observe(run.run_id, client=client, caller=Caller(OWNER))).value == 1
    assert log == [(called.run_id, True), (idle.run_id, False)]
