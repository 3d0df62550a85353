"""Most of these tests look into /proc, send signals or fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.faults.stored import Recorded
from tests.faults.worker import Nursery

HERE = Path(__file__).resolve().parent
PROC = ("test_instances.py", "test_network.py", "test_processes.py", "test_storm.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/proc/self/fd").is_dir():
        return
    for item in items:
        if item.path.parent == HERE and item.path.name in PROC:
            item.add_marker(pytest.mark.skip(reason="needs /proc"))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for the files of one module."""
    return tmp_path_factory.mktemp("module")


@pytest.fixture(scope="session")
def births(engine: Engine) -> Iterator[Nursery]:
    """The parent of all processes under test."""
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked")
    from tests.faults.worker import nursery

    with nursery() as opened:
        yield opened


@pytest.fixture(scope="session")
def recorded(births: Nursery, tmp_path_factory: pytest.TempPathFactory, engine_cache: Path) -> Recorded:
    """A campaign that has kept every promise, with its evidence."""
    from tests.faults.crashes import record

    folder = tmp_path_factory.mktemp("crashes")
    return record(births, folder, engine_cache, crashes=24, seed=1, processes=3, clients=8, completed=6)
