"""Drafts of recorded runs make the recorded calls and give the recorded results, whatever literals they had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codemode_mcp.catalog.saved_programs.compiling import ProgramCompiler
from codemode_mcp.catalog.saved_programs.folder import read_folder
from codemode_mcp.extensions.program_tools.drafts import make_draft
from codemode_mcp.extensions.program_tools.program_tests.cases import Case
from codemode_mcp.extensions.program_tools.program_tests.comparison import Expectation, written
from codemode_mcp.extensions.program_tools.program_tests.running import Runner
from codemode_mcp.program.typescript import Transformed
from codemode_mcp.sandbox.engine import Engine
from tests.extensions.program_tools.program_tests.recording_files import Call, record
from tests.properties import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("'\"`\\${}*/\n"), max_size=6)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9).filter(lambda value: value % 1)
NAMES = ("state", "a-b", "class", "password", "input", "1", "MCP", "", "a", "x")
KEYS = st.sampled_from(NAMES) | TEXTS.filter("__proto__".__ne__)
VALUES = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


async def no_typescript(source: str) -> Transformed:
    raise AssertionError(source)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, TEXTS, max_size=2))
def test_a_draft_does_what_its_program_did(
    engine: Engine, tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    folder = tmp_path / "programs"
    program = (
        f"const a = await MCP.tracker.listIssues({json.dumps(first)});\n"
        f"[a.x, (await MCP.tracker.listIssues({json.dumps(second)})).x]"
    )
    record(folder, "report.first", program, [Call(first, {"x": 1}), Call(second, {"x": 2})], [1, 2])
    draft = make_draft(program, "javascript", origin="run run_x")
    (folder / "report.js").write_text(draft.text, "utf-8")
    case = Case(folder, "report", "first", "report.first")
    case.expectation.write_text(written(Expectation(input=draft.old_input)), "utf-8")
    result = anyio.run(Runner(engine, no_typescript, ProgramCompiler(no_typescript)).run, case, read_folder(folder))
    assert result.status == "passed", (result.lines, draft.text)
