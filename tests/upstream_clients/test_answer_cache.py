"""Tests of answers to reads and lists that are used again, as the server allows."""

import json
from typing import Any

import anyio
import pytest

from upstream_clients import ToolSource, UpstreamView, resource_state
from upstream_clients.resource_state import AnswerCache

pytestmark = pytest.mark.anyio

NOW = {"uri": "note:///now"}
READ = "resources/read"


def answer(text: str = "x", ttl_ms: object = 1000) -> dict[str, Any]:
    return {"contents": [{"text": text}], "ttlMs": ttl_ms, "cacheScope": "private"}


def stored(cache: AnswerCache, uri: str, result: dict[str, Any], login: object = None) -> None:
    cache.end(cache.begin(READ, {"uri": uri}, login), result, 0.0, login)


def found(cache: AnswerCache, uri: str, now: float = 0.5, login: object = None) -> Any:
    answer = cache.find(READ, {"uri": uri}, now, login)
    return None if answer is None else json.loads(answer.text)["contents"][0]["text"]


async def test_an_answer_is_used_until_its_time_is_over() -> None:
    cache = AnswerCache()
    stored(cache, "a:", answer())
    assert [found(cache, "a:", now) for now in (0.0, 0.9, 1.0)] == ["x", "x", None]
    assert not cache


async def test_an_answer_without_a_time_is_not_stored() -> None:
    cache = AnswerCache()
    for result in (answer(ttl_ms=0), answer(ttl_ms="5"), {"contents": []}):
        stored(cache, "a:", result)
    assert not cache


async def test_an_answer_is_for_one_login() -> None:
    cache = AnswerCache()
    stored(cache, "a:", answer(), login=1)
    assert found(cache, "a:", login=1) == "x"
    assert found(cache, "a:", login=2) is None
    cache.end(cache.begin(READ, {"uri": "b:"}, 1), answer(), 0.0, 2)
    assert found(cache, "b:", login=2) is None


async def test_a_request_with_more_than_the_uri_is_another_request() -> None:
    cache = AnswerCache()
    stored(cache, "a:", answer())
    assert cache.find(READ, {"uri": "a:", "inputResponses": {}}, 0.5, None) is None
    cache.end(cache.begin(READ, {"uri": "b:", "requestState": "s"}, None), answer(), 0.0, None)
    assert found(cache, "b:") is None


async def test_an_update_drops_the_resource_and_those_below_it_also_while_it_is_read() -> None:
    cache = AnswerCache()
    for uri in ("a:/x", "a:/x/y", "a:/z"):
        stored(cache, uri, answer())
    reading = cache.begin(READ, {"uri": "a:/x"}, None)
    cache.drop_resource("a:/x")
    cache.end(reading, answer(), 0.0, None)
    assert [found(cache, uri) for uri in ("a:/x", "a:/x/y", "a:/z")] == [None, None, "x"]
    cache.clear()
    assert not cache


async def test_pages_of_lists_are_stored_until_their_list_changes() -> None:
    cache = AnswerCache()
    requests: list[tuple[str, dict[str, Any]]] = [
        ("prompts/list", {}),
        ("prompts/list", {"cursor": "2"}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        (READ, {"uri": "a:"}),
        ("prompts/get", {"name": "p"}),
    ]

    def kept() -> list[bool]:
        return [cache.find(method, params, 0.5, None) is not None for method, params in requests]

    for method, params in requests:
        cache.end(cache.begin(method, params, None), answer(), 0.0, None)
    assert kept() == [True] * 5 + [False]
    cache.drop_list("tools")
    cache.drop_list("prompts")
    assert kept() == [False, False, True, True, True, False]
    cache.drop_list("resources")
    assert kept() == [False, False, False, True, False, False]


async def test_the_answers_that_were_used_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_state, "MAX_CACHE_BYTES", 300)
    cache = AnswerCache()
    for uri in ("a:", "b:", "c:"):
        stored(cache, uri, answer("x" * 50))
        assert found(cache, "a:") == "x" * 50
    assert [found(cache, uri) is None for uri in ("a:", "b:", "c:")] == [False, True, False]
    stored(cache, "d:", answer("x" * 400))
    assert found(cache, "d:") is None


class Use:
    """A reader that notes the functions that its request calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def read(self, source: ToolSource, admit: Any = None) -> str:
        self.seen.clear()
        result = await source.request(
            "resources/read",
            NOW,
            begin=self._begin,
            on_sent=lambda: self.seen.append("sent"),
            on_cached=lambda: self.seen.append("cached"),
            admit_view=admit,
        )
        assert not {"ttlMs", "cacheScope"} & result.keys()
        return str(result["contents"][0]["text"])

    async def _begin(self) -> None:
        self.seen.append("begin")


async def test_a_fresh_answer_is_given_again_without_sending_anything(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--ttl", "60000")) as pool:
        source, use = pool.source("srv"), Use()
        assert (await use.read(source), use.seen) == ("read 1", ["begin", "sent"])
        assert (await use.read(source), use.seen) == ("read 1", ["cached"])


async def test_the_hint_of_an_answer_is_passed_on_with_the_time_that_is_left(sdk_server: Any, pool_of: Any) -> None:
    hints: list[tuple[int, bool]] = []
    async with pool_of(sdk_server("--ttl", "60000"), sdk_server(name="other")) as pool:
        for _ in range(2):
            await pool.source("srv").request("resources/read", NOW, on_hint=lambda *hint: hints.append(hint))
        await pool.source("other").request("resources/read", NOW, on_hint=lambda *hint: hints.append(hint))
    (first, second) = hints
    assert first == (60_000, False)
    assert 0 < second[0] <= 60_000
    assert not second[1]


async def test_a_server_without_a_time_is_asked_each_time(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server()) as pool:
        use = Use()
        assert [await use.read(pool.source("srv")) for _ in range(2)] == ["read 1", "read 2"]


async def test_a_stored_answer_needs_the_same_permission(sdk_server: Any, pool_of: Any) -> None:
    views: list[UpstreamView] = []

    def refuse() -> None:
        raise LookupError("refused")

    async with pool_of(sdk_server("--ttl", "60000")) as pool:
        source, use = pool.source("srv"), Use()
        await use.read(source)
        assert await use.read(source, views.append) == "read 1"
        assert (use.seen, len(views), views[0].template_list is not None) == (["cached"], 1, True)
        with pytest.raises(LookupError):
            await use.read(source, lambda _: refuse())
        assert use.seen == []
        with pytest.raises(LookupError):
            await source.request("resources/read", NOW, on_cached=refuse)


async def test_a_change_of_lists_and_a_new_connection_end_the_use(sdk_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(sdk_server("--ttl", "60000"), on_change=changes) as pool:
        source, use = pool.source("srv"), Use()
        await use.read(source)
        await source.call_tool("grow_templates", {})
        await changes.until(source, lambda view: len(view.template_list or ()) == 2)
        assert (await use.read(source), use.seen) == ("read 2", ["begin", "sent"])
        assert await use.read(source) == "read 2"
        pool.restart("srv", "restarted")
        with anyio.fail_after(20):
            assert (await use.read(source), use.seen) == ("read 1", ["begin", "sent"])


async def test_a_list_is_given_again_until_a_change_is_announced(sdk_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(sdk_server("--ttl", "60000"), on_change=changes) as pool:
        source, seen = pool.source("srv"), []

        async def names() -> list[str]:
            result = await source.request("prompts/list", {}, on_cached=lambda: seen.append("cached"))
            return [each["name"] for each in result["prompts"]]

        assert [await names() for _ in range(2)] == [["greet"], ["greet"]]
        assert seen == ["cached"]
        await source.call_tool("grow_prompts", {})
        await changes.until(source, lambda view: len(view.prompt_list or ()) == 2)
        assert len(await names()) == 2


async def test_another_login_ends_the_use(http_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    login = [1]
    monkeypatch.setattr("upstream_clients.token_store.LoginStore.stamp", lambda _: (login[0], 0, 0, 0))
    async with http_server("--ttl", "60000") as running, pool_of(running.spec()) as pool:
        source, use = pool.source("srv"), Use()
        assert [await use.read(source) for _ in range(2)] == ["read 1", "read 1"]
        login[0] = 2  # e.g. `codemode-mcp login` in another process
        assert (await use.read(source), use.seen) == ("read 2", ["begin", "sent"])


async def test_hints_of_a_legacy_server_do_not_count(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("items", "hints")) as pool:
        use = Use()
        for _ in range(2):
            await use.read(pool.source("srv"))
            assert use.seen == ["begin", "sent"]
        assert (await pool.source("srv").list_resources()).ttl_ms == 0


async def test_clients_with_processes_of_their_own_share_no_answers(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server("--ttl", "60000", share="client")) as pool:
        for client in "ab":
            pool.offer_roots(client, None)
        one, other, use = pool.source("srv", "a"), pool.source("srv", "b"), Use()
        await use.read(one)
        assert (await use.read(other), use.seen) == ("read 1", ["begin", "sent"])
        assert (await use.read(one), use.seen) == ("read 1", ["cached"])
