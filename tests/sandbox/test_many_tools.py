"""Thousands of tools that are no MCP tools: the same objects for a program as of a few, made when it looks at them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.entries import OfferedTool
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.sandbox.engine import Engine
from tests.sandbox.guest_harness import Cell
from upstream_clients.tools import Tool


def manifest(count: int) -> str:
    offered = [OfferedTool("plugin", f"p{n % 7}", Tool(f"tool{n}", f"Number {n}")) for n in range(count - 3)]
    offered += [OfferedTool("core", "x", Tool("a-b", "No name"), "Label"), OfferedTool("plugin", "p0", Tool("same"))]
    offered += [OfferedTool("plugin", "p1", Tool("same"))]
    return build([], Policy(PolicyRules()), offered=offered).manifest


FEW, MANY = 20, 10_000
COUNTS = pytest.mark.parametrize("count", [FEW, MANY])


@pytest.fixture(scope="module")
def manifests() -> dict[int, str]:
    return {count: manifest(count) for count in (FEW, MANY)}


def told(engine: Engine, text: str, code: str) -> Any:
    cell = Cell(engine, manifest=text)
    try:
        return cell.start(code).value
    finally:
        cell.close()


SHAPES = {
    "the list": "ALL_TOOLS.length",
    "an entry": "ALL_TOOLS[0]",
    "the next": "ALL_TOOLS.find((each) => each.name === 'tool3')",
    "frozen": "[tools, ALL_TOOLS, ALL_TOOLS[3], tools.tool1, tools.call].map((each) => Object.isFrozen(each))",
    "names": "['tool1', 'same', 'a-b', 'search', 'then', 'toString', 'x', 'constructor'].map((name) => name in tools)",
    "members": "[typeof tools.tool2, tools.tool2.name, tools.tool2 === tools.tool2, typeof tools.nothing, tools.same]",
    "keys": "Object.keys(tools).filter((each) => ['tool5', 'search', 'same', 'a-b'].includes(each)).sort()",
    "prototype": "[Object.getPrototypeOf(tools), Object.isExtensible(tools), tools.__proto__ === undefined]",
    "property": "(({ value, ...rest }) => [typeof value, rest])(Object.getOwnPropertyDescriptor(tools, 'tool1'))",
    "awaited": "(await (async () => tools)()) === tools",
    "as JSON": "JSON.stringify(ALL_TOOLS.slice(0, 2))",
    "writes": (
        "[() => { tools.tool1 = 1 }, () => { tools.y = 1 }, () => { delete tools.tool1 }, () => { ALL_TOOLS.push(1) },"
        " () => { ALL_TOOLS = [] }, () => Object.defineProperty(tools, 'z', { value: 1 }),"
        " () => Object.setPrototypeOf(tools, {}), () => { ALL_TOOLS[0].id = 1 }]"
        ".map((write) => { try { write(); return 'done' } catch (e) { return e.name } })"
    ),
}


@pytest.mark.parametrize("expression", SHAPES.values(), ids=SHAPES)
def test_a_program_cannot_tell_thousands_of_tools_from_a_few_but_by_their_number(
    engine: Engine, manifests: dict[int, str], expression: str
) -> None:
    few, many = (told(engine, manifests[count], f"'use strict'; return {expression}") for count in (FEW, MANY))
    if expression == SHAPES["the list"]:
        assert (few, many) == (FEW, MANY)
    else:
        assert few == many
        assert few is not None


@COUNTS
def test_calls_by_name_by_id_and_look_ups_are_the_same_requests(
    engine: Engine, manifests: dict[int, str], count: int
) -> None:
    cell = Cell(engine, manifest=manifests[count])
    try:
        requests = cell.start(
            "tools.call('plugin:p1:tool1', { a: 1 }, { timeoutMs: 5 }); tools.tool1({ a: 1 }); tools.describe('x');"
            "await tools.search('y', { limit: 2 })"
        ).requests
    finally:
        cell.close()
    by_id, by_name, describe, search = requests
    assert (by_id.target, by_id.input, by_id.by_id) == ("plugin:p1:tool1", '{"a":1}', True)
    assert (by_name.target, by_name.input, by_name.by_id) == ("plugin:p1:tool1", '{"a":1}', False)
    assert json.loads(by_id.options) == {"timeoutMs": 5}
    assert (describe.target, search.query, search.limit) == ("x", "y", 2)


@COUNTS
def test_built_ins_that_a_program_overwrites_change_no_tool(
    engine: Engine, manifests: dict[int, str], count: int
) -> None:
    cell = Cell(engine, manifest=manifests[count])
    try:
        (request,) = cell.start(
            "const stolen = [];"
            "Object.defineProperty(Object.prototype, '0', { set(v) { stolen.push(v) }, get() { return 'x' } });"
            "Object.defineProperty(Object.prototype, 'tool1', { get() { return () => stolen.push('tool1') } });"
            "Array.prototype[Symbol.iterator] = function* () { yield 'stolen' };"
            "JSON.parse = () => ({}); Reflect.get = Reflect.has = Reflect.ownKeys = () => { stolen.push('reflect') };"
            "Object.freeze = (x) => x; Object.keys = () => ['stolen'];"
            "const seen = Object.getOwnPropertyNames(tools).length > 5 && ALL_TOOLS.length > 5 && stolen.length === 0;"
            "tools.tool1({ seen });"
        ).requests
    finally:
        cell.close()
    assert (request.target, request.input) == ("plugin:p1:tool1", '{"seen":true}')


def test_a_program_that_looks_at_none_of_thousands_of_tools_is_suspended_without_them(
    engine: Engine, manifests: dict[int, str]
) -> None:
    sizes = []
    for count in (FEW, MANY):
        cell = Cell(engine, manifest=manifests[count])
        cell.start("await tools.call('plugin:p1:tool1', {})")
        sizes.append(len(cell.snapshot()))
        cell.close()
    assert sizes[1] < 2 * sizes[0]
