"""`core:results:list` and `core:results:load` over the values that are kept for callers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.catalog.plugins.bundled import results
from codemode_mcp.catalog.plugins.tools import check_tools
from codemode_mcp.plugins import PluginTool, ToolContext, ToolError
from codemode_mcp.runs.values import PREVIEW, MemoryValues, Page, Put, Values


class Api:
    """Takes one factory."""

    def tools(self, names: Any, factory: Any, *, optional: bool = False) -> None:
        self.names, self.factory = names, factory


def tools_of(values: Values, owner: str) -> dict[str, PluginTool]:
    api = Api()
    results.register(api, lambda: values)  # type: ignore[arg-type]
    made = api.factory(ToolContext({}, Path(), owner))
    tools = {tool.name: tool for tool in made or ()}
    assert tools.keys() <= set(api.names)
    return tools


async def test_the_schemas_of_the_tools_are_usable() -> None:
    # Those of other plugins are checked when they are loaded.
    tools = tools_of(MemoryValues(1_000), "me")
    assert {made.tool.name for made in check_tools(list(tools.values()), list(tools))} == {"list", "load"}


async def store(values: Values, owner: str, key: str, text: str) -> None:
    assert await values.execute(owner, [Put(key, text)], 1) == [None]


async def load(values: Values, key: str, offset: int = 0, **more: Any) -> Any:
    return await tools_of(values, "me")["load"].run({"key": key, "offset": offset, **more})


async def test_what_is_kept_is_listed_results_first_with_a_preview() -> None:
    values = MemoryValues(1_000_000)
    await store(values, "other", "theirs", "1")
    await store(values, "me", "mine", '{"a":1}')
    ref = await values.offload("me", json.dumps("x" * 500))
    await store(values, "one more", "theirs", "1")
    listed = await tools_of(values, "me")["list"].run({"offset": 0, "limit": 50})
    assert listed["total"] == 2
    items = [(item["key"], item["kind"], item["characters"]) for item in listed["items"]]
    assert items == [(ref, "result", 502), ("mine", "stored", 7)]
    assert listed["items"][0]["preview"] == '"' + "x" * (PREVIEW - 2) + "…"
    assert listed["items"][1]["preview"] == '{"a":1}'
    second = await tools_of(values, "me")["list"].run({"offset": 1, "limit": 1})
    assert [item["key"] for item in second["items"]] == ["mine"]


@pytest.mark.parametrize(
    ("value", "part", "expected"),
    [
        ([1, 2, 3, 4], {}, ("array", 4, 0, [1, 2, 3, 4])),
        ([1, 2, 3, 4], {"offset": 1, "limit": 2}, ("array", 4, 1, [2, 3])),
        ([1, 2], {"offset": 9}, ("array", 2, 9, [])),
        ({"a": 1, "b": 2, "c": 3}, {"offset": 1, "limit": 1}, ("object", 3, 1, {"b": 2})),
        ("abcdef", {"offset": 2, "limit": 3}, ("string", 6, 2, "cde")),
        (5, {"offset": 2}, ("number", 1, 0, 5)),
        (True, {}, ("boolean", 1, 0, True)),
        (None, {}, ("null", 1, 0, None)),
        (["x" * 200_000, "y"], {"offset": 1}, ("array", 2, 1, ["y"])),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_part_of_a_value_is_loaded(value: Any, part: dict[str, Any], expected: tuple[Any, ...]) -> None:
    values = MemoryValues(1_000_000)
    await store(values, "me", "key", json.dumps(value))
    loaded = await load(values, "key", **part)
    assert loaded == {"key": "key", **dict(zip(("type", "total", "offset", "value"), expected, strict=True))}


async def test_what_belongs_to_others_looks_like_what_is_not_there() -> None:
    values = MemoryValues(1_000_000)
    ref = await values.offload("other", "1")
    assert ref is not None
    messages = []
    for key in (ref, "result:0000000000000000"):
        with pytest.raises(ToolError) as missing:
            await load(values, key)
        messages.append(str(missing.value).replace(key, "KEY"))
    assert messages[0] == messages[1]
    assert "no value is stored under" in messages[0]


class Away(MemoryValues):
    """A place that does not answer."""

    async def load(self, owner: str, key: str) -> str | None:
        raise StoreUnavailable("the store is away")

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        raise StoreUnavailable("the store is away")


async def test_where_values_cannot_be_reached_the_tools_say_why() -> None:
    values = Away(1000)
    with pytest.raises(ToolError, match="the store is away"):
        await load(values, "k")
    with pytest.raises(ToolError, match="the store is away"):
        await tools_of(values, "me")["list"].run({"offset": 0, "limit": 50})


async def test_without_a_known_caller_there_are_no_tools() -> None:
    assert tools_of(MemoryValues(1000), "") == {}
