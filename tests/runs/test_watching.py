"""Output of a program is shown while it runs, once and in order, also across suspensions."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench, ran, texts
from upstream_clients.testing import ScriptedSource, text_result

pytestmark = pytest.mark.anyio


async def test_output_is_shown_when_its_turn_ends_and_before_the_next_call_is_answered(engine: Engine) -> None:
    shown: list[Any] = []
    at_call: list[list[Any]] = []

    def work(arguments: Any) -> Any:
        at_call.append([*shown])
        return text_result("done")

    async with bench(engine, ScriptedSource("s", {"work": work})) as it:
        code = 'text("a"); await MCP.s.work({}); json({b: 1}); await MCP.s.work({}); text("c"); return 1'
        outcome = await it.execute(code, on_output=shown.extend)
    assert [len(each) for each in at_call] == [1, 2]
    assert shown == list(outcome.outputs)
    assert [item["type"] for item in shown] == ["text", "json", "text"]


async def test_output_is_shown_once_also_after_a_suspension_and_a_wait_from_the_start(engine: Engine) -> None:
    shown: list[Any] = []
    async with bench(engine) as it:
        code = 'text("a"); await yield_control(); text("b"); await yield_control(); text("c"); throw new Error("x")'
        first = await it.execute(code, on_output=shown.extend)
        assert [item["text"] for item in shown] == ["a"]
        await it.observe(first.run_id)
        last = await it.observe(first.run_id, from_start=True)
        again = await it.observe(first.run_id, from_start=True)
    assert [item["text"] for item in shown] == ["a", "b", "c"]
    assert texts(last) == texts(again) == ["a", "b", "c"]


async def test_a_watcher_that_fails_does_no_harm(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def fail(outputs: object) -> None:
        raise ValueError("no room")

    outcome = await ran(engine, 'text("a"); return 1', on_output=fail)
    assert (outcome.status, texts(outcome)) == ("completed", ["a"])
    assert "could not be shown" in caplog.text


async def test_what_was_printed_before_the_time_was_over_is_shown(engine: Engine) -> None:
    shown: list[Any] = []
    outcome = await ran(engine, 'text("a"); for (;;);', on_output=shown.extend, timeout_ms=300)
    assert outcome.code == "timeout"
    assert shown == list(outcome.outputs) == [{"type": "text", "text": "a"}]
