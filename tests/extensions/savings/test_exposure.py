"""Tests of what tools take of a prompt, by figures worked out by hand."""

from __future__ import annotations

import random

import pytest

from codemode_mcp.extensions.savings.tasks import Exposure, Server, Weight, as_listed, weigh
from upstream_clients.tools import Annotations, Tool

TOOL = {"name": "a", "description": "d", "inputSchema": {"type": "object"}}


def test_of_a_tool_the_prompt_holds_name_description_and_input_schema() -> None:
    # {"name":"a", 12  "description":"d", 18  "input_schema": 15  {"type":"object"} 17  } 1
    assert weigh([TOOL]).prompt == 63
    assert weigh([{**TOOL, "outputSchema": {}, "title": "A"}]).prompt == 63


def test_of_a_tool_the_listing_is_all_that_it_says() -> None:
    # "inputSchema" is a letter and a line shorter than "input_schema".
    assert weigh([TOOL]).listing == 62
    # ,"outputSchema":{} 18
    assert weigh([{**TOOL, "outputSchema": {}}]).listing == 80


def test_letters_count_by_their_bytes_and_half_a_pair_counts_too() -> None:
    assert weigh([{**TOOL, "description": "ä"}]).prompt == 64
    assert weigh([{**TOOL, "description": "\ud83d"}]).prompt == 65
    assert weigh([], "naïve").instructions == 6


def test_a_tool_without_description_or_schema_has_empty_ones() -> None:
    # {"name":"a","description":"","input_schema":{"type":"object"}}
    assert weigh([{"name": "a"}]).prompt == 62


def test_a_tool_is_listed_with_what_its_server_has_said_alone() -> None:
    assert as_listed(Tool("a")) == {"name": "a", "inputSchema": {"type": "object"}}
    annotated = Tool("a", "d", "T", {}, {"type": "object"}, Annotations(read_only=True, open_world=False))
    assert as_listed(annotated) == {
        "name": "a",
        "title": "T",
        "description": "d",
        "inputSchema": {},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def test_it_pays_from_the_first_tool_that_makes_direct_exposure_larger() -> None:
    # A tool of 100 bytes: two are 200, as much as exec and wait, three are more.
    servers = (Server("one", Weight(4, 400), declarations=150),)
    exposure = Exposure(servers, Weight(2, 200))
    assert exposure.saved == 200
    assert exposure.pays_from() == (3, 1)
    # With 150 bytes that are read it is 350: three are less, four are more.
    assert exposure.reading == 150
    assert exposure.pays_from(reading=True) == (4, 1)


def test_without_tools_nothing_pays() -> None:
    assert Exposure((), Weight(2, 200)).pays_from() is None
    assert Exposure((Server("none", Weight()),), Weight(2, 200)).pays_from() is None


def test_what_a_task_reads_is_the_median_file_of_servers_that_have_tools() -> None:
    sizes = [(0, 1), (3, 900), (2, 100), (1, 300)]
    servers = tuple(Server(str(number), Weight(tools), size) for number, (tools, size) in enumerate(sizes))
    assert Exposure(servers, Weight()).reading == 300


@pytest.mark.parametrize("seed", range(5))
def test_the_whole_is_the_sum_of_its_servers(seed: int) -> None:
    chance = random.Random(seed)
    listings = [
        [
            {**TOOL, "name": "é" * chance.randrange(9), "x": "y" * chance.randrange(50)}
            for _ in range(chance.randrange(6))
        ]
        for _ in range(chance.randrange(1, 8))
    ]
    exposure = Exposure(tuple(Server(str(n), weigh(items)) for n, items in enumerate(listings)), Weight(2, 1500))
    assert exposure.direct == weigh([item for items in listings for item in items])
    assert exposure.saved == exposure.direct.prompt - 1500
    pays = exposure.pays_from()
    if pays is not None:
        each = exposure.direct.prompt / exposure.direct.tools
        assert (pays[0] - 1) * each <= 1501 <= pays[0] * each + 1
