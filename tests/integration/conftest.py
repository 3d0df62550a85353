"""Servers that several tests of one module share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from codemode_mcp.app import cache_dir
from codemode_mcp.errors import CodeModeError
from codemode_mcp.typescript import find_esbuild

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Of module scope, so that a server can be shared by the tests of a module."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the files of one module."""
    return tmp_path_factory.mktemp("module")


@pytest.fixture(scope="session")
def esbuild() -> None:
    """For tests that run TypeScript: skips them where it was never fetched."""
    try:
        find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    except CodeModeError as error:
        pytest.skip(error.message)
