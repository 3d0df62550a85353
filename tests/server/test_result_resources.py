"""Stored results of programs as resources, over a fake application."""

import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from codemode_mcp.audit import Auditor
from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.rendering import Rendered
from codemode_mcp.runs.values import MemoryValues, ResultForm, StoredResult
from codemode_mcp.server import resources
from codemode_mcp.server.code_mode import tool_result
from codemode_mcp.server.exposure.apps import MAX_LINKS, number_before, result_uri
from codemode_mcp.server.exposure.selection import Exposure
from codemode_mcp.server.profiles import ClientExposure, Profile
from codemode_mcp.server.resources import PAGE_RESULTS, ResultResources
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError

pytestmark = pytest.mark.anyio
ANN = Caller("ann")


class Application:
    """The part of the application that results need."""

    def __init__(self) -> None:
        self.auditor = Auditor()
        self.stored = MemoryValues(10_000_000)
        self.results = self.stored.results
        self.reading = self.most_reading = 0

    def admits_nothing(self, caller: Caller) -> bool:
        return caller.principal == "guest"

    async def values(self) -> Any:
        return self

    async def load(self, owner: str, ref: str) -> str | None:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        await anyio.lowlevel.checkpoint()
        self.reading -= 1
        return await self.stored.load(owner, ref)


class Away(Application):
    """An application whose store does not answer."""

    async def load(self, owner: str, ref: str) -> str | None:
        raise StoreUnavailable("the store is away")

    def __init__(self) -> None:
        super().__init__()
        self.results = self._refuse  # type: ignore[assignment]

    async def _refuse(self, owner: str, before: int | None, limit: int) -> Any:
        raise StoreUnavailable("the store is away")


def of(application: Any, **rules: Any) -> ResultResources:
    settings = ToolSettings(policy=PolicyRules(**rules))
    return ResultResources(application, ClientExposure(lambda: settings))


def reading(uri: str, caller: Caller = ANN) -> Any:
    return SimpleNamespace(params={"uri": uri}, caller=caller, request_id=1, session=SimpleNamespace(modern=True))


async def test_results_are_listed_in_pages_that_new_results_do_not_shift() -> None:
    application = Application()
    refs = [await application.stored.offload("ann", json.dumps(n)) for n in range(2 * PAGE_RESULTS + 50)]
    await application.stored.offload("bob", "1")
    results, listed = of(application), []
    cursor, sizes = None, []
    while cursor is not None or not sizes:
        page, cursor = await results.page(ANN, number_before(cursor))
        sizes.append(len(page))
        listed += [each["uri"] for each in page]
        await application.stored.offload("ann", "2")
    assert sizes == [PAGE_RESULTS, PAGE_RESULTS, 50]
    assert listed == [result_uri(ref or "") for ref in reversed(refs)]


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ({}, 1),
        ({"deny": ("core:results:list",)}, 0),
        ({"ask": ("core:*",)}, 0),
        ({"allow": ("mcp:*",)}, 0),
        ({"read_only": True}, 1),
    ],
)
async def test_a_list_has_results_if_policy_allows_programs_to_list_them(rules: dict[str, Any], count: int) -> None:
    application = Application()
    ref = await application.stored.offload("ann", "1")
    results = of(application, **rules)
    assert len((await results.page(ANN, None))[0]) == count
    assert (await results.read(reading(result_uri(ref or ""))))["contents"][0]["text"] == "1"


async def test_a_store_that_is_away_hides_no_other_resource_and_is_named_in_a_read() -> None:
    results = of(Away())
    assert await results.page(ANN, None) == ([], None)
    with pytest.raises(JsonRpcError, match="the store is away") as raised:
        await results.read(reading("codemode://results/0123456789abcdef"))
    assert raised.value.code == INTERNAL_ERROR


async def test_an_owner_has_one_read_at_a_time_and_delays_no_other_owner() -> None:
    application = Application()
    results = of(application)
    uris = {owner: result_uri(await application.stored.offload(owner, "1") or "") for owner in ("ann", "bob")}

    async def read_all(owner: str, count: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(results.read, reading(uris[owner], Caller(owner)))

    await read_all("ann", 5)
    assert application.most_reading == 1
    async with anyio.create_task_group() as group:
        group.start_soon(read_all, "ann", 2)
        group.start_soon(read_all, "bob", 2)
    assert application.most_reading == 2


async def test_a_result_beyond_the_limit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MAX_READ", 100)
    application = Application()
    ref = await application.stored.offload("ann", json.dumps("x" * 99))
    with pytest.raises(JsonRpcError, match="101 characters, more than 100; load a part of it in a program") as raised:
        await of(application).read(reading(result_uri(ref or "")))
    assert raised.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("caller", "resources", "shown"),
    [
        (ANN, True, True),
        (None, True, True),
        (ANN, False, False),
        (Caller(None), True, False),
        (Caller("ann", principal="guest"), True, False),
    ],
)
async def test_a_client_sees_results_if_its_caller_can_have_some(
    caller: Caller | None, resources: bool, shown: bool
) -> None:
    results = of(Application())
    assert results.shown(Exposure(resources=resources), caller) is shown


async def test_an_answer_has_few_links() -> None:
    stored = tuple(StoredResult(f"result:{number:016}", ResultForm("image/png", 1)) for number in range(100))
    rendered = Rendered({}, [{"type": "text", "text": "x"}], False, {}, stored)
    content = tool_result(rendered, "2025-06-18", Profile(), with_links=True)["content"]
    assert [block["type"] for block in content] == ["text", *["resource_link"] * MAX_LINKS]
    assert len(json.dumps(content[1:])) < 250 * MAX_LINKS
