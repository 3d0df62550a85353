"""A server whose store cannot be used: it lists its tools, runs programs and suspends them in the process alone."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from harness import DOWN, serve

pytestmark = pytest.mark.anyio


def write(folder: Path, store: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": DOWN, "store": store}), "utf-8")
    return path


ALONE = "suspended in this process alone"
CODE = 'await yield_control("now"); return "resumed"'


async def test_a_store_that_cannot_be_opened_delays_no_client_and_is_used_as_soon_as_it_can_be(
    tmp_path: Path,
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where there should be a folder", "utf-8")
    async with serve(write(tmp_path, {"kind": "sqlite", "path": "blocked/runs.sqlite3"})) as session:
        assert [tool.name for tool in (await session.client.list_tools()).tools] == ["exec", "wait"]
        answer = await session.exec(CODE)
        assert answer.status == "waiting"
        assert ALONE in str(answer.content)
        assert (await session.finish(answer)).value == "resumed"
        blocked.unlink()
        with anyio.fail_after(30):
            while ALONE in str((answer := await session.exec(CODE)).content):
                assert (await session.finish(answer)).value == "resumed"
        assert answer.status == "waiting"
        assert (await session.finish(answer)).value == "resumed"
        assert "trying again in the background" in session.stderr
    assert (blocked / "runs.sqlite3").exists()
