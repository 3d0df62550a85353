"""Saved programs in the real server: their folder, changed while it runs, and the folder of an editor."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.integration.harness import COMMAND, SECONDS, quickstart, serve, until, write_config

pytestmark = pytest.mark.anyio

OPEN_ISSUES = """/**
 * Count the issues of a project.
 * @param input.label only issues with this label
 */
export default async function countIssues({ label }: { label?: string }): Promise<{ count: number; label: string }> {
  const result = unwrap(await MCP.tracker.listIssues({}));
  const issues: unknown[] = Array.isArray(result) ? result : result.issues ?? result.result ?? [];
  if (label === "none") throw new Error("no such label");
  return { count: issues.length, label: label ?? "all" };
}
"""


async def described(session: object) -> str:
    listed = await session.client.list_tools(cache_mode="refresh")  # type: ignore[attr-defined]
    return next(tool.description for tool in listed.tools if tool.name == "exec")


@pytest.mark.usefixtures("esbuild")
async def test_a_folder_of_programs_is_served_and_read_again_when_it_changes(tmp_path: Path) -> None:
    config = write_config(tmp_path, quickstart())
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "countIssues.ts").write_text(OPEN_ISSUES, "utf-8")
    (folder / "broken.ts").write_text("export default 1;\n", "utf-8")
    async with serve(config) as session:
        assert "await programs.countIssues({...})" in await described(session)
        answer = await session.exec("return await programs.countIssues({ label: 'bug' })")
        assert answer.value["label"] == "bug"
        assert answer.value["count"] > 0
        failed = await session.exec("\nreturn await programs.countIssues({ label: 'none' })")
        assert "Error: programs.countIssues failed: no such label (programs/countIssues.ts:8:" in failed.error
        assert "cell.js:2:" in failed.error
        assert "programs/broken.ts:1: export default is no function" in session.stderr
        unusable = await session.exec("return await programs.broken()")
        assert "programs.broken cannot be used (cell.js:1:14): its file has a problem" in unusable.error
        (folder / "broken.ts").write_text("export default () => 'mended';\n", "utf-8")
        await until(lambda: "the folder of saved programs has changed" in session.stderr)
        assert await session.value("return await programs.broken()") == "mended"
        assert "broken" in await described(session)


async def test_an_editor_gets_the_declarations_of_saved_programs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "double.js").write_text(
        "/** @param {{ n: number }} input */\nexport default ({ n }) => n * 2;\n", "utf-8"
    )
    out = tmp_path / "types"
    command = [*COMMAND, "types", "--out", str(out), "--config", str(config)]
    with anyio.fail_after(SECONDS):
        await anyio.run_process(command, cwd=tmp_path)
    assert "function double(input: { n: number }): Promise<unknown>;" in (out / "programs.d.ts").read_text("utf-8")
