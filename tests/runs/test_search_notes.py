"""Searches of programs: a note says how many hits are left out, and the first hits show all of their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.catalog.catalog import UNFOLDED_HITS, UNFOLDED_ROOM
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.server.search_tools import found_tools
from tests.runs.bench import bench, ran
from upstream_clients.testing import ScriptedSource
from upstream_clients.tools import Tool

STYLE = {"type": "object", "properties": {f"option_{n}": {"enum": ["on", "off"]} for n in range(18)}}
PAINT: dict[str, Any] = {"type": "object", "properties": {"style": STYLE}, "required": ["style"]}


def sources() -> list[ScriptedSource]:
    return [
        ScriptedSource(
            name, {}, tools=[Tool(f"paint_wall_{n}", "Paint a wall.", input_schema=PAINT) for n in range(17)]
        )
        for name in ("one", "two")
    ]


async def run(engine: Engine, code: str, **settings: Any) -> Outcome:
    return await ran(engine, code, *sources(), **settings)


@pytest.mark.parametrize(
    ("call", "note"),
    [
        ("API.search('paint a wall')", "API.search: 8 of 34 hits; { limit, server } for more."),
        ("API.search({ query: 'paint a wall', limit: 20 })", "20 of 34 hits; { limit, server } for more."),
        ("API.search('paint a wall', { server: 'two' })", "8 of 17 hits; { limit } for more."),
        ("API.search('paint a wall', 34)", ""),
        ("API.search('paint a wall', { server: 'two', limit: 17 })", ""),
        ("API.search('zyx')", ""),
        ("API.search('')", ""),
        ("API.search('', 9)", "API.search: 9 of 34 hits; { limit, server } for more."),
        ("API.search({ query: ' ', server: 'two', limit: 3 })", "3 of 17 hits; { limit } for more."),
    ],
)
async def test_a_search_says_how_many_hits_it_leaves_out_and_how_to_get_them(
    engine: Engine, call: str, note: str
) -> None:
    outcome = await run(
        engine, f"const hits = await {call}; return [Array.isArray(hits), hits.every((hit) => hit.call)]"
    )
    assert outcome.value == [True, True]
    found = [each for each in outcome.notes if " hits; " in each]
    assert [each.startswith("API.search: ") for each in found] == ([True] if note else [])
    assert all(note in each for each in found)


async def test_at_the_largest_limit_the_note_asks_for_something_else(engine: Engine) -> None:
    code = "const hits = await API.search('paint a wall', { limit: 50 }); return hits.length"
    outcome = await run(engine, code, max_search_limit=10, search_default_limit=5)
    assert (outcome.value, outcome.notes) == (10, ("API.search: 10 of 34 hits; { server } for more.",))
    outcome = await run(engine, code.replace("limit: 50", "limit: 50, server: 'one'"), max_search_limit=10)
    assert outcome.notes == ("API.search: 10 of 17 hits; ask for something more precise.",)


async def test_the_notes_of_many_searches_are_few_and_their_queries_are_short(engine: Engine) -> None:
    code = "for (let n = 0; n < 30; n++) await API.search(`paint wall \\n\\u202e ${n} ` + 'x '.repeat(99)); return 1"
    outcome = await run(engine, code)
    assert len(outcome.notes) == 3
    assert [note.startswith('API.search("paint wall') for note in outcome.notes] == [False, True, True]
    for note in outcome.notes:
        assert len(note) < 150
        assert "\n" not in note
        assert "\u202e" not in note


async def test_the_first_hits_show_inner_objects_within_a_room_that_they_share(engine: Engine) -> None:
    outcome = await run(engine, "return (await API.search('paint a wall', 20)).map((hit) => hit.signature)")
    unfolded = [signature for signature in outcome.value if "option_17" in signature]
    assert 0 < len(unfolded) <= UNFOLDED_HITS
    assert unfolded == outcome.value[: len(unfolded)]
    folded = outcome.value[-1]
    assert "style: { ... }" in folded
    assert sum(len(each) - len(folded) for each in unfolded) <= UNFOLDED_ROOM


async def test_a_list_of_tools_is_as_long_as_the_limit_allows_and_unfolds_nothing(engine: Engine) -> None:
    code = "return (await API.search('')).map((hit) => hit.signature)"
    outcome = await run(engine, code, max_search_limit=20)
    assert len(outcome.value) == 20
    assert all("style: { ... }" in signature for signature in outcome.value)
    assert outcome.notes == ("API.search: 20 of 34 hits; { server } for more.",)


async def test_the_tool_search_says_it_in_its_last_line_and_what_each_tool_does(engine: Engine) -> None:
    async with bench(engine, *sources()) as it:
        catalog = it.catalog()
    assert found_tools(catalog, {"query": "paint a wall"}, 8, 50).splitlines()[-1] == (
        "8 of 34 hits; pass limit or server for more."
    )
    assert "\n  [not annotated] " in found_tools(catalog, {"query": "paint a wall"}, 8, 50)
    assert "hits;" not in found_tools(catalog, {"query": "paint a wall", "limit": 34}, 8, 50)
    assert found_tools(catalog, {"query": "paint a wall", "server": "one"}, 8, 8).endswith("something more precise.")
