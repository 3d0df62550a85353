"""The registry and the package managers of tests of `codemode-mcp add`."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.extensions.setup.adding import Managers, Web


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
