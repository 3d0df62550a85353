"""The permission that the dispatcher awaits right before a call is sent, on each dispatch path."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.runs.calls.outcome import Calling, CallRecord
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Completion, ToolCall
from tests.runs.bench import CALLER, OWNER, Bench, bench
from upstream_clients.testing import ScriptedSource, text_result
from upstream_clients.tools import JsonObject, Tool

PAGES = {"": {"resources": [{"uri": "a:1"}], "nextCursor": "2"}, "2": {"resources": [{"uri": "a:2"}]}}


def page(params: JsonObject) -> JsonObject:
    return PAGES[params.get("cursor", "")]


def source() -> ScriptedSource:
    strict = Tool("look", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    return ScriptedSource("s", {"look": text_result("1"), "resources/list": page}, tools=[strict], resources=True)


async def call(it: Bench, target: str, begin: Any, given: str = "{}") -> tuple[Completion, CallRecord]:
    context = it.dispatcher.context("run_1", OWNER, CALLER, it.catalog())
    record = CallRecord(1, target, time.monotonic())
    return await it.dispatcher.call(Calling(ToolCall(1, target, given), context, record, begin=begin)), record


@pytest.mark.parametrize(("target", "sent"), [("mcp:s:look", 1), ("mcp:s:resources/list", 2)])
async def test_it_is_awaited_once_before_anything_is_sent(target: str, sent: int, engine: Engine) -> None:
    tracker, seen = source(), []

    async def begin() -> None:
        seen.append(len(tracker.calls))

    async with bench(engine, tracker) as it:
        ended, record = await call(it, target, begin)
    assert ended.error is None
    assert (seen, len(tracker.calls), record.dispatched) == ([0], sent, True)


@pytest.mark.parametrize("target", ["mcp:s:look", "mcp:s:resources/list"])
async def test_what_it_raises_is_the_end_of_the_call_and_nothing_was_sent(target: str, engine: Engine) -> None:
    tracker = source()

    async def begin() -> None:
        raise RuntimeUnavailable("the store cannot be written to")

    async with bench(engine, tracker) as it:
        ended, record = await call(it, target, begin)
    assert ended.error is not None
    assert (ended.error.message, ended.error.code) == ("the store cannot be written to", "runtime_unavailable")
    assert json.loads(ended.error.data)["dispatched"] is False
    assert (record.status, record.dispatched, tracker.calls) == ("failed", False, [])


async def test_rules_that_change_while_it_is_awaited_count(engine: Engine) -> None:
    tracker = source()
    async with bench(engine, tracker) as it:

        async def begin() -> None:
            it.dispatcher.apply(ToolSettings(policy=PolicyRules(deny=("*",))))

        for target in ("mcp:s:look", "mcp:s:resources/list"):
            it.dispatcher.apply(ToolSettings())
            ended, record = await call(it, target, begin)
            assert ended.error is not None
            assert "denied by the rule" in ended.error.message
            assert not record.dispatched
    assert tracker.calls == []


async def test_a_call_that_is_not_made_does_not_begin(engine: Engine) -> None:
    async def begin() -> None:
        raise AssertionError("nothing is to be sent")

    async with bench(engine, source()) as it:
        ended, _ = await call(it, "mcp:s:look", begin, '{"n": "x"}')
    assert ended.error is not None
    assert "nothing was sent" in ended.error.message
