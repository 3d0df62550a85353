"""A database of either kind, and processes that share one, for the tests of what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.stores.replicas import Replicas
from tests.stores.shared_database import SharedDatabase, SharedPostgres, SharedSqlite


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
def replicas(engine: Engine, tmp_path: Path) -> Replicas:
    return Replicas(engine, tmp_path)
