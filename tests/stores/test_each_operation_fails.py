"""Every piece of work that a store asks of its database fails once, in turn: no call is sent twice, and no program is
lost or stuck."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from codemode_mcp.stores.work import Database, Result, Work
from tests.runs.bench import Bench, bench
from tests.stores.replicas import READ, WRITE, answer
from upstream_clients.testing import SlowSource

How = Literal["undone", "unheard"]
"""A piece of work is not done at all, or it is, and the answer to it is lost."""

PROGRAM = """
const first = MCP.files.write({n: 1}), read = MCP.files.read({n: 2});
await yield_control();
const told = [];
const tell = async (call) => told.push(await call.then((r) => unwrap(r).text, (error) => error.message));
await tell(first);
await tell(read);
await tell(MCP.files.write({n: 3}));
await yield_control();
MCP.files.write({n: 4});
return told;
"""


class Moody:
    """A database that fails at what it is asked the `at`th time, and as often as `times` from then on."""

    def __init__(self, inner: Database, at: int, how: How, times: int) -> None:
        self._inner = inner
        self._at = at
        self._how = how
        self._times = times
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        self.asked += 1
        fails = self._at <= self.asked < self._at + self._times
        if not fails:
            return await self._inner.execute(work)
        if self._how == "unheard":
            await self._inner.execute(work)
        raise StoreUnavailable("the store{at} has a bad day", at=" somewhere")


class Brief(SlowSource):
    """Takes a moment for each call."""

    async def call_tool(self, *args: Any, **options: Any) -> Any:
        self.release = anyio.Event()
        asyncio.get_running_loop().call_later(0.03, self.release.set)
        return await super().call_tool(*args, **options)


@asynccontextmanager
async def moody(
    engine: Engine, path: Path, source: Any, at: int, how: How, times: int = 1
) -> AsyncIterator[tuple[Bench, Moody]]:
    async with open_sqlite(path / "runs.sqlite3", wall=time.time, synchronous=False) as inner:
        database: Any = Moody(inner, at, how, times)
        settings = CodeModeSettings(timeout_ms=60)
        seal = Seal()
        store = DurableStore(database, seal, settings, clock=time.monotonic)
        values = StoredValues(database, seal, settings.store_max_bytes)
        async with bench(engine, source, store=store, values=values, timeout_ms=60) as it:
            yield it, database


async def until_done(it: Bench, run_id: str) -> Outcome:
    with anyio.fail_after(10):
        while True:
            try:
                outcome = await it.observe(run_id)
            except CodeModeError:
                await anyio.sleep(0.02)  # as clients do
                continue
            if outcome.status != "waiting":
                return outcome


TIMES = [*range(1, 40)] if "STORE_EXAMPLES" in os.environ else [3, 4, 5, 6, 8, 10]
"""It is asked some 15 times, and more often where it fails."""


@pytest.mark.parametrize(("how", "times"), [("undone", 3), ("unheard", 1)])
@pytest.mark.parametrize("at", TIMES)
async def test_a_program_ends_as_it_would_and_sends_nothing_twice(
    engine: Engine, tmp_path: Path, at: int, how: How, times: int
) -> None:
    source = Brief("files", {"read": answer, "write": answer}, tools=[READ, WRITE])
    async with moody(engine, tmp_path, source, at, how, times) as (it, database):
        waiting = await it.execute(PROGRAM)
        outcome = await until_done(it, waiting.run_id)
        assert database.asked > at or "STORE_EXAMPLES" in os.environ
    assert outcome.status == "completed"
    sent = Counter(arguments["n"] for tool, arguments in source.calls if tool == "write")
    assert not sent or max(sent.values()) == 1
