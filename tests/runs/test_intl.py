"""Programs with `Intl` in runs: their image, saved programs that need it, suspension, and a missing bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.sandbox.engine import Engine, open_engine
from tests.runs.bench import bench
from tests.runs.saved_programs import library
from upstream_clients.testing import ScriptedSource, text_result

pytestmark = pytest.mark.usefixtures("intl")

PRICE = """/** Write a price.
 * @param {{ n: number }} input */
export default ({ n }) => n.toLocaleString("de-DE", { style: "currency", currency: "EUR" });"""
TWICE = """/** Write two prices. */
export default async () => [await programs.price({ n: 1 }), await programs.price({ n: 2 })];"""


async def test_a_program_gets_intl_where_its_text_needs_it_and_otherwise_not(engine: Engine) -> None:
    async with bench(engine) as it:
        outcome = await it.execute("return new Intl.NumberFormat('en-IN').format(1234567)")
        assert outcome.value == "12,34,567"
        outcome = await it.execute("return [typeof globalThis['In' + 'tl'], (1234.5).toLocaleString()]")
        assert outcome.value == ["undefined", "1,234.5"]
        outcome = await it.execute("return eval('In' + 'tl').NumberFormat")
        assert "write Intl itself" in str(outcome.error)


async def test_a_saved_program_that_needs_intl_has_it_in_each_program_that_may_call_it(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(price=PRICE, twice=TWICE)
        assert (await it.execute("return await programs.twice()")).value == ["1,00\u00a0€", "2,00\u00a0€"]
        assert (await it.execute("return typeof globalThis['In' + 'tl']")).value == "undefined"


async def test_without_the_bundle_a_program_is_refused_before_it_calls_anything(engine_cache: Path) -> None:
    files = ScriptedSource("files", {"read": text_result("x")})
    with open_engine(engine_cache, max_threads=1) as bare:
        async with bench(bare, files) as it:
            with pytest.raises(RuntimeUnavailable, match="Intl is not available here"):
                await it.execute("await MCP.files.read({}); return (1).toLocaleString('de')")
            assert files.calls == []
            assert (await it.execute("return (1234).toLocaleString()")).value == "1,234"
