"""Tests of log messages of servers, which are passed on to those who want them, in both eras of the protocol."""

import json
from typing import Any

import anyio
import pytest

from tests.integration.harness import npm_server
from upstream_clients import Asking, JsonObject, Question, UpstreamSpec
from upstream_clients.server_log import MAX_DATA, MAX_SEARCHED, LogListeners

pytestmark = pytest.mark.anyio


class Messages:
    """A listener whose messages can be waited for."""

    def __init__(self) -> None:
        self.seen: list[JsonObject] = []
        self._happened = anyio.Event()

    def __call__(self, message: JsonObject) -> None:
        self.seen.append(message)
        self._happened.set()
        self._happened = anyio.Event()

    @property
    def data(self) -> list[Any]:
        return [each["data"] for each in self.seen]

    async def until(self, *data: object) -> None:
        with anyio.fail_after(20):
            while self.data != list(data):
                await self._happened.wait()


def asking(owner: str) -> Asking:
    async def ask(question: Question) -> JsonObject:
        raise NotImplementedError

    return Asking(f"run of {owner}", ask, owner)


async def log(source: Any, level: str, data: object, owner: str | None = None, **more: object) -> None:
    arguments = {"level": level, "data": data, **more}
    await source.call_tool("log", arguments, asking=None if owner is None else asking(owner))


async def levels(source: Any, owner: str | None = None) -> Any:
    found = await source.call_tool("levels", {}, asking=None if owner is None else asking(owner))
    return json.loads(found.result["content"][0]["text"])


@pytest.fixture(params=["modern", "legacy", "http"])
async def spec(request: pytest.FixtureRequest, raw_server: Any, sdk_server: Any, server_of: Any) -> UpstreamSpec:
    if request.param == "http":
        found: UpstreamSpec = (await server_of()).spec()
        return found
    made: UpstreamSpec = sdk_server() if request.param == "modern" else raw_server("logging")
    return made


async def test_messages_are_passed_on_from_the_wanted_level_on(spec: UpstreamSpec, pool_of: Any) -> None:
    async with pool_of(spec) as pool:
        source, some, every = pool.source("srv"), Messages(), Messages()
        leave_some = source.on_log(some, "warning")
        leave_every = source.on_log(every, "debug")
        await log(source, "debug", "one")
        await log(source, "error", {"two": [2, None]}, logger="parts")
        await every.until("one", {"two": [2, None]})
        assert some.seen == [{"level": "error", "data": {"two": [2, None]}, "logger": "parts"}]
        leave_some()
        leave_some()
        await log(source, "alert", "three")
        await every.until("one", {"two": [2, None]}, "three")
        assert len(some.seen) == 1
        leave_every()
        await log(source, "alert", "four")
        assert len(every.seen) == 3


async def test_a_legacy_server_gets_the_lowest_wanted_level(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("logging")) as pool:
        source = pool.source("srv")
        assert source.view().logging

        async def until(*expected: str) -> None:
            with anyio.fail_after(20):
                while await levels(source) != list(expected):  # noqa: ASYNC110
                    await anyio.sleep(0.02)

        assert await levels(source) == []
        leave = [source.on_log(print, level) for level in ("error", "info")]
        await until("info")
        leave[1]()
        await until("info", "error")
        leave[0]()
        source.on_log(print, "error")
        await anyio.sleep(0.1)
        assert await levels(source) == ["info", "error"]
        pool.restart("srv", "restarted")
        await until("error")


async def test_a_server_without_the_capability_gets_no_level(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        source, messages = pool.source("srv"), Messages()
        source.on_log(messages, "debug")
        await log(source, "info", "hello")
        await messages.until("hello")
        assert await levels(source) == []


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_a_modern_server_gets_the_level_with_each_request_of_the_owner(
    over: str, sdk_server: Any, server_of: Any, pool_of: Any
) -> None:
    spec = sdk_server() if over == "stdio" else (await server_of()).spec()
    async with pool_of(spec) as pool:
        source = pool.source("srv")
        assert await levels(source) == [None]
        source.on_log(print, "error", owner="ada")
        source.on_log(print, "info", owner="bob")
        assert [await levels(source, owner) for owner in ("ada", "bob", "eve", None)] == [
            ["error"],
            ["info"],
            [None],
            ["info"],
        ]


async def test_messages_about_a_call_are_for_its_owner(server_of: Any, pool_of: Any) -> None:
    async with pool_of((await server_of()).spec()) as pool:
        source, ada, bob, all_owners = pool.source("srv"), Messages(), Messages(), Messages()
        source.on_log(ada, "debug", owner="ada")
        source.on_log(bob, "debug", owner="bob")
        source.on_log(all_owners, "debug")
        await log(source, "info", "of ada", "ada")
        await log(source, "info", "of bob", "bob")
        await all_owners.until("of ada", "of bob")
        assert (ada.data, bob.data) == (["of ada"], ["of bob"])


async def test_a_client_with_its_own_process_gets_no_messages_of_others(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("logging", share="client")) as pool:
        for client in "ab":
            pool.offer_roots(client, None)
        sources = [pool.source("srv", client) for client in "ab"]
        for source in sources:
            await source.call_tool("echo", {})
        found = [Messages(), Messages()]
        for source, messages in zip(sources, found, strict=True):
            source.on_log(messages, "debug")
        for number, source in enumerate(sources):
            await log(source, "info", number)
        for number, messages in enumerate(found):
            await messages.until(number)


async def test_listeners_continue_with_another_definition_and_end_with_the_server(
    raw_server: Any, pool_of: Any
) -> None:
    async with pool_of(raw_server("logging")) as pool:
        source, messages = pool.source("srv"), Messages()
        source.on_log(messages, "debug")
        pool.apply([raw_server("logging", env={"CHANGED": "1"})])
        source = pool.source("srv")
        await log(source, "info", "hello")
        await messages.until("hello")
        pool.apply([])
        assert source.use.server.log_listeners.level(None, lambda _: True) is None
        source.on_log(messages, "debug")()
        assert source.use.server.log_listeners.level(None, lambda _: True) is None


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def report(listeners: LogListeners, **params: Any) -> None:
    listeners.report(params, None, lambda _: True)


async def test_secrets_and_long_messages_are_cut() -> None:
    listeners, messages = LogListeners(lambda text: text.replace("hunter2", "***")), Messages()
    listeners.add(messages, "debug", None, None)
    report(listeners, level="info", data={"my hunter2": ["hunter2", 7]}, logger="of hunter2")
    report(listeners, level="info", data="hunter2" * MAX_DATA)
    report(listeners, level="info", data=["x" * MAX_DATA])
    report(listeners, level="info", data="x" * (MAX_SEARCHED + 1))
    report(listeners, level="loud", data=None)
    report(listeners, level="info", data=nested(700))
    report(listeners, level="info", data=nested(100_000))
    first, second, third, fourth, fifth, *deep = messages.seen
    assert [each["data"] for each in deep] == ["(a value that cannot be written as JSON)"] * 2
    listeners = LogListeners(lambda text: text.replace("31415926", "***"))
    listeners.add(messages, "debug", None, None)
    report(listeners, level="info", data=[31415926, True, 2.5, {"pin": 31415926}])
    assert messages.data[-1] == ["***", True, 2.5, {"pin": "***"}]
    assert first == {"level": "info", "data": {"my ***": ["***", 7]}, "logger": "of ***"}
    assert (len(second["data"]) <= MAX_DATA + 20, "hunter" in second["data"]) == (True, False)
    assert third["data"].startswith('["xxx')
    assert third["data"].endswith("... (cut)")
    assert fourth["data"] == f"(a message of {MAX_SEARCHED + 1} characters, which is too long)"
    assert fifth == {"level": "info", "data": None}


async def test_a_listener_that_raises_does_not_disturb_the_others() -> None:
    def fail(message: JsonObject) -> None:
        raise LookupError

    listeners, messages = LogListeners(str), Messages()
    listeners.add(fail, "debug", None, None)
    listeners.add(messages, "debug", None, None)
    report(listeners, level="error", data="x")
    assert messages.data == ["x"]
    with pytest.raises(ValueError):
        listeners.add(messages, "loud", None, None)  # type: ignore[arg-type]


async def test_the_reference_server_is_heard_at_the_wanted_level(pool_of: Any) -> None:
    entry = npm_server("everything", "stdio")
    spec = UpstreamSpec("srv", command=entry["command"], args=tuple(entry["args"]))
    async with pool_of(spec) as pool:
        source, messages = pool.source("srv"), Messages()
        source.on_log(messages, "info")
        await source.subscribe("demo://resource/static/document/features.md", print)
        with anyio.fail_after(20):
            while not messages.seen:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert messages.seen[0]["level"] == "info"
        assert "Received Subscribe Resource request" in messages.data[0]
