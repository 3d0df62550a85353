from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crashes.recorded import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from codemode_mcp.sandbox.engine import Engine
    from tests.crashes.nursery import Nursery
    from tests.crashes.recorded import Recorded


@pytest.fixture(scope="session")
def births(engine: Engine) -> Iterator[Nursery]:
    """The parent of all processes under test."""
    from tests.crashes.nursery import nursery

    with nursery() as opened:
        yield opened


@pytest.fixture(scope="session")
def recorded(births: Nursery, tmp_path_factory: pytest.TempPathFactory, engine_cache: Path) -> Recorded:
    """A campaign that has kept every promise, with its evidence."""
    folder = tmp_path_factory.mktemp("crashes")
    return record(births, folder, engine_cache, crashes=24, seed=1, processes=3, clients=8, completed=6)
