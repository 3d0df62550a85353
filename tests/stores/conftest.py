"""A PostgreSQL server for the tests of a worker, started by the first that wants it; a database of either kind."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.stores.postgres_server import NoServer, postgres_server
from tests.stores.shared_database import SharedPostgres, SharedSqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.stores.postgres_server import PostgresServer
    from tests.stores.shared_database import SharedDatabase


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Skips the test where there is none. Whoever stops it starts it again."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except NoServer as missing:
            pytest.skip(str(missing))
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """With a schema that is this test's alone."""
    return postgres.url(f"t_{uuid.uuid4().hex[:16]}")


@pytest.fixture(params=["sqlite", "postgres"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SharedDatabase]:
    """A database that a test opens for as many processes as it wants."""
    if request.param == "sqlite":
        async with SharedSqlite(tmp_path / "runs.sqlite3") as database:
            yield database
    else:
        async with SharedPostgres(request.getfixturevalue("postgres_url")) as database:
            yield database
