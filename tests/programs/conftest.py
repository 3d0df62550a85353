"""One server for all programs of a module, over the quick start's servers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

from collections.abc import AsyncIterator

from harness import Session, quickstart, serve, write_config


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """`tracker` and `reports` are only read; `scratch`, a second tracker, is for programs that write."""
    servers = quickstart()
    servers["scratch"] = servers["tracker"]
    async with serve(write_config(tmp_path_factory.mktemp("programs"), servers)) as session:
        yield session
