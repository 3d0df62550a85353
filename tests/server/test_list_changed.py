"""Announcements: to every session, once for a burst of changes, and never to closed sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client

from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server import notifications
from codemode_mcp.server.notifications import Announcer, ListKind
from codemode_mcp.server.sdk_server import OF_LINES, Connection, surface_server

pytestmark = pytest.mark.anyio


class Shop:
    """A surface with a list that can be changed."""

    name = title = "shop"
    version = "1"
    state_seconds = 60.0
    state_keys = None

    def __init__(self) -> None:
        self.names = ["one"]
        self._change = anyio.Event()
        self.looked = anyio.Event()
        self.announcer = Announcer(lambda: tuple(self.names), self._look)
        self.running = self.announcer.running
        self.updates = self
        self.server = surface_server(cast("Any", self), lambda _: Caller("me"))

    def capabilities(self, client: Any, path: Any, caller: Any) -> dict[str, Any]:
        return {"tools": {"listChanged": True}}

    def instructions(self, client: Any, path: Any) -> str:
        return ""

    def sees(self, client: Any, path: Any, caller: Any, kind: ListKind) -> bool:
        return kind == "tools"

    @asynccontextmanager
    async def stream(self, exchange: Any, uris: Any, publish: Any) -> AsyncIterator[list[str]]:
        yield []

    async def answer(self, exchange: Any, method: str) -> dict[str, Any]:
        self.announcer.listed()
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.names]}

    def _look(self) -> anyio.Event:
        self.looked.set()
        return self._change

    def put(self, *names: str) -> None:
        self.names = list(names)
        self._change.set()
        self._change = anyio.Event()


class Ear:
    def __init__(self) -> None:
        self.count = 0
        self.heard = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.count += 1
            self.heard.set()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "DELAY_SECONDS", 0.02)
    monkeypatch.setattr(notifications, "MIN_INTERVAL_SECONDS", 0.02)


async def test_a_storm_of_changes_is_announced_once() -> None:
    shop, ear = Shop(), Ear()
    async with Client(shop.server, mode="legacy", message_handler=ear) as client:
        await client.list_tools()
        for number in range(50):
            shop.put("one", f"two{number}")
        with anyio.fail_after(10):
            await ear.heard.wait()
        assert ear.count == 1
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True


async def test_what_changes_and_changes_back_is_no_change_unless_a_user_saw_it() -> None:
    shop, ear = Shop(), Ear()
    async with Client(shop.server, mode="legacy", message_handler=ear) as client:
        await client.list_tools()
        shop.put("two")
        shop.put("one")
        shop.put("three")
        await client.list_tools()
        shop.put("one")  # `three` was seen
        with anyio.fail_after(10):
            await ear.heard.wait()
        assert ear.count == 1


async def test_no_session_hears_of_changes_before_the_first_list() -> None:
    shop, ear = Shop(), Ear()
    async with Client(shop.server, mode="legacy", message_handler=ear) as client:
        shop.looked = anyio.Event()
        shop.put("two")
        with anyio.fail_after(10):
            await shop.looked.wait()
        # An announcement at that time precedes the answer.
        assert [tool.name for tool in (await client.list_tools()).tools] == ["two"]
        assert not ear.heard.is_set()
        shop.put("three")
        with anyio.fail_after(10):
            await ear.heard.wait()
        assert ear.count == 1


async def test_sessions_that_are_over_are_forgotten() -> None:
    shop = Shop()
    with Connection() as connection:
        OF_LINES.set(connection)
        async with Client(shop.server, mode="legacy") as client:
            await client.list_tools()
            assert repr(shop.announcer) == "<Announcer: 1 sessions>"
    assert repr(shop.announcer) == "<Announcer: 0 sessions>"


async def test_a_modern_client_hears_it_on_its_stream() -> None:
    shop = Shop()
    async with Client(shop.server) as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True) as stream:
            shop.put("two")
            with anyio.fail_after(10):
                await anext(aiter(stream))


async def test_a_list_that_is_described_in_another_way_is_no_change() -> None:
    shop, ear = Shop(), Ear()
    async with Client(shop.server, mode="legacy", message_handler=ear) as client:
        await client.list_tools()
        before = shop.announcer.describe()
        shop.names.append("two")  # a list of another client
        shop.announcer.redescribe(before, shop.announcer.describe())
        for _ in range(2):  # the second list follows an announcement that the first one caused
            shop.looked = anyio.Event()
            shop.put(*shop.names)
            await shop.looked.wait()
        await client.list_tools()  # behind any announcement
        assert ear.count == 0
        shop.put("three")
        with anyio.fail_after(10):
            await ear.heard.wait()
    assert ear.count == 1
