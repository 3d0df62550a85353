"""Processes that share one database, as managers with a process id each, for tests of runs that outlive a process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from tests.runs.bench import Bench, bench
from tests.values import replace
from upstream_clients.testing import ScriptedSource, SlowSource
from upstream_clients.tools import Annotations, Tool

SETTINGS = CodeModeSettings(timeout_ms=400)
READ = Tool("read", annotations=Annotations(read_only=True))
REQUEST = {"answers", "caller", "client"}
"""Options of one request; all others are of the process."""
WRITE = Tool("write", annotations=Annotations(read_only=False, idempotent=False))


def answer(arguments: Any) -> Any:
    return {"content": [], "structuredContent": {"text": f"done {arguments.get('n', '')}"}}


def slow(**options: Any) -> SlowSource:
    return SlowSource("files", {"read": answer, "write": answer}, tools=[READ, WRITE], **options)


def fast() -> ScriptedSource:
    return ScriptedSource("files", {"read": answer, "write": answer}, tools=[READ, WRITE])


@asynccontextmanager
async def replica(engine: Engine, path: Path, source: Any, **options: Any) -> AsyncIterator[Bench]:
    """Yield one process, as far as others can tell. Leaving it is its sudden end."""
    # The machine continues, so that nothing has to reach the disk.
    async with open_sqlite(path / "runs.sqlite3", wall=time.time, synchronous=False) as database:
        settings = replace(SETTINGS, **{key: value for key, value in options.items() if hasattr(SETTINGS, key)})
        seal = options.pop("seal", None) or Seal()
        store = DurableStore(database, seal, settings, clock=time.monotonic)
        values = StoredValues(database, seal, settings.store_max_bytes)
        async with bench(engine, source, store=store, values=values, **{"timeout_ms": 400, **options}) as opened:
            yield opened


async def until_done(it: Bench, run_id: str, **options: Any) -> Any:
    """Return the end of a run, however many waits it takes."""
    with anyio.fail_after(30):
        while True:
            outcome = await it.observe(run_id, **options)
            if outcome.status != "waiting":
                return outcome


@dataclass(frozen=True)
class Replicas:
    """Processes over the database of a test. A method that asks one for something begins it, and ends it afterwards."""

    engine: Engine
    path: Path
    patch: pytest.MonkeyPatch

    def __call__(self, source: Any, **options: Any) -> AbstractAsyncContextManager[Bench]:
        return replica(self.engine, self.path, source, **options)

    async def execute(self, source: Any, code: str, **options: Any) -> Any:
        return await self._ask(source, options, lambda it, request: it.execute(code, **request))

    async def observe(self, source: Any, run_id: str, **options: Any) -> Any:
        return await self._ask(source, options, lambda it, request: it.observe(run_id, **request))

    async def end(self, source: Any, run_id: str, **options: Any) -> Any:
        """Return the end of a run, however many waits it takes."""
        return await self._ask(source, options, lambda it, request: until_done(it, run_id, **request))

    async def _ask(self, source: Any, options: dict[str, Any], ask: Callable[[Bench, dict[str, Any]], Any]) -> Any:
        request = {key: options.pop(key) for key in REQUEST & options.keys()}
        async with self(source, **options) as it:
            return await ask(it, request)
