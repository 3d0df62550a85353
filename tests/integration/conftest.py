"""Servers that several tests of one module share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
