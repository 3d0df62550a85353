"""Subscriptions of hostile and honest clients to resources: their ends, their number, and floods of updates."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server import resource_updates
from codemode_mcp.server.exposure.items import Located
from codemode_mcp.server.resource_updates import MAX_RESOURCES, MAX_URI, MAX_WAITING, ResourceUpdates
from upstream_clients.jsonrpc import JsonRpcError
from upstream_clients.testing import ScriptedSource

pytestmark = pytest.mark.anyio

ADA, BOB = Caller("ada", "http"), Caller("bob", "http")
URI = "note:///a"


class Servers:
    """One server, whose resources clients can read as long as `readable` is true."""

    def __init__(self) -> None:
        self.source = ScriptedSource("notes", {}, resources=True, resource_subscriptions=True)
        self.readable = True
        self.updates = ResourceUpdates(cast("Any", self), self)

    async def item_source(self, server: str, caller: Caller) -> Any:
        return self.source

    async def locate(self, exchange: Any, uri: str) -> Located:
        await anyio.lowlevel.checkpoint()
        return Located("notes", uri)

    def may_read(self, exchange: Any, server: str) -> bool:
        return self.readable

    def listeners(self, uri: str = URI) -> int:
        found = self.source.subscriptions._resources.get(uri)
        return 0 if found is None else len(found.listeners)


class Client:
    """A client of the handshake revisions, and the updates that it gets."""

    def __init__(self, servers: Servers, caller: Caller = ADA) -> None:
        self._updates = servers.updates
        self.seen: list[str] = []
        self.can_read = anyio.Event()
        self.can_read.set()
        self.ends: list[Callable[[], None]] = []
        session = SimpleNamespace(connection=self, notify=self._notify, at_end=self.ends.append)
        self.exchange = cast("Any", SimpleNamespace(session=session, caller=caller))

    async def _notify(self, method: str, params: Any) -> None:
        await self.can_read.wait()
        self.seen.append(params["uri"])

    async def subscribe(self, uri: str = URI) -> None:
        await self._updates.subscribe(self.exchange, uri)

    def unsubscribe(self, uri: str = URI) -> None:
        self._updates.unsubscribe(self.exchange, uri)


async def test_a_subscription_that_is_ended_and_made_again_before_its_answer_leaves_nothing_behind() -> None:
    servers = Servers()
    async with servers.updates.running(), anyio.create_task_group() as group:
        client = Client(servers)
        for _ in range(3):
            group.start_soon(client.subscribe)
            await anyio.lowlevel.checkpoint()  # the request has begun, and has no answer
            client.unsubscribe()
        await client.subscribe()
        await anyio.wait_all_tasks_blocked()
        assert servers.listeners() == 1
        client.ends[0]()
        assert servers.listeners() == 0


async def test_a_flood_of_updates_for_a_client_that_does_not_read_takes_bounded_memory() -> None:
    servers = Servers()
    async with servers.updates.running():
        client = Client(servers)
        await client.subscribe()
        client.can_read = anyio.Event()
        before = len(anyio.get_running_tasks())
        for number in range(10 * MAX_WAITING):
            servers.source.report_update(f"{URI}/{number}")
        servers.source.report_update(f"{URI}/{'x' * MAX_URI}")
        await anyio.wait_all_tasks_blocked()
        assert len(anyio.get_running_tasks()) == before
        client.can_read.set()
        await anyio.wait_all_tasks_blocked()
        assert client.seen == [f"{URI}/{number}" for number in range(MAX_WAITING)]
        servers.source.report_update(f"{URI}/{'x' * MAX_URI}")
        await anyio.wait_all_tasks_blocked()
        assert client.seen[MAX_WAITING:] == [URI]


async def test_one_caller_cannot_take_all_subscriptions_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_updates, "MAX_SUBSCRIPTIONS", 40)
    servers = Servers()
    async with servers.updates.running():
        sessions = [Client(servers) for _ in range(3)]
        for number in range(20):
            await sessions[number % 3].subscribe(f"note:///{number}")
        for session in sessions:
            with pytest.raises(JsonRpcError, match="too many subscriptions"):
                await session.subscribe()
        other = Client(servers, BOB)
        for number in range(10):
            await other.subscribe(f"note:///other/{number}")
        with pytest.raises(JsonRpcError, match="too many subscriptions"):
            await other.subscribe()
        for session in sessions:
            session.ends[0]()
        await other.subscribe()  # what the first caller had is free again
        # A failed subscription takes no place.
        servers.source.change(resource_subscriptions=False)
        for _ in range(40):
            with pytest.raises(JsonRpcError, match="does not report"):
                await other.subscribe("note:///refused")
        servers.source.change(resource_subscriptions=True)
        await other.subscribe("note:///accepted")


async def test_a_client_has_a_limited_number_of_subscriptions() -> None:
    servers = Servers()
    async with servers.updates.running():
        client = Client(servers, Caller("me"))
        for number in range(MAX_RESOURCES):
            await client.subscribe(f"note:///{number}")
        with pytest.raises(JsonRpcError, match="subscribed to 200 resources already"):
            await client.subscribe()


async def test_updates_end_when_the_rules_no_longer_allow_reads() -> None:
    servers = Servers()
    seen: list[str] = []

    async def publish(uri: str) -> None:
        seen.append(uri)

    async with servers.updates.running():
        client = Client(servers)
        await client.subscribe()
        async with servers.updates.stream(client.exchange, [URI], publish):
            servers.source.report_update(URI)
            await anyio.wait_all_tasks_blocked()
            servers.readable = False
            servers.source.report_update(URI)
            await anyio.wait_all_tasks_blocked()
    assert (client.seen, seen) == ([URI], [URI])
