"""These tests look into /proc and send signals."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/proc/self/fd").is_dir():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs /proc"))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for the files of one module."""
    return tmp_path_factory.mktemp("module")
