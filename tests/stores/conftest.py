"""A database of either kind, and processes that share one, for the tests of what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.stores.replicas import Replicas
from tests.stores.shared_database import Process, SharedDatabase, SharedPostgres, SharedSqlite


@pytest.fixture(params=["sqlite", "postgres"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SharedDatabase]:
    """Yield a database that a test opens for as many processes as it wants."""
    if request.param == "sqlite":
        async with SharedSqlite(tmp_path / "runs.sqlite3") as database:
            yield database
    else:
        async with SharedPostgres(request.getfixturevalue("postgres_url")) as database:
            yield database


@pytest.fixture
def replicas(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    return Replicas(engine, tmp_path, monkeypatch)


async def _process(shared: SharedDatabase) -> Process:
    """Return one process that has the database open."""
    return await shared.process()


process, first, second, other = [
    pytest.fixture(_process, name=name) for name in ("process", "first", "second", "other")
]
