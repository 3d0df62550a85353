"""Reads of resources that are answered without asking the server again: rules hold, and records say what was sent."""

from __future__ import annotations

from typing import Any

from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs.calls.dispatch import Dispatcher
from codemode_mcp.runs.calls.outcome import Calling, CallRecord
from codemode_mcp.sandbox.messages import Completion, ToolCall
from upstream_clients.testing import ScriptedSource

READ = "mcp:docs:resources/read"
ANSWER = {"contents": [{"uri": "note:///a", "text": "hello"}]}


class CachingSource(ScriptedSource):
    """A server whose answers after the first one come from the cache of its connection."""

    def __init__(self) -> None:
        super().__init__("docs", {"resources/read": ANSWER}, resources=True)
        self.before_cached = lambda: None

    async def request(self, method: str, params: Any, **options: Any) -> Any:
        if not self.calls:
            return await super().request(method, params, **options)
        self.before_cached()
        options["on_cached"]()
        return ANSWER


class Bench:
    def __init__(self) -> None:
        self.source = CachingSource()
        self.settings = ToolSettings()
        self.dispatcher = Dispatcher(lambda *_: self.source, self.settings)  # type: ignore[arg-type,return-value]

    async def read(self) -> tuple[Completion, CallRecord]:
        catalog = build([self.source.view()], Policy(self.settings.policy))
        context = self.dispatcher.context("run", "me", Caller("me"), catalog)
        record = CallRecord(1, READ, 0.0)
        completion = await self.dispatcher.call(Calling(ToolCall(1, READ, '{"uri": "note:///a"}'), context, record))
        return completion, record


async def test_a_read_that_is_answered_from_the_cache_was_not_sent() -> None:
    bench = Bench()
    (first, sent), (second, unsent) = [await bench.read() for _ in range(2)]
    assert (first.error, second.error) == (None, None)
    assert (sent.dispatched, unsent.dispatched) == (True, False)
    assert len(bench.source.calls) == 1


async def test_a_rule_that_came_meanwhile_refuses_a_cached_read() -> None:
    bench = Bench()
    await bench.read()
    denied = ToolSettings(policy=PolicyRules(deny=(READ,)))
    bench.source.before_cached = lambda: bench.dispatcher.apply(denied)
    completion, record = await bench.read()
    assert completion.error is not None
    assert "denied by the rule" in completion.error.message
    assert not record.dispatched
