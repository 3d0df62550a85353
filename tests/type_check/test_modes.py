"""The modes of `codeMode.check`, through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.harness import quickstart, serve, write_config
from tests.type_check.checks import installed_compiler

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

WRONG = "text('begun');\nconst r = await MCP.tracker.listPeople();\nr.structuredContent.peeple ?? r.people.length"


async def test_a_program_with_type_errors_is_refused_before_it_begins(tmp_path: Path) -> None:
    installed_compiler()
    async with serve(write_config(tmp_path, quickstart(), codeMode={"check": "refuse"})) as session:
        answer = await session.exec(WRONG)
        assert (answer.status, answer.code) == ("failed", "invalid_input")
        assert "was not run, and nothing was sent, because it has a type error:" in answer.error
        assert "write r.structuredContent.people, or unwrap(r).people (cell.js:3:33)" in answer.error
        assert "begun" not in answer.read
        assert answer.telemetry["counts"]["call"] == 0
        assert (await session.exec("unwrap(await MCP.tracker.listPeople()).people.length")).value == 6


async def test_a_program_with_type_errors_runs_with_a_note(tmp_path: Path) -> None:
    installed_compiler()
    async with serve(write_config(tmp_path, quickstart(), codeMode={"check": "note"})) as session:
        answer = await session.exec(WRONG)
        assert (answer.status, "begun" in answer.read) == ("failed", True)
        assert "The type check found a type error:\n- a result has no `people`" in answer.read
        right = await session.exec("unwrap(await MCP.tracker.listPeople()).people.length")
        assert "type" not in right.read
