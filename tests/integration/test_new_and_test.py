"""A run of a client becomes a saved program with a test, through the commands."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.integration.harness import SECONDS, command, quickstart, serve, write_config

pytestmark = pytest.mark.anyio

PROGRAM = """\
// Titles of issues.
await yield_control();
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "closed" }));
text("closed: " + issues.length);
issues.map((issue) => issue.title)
"""


async def test_a_run_becomes_a_saved_program_whose_test_needs_no_server(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    config = write_config(tmp_path, {"tracker": quickstart()["tracker"]})

    async def told(*arguments: str, code: int = 0) -> str:
        done = await command(*arguments, "--config", str(config), env={**own_cache, "COLUMNS": "100"})
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    with anyio.fail_after(SECONDS):
        async with serve(config, env=own_cache) as session:
            waiting = await session.exec(PROGRAM)
            answer = await session.finish(waiting)
            shown = await told("new", "closedIssues", "--from", waiting.run_id)
            assert 'state: "open" | "closed" (default "closed"), for MCP.tracker.listIssues (state)' in shown
        # From here on there is no server, and none could start.
        config.write_text('{"mcpServers": {"tracker": {"command": "no-such-command"}}}', "utf-8")
        assert "1 passed" in await told("test")
        file = tmp_path / "programs" / "closedIssues.js"
        text = file.read_text("utf-8")
        assert "Titles of issues." in text
        file.write_text(text.replace("issue.title)", "issue.title).reverse()"), "utf-8")
        failed = await told("test", code=1)
        assert f'[0]: recorded "{answer.value[0]}", now "{answer.value[-1]}"' in failed
