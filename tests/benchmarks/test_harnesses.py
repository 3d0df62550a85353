"""The benchmarks run and give rows of the right shape. No speed is asserted, and no peers are installed."""

from __future__ import annotations

import ast
import asyncio
import math
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from codemode_mcp.sandbox.engine import Engine

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these benchmarks read /proc")


NAMES = ("harness", "peers", "scale", "memory", "shared", "scenarios")
SIZES = {"tools": (3,), "upstreams": (2,), "suspended": (2,), "clients": (2,), "results": (1000,)}


@pytest.fixture(scope="module")
def benchmarks(
    engine: Engine, engine_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ModuleType]]:
    """Yield the modules, which find each other as they do when they are run, and the compiled engine of the tests."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "codemode-mcp").symlink_to(engine_cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.syspath_prepend(ROOT / "benchmarks")
        for name in NAMES:
            patch.delitem(sys.modules, name, raising=False)  # tests have modules of such names, too
        yield {name: import_module(name) for name in NAMES}
        for name in NAMES:
            del sys.modules[name]


def named(tree: ast.AST) -> Iterator[str]:
    """Yield the last words of the modules that a module imports, and the files that it names in texts."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name.rpartition(".")[2] for alias in node.names)
            case ast.ImportFrom():
                yield (node.module or "").rpartition(".")[2]
                yield from (alias.name for alias in node.names)
            case ast.Constant(str(text)):
                yield from re.findall(r"(\w+)\.py\b", text)


def test_every_module_of_the_benchmarks_is_a_command_or_is_used_by_another_one() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in (ROOT / "benchmarks").rglob("*.py")}
    names = {path: set(named(tree)) for path, tree in trees.items()}
    modules = {path for path in trees if not path.stem.startswith("__") and "__main__" not in path.read_text("utf-8")}
    unused = {
        str(path.relative_to(ROOT))
        for path in modules
        if not any(path.stem in found for other, found in names.items() if other != path)
    }
    assert len(modules) > 10
    assert unused == set(), "a module that only tests use belongs beside these tests"


def test_the_comparison_has_every_row_of_ours_and_those_of_a_client_without_a_gateway(
    benchmarks: dict[str, ModuleType],
) -> None:
    peers = benchmarks["peers"]
    subjects, table = peers.compare(("ours", "direct"), rounds=1, calls=3, settle=0, warm=False)
    rows = (*peers.STARTS, *peers.PROGRAMS, *peers.MEMORY)
    assert tuple(table) == rows
    assert [row for row in rows if "ours" not in table[row]] == []
    assert [row for row in rows if "direct" not in table[row]] == [peers.RESULT, peers.TRIVIAL]
    assert all(cell.median > 0 for cells in table.values() for cell in cells.values())
    assert all(table[row]["ours"].each is not None for row in peers.PROGRAMS)
    lines = peers.lines(subjects, table, 3)
    assert [line[0] for line in lines if "{" in line[0]] == []
    assert {len(line) for line in lines} == {3}
    assert lines[-1][2].endswith("x")


def test_each_curve_has_a_figure_for_each_size_and_a_drawing(benchmarks: dict[str, ModuleType]) -> None:
    scale = benchmarks["scale"]
    families = list(scale.measure(list(SIZES), SIZES, 1, settle=0))
    assert [family.name for family in families] == list(scale.FULL) == list(scale.QUICK)
    for family in families:
        assert [tuple(curve.points) for curve in family.curves] == [family.sizes] * len(family.curves)
        assert all(value > 0 for curve in family.curves for value in curve.points.values())
        assert scale.table(family).count("\n") == 1 + len(family.curves)
        assert scale.drawing(family).count("<circle") == len(family.curves)


def test_a_drawing_has_a_point_for_each_figure_and_tells_the_exponent(benchmarks: dict[str, ModuleType]) -> None:
    scale = benchmarks["scale"]
    family = scale.Family("one", "Things", "things", (1, 10, 100))
    for size in family.sizes:
        family.add("linear", "ms", size, 2.0 * size)
    family.add("ends earlier", "MB", 1, 5.0)
    picture = scale.drawing(family)
    assert picture.count("<circle") == 4
    assert "exponent at the end 1.00" in picture
    assert "| ends earlier, MB | 5.00 | - | - |" in scale.table(family)


@pytest.mark.parametrize(("power", "constant"), [(0.0, 5.0), (1.0, 0.0), (2.0, 0.0)])
def test_the_exponent_of_a_power_is_the_power(benchmarks: dict[str, ModuleType], power: float, constant: float) -> None:
    points = [(size, constant + 3 * size**power) for size in (1, 10, 100, 1000)]
    assert math.isclose(benchmarks["scale"].slope(points), power, abs_tol=1e-9)


def test_the_exponent_at_the_end_shows_growth_that_a_constant_hides(benchmarks: dict[str, ModuleType]) -> None:
    scale = benchmarks["scale"]
    curve = scale.Curve("hidden", "ms", {size: 1000 + size**2 / 100 for size in (1, 10, 100, 1000)})
    assert curve.slope < 0.5
    assert curve.last_slope > 0.9


def test_the_memory_of_a_server_is_measured_at_rest_and_after_mixed_programs(benchmarks: dict[str, ModuleType]) -> None:
    memory = benchmarks["memory"]
    points, ends = memory.grow((len(memory.MIXED),), settle=0, each_once=True)
    assert [point.runs for point in points] == [0, len(memory.MIXED)]
    assert all(0 < point.pss <= point.rss for point in points)
    assert ends == {
        "a value: completed": 1,
        "computing: completed": 1,
        "a call: completed": 1,
        "ten concurrent calls: completed": 1,
        "a large result: completed": 1,
        "a search: completed": 1,
        "an error: internal_error": 1,
        "a syntax error: invalid_input": 1,
        "a refused call: nested_tool_failed": 1,
        "recursion without end: internal_error": 1,
        "suspended and resumed: completed": 1,
        "suspended and cancelled: aborted": 1,
    }
    assert memory.growth_table(points).count("\n") == 3


def test_the_shared_instance_is_measured_beside_private_servers(benchmarks: dict[str, ModuleType]) -> None:
    shared = benchmarks["shared"]
    rows = shared.measure(rounds=1, clients=2, servers=2, settle=0, runs=1)
    figures = {row.name: row for row in rows}
    assert len(figures) == len(rows) == 11
    assert all(row.shared > 0 for row in rows if not row.name.startswith("added to"))
    assert [row.bar for row in rows].count(None) == 4
    assert figures["2 clients with 2 servers: processes of servers"].shared == 2
    # Two relays, the instance and two servers; two private servers with two servers each.
    assert figures["2 clients with 2 servers: processes"].cells[1:3] == ["5", "6"]
    assert shared.table(rows).count("\n") == 1 + len(rows)


@pytest.mark.parametrize("name", ["exec", "openapi"])
def test_a_scenario_compares_what_alternates(
    benchmarks: dict[str, ModuleType], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measure() -> int:
        count = 0
        async with AsyncExitStack() as stack:
            async for each in benchmarks["scenarios"].SCENARIOS[name](stack, tmp_path):
                assert set(each.bars) <= set(list(each.variants)[1:])
                await each.report(1)
                count += 1
        return count

    count = asyncio.run(measure())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count > 0
    assert all(re.search(r"\d\.\d{3}x \(\d+\.\d\d ms to \d+\.\d\d ms\)", line) for line in lines)


def test_each_variant_comes_first_equally_often(benchmarks: dict[str, ModuleType]) -> None:
    ran: list[str] = []
    variants = {name: partial(ran.append, name) for name in "ab"}
    times = benchmarks["harness"].alternate(variants, 4, warm=0)
    assert "".join(ran) == "baababba"
    assert {name: len(each) for name, each in times.items()} == {"a": 4, "b": 4}


def test_modules_that_are_imported_are_told_apart_by_whether_they_are_called(benchmarks: dict[str, ModuleType]) -> None:
    memory = benchmarks["memory"]
    found = {each.name: each for each in memory.modules(warm=False)}
    assert found["codemode_mcp.runs.driver"].called
    assert found["codemode_mcp.runs.driver"].package == "codemode_mcp"
    assert any(not each.called for each in found.values())
    assert sum(each.mb for each in found.values()) > 1
    table = memory.module_table(list(found.values()))
    assert table.splitlines()[-1].startswith(f"| sum | {len(found)} |")


def test_a_part_of_a_page_is_replaced_between_its_markers(benchmarks: dict[str, ModuleType], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- one: begin -->\nold\n<!-- one: end -->\nafter\n")
    benchmarks["harness"].update(page, "one", "new")
    assert page.read_text() == "before\n<!-- one: begin -->\n\nnew\n\n<!-- one: end -->\nafter\n"
    with pytest.raises(ValueError, match="no part 'two'"):
        benchmarks["harness"].update(page, "two", "new")
