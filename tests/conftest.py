"""What tests of several rooms share: the event loop they run on, and one compiled engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from codemode_mcp.sandbox.engine import open_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from codemode_mcp.sandbox.engine import Engine


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes under test find no listing that an earlier run has kept, and leave none in the user's own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        yield


@pytest.fixture(scope="session")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engine's compiled form is kept; filled by the `engine` fixture."""
    return tmp_path_factory.mktemp("engine-cache")


@pytest.fixture(scope="session")
def engine(engine_cache: Path) -> Iterator[Engine]:
    """The engine. Guests run on `engine.threads`."""
    with open_engine(engine_cache, max_threads=4) as opened:
        yield opened
