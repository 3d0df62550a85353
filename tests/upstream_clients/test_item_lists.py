"""Tests of the prompts and resource templates of servers: when they are listed, and how odd lists are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from test_direct_calls_over_http import EVENTS, JSON, Bare, Exchange, half_a_body, hang_up, served

from upstream_clients import UpstreamCallError, UpstreamView
from upstream_clients.list_repair import (
    MAX_METADATA_BYTES,
    PROMPTS,
    TEMPLATES,
    metadata_of,
    read_items,
    without_metadata,
)
from upstream_clients.listing import ListingCache

Answer = Callable[[Exchange], Awaitable[None]]

pytestmark = pytest.mark.anyio


def text(outcome: Any) -> str:
    return str(outcome.result["content"][0]["text"])


def listed(view: UpstreamView) -> bool:
    return None not in (view.prompt_list, view.template_list)


def names(view: UpstreamView) -> list[str]:
    return [each["name"] for each in view.prompt_list or ()]


def uris(view: UpstreamView) -> list[str]:
    return [each["uriTemplate"] for each in view.template_list or ()]


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for a list."""
    monkeypatch.setattr("upstream_clients.list_changed.ITEM_LIST_TIMEOUT", 0.2)


async def test_prompts_and_templates_are_listed_after_the_tools(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server("items"), on_change=changes) as pool:
        view = await changes.until(pool.source("srv"), listed)
    assert view.prompt_list == ({"name": "greet"},)
    assert view.template_list == ({"uriTemplate": "note:///{name}"},)
    assert view.problems == ()


async def test_a_server_without_them_has_empty_lists(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server(), on_change=changes) as pool:  # it knows no templates, but has resources
        view = await changes.until(pool.source("srv"), listed)
    assert (view.prompt_list, view.template_list, view.problems) == ((), (), ())


@pytest.mark.usefixtures("short_limit")
async def test_a_server_that_never_answers_is_ready_and_called(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server("items", "items_silent"), on_change=changes) as pool:
        source = pool.source("srv")
        view = source.view()
        assert (view.state, view.prompt_list, view.template_list) == ("ready", None, None)
        assert text(await source.call_tool("echo", {"text": "hi"})) == "hi"
        view = await changes.until(source, lambda view: len(view.problems) == 2)
        assert set(view.problems) == {
            "prompts/list failed: no answer within 0.2 s",
            "resources/templates/list failed: no answer within 0.2 s",
        }
        assert (view.state, view.prompt_list, view.template_list) == ("ready", None, None)


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize("flags", [(), ("items_silent",), ("items_fail",), ("exit",)])
async def test_a_caller_can_wait_for_all_lists(flags: tuple[str, ...], raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items", *flags)) as pool:
        with anyio.fail_after(10):
            await pool.wait_listed(["srv"], timeout=20)
        view = pool.source("srv").view()
    assert (names(view), len(view.problems)) == (
        ([], 0) if flags == ("exit",) else ([], 2) if flags else (["greet"], 0)
    )


async def test_a_failed_list_is_a_problem(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server("items", "items_fail"), on_change=changes) as pool:
        view = await changes.until(pool.source("srv"), lambda view: len(view.problems) == 2)
    assert any("prompts/list" in problem and "the disk is full" in problem for problem in view.problems)
    assert view.prompt_list is None


async def test_a_malformed_list_is_repaired(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server("items", "items_malformed"), on_change=changes) as pool:
        view = await changes.until(pool.source("srv"), listed)
    assert view.prompt_list == ({"name": "a", "_meta": {"key": "x"}}, {"name": "b", "arguments": [{"name": "q"}]})
    assert view.template_list == ({"uriTemplate": "a", "_meta": {"key": "x"}}, {"uriTemplate": "b"})
    prompts = [problem for problem in view.problems if problem.startswith("prompt ")]
    assert prompts == [
        "prompt 'a': description is not a string (a number); ignored",
        "prompt number 2 is not an object (a string); dropped",
        "prompt number 3 has no name (an empty string); dropped",
        "prompt 'a' is listed more than once; the first one is kept",
        "prompt number 5 has a name of 5000 characters (at most 256); dropped",
        "prompt 'b': an argument has no name; dropped",
    ]


async def test_pages_are_joined_within_limits(
    raw_server: Any, pool_of: Any, changes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstream_clients.listing.MAX_PAGES", 3)
    async with pool_of(raw_server("items", "items_endless"), on_change=changes) as pool:
        view = await changes.until(pool.source("srv"), listed)
    assert names(view) == ["item_0", "item_1", "item_2"]
    assert "prompts/list has more than 3 pages; the rest is left out" in view.problems


async def test_a_list_is_cut_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upstream_clients.list_repair.MAX_LIST_BYTES", 100)
    items, problems = read_items(PROMPTS, [{"name": "a", "description": "x" * 60}, {"name": "b", "title": "y" * 60}])
    assert [item["name"] for item in items] == ["a"]
    assert problems == ("prompts/list has more than 10000 items or 100 bytes; the rest is left out",)


ICON = {"src": "https://example.com/a.png", "mimeType": "image/png", "sizes": ["48x48"]}


async def test_the_fields_of_mcp_are_kept_and_others_are_not() -> None:
    given = {"name": "n", "uriTemplate": "a:{b}", "mimeType": "text/plain", "_meta": {}, "icons": [], "more": 1}
    core = {"uriTemplate": "a:{b}", "name": "n", "mimeType": "text/plain"}
    assert read_items(TEMPLATES, [given])[0] == (core,)
    metadata = {"_meta": {"a/b": 1}, "annotations": {"audience": ["user"], "priority": 0.5}, "icons": [ICON]}
    (item,), problems = read_items(TEMPLATES, [given | metadata])
    assert (item, problems) == (core | metadata, ())
    assert without_metadata(item) == core
    assert metadata_of(item) == metadata


async def test_metadata_of_another_type_or_size_is_left_out_and_the_item_is_kept() -> None:
    items, problems = read_items(
        PROMPTS,
        [
            {"name": "a", "_meta": [], "icons": {}, "annotations": "x"},
            {"name": "b", "icons": ["x", {"sizes": []}, ICON]},
            {"name": "c", "_meta": {"small": 1}, "icons": [{"src": "x" * MAX_METADATA_BYTES}]},
            {"name": "d", "_meta": {"large": 10**5000}},
        ],
    )
    assert items == ({"name": "a"}, {"name": "b", "icons": [ICON]}, {"name": "c", "_meta": {"small": 1}}, {"name": "d"})
    assert problems == (
        "prompt 'a': _meta is not an object (a list); ignored",
        "prompt 'a': annotations is not an object (a string); ignored",
        "prompt 'a': icons is not a list (an object); ignored",
        "prompt 'b': icons has an entry without src; dropped",
        "prompt 'c': icons is left out, since an item has at most 16384 bytes of metadata",
        "prompt 'd': _meta is left out, since an item has at most 16384 bytes of metadata",
    )


async def test_the_metadata_of_a_list_is_limited_and_its_items_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upstream_clients.list_repair.MAX_LIST_METADATA_BYTES", 40)
    items, problems = read_items(PROMPTS, [{"name": name, "_meta": {"a": "x" * 20}} for name in "abc"])
    assert items == ({"name": "a", "_meta": {"a": "x" * 20}}, {"name": "b"}, {"name": "c"})
    assert problems == ("metadata is left out from prompt 'b' on, since a list has too much of it",)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_change_of_prompts_or_templates_is_noticed(
    era: str, sdk_server: Any, raw_server: Any, pool_of: Any, changes: Any
) -> None:
    spec = sdk_server() if era == "modern" else raw_server("items")
    async with pool_of(spec, on_change=changes) as pool:
        source = pool.source("srv")
        view = await changes.until(source, listed)
        assert (view.era, names(view), uris(view)) == (era, ["greet"], ["note:///{name}"])
        await source.call_tool("grow_prompts", {})
        view = await changes.until(source, lambda view: len(names(view)) == 2)
        assert (names(view), uris(view)) == (["greet", "grown_1"], ["note:///{name}"])
        await source.call_tool("grow_templates", {})
        view = await changes.until(source, lambda view: len(uris(view)) == 2)
        assert uris(view) == ["note:///{name}", "grown:///1/{x}"]


@pytest.mark.parametrize(
    ("grow", "method", "params", "of"),
    [
        ("grow_prompts", "prompts/get", {"name": "greet"}, names),
        ("grow_templates", "resources/read", {"uri": "note:///a"}, uris),
        ("grow_prompts", "completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}}, names),
        ("grow_templates", "completion/complete", {"ref": {"type": "ref/resource", "uri": "note:///{name}"}}, uris),
    ],
)
async def test_a_request_is_admitted_by_the_list_after_the_latest_announcement(
    grow: str,
    method: str,
    params: dict[str, Any],
    of: Callable[[UpstreamView], list[str]],
    raw_server: Any,
    pool_of: Any,
) -> None:
    seen: list[list[str]] = []

    def admit(view: UpstreamView) -> None:
        seen.append(of(view))
        if len(seen[-1]) > 1:
            raise LookupError("changed")

    async with pool_of(raw_server("items")) as pool:
        source = pool.source("srv")
        answered = method != "completion/complete"
        try:
            await source.request(method, params, admit_view=admit)
        except UpstreamCallError:
            assert not answered
        await source.call_tool(grow, {})
        with pytest.raises(LookupError):
            await source.request(method, params, admit_view=admit)
        assert [len(each) for each in seen] == [1, 2]


class Listless(Bare):
    """A legacy server that answers requests for its prompts with anything but a list."""

    def __init__(self, refuse: Answer) -> None:
        super().__init__("legacy")
        self.refuse = refuse

    async def _answer(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        if isinstance(exchange.message, dict) and exchange.message.get("method") == "prompts/list":
            await self.refuse(exchange)
        else:
            await super()._answer(exchange, reader)

    def _handshake(self, method: str) -> dict[str, Any]:
        made = super()._handshake(method)
        if method == "initialize":
            made["result"] = {**made["result"], "capabilities": {"tools": {}, "prompts": {}}}
        return made


NO_LISTS: dict[str, Answer] = {
    "an error": lambda each: each.answer(json.dumps({"jsonrpc": "2.0", "id": each.request_id, "error": ERROR}), JSON),
    "a status": lambda each: each.answer("no", "text/plain", "503 Busy"),
    "another status": lambda each: each.answer("no", "text/plain", "403 No"),
    "a login": lambda each: each.answer("no", "text/plain", "401 No"),
    "no JSON": lambda each: each.answer("<p>soon</p>", "text/html"),
    "nothing": lambda each: each.answer("", JSON),
    "a stream without an answer": lambda each: each.answer(": soon\n\n", EVENTS),
    "half of a body": half_a_body,
    "the end of the request": hang_up,
}
ERROR = {"code": -32603, "message": "soon"}


@pytest.mark.parametrize("kind", NO_LISTS)
async def test_anything_but_a_list_refuses_the_list(kind: str) -> None:
    async with served(Listless(NO_LISTS[kind])) as source:
        with anyio.fail_after(10):
            while not source.view().refused_lists:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert source.view().refused_lists == {"prompts"}
        assert source.view().prompt_list is None


async def test_a_refused_request_is_not_sent(raw_server: Any, pool_of: Any) -> None:
    sent = []

    def refuse(view: UpstreamView) -> None:
        raise LookupError

    async with pool_of(raw_server("items")) as pool:
        with pytest.raises(LookupError):
            await pool.source("srv").request(
                "prompts/get", {"name": "greet"}, admit_view=refuse, on_sent=lambda: sent.append(1)
            )
    assert sent == []


@pytest.mark.usefixtures("short_limit")
async def test_a_request_waits_only_a_short_time_for_a_list_that_does_not_come(raw_server: Any, pool_of: Any) -> None:
    views: list[UpstreamView] = []
    async with pool_of(raw_server("items", "items_silent")) as pool:
        source = pool.source("srv")
        with anyio.fail_after(10):
            read = await source.request("resources/read", {"uri": "a://b"}, admit_view=views.append)
            await source.request("prompts/get", {"name": "greet"}, admit_view=views.append)
    assert read["contents"][0]["text"] == "read"
    assert [(view.prompt_list, view.template_list) for view in views] == [(None, None), (None, None)]


async def test_a_request_for_prompts_has_a_failed_list_requested_again(
    raw_server: Any, pool_of: Any, tmp_path: Path
) -> None:
    views: list[UpstreamView] = []
    async with pool_of(raw_server("items", f"items_fail={tmp_path / 'works'}")) as pool:
        source = pool.source("srv")
        await pool.wait_listed(None, 20)
        assert source.view().prompt_list is None
        (tmp_path / "works").touch()
        await source.request("resources/read", {"uri": "note:///a"}, admit_view=views.append)
        await source.request("prompts/get", {"name": "greet"}, admit_view=views.append)
        assert [names(view) for view in views] == [[], ["greet"]]
        assert not any(problem.startswith("prompts/list") for problem in source.view().problems)


@pytest.mark.parametrize("method", ["prompts/list", "resources/templates/list"])
async def test_a_result_that_differs_from_the_list_has_it_requested_again(
    method: str, raw_server: Any, pool_of: Any, changes: Any
) -> None:
    async with pool_of(raw_server("items"), on_change=changes) as pool:
        source = pool.source("srv")
        before = await changes.until(source, listed)
        await source.call_tool("grow_silently", {})
        await source.request(method, {}, admit_view=lambda _: None)
        view = await changes.until(
            source, lambda view: view.prompt_list != before.prompt_list or uris(view) != uris(before)
        )
        assert len(names(view)) + len(uris(view)) == 3


async def test_a_saved_listing_has_prompts_and_templates(
    raw_server: Any, pool_of: Any, changes: Any, tmp_path: Path
) -> None:
    cache = ListingCache(tmp_path / "listings")
    spec = raw_server("items")
    async with pool_of(spec, on_change=changes, cache=cache) as pool:
        await changes.until(pool.source("srv"), listed)
    found = cache.load(spec)
    assert found is not None
    assert (names(found.view), uris(found.view), found.view.server_name) == (["greet"], ["note:///{name}"], "raw")
    async with pool_of(spec, cache=cache) as pool:
        view = pool.source("srv").view()
        assert (view.state, names(view), uris(view)) == ("idle", ["greet"], ["note:///{name}"])


async def test_an_announcement_of_a_list_that_the_server_does_not_have_is_ignored(
    raw_server: Any, pool_of: Any
) -> None:
    async with pool_of(raw_server()) as pool:  # it declares no prompts
        source = pool.source("srv")
        await source.call_tool("grow_prompts", {})
        with anyio.fail_after(10), pytest.raises(UpstreamCallError):
            await source.request("prompts/get", {"name": "x"}, admit_view=lambda _: None)
        assert json.loads(text(await source.call_tool("listings", {}))) == 1
