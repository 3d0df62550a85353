"""Announcements: to every session, once for a burst of changes, and never to closed sessions."""

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client

from codemode_mcp.server import notifications
from codemode_mcp.server.notifications import Announcer
from codemode_mcp.server.sdk_server import OF_LINES, AnnouncingServer, Connection

pytestmark = pytest.mark.anyio


class Shop:
    """A server with a list that can be changed."""

    def __init__(self) -> None:
        self.names = ["one"]
        self._change = anyio.Event()
        self.looked = anyio.Event()
        self.announcer = Announcer(lambda: tuple(self.names), self._look)
        self.server = AnnouncingServer("shop", announcer=self.announcer, version="1", on_list_tools=self._list)

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        self.announcer.listed()
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in self.names]
        )

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
