"""One server for all programs, over fakes of the eight servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.extensions.type_check.score import decline, fake_servers
from tests.integration.harness import Session, serve, write_config


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """Programs of the eight servers, whose tools answer by their schemas. Programs with type errors get a note."""
    config = write_config(tmp_path_factory.mktemp("type_check"), fake_servers(), codeMode={"check": "note"})
    async with serve(config, elicitation_callback=decline) as session:
        yield session
