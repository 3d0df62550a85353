"""Lists of resources that are made of three parts: those of servers, apps, and stored results."""

from types import SimpleNamespace
from typing import Any

import pytest

from codemode_mcp.server.resources import LIST_TTL_MS, ResourceRequests
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError

pytestmark = pytest.mark.anyio


class Parts:
    """The three sources of resources. Servers have two pages, and results too."""

    async def answer(self, exchange: Any, method: str) -> dict[str, Any]:
        if not exchange.servers:
            raise JsonRpcError(METHOD_NOT_FOUND, "Method not found", method)
        if exchange.params.get("cursor") == "second":
            return {"resources": ["server 2"], "ttlMs": 60_000}
        return {"resources": ["server 1"], "nextCursor": "second", "ttlMs": 60_000}

    def capabilities(self, session: Any) -> dict[str, Any]:
        return {"extensions": {}} if session.apps else {}

    async def resources(self, exchange: Any) -> list[str]:
        return ["app"] if exchange.session.apps else []

    async def page(self, caller: Any, before: int | None) -> tuple[list[str], str | None]:
        return (["result 1"], "results:5") if before is None else ([f"result before {before}"], None)


def asking(cursor: str | None = None, *, servers: bool = True, apps: bool = True, results: bool = True) -> Any:
    return SimpleNamespace(
        params={} if cursor is None else {"cursor": cursor},
        session=SimpleNamespace(apps=apps, modern=True),
        caller=None,
        servers=servers,
        results=results,
    )


def answers() -> ResourceRequests:
    parts: Any = Parts()
    return ResourceRequests(
        lambda: parts,
        parts,
        parts,
        parts,
        lambda exchange: exchange.servers,  # type: ignore[attr-defined]
        lambda exchange: exchange.results,  # type: ignore[attr-defined]
    )


async def listed(exchange: Any) -> dict[str, Any]:
    return await answers().answer(exchange, "resources/list")


async def test_a_list_has_the_resources_of_servers_then_apps_then_results() -> None:
    assert await listed(asking()) == {"resources": ["server 1"], "nextCursor": "second", "ttlMs": 60_000}
    last = await listed(asking("second"))
    assert last["resources"] == ["server 2", "app", "result 1"]
    assert await listed(asking(last["nextCursor"])) == {"resources": ["result before 5"]}


async def test_a_list_with_results_is_used_again_for_a_short_time_alone() -> None:
    assert (await listed(asking("second")))["ttlMs"] == LIST_TTL_MS
    assert (await listed(asking("second", results=False)))["ttlMs"] == 60_000


async def test_each_part_is_listed_without_the_others() -> None:
    assert (await listed(asking("second", results=False)))["resources"] == ["server 2", "app"]
    assert (await listed(asking(servers=False)))["resources"] == ["app", "result 1"]
    assert (await listed(asking(servers=False, apps=False)))["resources"] == ["result 1"]
    assert (await listed(asking(servers=False, results=False)))["resources"] == ["app"]
    templates = await answers().answer(asking(servers=False, apps=False), "resources/templates/list")
    assert templates == {"resourceTemplates": []}


async def test_without_any_part_there_is_no_list() -> None:
    for method in ("resources/list", "resources/templates/list"):
        with pytest.raises(JsonRpcError) as raised:
            await answers().answer(asking(servers=False, apps=False, results=False), method)
        assert raised.value.code == METHOD_NOT_FOUND


async def test_a_cursor_of_results_is_unknown_to_clients_without_results() -> None:
    with pytest.raises(JsonRpcError, match="unknown cursor") as raised:
        await listed(asking("results:5", servers=False, results=False))
    assert raised.value.code == INVALID_PARAMS
