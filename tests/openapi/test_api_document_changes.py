"""A document at a URL that changes while its API is in use."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from loopback_api import CASE, DOCUMENT, JSON, LoopbackApi, Received, connected, loopback_api, operation, reply, spec_of

from upstream_clients import UpstreamPool
from upstream_clients.direct import Answer, Refusal
from upstream_clients.error_mapping import HttpWatch
from upstream_clients.listing import ListingCache
from upstream_clients.live_connection import LiveConnection
from upstream_clients.openapi import connections, served
from upstream_clients.openapi.calls import DirectCalls
from upstream_clients.openapi.client import credentials_of
from upstream_clients.openapi.transport import ApiTransport, open_api
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Admission, Tool

pytestmark = pytest.mark.anyio

HOUR = 3600.0
PATH = "/docs/api.json"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as started:
        yield started


def document(path: str, server: str = "../v1") -> bytes:
    """Return an answer with a document whose operation `fetch` has this path."""
    value = {**DOCUMENT, "servers": [{"url": server}], "paths": {path + "{case}": {"get": operation("fetch")}}}
    return reply("200 OK", value, JSON, f'ETag: "{path}"')


class Client:
    """The client of an API that a test asks for lists itself, at times of its own.

    Attributes:
        now: the time, in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.transport: ApiTransport
        self.direct: DirectCalls

    @asynccontextmanager
    async def opened(self, spec: UpstreamSpec) -> AsyncIterator[None]:
        async with open_api(spec, HttpWatch(), credentials_of(spec), clock=lambda: self.now) as found:
            self.transport, self.direct = found
            yield

    async def list(self) -> dict[str, Any]:
        await self.transport.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        with anyio.fail_after(20):
            message: Any = await self.transport.receive()
        result: dict[str, Any] = message["result"]
        return result

    def send(self, case: str) -> asyncio.Future[Answer | Refusal | None]:
        ended: asyncio.Future[Answer | Refusal | None] = asyncio.get_running_loop().create_future()
        self.direct.send("tools/call", {"name": "fetch", "arguments": {"case": case}}, ended.set_result)
        return ended

    async def call(self, case: str) -> Any:
        with anyio.fail_after(20):
            answer: Any = await self.send(case)
        return answer.result["structuredContent"]


def places(listed: dict[str, Any]) -> list[str]:
    """Return methods and paths of a list, without the address."""
    return [tool["inputSchema"]["x-request"].rpartition("/v1")[2] for tool in listed["tools"]]


async def test_a_document_at_a_url_is_read_again_after_an_hour_and_only_if_it_has_changed(api: LoopbackApi) -> None:
    api.script(PATH, document("/old/"), reply("304 Not Modified"), document("/old/"), document("/new/"))
    client = Client()
    async with client.opened(spec_of(api.url + PATH)):
        first = await client.list()
        assert (places(first), first["ttlMs"], first["cacheScope"]) == (["/old/{case}"], 3_600_000, "public")
        client.now = HOUR - 1
        assert (await client.list())["ttlMs"] == 1000
        assert len(api.received) == 1
        for again in (1, 2):
            client.now = again * HOUR
            assert await client.list() == first
            assert client.transport.use_list() == ()
        client.now = 3 * HOUR
        assert places(await client.list()) == ["/new/{case}"]
    assert [each.headers.get("if-none-match") for each in api.received] == [None, *['"/old/"'] * 3]


async def test_calls_are_made_by_the_document_whose_list_is_in_use_and_end_by_it(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def permitted(host: str, port: int, named_by: str | None) -> list[str]:
        assert host == "api.example"
        return ["127.0.0.1"]

    arrived, released = anyio.Event(), anyio.Event()

    async def slow(request: Received) -> None:
        arrived.set()
        await released.wait()
        request.writer.write(reply(body="slow"))

    monkeypatch.setattr(connections, "resolve_permitted", permitted)
    api.script(PATH, document("/old/"), document("/new/", f"http://api.example:{api.port}/v1"))
    api.script("/v1/old/slow", slow)
    for path in ("/v1/old/a", "/v1/old/b", "/v1/new/c"):
        api.script(path, reply(body=path))
    client = Client()
    async with client.opened(spec_of(api.url + PATH, headers={"X-Key": "secret-key"})):
        client.now = HOUR
        assert await client.call("a") == "/v1/old/a"
        assert (await client.list())["tools"][0]["inputSchema"]["x-request"].endswith("/v1/new/{case}")
        # The list was answered, but its client still decides by the one before.
        slow_call, sent_before = client.send("slow"), client.send("b")
        await client.transport.send(
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "fetch", "arguments": {"case": "b"}}}
        )
        client.transport.use_list()
        assert await client.call("c") == "/v1/new/c"
        with anyio.fail_after(20):
            await arrived.wait()
        released.set()
        for each in (slow_call, sent_before):
            assert (await each).result["structuredContent"] in ("slow", "/v1/old/b")  # type: ignore[union-attr]
        with anyio.fail_after(20):
            answer: Any = await client.transport.receive()
        assert answer["result"]["structuredContent"] == "/v1/old/b"
    sent = [(each.target, each.headers.get("x-key"), each.headers["host"]) for each in api.received]
    here, key = f"127.0.0.1:{api.port}", "secret-key"
    assert sorted(sent[3:]) == [
        ("/v1/new/c", None, f"api.example:{api.port}"),
        *[("/v1/old/b", key, here)] * 2,
        ("/v1/old/slow", key, here),
    ]


async def test_a_list_that_was_given_up_or_is_late_changes_nothing(api: LoopbackApi) -> None:
    asked, released = anyio.Event(), anyio.Event()

    async def late(request: Received) -> None:
        asked.set()
        await released.wait()
        request.writer.write(document("/late/"))

    api.script(PATH, document("/old/"), document("/new/"), late, document("/new/"))
    api.script("/v1/old/a", reply(body="old"))
    api.script("/v1/new/a", reply(body="new"))
    client = Client()
    async with client.opened(spec_of(api.url + PATH)):
        client.now = HOUR
        assert places(await client.list()) == ["/new/{case}"]
        # This list is not used. The next one has the changed document again.
        assert await client.call("a") == "old"
        await client.transport.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        with anyio.fail_after(20):
            await asked.wait()
        assert places(await client.list()) == ["/new/{case}"]
        released.set()
        with anyio.fail_after(20):
            answer: Any = await client.transport.receive()
        assert places(answer["result"]) == ["/late/{case}"]
        client.transport.use_list()
        assert await client.call("a") == "new"


async def test_a_document_is_not_requested_while_a_thread_still_reads_the_one_before(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, released, begun = served.api_from, threading.Event(), anyio.Event()

    def slow(data: bytes, spec: UpstreamSpec) -> Any:
        anyio.from_thread.run_sync(begun.set)
        released.wait(20)
        return real(data, spec)

    api.script(PATH, document("/old/"), document("/new/"), document("/newer/"))
    client = Client()
    async with client.opened(spec_of(api.url + PATH)):
        monkeypatch.setattr(served, "api_from", slow)
        client.now = HOUR
        await client.transport.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        with anyio.fail_after(20):
            await begun.wait()
        with monkeypatch.context() as patch:
            patch.setattr(served, "_SHARE_OF_TIMEOUT", 0.02)
            assert places(await client.list()) == ["/old/{case}"]
        assert "was not read within 0.6 s" in client.transport.use_list()[0]
        with anyio.move_on_after(0.3):  # neither does another connection request it
            async with Client().opened(spec_of(api.url + PATH)):
                pass
        assert len(api.requests(PATH)) == 2
        released.set()
        with anyio.fail_after(20):
            answer: Any = await client.transport.receive()
        assert places(answer["result"]) == ["/new/{case}"]


async def test_a_document_that_cannot_be_read_again_leaves_the_old_one_and_a_problem(
    api: LoopbackApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_address = {**DOCUMENT, "servers": [{"url": "ftp://host/"}]}
    failures = (
        (reply("500 Internal Server Error"), "answered HTTP 500"),
        (reply("500 Internal Server Error"), "answered HTTP 500"),
        (reply(body=b"<html>"), "the document is HTML"),
        (reply(body=no_address), '"baseUrl"'),
    )
    api.script(PATH, document("/old/"), *(answer for answer, _ in failures), document("/new/"))
    client = Client()
    async with client.opened(spec_of(api.url + PATH)):
        client.now, least = HOUR, 60_000
        for _, why in failures:
            listed = await client.list()
            assert places(listed) == ["/old/{case}"]
            assert least <= listed["ttlMs"] <= 2 * least
            (problem,) = client.transport.use_list()
            assert why in problem
            assert problem.endswith("the document that was read before stays in use")
            client.now += listed["ttlMs"] / 1000
            least *= 2
        with monkeypatch.context() as patch:
            patch.setattr("upstream_clients.openapi.served._SHARE_OF_TIMEOUT", 0.0)
            listed = await client.list()
        assert places(listed) == ["/old/{case}"]
        assert "was not read within" in client.transport.use_list()[0]
        client.now += listed["ttlMs"] / 1000
        listed = await client.list()
        assert places(listed) == ["/new/{case}"]
        assert 3_600_000 <= listed["ttlMs"] <= 3_600_001
        assert client.transport.use_list() == ()
    # A reason that repeats itself is a warning once.
    assert sum("HTTP 500" in each.message for each in caplog.records if each.levelname == "WARNING") == 1


async def test_a_call_is_sent_by_the_definition_by_which_it_was_admitted(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstream_clients.list_changed.STALE_POLL_INTERVAL", 0.002)
    api.script(PATH, *(document(path) for path in ("/a/", "/b/") * 50))
    admitted: dict[str, str] = {}
    spec = spec_of(api.url + PATH, url=f"{api.url}/v1", connect_timeout=10.0, refresh_seconds=0.002)

    def admission(case: str) -> Admission:
        def admit(tool: Tool | None) -> None:
            assert tool is not None
            admitted[case] = tool.input_schema["x-request"].removeprefix("GET ").replace("{case}", case)

        return Admission(admit, by_listing=True)

    async def call(pool: UpstreamPool, case: str) -> None:
        await pool.source("api").call_tool("fetch", {"case": case}, admit=admission(case))

    async def call_often(pool: UpstreamPool, name: str) -> None:
        number = 0
        while len(api.requests(PATH)) < 12:
            await call(pool, f"{name}{number}")
            number += 1

    async with connected(spec) as pool:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for name in ("x", "y", "z"):
                    tasks.start_soon(call_often, pool, name)
    sent = {each.target.rpartition("/")[2]: each.target.removeprefix("/v1") for each in api.received}
    sent.pop("api.json")
    assert sent == admitted
    assert {each[:3] for each in sent.values()} == {"/a/", "/b/"}


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a list requested again after milliseconds."""
    monkeypatch.setattr("upstream_clients.list_changed.MIN_RELIST_INTERVAL", 0.005)
    monkeypatch.setattr("upstream_clients.list_changed.STALE_POLL_INTERVAL", 0.005)


@pytest.mark.usefixtures("short_times")
async def test_the_problem_of_a_document_is_shown_until_it_can_be_read_again(api: LoopbackApi) -> None:
    api.script(PATH, document("/old/"))
    changed = anyio.Event()
    async with connected(spec_of(api.url + PATH, refresh_seconds=0.005), on_change=lambda: changed.set()) as pool:
        # The first list may need the document for the second time already.
        api.script(PATH, reply("500 Internal Server Error"), document("/new/"))
        shown = []
        with anyio.fail_after(20):
            while len(shown) < 2:
                changed = anyio.Event()
                view = pool.source("api").view()
                if bool(view.problems) != bool(shown):
                    shown.append((view.problems, json.dumps(view.tools[0].input_schema)))
                    continue
                await pool.source("api").call_tool("fetch", {"case": "none"})
                await changed.wait()
        error = pool.status("api").log.last_error
    assert "answered HTTP 500" in shown[0][0][0]
    assert error is not None
    assert error.text == shown[0][0][0]
    assert "/old/" in shown[0][1]
    assert "/new/" in shown[1][1]


@pytest.mark.usefixtures("short_times")
async def test_a_list_of_tools_that_failed_is_requested_again(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = served.read_api, list[Exception]()
    real_list, late = LiveConnection.list_tools, list[Exception]()

    async def list_tools(link: LiveConnection) -> Any:
        if late:
            raise late.pop()
        return await real_list(link)

    monkeypatch.setattr(LiveConnection, "list_tools", list_tools)

    async def read_api(spec: UpstreamSpec, *rest: Any) -> served.ReadApi:
        if rest[1:] and failures:
            raise failures.pop()
        return await real(spec, *rest)

    monkeypatch.setattr(served, "read_api", read_api)
    api.script(PATH, document("/old/"))
    async with connected(spec_of(api.url + PATH, refresh_seconds=0.005)) as pool:
        # The first list may need the document for the second time already.
        failures.append(RuntimeError("a fault of this process"))
        late.append(TimeoutError())
        api.script(PATH, document("/new/"))
        source = pool.source("api")
        with anyio.fail_after(20):
            while "/new/" not in source.view().tools[0].description:
                await source.call_tool("fetch", {"case": "none"})
    assert not failures
    for why in ("no answer within 30 s", "server 'api': the call failed"):
        assert f"tools could not be listed again: {why}" in caplog.text


@pytest.mark.usefixtures("short_times")
async def test_operations_of_an_unchanged_document_are_not_compared_again_and_a_look_at_them_counts_as_use(
    api: LoopbackApi,
) -> None:
    def with_default(value: object) -> bytes:
        size = {"name": "size", "in": "query", "schema": {"type": ["integer", "boolean"], "default": value}}
        node = operation("fetch", parameters=[CASE, size])
        return reply(body={**DOCUMENT, "openapi": "3.1.0", "paths": {"/{case}": {"get": node}}})

    # In Python, 1 equals True.
    api.script(PATH, *[with_default(1)] * 5, with_default(True))
    async with connected(spec_of(api.url + PATH, refresh_seconds=0.005)) as pool:
        first = pool.views()[0].tools
        with anyio.fail_after(20):
            while pool.views()[0].tools is first:
                pool.note_look(["api"])
                await anyio.sleep(0.002)
        assert pool.views()[0].tools[0].input_schema["properties"]["size"]["default"] is True
    assert len(api.requests(PATH)) >= 6


class Changes:
    """The changes of the views of a pool, of which `note` is told."""

    def __init__(self) -> None:
        self._next = anyio.Event()

    def note(self) -> None:
        self._next.set()
        self._next = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self._next.wait()


def described(pool: UpstreamPool) -> str:
    """Return the description of the first operation."""
    return pool.views()[0].tools[0].description or ""


class DocumentFile:
    """A document that is a file, and the spec of its API, whose version is another one after each change."""

    def __init__(self, folder: Path, api: LoopbackApi) -> None:
        self.path = folder / "api.json"
        self._url = api.url
        self.version = 0
        self.change("/old/")

    def change(self, path: str) -> None:
        value = {**DOCUMENT, "paths": {path + "{case}": {"get": operation("fetch")}}}
        self.write(json.dumps(value))

    def write(self, text: str) -> None:
        self.path.write_text(text, "utf-8")
        self.version += 1

    @property
    def spec(self) -> UpstreamSpec:
        return spec_of(str(self.path), url=self._url, document_version=(self.version, 0))


@pytest.mark.usefixtures("short_times")
async def test_a_changed_file_is_read_without_a_restart_and_calls_in_flight_end_as_they_began(
    api: LoopbackApi, tmp_path: Path
) -> None:
    arrived, released, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def slow(request: Received) -> None:
        arrived.set()
        await released.wait()
        request.writer.write(reply(body="slow"))

    api.script("/old/slow", slow)
    api.script("/new/x", reply(body="new"))
    file, changes = DocumentFile(tmp_path, api), Changes()

    async def shows(path: str, problem: str) -> None:
        """Return once the API has this operation, and this problem or none."""

        def is_shown() -> bool:
            found = " ".join(pool.views()[0].problems)
            return path in described(pool) and (problem in found if problem else not found)

        await changes.until(is_shown)

    async with connected(file.spec, on_change=changes.note) as pool, anyio.create_task_group() as tasks:
        number, outcomes = pool.status("api").number, []

        async def call_slowly() -> None:
            outcomes.append(await pool.source("api").call_tool("fetch", {"case": "slow"}))
            ended.set()

        tasks.start_soon(call_slowly)
        with anyio.fail_after(20):
            await arrived.wait()
        file.change("/new/")
        pool.apply([file.spec])
        await shows("/new/", "")
        file.write("{")
        pool.apply([file.spec])
        await shows("/new/", "the document that was read before stays in use")
        assert (await pool.source("api").call_tool("fetch", {"case": "x"})).result["structuredContent"] == "new"
        file.path.unlink()
        if hasattr(os, "mkfifo"):
            os.mkfifo(file.path)  # has no writer, for which opening it would wait
            file.version += 1
            pool.apply([file.spec])
            await shows("/new/", "it is not a regular file")
            file.path.unlink()
        pool.apply([file.spec])
        file.change("/newest/")
        pool.apply([file.spec])
        await shows("/newest/", "")
        released.set()
        with anyio.fail_after(20):
            await ended.wait()
        assert outcomes[0].result["structuredContent"] == "slow"
        assert pool.status("api").number == number


async def test_a_changed_file_of_an_idle_api_is_read_and_its_list_is_saved_for_this_version(
    api: LoopbackApi, tmp_path: Path
) -> None:
    file, cache = DocumentFile(tmp_path, api), ListingCache(tmp_path / "listings")
    async with connected(file.spec, cache=cache):
        pass
    changes = Changes()
    async with UpstreamPool([file.spec], cache=cache, on_change=changes.note) as pool:
        assert pool.views()[0].state == "idle"
        file.change("/new/")
        pool.apply([file.spec])
        await changes.until(lambda: "/new/" in described(pool))
    async with UpstreamPool([file.spec], cache=cache) as pool:
        assert pool.views()[0].state == "idle"
        assert "/new/" in described(pool)
