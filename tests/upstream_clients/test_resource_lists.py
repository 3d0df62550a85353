"""Tests of the resources that servers list: when they are requested, and how long they are used."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from upstream_clients import UpstreamCallError, UpstreamUnavailable
from upstream_clients.list_repair import RESOURCES, read_items
from upstream_clients.list_state import ListState
from upstream_clients.listing import ListingCache
from upstream_clients.tools import MAX_TTL_MS, NO_HINT, CacheHint, ResourceListing, combined, read_hint

pytestmark = pytest.mark.anyio

RESOURCE = {"uri": "a://b", "name": "b"}


def text(outcome: Any) -> str:
    return str(outcome.result["content"][0]["text"])


def uris(listing: ResourceListing) -> list[str]:
    return [each["uri"] for each in listing.items]


async def listings(source: Any) -> int:
    """Return how often the server was asked for its resources."""
    return int(text(await source.call_tool("listings", {"method": "resources/list"})))


async def test_resources_are_requested_when_they_are_first_needed(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server("items"), on_change=changes) as pool:
        source = pool.source("srv")
        await pool.wait_listed(None, 20)
        assert (source.view().resource_list, await listings(source)) == (None, 0)
        assert (await source.list_resources()).items == (RESOURCE,)
        assert source.view().resource_list == (RESOURCE,)
        assert await listings(source) == 1


async def test_a_server_that_announces_changes_is_asked_again_after_one(
    raw_server: Any, pool_of: Any, changes: Any
) -> None:
    async with pool_of(raw_server("items", "announced"), on_change=changes) as pool:
        source = pool.source("srv")
        await source.list_resources()
        await anyio.sleep(1.1)  # longer than a list without announcements is used
        await source.list_resources()
        assert await listings(source) == 1
        await source.call_tool("grow_resources", {})
        view = await changes.until(source, lambda view: len(view.resource_list or ()) == 2)
        assert [each["uri"] for each in view.resource_list or ()] == ["a://b", "grown://1"]
        assert len((await source.list_resources()).items) == 2
        assert await listings(source) == 2


async def test_a_server_that_announces_nothing_is_asked_at_each_need(
    raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstream_clients.list_state.MIN_UNANNOUNCED_AGE", 0.0)
    async with pool_of(raw_server("items")) as pool:
        source = pool.source("srv")
        assert len((await source.list_resources()).items) == 1
        await source.call_tool("grow_resources", {})
        assert len((await source.list_resources()).items) == 2


async def test_callers_at_the_same_time_share_one_request(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items")) as pool:
        source = pool.source("srv")
        found: list[ResourceListing] = []

        async def list_once() -> None:
            found.append(await source.list_resources())

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(list_once)
        assert [each.items for each in found] == [(RESOURCE,)] * 5
        assert await listings(source) == 1


async def test_an_idle_server_with_a_known_list_is_not_started(raw_server: Any, pool_of: Any, tmp_path: Path) -> None:
    cache, pids = ListingCache(tmp_path / "listings"), tmp_path / "pids"
    spec = raw_server("items", f"pid={pids}")
    async with pool_of(spec, cache=cache) as pool:
        await pool.source("srv").list_resources()
    async with pool_of(spec, cache=cache) as pool:
        source = pool.source("srv")
        assert (source.view().state, (await source.list_resources()).items) == ("idle", (RESOURCE,))
        assert source.view().state == "idle"
        assert len(pids.read_text().split()) == 1
        await source.call_tool("grow_resources", {})
        # The list was used, so it is requested in the new connection.
        assert len((await source.list_resources()).items) == 2


async def test_a_known_list_that_was_not_used_yet_is_requested_in_the_next_connection(
    raw_server: Any, pool_of: Any, tmp_path: Path
) -> None:
    cache = ListingCache(tmp_path / "listings")
    spec = raw_server("items", "announced")
    async with pool_of(spec, cache=cache) as pool:
        await pool.source("srv").list_resources()
    async with pool_of(spec, cache=cache) as pool:
        source = pool.source("srv")
        await source.call_tool("echo", {})
        assert source.view().resource_list == (RESOURCE,)
        assert await listings(source) == 0
        await source.list_resources()
        assert await listings(source) == 1


async def test_an_idle_server_without_a_known_list_is_started(raw_server: Any, pool_of: Any, tmp_path: Path) -> None:
    cache = ListingCache(tmp_path / "listings")
    spec = raw_server("items")
    async with pool_of(spec, cache=cache) as pool:
        await pool.wait_listed(None, 20)
    async with pool_of(spec, cache=cache) as pool:
        source = pool.source("srv")
        assert source.view().state == "idle"
        assert (await source.list_resources()).items == (RESOURCE,)


async def test_the_list_is_still_known_while_the_server_is_down_and_after_a_restart(
    raw_server: Any, pool_of: Any, changes: Any
) -> None:
    async with pool_of(raw_server("items"), on_change=changes) as pool:
        source = pool.source("srv")
        await source.list_resources()
        with pytest.raises(UpstreamCallError):
            await source.call_tool("die", {})
        assert (await source.list_resources()).items == (RESOURCE,)
        await changes.until(source, lambda view: view.state == "ready")
        assert source.view().resource_list == (RESOURCE,)


async def test_a_server_that_cannot_list_them_fails_with_the_reason(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items", "resources_fail")) as pool:
        with pytest.raises(UpstreamCallError, match=r"resources/list failed: .*the disk is full"):
            await pool.source("srv").list_resources()
    async with pool_of(raw_server("exit")) as pool:
        with pytest.raises(UpstreamUnavailable):
            await pool.source("srv").list_resources()
    async with pool_of(raw_server("no_tools")) as pool:  # it declares no capability
        assert (await pool.source("srv").list_resources()).items == ()


async def test_a_client_with_its_own_process_gets_the_list_of_its_process(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items", share="client")) as pool:
        for client in "ab":
            pool.offer_roots(client, None)
        await pool.source("srv", "b").call_tool("grow_resources", {})
        await pool.source("srv", "a").call_tool("echo", {})
        assert len((await pool.source("srv", "a").list_resources()).items) == 1
        assert len((await pool.source("srv", "b").list_resources()).items) == 2


async def test_the_fields_of_resources_are_read_like_those_of_other_items() -> None:
    whole = {
        "uri": "ui://x/y",
        "name": "x",
        "title": "X",
        "description": "An x.",
        "mimeType": "text/html",
        "size": 3,
        "annotations": {"audience": ["user"]},
        "icons": [{"src": "data:,"}],
        "_meta": {"ui": {"csp": {}}},
    }
    assert read_items(RESOURCES, [whole]) == ((whole,), ())
    items, problems = read_items(RESOURCES, [{"uri": "a:", "size": "3"}, {"name": "no uri"}, {"uri": "b:", "size": -1}])
    assert items == ({"uri": "a:"}, {"uri": "b:"})
    assert problems == (
        "resource 'a:': size is not an integer (a string); ignored",
        "resource number 2 has no uri (missing); dropped",
    )


@pytest.mark.parametrize(
    ("result", "hint"),
    [
        ({}, NO_HINT),
        ({"ttlMs": 5000, "cacheScope": "public"}, CacheHint(5000, is_private=False)),
        ({"ttlMs": 5000}, CacheHint(5000, is_private=True)),
        ({"ttlMs": -1}, NO_HINT),
        ({"ttlMs": True}, NO_HINT),
        ({"ttlMs": "5", "cacheScope": 7}, NO_HINT),
        ({"ttlMs": 10**12}, CacheHint(MAX_TTL_MS, is_private=True)),
    ],
)
async def test_hints_of_servers_are_read_with_care(result: dict[str, Any], hint: CacheHint) -> None:
    assert read_hint(result) == hint


async def test_the_shortest_time_counts_for_all_pages_of_a_list() -> None:
    assert combined([CacheHint(5, is_private=False), CacheHint(3, is_private=False)]) == CacheHint(3, is_private=False)
    assert combined([CacheHint(5, is_private=False), CacheHint(9)]) == CacheHint(5)
    assert combined([]) == NO_HINT


async def test_a_list_is_fresh_until_its_time_is_over_or_a_change_is_announced() -> None:
    state = ListState(supported=True)
    state.is_announced = True
    state.begin()
    state.end(100.0, CacheHint(2000))
    assert [state.fresh_ms(now) for now in (100.0, 101.5, 102.5)] == [2000, 500, 0]
    assert [state.is_stale(now) for now in (101.5, 102.5)] == [False, True]
    state.announce()
    assert state.fresh_ms(101.0) == 0
    state.begin()
    state.end(200.0)
    assert not state.is_stale(10_000.0)
    state.is_announced = False
    assert [state.is_stale(now) for now in (200.5, 201.0)] == [False, True]


@pytest.mark.usefixtures("quick_look")
async def test_a_modern_server_is_asked_again_after_the_time_that_it_has_given(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--ttl", "200")) as pool:
        source = pool.source("srv")
        first = await source.list_resources()
        assert 0 < first.ttl_ms <= 200
        assert not first.is_private
        assert len(first.items) == 1
        await source.call_tool("grow_resources_silently", {})
        with anyio.fail_after(10):
            while len((await source.list_resources()).items) == 1:  # noqa: ASYNC110
                await anyio.sleep(0.05)
            # Lists of tools are asked for again too, if the server is used.
            await source.call_tool("grow_silently", {})
            while not any(tool.name.startswith("grown") for tool in source.view().tools):
                await anyio.sleep(0.05)
                await source.call_tool("echo", {})


@pytest.mark.usefixtures("quick_look")
async def test_an_unused_modern_server_is_not_asked_again(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--ttl", "50")) as pool:
        source = pool.source("srv")
        await anyio.sleep(0.5)
        counts = json.loads(text(await source.call_tool("requests", {})))
        assert counts["tools/list"] == 1


async def test_progress_of_a_read_is_reported(raw_server: Any, pool_of: Any) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with pool_of(raw_server("items")) as pool:
        await pool.source("srv").request("resources/read", {"uri": "a://b"}, on_progress=note)
    assert seen == [(1, 2)]


async def test_an_error_has_the_code_the_message_and_the_data_of_the_server(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items")) as pool:
        with pytest.raises(UpstreamCallError) as raised:
            await pool.source("srv").request("resources/read", {"uri": "gone:"})
    error = raised.value
    assert (error.code, error.server_message) == (-32002, "Resource not found")
    assert error.server_data == {"uri": "gone:"}


@pytest.fixture
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval between two checks for lists that are no longer fresh."""
    monkeypatch.setattr("upstream_clients.list_changed.STALE_POLL_INTERVAL", 0.05)
