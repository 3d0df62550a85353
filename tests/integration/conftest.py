"""Servers that several tests of one module share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for the files of one module."""
    return tmp_path_factory.mktemp("module")


def _with_engine(folder: Path, engine_cache: Path) -> dict[str, str]:
    cache = folder / "cache"
    shutil.copytree(engine_cache, cache / "codemode-mcp")
    return {"XDG_CACHE_HOME": str(cache)}


@pytest.fixture
def own_cache(engine_cache: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose cache folder, `cache` in `tmp_path`, has the compiled engine alone."""
    return _with_engine(tmp_path, engine_cache)


@pytest.fixture(scope="module")
def module_cache(engine_cache: Path, folder: Path) -> dict[str, str]:
    """Do the same for one module, in its `folder`."""
    return _with_engine(folder, engine_cache)
