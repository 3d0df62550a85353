"""The modes of `codeMode.check`, through the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.type_check.checks import installed_compiler
from tests.integration.harness import cli, quickstart, serve, write_config

pytestmark = pytest.mark.anyio

WRONG = "text('begun');\nconst r = await MCP.tracker.listPeople();\nr.structuredContent.peeple ?? r.people.length"


async def test_a_program_with_type_errors_runs_with_a_note(tmp_path: Path) -> None:
    installed_compiler()
    async with serve(write_config(tmp_path, quickstart(), codeMode={"check": "note"})) as session:
        answer = await session.exec(WRONG)
        assert (answer.status, "begun" in answer.read) == ("failed", True)
        assert "The type check found a type error:\n- Property 'people' does not exist" in answer.read
        right = await session.exec("unwrap(await MCP.tracker.listPeople()).people.length")
        assert "type" not in right.read


def test_a_terminal_checks_programs_and_saved_programs_without_running_them(tmp_path: Path) -> None:
    installed_compiler()
    config = str(write_config(tmp_path, quickstart()))
    (tmp_path / "programs").mkdir()
    wrong = "unwrap(await MCP.tracker.listPeople()).peeple.length"
    saved = "export default async function (input: { team: string }) {\n  text(input.team);\n  return VALUE;\n}\n"
    for name, value in (("wrong", wrong), ("right", wrong.replace("peeple", "people"))):
        (tmp_path / f"{name}.js").write_text(value, "utf-8")
        (tmp_path / "programs" / f"{name}.ts").write_text(saved.replace("VALUE", value), "utf-8")
    found = cli("run", "--check", str(tmp_path / "wrong.js"), "--config", config)
    assert found.returncode == 1
    assert f"{tmp_path}/wrong.js:1:40: Property 'peeple' does not exist" in found.stderr.replace("\n  ", " ")
    assert "Did you mean 'people'?" in found.stderr
    assert cli("run", "--check", str(tmp_path / "right.js"), "--config", config).returncode == 0
    assert cli("run", "--check", "--program", "right", "--config", config).returncode == 2, "it does not run"
    (tmp_path / "programs" / "broken.ts").write_text(saved.replace("VALUE", "[1"), "utf-8")
    (tmp_path / "programs" / "noted.ts").write_text(f"/** @param input.taem the team */\n{saved}", "utf-8")
    found = cli("programs", "check", "--config", config)
    assert found.returncode == 1
    assert "programs/noted.ts:1: @param input.taem names no member of the input; use one of team" in found.stderr
    assert 'programs/broken.ts:3:12: Expected "]" but found ";"' in found.stderr
    assert "programs/wrong.ts:3:49: Property 'peeple' does not exist" in found.stderr.replace("\n  ", " ")
    assert "right" not in found.stderr
