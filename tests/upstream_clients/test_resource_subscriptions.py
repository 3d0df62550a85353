"""Tests of subscriptions to updates of resources, in both eras of the protocol."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import npm_server
from tests.values import replace
from upstream_clients import UpstreamCallError, UpstreamSpec, UpstreamUnavailable, resource_state
from upstream_clients.listing import ListingCache

pytestmark = pytest.mark.anyio

NOW, LATER = "note:///now", "note:///later"


class Updates:
    """A listener whose updates can be waited for."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._happened = anyio.Event()

    def __call__(self, uri: str) -> None:
        self.uris.append(uri)
        self._happened.set()
        self._happened = anyio.Event()

    async def until(self, *uris: str) -> None:
        with anyio.fail_after(20):
            while self.uris != list(uris):
                await self._happened.wait()


@pytest.fixture(params=["modern", "legacy"])
def server(request: pytest.FixtureRequest, raw_server: Any, sdk_server: Any) -> Callable[..., UpstreamSpec]:
    """Return a function that gives a server of one era which reports updates."""
    if request.param == "modern":
        return lambda **more: sdk_server(**more)
    return lambda **more: raw_server("items", "announced", **more)


async def touch(source: Any, uri: str) -> None:
    await source.call_tool("touch", {"uri": uri})


async def subscribed_at(source: Any) -> list[str]:
    """Return the URIs that the server would report now."""
    found = await source.call_tool("subscribed", {})
    return sorted(json.loads(found.result["content"][0]["text"]))


async def until_subscribed_at(source: Any, *uris: str) -> None:
    with anyio.fail_after(20):
        while await subscribed_at(source) != sorted(uris):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def test_updates_are_reported_until_the_last_listener_leaves(server: Any, pool_of: Any) -> None:
    async with pool_of(server()) as pool:
        source, one, two = pool.source("srv"), Updates(), Updates()
        assert source.view().resource_subscriptions
        leave_one = await source.subscribe(NOW, one)
        leave_two = await source.subscribe(NOW, two)
        await touch(source, NOW)
        await touch(source, LATER)
        await one.until(NOW)
        await two.until(NOW)
        leave_one()
        leave_one()
        await touch(source, NOW)
        await two.until(NOW, NOW)
        assert one.uris == [NOW]
        leave_two()
        await until_subscribed_at(source)
        await touch(source, NOW)
        assert two.uris == [NOW, NOW]


async def test_further_resources_join_without_a_report_for_the_others(server: Any, pool_of: Any) -> None:
    async with pool_of(server()) as pool:
        source, updates = pool.source("srv"), Updates()
        leaves = [await source.subscribe(uri, updates) for uri in (NOW, LATER)]
        await until_subscribed_at(source, NOW, LATER)
        assert updates.uris == []
        await touch(source, LATER)
        await updates.until(LATER)
        leaves[0]()
        await until_subscribed_at(source, LATER)


async def test_a_subscription_continues_after_a_lost_connection_with_one_report(server: Any, pool_of: Any) -> None:
    async with pool_of(server()) as pool:
        source, updates = pool.source("srv"), Updates()
        await source.subscribe(NOW, updates)
        with pytest.raises(UpstreamCallError):
            await source.call_tool("die", {})
        await updates.until(NOW)
        await touch(source, NOW)
        await updates.until(NOW, NOW)


async def test_a_subscription_starts_an_idle_server_and_keeps_it(server: Any, pool_of: Any, tmp_path: Path) -> None:
    cache = ListingCache(tmp_path / "listings")
    spec = server(idle_seconds=0.3)
    async with pool_of(spec, cache=cache) as pool:
        await pool.wait_listed(None, 20)
    async with pool_of(spec, cache=cache) as pool:
        source, updates = pool.source("srv"), Updates()
        assert source.view().state == "idle"
        leave = await source.subscribe(NOW, updates)
        await anyio.sleep(0.8)
        assert source.view().state == "ready"
        leave()
        with anyio.fail_after(20):
            while source.view().state != "idle":  # noqa: ASYNC110
                await anyio.sleep(0.05)


async def test_an_update_ends_the_use_of_an_earlier_answer(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--ttl", "60000")) as pool:
        source, updates = pool.source("srv"), Updates()

        async def read() -> str:
            result = await source.request("resources/read", {"uri": NOW})
            return str(result["contents"][0]["text"])

        await source.subscribe(NOW, updates)
        assert [await read() for _ in range(2)] == ["read 1", "read 1"]
        await touch(source, NOW)
        await updates.until(NOW)
        assert await read() == "read 2"


async def test_an_update_of_a_part_is_reported_with_its_own_uri(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("announced")) as pool:
        source, updates = pool.source("srv"), Updates()
        await source.subscribe("dir:/a", updates)
        for uri in ("dir:/ab", "dir:/a/b", "dir:/"):
            await source.call_tool("touch", {"uri": uri, "always": True})
        await updates.until("dir:/a/b")


async def test_a_server_that_refuses_says_why(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items"), raw_server("announced", "refuses", name="other")) as pool:
        with pytest.raises(UpstreamCallError, match="it does not report updates of resources"):
            await pool.source("srv").subscribe(NOW, print)
        other = pool.source("other")
        for _ in range(2):
            with pytest.raises(UpstreamCallError, match="no such resource"):
                await other.subscribe(NOW, print)
    async with pool_of(raw_server("exit")) as pool:
        with pytest.raises(UpstreamUnavailable):
            await pool.source("srv").subscribe(NOW, print)


async def test_a_modern_server_that_does_not_honour_the_request_refuses_it(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--no-updates")) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError, match="does not report updates of this resource"):
            await source.subscribe(NOW, print)
        await source.call_tool("echo", {})


async def test_the_number_of_subscribed_resources_is_limited(
    server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_state, "MAX_SUBSCRIPTIONS", 2)
    async with pool_of(server()) as pool:
        source, updates = pool.source("srv"), Updates()
        leaves = [await source.subscribe(uri, updates) for uri in (NOW, LATER)]
        with pytest.raises(UpstreamCallError, match="2 subscribed resources already") as raised:
            await source.subscribe("note:///third", updates)
        assert not raised.value.dispatched
        await source.subscribe(NOW, updates)
        leaves[1]()
        await source.subscribe("note:///third", updates)


async def test_a_listener_that_raises_does_not_disturb_the_others(server: Any, pool_of: Any) -> None:
    def fail(uri: str) -> None:
        raise LookupError(uri)

    async with pool_of(server()) as pool:
        source, updates = pool.source("srv"), Updates()
        await source.subscribe(NOW, fail)
        await source.subscribe(NOW, updates)
        await touch(source, NOW)
        await updates.until(NOW)


@pytest.mark.parametrize("flags", [(), ("--legacy",)])
async def test_subscriptions_over_http_survive_a_restart_of_the_server(
    flags: tuple[str, ...], http_server: Any, pool_of: Any
) -> None:
    async with http_server(*flags) as running, pool_of(running.spec()) as pool:
        source, updates = pool.source("srv"), Updates()
        await source.subscribe(NOW, updates)
        await touch(source, NOW)
        await updates.until(NOW)
        await running.kill()
        await running.start()
        await updates.until(NOW, NOW)
        await touch(source, NOW)
        await updates.until(NOW, NOW, NOW)


async def test_a_subscription_continues_with_another_definition_of_the_server(server: Any, pool_of: Any) -> None:
    spec = server()
    async with pool_of(spec) as pool:
        source, updates, ended = pool.source("srv"), Updates(), Updates()
        leave = await source.subscribe(NOW, updates)
        (await source.subscribe(NOW, ended))()
        changed = replace(spec, env={"CHANGED": "1"})
        pool.apply([changed])
        await updates.until(NOW)
        await touch(pool.source("srv"), NOW)
        await updates.until(NOW, NOW)
        leave()
        await until_subscribed_at(pool.source("srv"))
        await pool.source("srv").subscribe(NOW, updates)
        pool.apply([])
        pool.apply([changed])
        assert await subscribed_at(pool.source("srv")) == []
        assert (updates.uris, ended.uris) == ([NOW, NOW], [])


async def test_the_reference_server_reports_updates(pool_of: Any) -> None:
    entry = npm_server("everything", "stdio")
    spec = UpstreamSpec("srv", command=entry["command"], args=tuple(entry["args"]))
    async with pool_of(spec) as pool:
        source, updates = pool.source("srv"), Updates()
        uri = (await source.list_resources()).items[0]["uri"]
        leave = await source.subscribe(uri, updates)
        await source.call_tool("toggle-subscriber-updates", {})
        await updates.until(uri)
        leave()
