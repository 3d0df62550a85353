"""The registry and the package managers of tests of `codemode-mcp add`."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.extensions.setup.adding import Managers, Web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    with Web() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("CODEMODE_MCP_REGISTRY", server.url)
        yield server
        server.shutdown()


@pytest.fixture
def managers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Managers:
    folder = tmp_path / "managers"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Managers(folder)
