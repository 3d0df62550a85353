"""The corpus of TypeScript cells through `exec`: a value, or the line of a refusal or of an exception."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from harness import Answer, Session

from codemode_mcp.program.mcp_uses import check_members
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.prepare import looks_like_shell

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "cells" / "typescript.json"
CELLS: list[dict[str, Any]] = json.loads(CORPUS.read_text("utf-8")) if CORPUS.is_file() else []

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not CELLS, reason="../shared/corpus is not beside the repository")]

VALUES: dict[str, Any] = {"asi_type_newline": 45, "unicode": [1, 14, 2, "\U0001f600", True]}
"""Values that the corpus leaves open."""

_POSITION = re.compile(r"cell\.(?:js|ts):(\d+)(?::(\d+))?")


def those(*kinds: str) -> list[Any]:
    return [pytest.param(cell, id=cell["name"]) for cell in CELLS if cell["kind"] in kinds]


def hold(cell: dict[str, Any], answer: Answer) -> None:
    """Compare an answer with what its cell says of it."""
    if cell["kind"] == "value":
        assert answer.value == VALUES.get(cell["name"], cell["want"])
        return
    if cell["kind"] == "reject":
        assert answer.code in ("typescript_transform_failed", "module_access_denied")
    else:
        assert answer.code == "internal_error"
    position = _POSITION.search(answer.error)
    assert position is not None, answer.error
    assert int(position[1]) == cell["want"], answer.error
    if cell["col"] is not None:
        assert int(position[2]) == cell["col"], answer.error


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("cell", those("value", "reject", "throw"))
async def test_a_cell_behaves_as_typescript(session: Session, cell: dict[str, Any]) -> None:
    hold(cell, await session.exec(cell["code"], language="typescript"))


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("cell", those("value", "throw"))
async def test_a_cell_behaves_when_no_language_is_named(session: Session, cell: dict[str, Any]) -> None:
    hold(cell, await session.exec(cell["code"]))


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell["name"]) for cell in CELLS if cell["kind"] != "reject"])
def test_the_preflight_raises_no_alarm_over_a_valid_cell(cell: dict[str, Any]) -> None:
    assert looks_like_shell(cell["code"]) is None
    check_members(inspect(cell["code"], "typescript"), {}, "typescript")
