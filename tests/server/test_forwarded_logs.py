"""Log messages of servers for clients: who gets which, how many, and in which form."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server import forwarded_logs
from codemode_mcp.server.forwarded_logs import ForwardedLogs
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.testing import ScriptedSource

pytestmark = pytest.mark.anyio

LEGACY, MODERN = (cast("Any", SimpleNamespace(modern=modern)) for modern in (False, True))
ME, ADA, BOB = Caller("me"), Caller("ada", "http"), Caller("bob", "http")


class Servers:
    """Servers as `services.App` has them."""

    def __init__(self, *names: str) -> None:
        self.sources = {name: ScriptedSource(name, {}, logging=True) for name in names}
        self.visible = list(names)
        self.changed = anyio.Event()

    def servers(self, caller: Caller | None) -> dict[str, str]:
        return {name: name for name in self.visible}

    def configured(self) -> list[str]:
        return list(self.sources)

    def trusted_views(self) -> list[Any]:
        return [source.view() for source in self.sources.values()]

    async def item_source(self, server: str, caller: Caller) -> Any:
        return self.sources.get(server)

    def change(self) -> anyio.Event:
        return self.changed

    def touch(self) -> None: ...

    def show(self, *names: str) -> None:
        self.visible = list(names)
        self.changed.set()
        self.changed = anyio.Event()


class Client:
    """A client, and the messages that it gets."""

    def __init__(self, logs: ForwardedLogs, caller: Caller = ME) -> None:
        self.logs = logs
        self.caller = caller
        self.seen: list[Any] = []
        self.can_read = anyio.Event()
        self.can_read.set()
        self.ends: list[Callable[[], None]] = []
        self.session = SimpleNamespace(connection=self, modern=False, notify=self.notify, at_end=self.ends.append)

    async def notify(self, method: str, params: Any) -> None:
        assert method == "notifications/message"
        await self.can_read.wait()
        self.seen.append(params)

    async def set_level(self, level: str) -> None:
        exchange = SimpleNamespace(session=self.session, caller=self.caller, params={"level": level})
        assert await self.logs.set_level(cast("Any", exchange)) == {}

    @asynccontextmanager
    async def request(self, level: Any, name: str = "") -> AsyncIterator[None]:
        """Be a client of 2026-07-28 with an open request. `name` is put before the texts that it gets."""

        async def report(params: Any) -> None:
            self.seen.append((name, params["data"]))

        exchange = SimpleNamespace(caller=self.caller, log_level=level, report_log=report)
        async with self.logs.open(cast("Any", exchange), level):
            yield

    @property
    def texts(self) -> list[Any]:
        return [each["data"] for each in self.seen]

    async def until(self, *texts: object) -> None:
        with anyio.fail_after(20):
            while self.texts != list(texts):
                await anyio.lowlevel.checkpoint()


async def test_nothing_is_sent_before_a_level_is_named_and_then_from_this_level_on() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        client, report = Client(logs), servers.sources["shop"].report_log
        report("emergency", "early")
        await client.set_level("warning")
        report("info", "low")
        report("error", "one")
        await client.set_level("debug")
        report("debug", "two")
        await client.until("one", "two")
        assert client.seen[0] == {"level": "error", "logger": "shop", "data": "one"}
        client.ends[0]()
        report("error", "late")
        await anyio.wait_all_tasks_blocked()
        assert client.texts == ["one", "two"]


async def test_the_logger_begins_with_the_server_and_hidden_characters_are_dropped() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        client = Client(logs)
        await client.set_level("debug")
        message = {"level": "info", "logger": "till\u200b\n", "data": {"a\u202e": ["x\u0007\ny", 1, None]}}
        servers.sources["shop"].log_listeners.report(message, None, lambda _: True)
        await client.until({"a": ["x\ny", 1, None]})
        assert client.seen[0]["logger"] == "shop/till"


async def test_messages_come_only_from_servers_that_the_caller_sees_at_the_time() -> None:
    servers = Servers("shop", "bank")
    servers.visible = ["shop"]
    async with (logs := ForwardedLogs(servers)).running():
        client, asker = Client(logs), Client(logs)
        await client.set_level("debug")
        async with asker.request("debug"):
            servers.sources["bank"].report_log("error", "hidden")
            await anyio.wait_all_tasks_blocked()
            servers.show("bank")
            await anyio.wait_all_tasks_blocked()
            servers.sources["shop"].report_log("error", "hidden")
            servers.sources["bank"].report_log("error", "shown")
            await client.until("shown")
        assert asker.seen == [("", "shown")]


async def test_no_task_is_left_of_clients_that_have_gone() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        before = len(anyio.get_running_tasks())
        for _ in range(5):
            client = Client(logs, ADA)
            await client.set_level("debug")
            async with client.request("debug"):
                await anyio.wait_all_tasks_blocked()
            client.ends[0]()
        await anyio.wait_all_tasks_blocked()
        assert len(anyio.get_running_tasks()) == before


async def test_a_flood_of_one_server_is_dropped_and_counted_and_delays_no_other() -> None:
    servers, now = Servers("flood", "calm"), [0.0]
    async with (logs := ForwardedLogs(servers, lambda: now[0])).running():
        client = Client(logs)
        await client.set_level("debug")
        flood = partial(servers.sources["flood"].report_log, "info")
        for number in range(2000):
            flood(number)
        servers.sources["calm"].report_log("info", "calm")
        await anyio.wait_all_tasks_blocked()
        sent = len(client.seen) - 1
        assert 400 < sent <= 500
        assert client.texts[-1] == "calm"
        now[0] = 0.5
        flood("too early")
        now[0] = 10
        flood("later")
        await anyio.wait_all_tasks_blocked()
        note, last = client.seen[-2:]
        assert last["data"] == "later"
        assert note["data"].startswith(f"{2001 - sent} log messages of server 'flood' were left out")
        # Long messages use the allowance up sooner.
        now[0] = 100
        for _ in range(100):
            flood("x" * 16_000)
        await anyio.wait_all_tasks_blocked()
        assert sum(text == "x" * 16_000 for text in client.texts) < 35


async def test_a_client_that_does_not_read_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded_logs, "MAX_QUEUED", 10)
    servers, now = Servers("shop"), [0.0]
    async with (logs := ForwardedLogs(servers, lambda: now[0])).running():
        client = Client(logs)
        client.can_read = anyio.Event()
        await client.set_level("debug")
        for number in range(50):
            servers.sources["shop"].report_log("info", number)
        await anyio.wait_all_tasks_blocked()
        client.can_read.set()
        await anyio.wait_all_tasks_blocked()
        assert len(client.seen) == 10


async def test_a_request_gets_the_messages_before_its_answer_and_each_only_once() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        client, report = Client(logs), servers.sources["shop"].report_log
        async with client.request("error", "one"):
            async with client.request("info", "two"):
                report("debug", "low")
                report("info", "middle")
                report("error", "high")
            assert ("two", "middle") in client.seen  # sent before the end of the request
            report("info", "after")
        assert sorted(client.seen) == [("one", "high"), ("two", "middle")]
        report("error", "late")


async def test_a_failed_request_gets_the_messages_before_its_error_which_stays_the_same() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        client = Client(logs)

        async def fail() -> None:
            async with client.request("info", "three"):
                servers.sources["shop"].report_log("info", "before")
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        assert client.seen[-1] == ("three", "before")


async def test_a_caller_over_http_gets_only_messages_that_are_known_to_be_about_its_calls() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        ada, bob, report = Client(logs, ADA), Client(logs, BOB), servers.sources["shop"].report_log
        await ada.set_level("debug")
        report("error", "of no known call")
        report("error", "of bob", "bob")
        report("error", "of ada", "ada")
        async with bob.request("debug"):
            report("error", "of no known call")
            report("error", "of ada", "ada")
            report("error", "of bob", "bob")
        await ada.until("of ada", "of ada")
        assert bob.seen == [("", "of bob")]


async def test_callers_that_cannot_be_told_apart_get_none() -> None:
    servers = Servers("shop")
    async with (logs := ForwardedLogs(servers)).running():
        client = Client(logs, Caller(None, "http"))
        assert logs.capabilities(MODERN, client.caller) == {}
        assert logs.capabilities(LEGACY, client.caller) == {"logging": {}}  # it will have a session
        with pytest.raises(JsonRpcError) as refused:
            await client.set_level("debug")
        assert refused.value.code == METHOD_NOT_FOUND
        async with client.request("debug"):
            servers.sources["shop"].report_log("error", "x")
        assert client.seen == []


async def test_the_capability_is_declared_unless_no_server_has_log_messages() -> None:
    servers = Servers("shop", "bank")
    logs = ForwardedLogs(servers)
    assert logs.capabilities(LEGACY, ME) == {"logging": {}}
    servers.sources["shop"].change(logging=False)
    servers.visible = ["shop"]
    assert logs.capabilities(LEGACY, ME) == {}
    servers.sources["shop"].change(logging=False, era=None, state="connecting")
    assert logs.capabilities(LEGACY, ME) == {"logging": {}}
