"""Tests of `AdmitFn`: a caller sees the tool as its server lists it right before the call is sent."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_link import FakeLink, connect

from upstream_clients import Annotations, Asking, JsonObject, Tool, UpstreamPool, UpstreamSpec, UpstreamUnavailable
from upstream_clients.listing import ListingCache
from upstream_clients.upstream import Upstream

pytestmark = pytest.mark.anyio

ASKING = Path(__file__).parent / "servers" / "asking_server.py"
SCRIPTED = Path(__file__).parent.parent / "integration" / "servers" / "scripted.py"

READS = Annotations(read_only=True)
WRITES = Annotations(read_only=False)


class Refused(Exception):
    pass


class Guard:
    """Admits only tools that read. `seen` has the tools that it was called with."""

    def __init__(self) -> None:
        self.seen: list[Tool | None] = []

    def __call__(self, tool: Tool | None) -> None:
        self.seen.append(tool)
        if tool is None or not tool.annotations.read_only:
            raise Refused

    @property
    def annotations(self) -> list[Annotations | None]:
        return [None if tool is None else tool.annotations for tool in self.seen]


class Scripted:
    """A server whose tools are in a file."""

    def __init__(self, folder: Path) -> None:
        self.spec = UpstreamSpec("srv", command=sys.executable, args=(str(SCRIPTED), str(folder)))
        self._folder = folder

    def has(self, **tools: bool) -> None:
        """Write the tools, by name and `readOnlyHint`. The tool `relist` is always listed."""
        listed = [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": reads}}
            for name, reads in {"relist": True, **tools}.items()
        ]
        (self._folder / "tools.json").write_text(json.dumps(listed), "utf-8")

    @property
    def called(self) -> list[str]:
        path = self._folder / "called"
        return path.read_text("utf-8").split() if path.exists() else []


@pytest.fixture
def server(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


async def test_a_tool_is_shown_as_the_connection_lists_it_and_not_as_it_was_remembered(
    server: Scripted, pool_of: Any, tmp_path: Path
) -> None:
    cache = ListingCache(tmp_path / "cache")
    server.has(look=True, gone=True)
    async with pool_of(server.spec, cache=cache):
        pass
    server.has(look=False)
    async with UpstreamPool([server.spec], cache=cache) as pool:
        source = pool.source("srv")
        assert source.view().state == "idle"
        assert [tool.annotations for tool in source.view().tools if tool.name == "look"] == [READS]
        guard, sent = Guard(), []
        with anyio.fail_after(20):
            for tool in ("look", "gone"):
                with pytest.raises(Refused):
                    await source.call_tool(tool, {}, admit=guard, on_sent=lambda: sent.append("sent"))
            await source.call_tool("relist", {"times": 0}, admit=guard)
    assert guard.annotations == [WRITES, None, READS]
    assert (sent, server.called) == ([], ["relist"])


async def test_a_tool_that_was_announced_and_listed_again_is_shown_as_it_is_now(
    server: Scripted, pool_of: Any, changes: Any
) -> None:
    server.has(look=True)
    guard = Guard()
    async with pool_of(server.spec, on_change=changes) as pool:
        source = pool.source("srv")
        await source.call_tool("look", {}, admit=guard)
        server.has(look=False)
        await source.call_tool("relist", {}, admit=guard)
        await changes.until(source, lambda view: any(tool.annotations == WRITES for tool in view.tools))
        with pytest.raises(Refused):
            await source.call_tool("look", {}, admit=guard)
        await source.call_tool("relist", {"times": 0}, admit=guard)
    assert guard.annotations == [READS, READS, WRITES, READS]
    assert server.called == ["look", "relist", "relist"]


async def test_a_call_that_is_refused_gives_its_place_back(server: Scripted, pool_of: Any) -> None:
    server.has(look=False)
    spec = UpstreamSpec("srv", command=server.spec.command, args=server.spec.args, max_concurrent_calls=1)
    async with pool_of(spec) as pool:
        source = pool.source("srv")
        with anyio.fail_after(20):
            for _ in range(3):
                with pytest.raises(Refused):
                    await source.call_tool("look", {}, admit=Guard())
            await source.call_tool("relist", {"times": 0})
    assert server.called == ["relist"]


async def test_nothing_is_looked_at_when_there_is_no_connection(raw_server: Any, pool_of: Any) -> None:
    guard = Guard()
    async with pool_of(raw_server("exit")) as pool:
        with pytest.raises(UpstreamUnavailable):
            await pool.source("srv").call_tool("echo", {}, admit=guard)
    assert guard.seen == []


async def test_what_is_listed_again_while_a_call_waits_for_its_turn_counts() -> None:
    upstream, link, guard = Upstream(UpstreamSpec("srv", command="server")), FakeLink(), Guard()
    connect(upstream, link, Tool("look", annotations=READS))
    refused = anyio.Event()

    async def call() -> None:
        with pytest.raises(Refused):
            await upstream.call_tool("look", {}, admit=guard)
        refused.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await link.waits.wait()
            assert guard.seen == []
            upstream.report_tools((Tool("look", annotations=WRITES),), ())
            link.turn_has_come.set()
    assert refused.is_set()
    assert (guard.annotations, link.sent) == ([WRITES], [])
    assert not upstream.calls


async def test_a_call_that_is_sent_again_with_answers_is_looked_at_again(pool_of: Any) -> None:
    async def no_roots(question: Any) -> JsonObject:
        return {"roots": []}

    def admit_once(tool: Tool | None) -> None:
        looks.append(tool)
        if len(looks) == 2:
            raise Refused

    looks: list[Tool | None] = []
    asked = {"inputRequests": {"r": {"method": "roots/list"}}, "requestState": "1"}
    async with pool_of(UpstreamSpec("srv", command=sys.executable, args=(str(ASKING), "modern"))) as pool:
        source = pool.source("srv")
        with anyio.fail_after(20), pytest.raises(Refused):
            await source.call_tool("rounds", {"rounds": [asked]}, asking=Asking("run", no_roots), admit=admit_once)
        log = json.loads((await source.call_tool("log", {})).result["content"][0]["text"])
    assert [call["name"] for call in log["calls"]] == ["rounds", "log"]
    assert len(looks) == 2
