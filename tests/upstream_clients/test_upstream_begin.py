"""Tests of what is awaited right before a call is sent for the first time: where a caller writes down that it will
be."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_link import FakeLink, connect

from upstream_clients import Asking, JsonObject, Tool, ToolSource, UpstreamSpec, UpstreamUnavailable
from upstream_clients.testing import AskingSource, FailingSource, ScriptedSource, SlowSource, text_result
from upstream_clients.upstream import Upstream

pytestmark = pytest.mark.anyio

ASKING = Path(__file__).parent / "servers" / "asking_server.py"


class NotWrittenDown(Exception):
    pass


class Begin:
    """A `BeginFn` that counts its calls, waits for `done`, and can raise then."""

    def __init__(self, *, fails: bool = False, holds: bool = False) -> None:
        self.count = 0
        self.began = anyio.Event()
        self.done = anyio.Event()
        self._fails = fails
        if not holds:
            self.done.set()

    async def __call__(self) -> None:
        self.count += 1
        self.began.set()
        await self.done.wait()
        if self._fails:
            raise NotWrittenDown


async def calls_of(source: ToolSource) -> list[str]:
    """Return the requests that the server got, without the one for this list."""
    log = json.loads((await source.call_tool("log", {})).result["content"][0]["text"])
    return [call["name"] for call in log["calls"]][:-1]


async def test_it_is_awaited_once_after_the_wait_for_a_connection_and_before_the_request_leaves() -> None:
    upstream, link, begin, order = Upstream(UpstreamSpec("srv", command="server")), FakeLink(), Begin(holds=True), []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await upstream.call_tool(
                    "look",
                    {},
                    begin=begin,
                    admit=lambda _: order.append(("admit", begin.done.is_set())),
                    on_sent=lambda: order.append(("sent", begin.done.is_set())),
                )

            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert begin.count == 0, "there is no connection"
            connect(upstream, link, Tool("look"))
            await link.waits.wait()
            assert begin.count == 0, "its turn has not come"
            link.turn_has_come.set()
            await begin.began.wait()
            await anyio.wait_all_tasks_blocked()
            assert (order, link.sent, upstream.calls.sent()) == ([], [], set())
            begin.done.set()
    assert order == [("admit", True), ("sent", True)]
    assert (begin.count, link.sent) == (1, ["look"])


async def test_a_real_server_gets_nothing_when_it_raises_and_the_next_call_when_it_does_not(
    raw_server: Any, pool_of: Any
) -> None:
    async with pool_of(raw_server(max_concurrent_calls=1)) as pool:
        source, failing, begin, sent = pool.source("srv"), Begin(fails=True), Begin(), []
        with anyio.fail_after(20):
            for _ in range(2):
                with pytest.raises(NotWrittenDown):
                    await source.call_tool("die", {}, begin=failing, on_sent=lambda: sent.append("sent"))
            with pytest.raises(NotWrittenDown):
                await source.request("resources/list", {}, begin=failing, on_sent=lambda: sent.append("sent"))
            assert sent == []
            outcome = await source.call_tool("echo", {"text": "hi"}, begin=begin)
    assert outcome.result["content"][0]["text"] == "hi", "the server is still there"
    assert (failing.count, begin.count) == (3, 1)


async def test_cancelling_while_it_is_awaited_sends_nothing(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server(max_concurrent_calls=1)) as pool:
        source, begin, sent = pool.source("srv"), Begin(holds=True), []
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: source.call_tool("die", {}, begin=begin, on_sent=lambda: sent.append("sent")))
                await begin.began.wait()
                tasks.cancel_scope.cancel()
            assert sent == []
            await source.call_tool("echo", {})
    assert begin.count == 1


async def test_the_time_limit_of_the_call_continues_while_it_is_awaited() -> None:
    upstream, link = Upstream(UpstreamSpec("srv", command="server")), FakeLink()
    connect(upstream, link, Tool("look"))
    link.turn_has_come.set()
    with anyio.fail_after(20), pytest.raises(UpstreamUnavailable, match="nothing was sent"):
        await upstream.call_tool("look", {}, timeout=0.01, begin=Begin(holds=True))
    assert link.sent == []


async def test_it_is_not_awaited_without_a_connection(raw_server: Any, pool_of: Any) -> None:
    begin = Begin()
    async with pool_of(raw_server("exit")) as pool:
        with pytest.raises(UpstreamUnavailable):
            await pool.source("srv").call_tool("echo", {}, begin=begin)
    assert begin.count == 0


async def test_a_call_that_is_sent_again_with_answers_has_begun_already(pool_of: Any) -> None:
    async def no_roots(question: Any) -> JsonObject:
        return {"roots": []}

    begin, sent = Begin(), []
    rounds = [{"inputRequests": {"r": {"method": "roots/list"}}, "requestState": f"{n}:"} for n in (1, 2)]
    async with pool_of(UpstreamSpec("srv", command=sys.executable, args=(str(ASKING), "modern"))) as pool:
        source = pool.source("srv")
        with anyio.fail_after(20):
            await source.call_tool(
                "rounds",
                {"rounds": rounds},
                asking=Asking("run", no_roots),
                begin=begin,
                on_sent=lambda: sent.append("sent"),
            )
            assert await calls_of(source) == ["rounds"] * 3
    assert (begin.count, sent) == (1, ["sent"] * 3)


async def test_the_fakes_await_it_before_they_take_a_call() -> None:
    async def roots(question: Any) -> JsonObject:
        return {"roots": []}

    slow = SlowSource("b", {"t": text_result("1")})
    slow.release.set()
    sources = [
        ScriptedSource("a", {"t": text_result("1"), "resources/list": {}}),
        slow,
        AskingSource("c", {"t": [("roots/list", {})]}),
    ]
    for source in sources:
        failing, begin = Begin(fails=True), Begin()
        with pytest.raises(NotWrittenDown):
            await source.call_tool("t", {}, begin=failing, on_sent=pytest.fail)
        assert source.calls == []
        await source.call_tool("t", {}, asking=Asking("run", roots), begin=begin)
        assert (failing.count, begin.count, len(source.calls)) == (1, 1, 1)
    with pytest.raises(NotWrittenDown):
        await sources[0].request("resources/list", {}, begin=Begin(fails=True))
    begin = Begin()
    with pytest.raises(UpstreamUnavailable):
        await FailingSource("d").call_tool("t", {}, begin=begin)
    assert begin.count == 0
