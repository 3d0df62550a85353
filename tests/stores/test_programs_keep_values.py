"""`store` and `load` of real programs, over a database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.settings import ToolSettings
from codemode_mcp.runs.rendering import render
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from tests.runs.bench import OWNER, bench
from tests.stores.direct import Direct

MIB = 1024 * 1024
WALL = 1_800_000_000.0


@pytest.fixture
def database() -> Iterator[Direct]:
    direct = Direct()
    yield direct
    direct.connection.close()


def transactions(database: Direct) -> int:
    """Count the transactions that have written something since the last time."""
    written = sum(sql.startswith("UPDATE keepers") for sql in database.asked)
    database.asked.clear()
    return written


async def test_what_one_server_was_given_is_there_in_the_next(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite3"
    async with (
        open_sqlite(path, wall=lambda: WALL) as database,
        bench(engine, values=(values := StoredValues(database, Seal(), MIB))) as it,
    ):
        stored = await it.execute("store('authors', ['Ann', 'Bo']); return { rows: 'x'.repeat(100_000) }")
        ref = (await render(stored, ToolSettings(), values.offload, it.clock())).structured["value"]["ref"]
    async with (
        open_sqlite(path, wall=lambda: WALL) as database,
        bench(engine, values=StoredValues(database, Seal(), MIB)) as it,
    ):
        code = f"return [await load('authors'), (await load({json.dumps(ref)})).rows.length, await load('nothing')]"
        loaded = await it.execute(code)
        assert loaded.value == [["Ann", "Bo"], 100_000, None]


async def test_what_is_stored_and_loaded_together_takes_one_transaction(engine: Engine, database: Direct) -> None:
    async with bench(engine, values=StoredValues(database, Seal(), MIB)) as it:
        code = """
        await Promise.all(Array.from({ length: 100 }, (_, n) => store('k' + n, n)));
        const found = await Promise.all(Array.from({ length: 100 }, (_, n) => load('k' + n)));
        return found.every((each, n) => each === n);
        """
        assert (await it.execute(code)).value is True
        assert transactions(database) == 1
        await it.execute("for (let n = 0; n < 100; n++) store('l' + n, n); return 1")
        assert transactions(database) == 1
        assert (await it.execute("return await load('l99')")).value == 99


async def test_look_ups_and_values_settle_in_the_order_of_their_requests(engine: Engine, database: Direct) -> None:
    async with bench(engine, values=StoredValues(database, Seal(), MIB)) as it:
        code = """
        const order = [];
        store('k', 1);
        const asked = [API.list(), load('k'), API.list(), API.search('x'), load('k'), load('k'), API.list()];
        await Promise.all(asked.map((each, n) => each.then((value) => order.push(n + (value === 1 ? ': 1' : '')))));
        return order;
        """
        assert (await it.execute(code)).value == ["0", "1: 1", "2", "3", "4: 1", "5: 1", "6"]


async def test_timers_and_large_values_take_turns(engine: Engine, database: Direct) -> None:
    async with bench(engine, values=StoredValues(database, Seal(), 64 * MIB)) as it:
        await it.execute("store('large', 'x'.repeat(5_000_000)); return 1")
        code = """
        let ticks = 0;
        const ticking = setInterval(() => ticks++, 0);
        const all = await Promise.all(Array.from({ length: 6 }, () => load('large')));
        clearInterval(ticking);
        return [all.map((each) => each.length), ticks > 0];
        """
        assert (await it.execute(code)).value == [[5_000_000] * 6, True]


async def test_a_program_is_told_that_nothing_can_be_kept_and_continues(engine: Engine, database: Direct) -> None:
    values = StoredValues(database, Seal(), MIB)
    async with bench(engine, values=values) as it:
        database.failing = StoreUnavailable("the store is away; try again later")
        caught = await it.execute("try { await load('k') } catch (error) { return error.message }")
        assert caught.value == "the store is away; try again later"
        uncaught = await it.execute("return await load('k')")
        assert (uncaught.status, uncaught.code) == ("failed", "nested_tool_failed")
        assert "the store is away" in uncaught.error
        unawaited = await it.execute("store('k', 1); store('l', 2); return 'x'.repeat(100_000)")
        assert unawaited.notes == ("the store is away; try again later",)
        rendered = await render(unawaited, ToolSettings(), values.offload, it.clock())
        assert rendered.structured["value"]["truncated"]
        assert "could not be stored: the store is away" in rendered.content[-1]["text"]
        database.failing = None
        assert (await it.execute("store('k', 1); return (await load('k'))")).value == 1
        assert (await values.listed(OWNER, 0, 5)).total == 1
