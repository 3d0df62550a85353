"""One server for all programs, over fakes of the eight servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

from harness import serve, write_config

from tests.type_check.tool_lists import SERVERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harness import Session

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """Programs of the eight servers, whose tools answer by their schemas."""
    servers = {name: {"command": sys.executable, "args": [str(FAKE_SERVER), name]} for name in SERVERS}
    async with serve(write_config(tmp_path_factory.mktemp("type_check"), servers)) as session:
        yield session
