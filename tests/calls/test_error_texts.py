"""Texts of results that read like errors, and ordinary texts with the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.runs.calls.outcome import MAX_TEXT, error_text


def lines_of(name: str) -> list[str]:
    """Return the texts of a file; `\\n` in one is a line feed."""
    text = (Path(__file__).parent / name).read_text("utf-8")
    return [line.replace("\\n", "\n") for line in text.splitlines()]


def result(text: str, **more: Any) -> str:
    return json.dumps({"content": [{"type": "text", "text": text}], **more}, ensure_ascii=False)


@pytest.mark.parametrize("text", lines_of("texts_of_errors.txt"))
def test_a_short_text_that_begins_like_an_error_reads_like_one(text: str) -> None:
    assert error_text(result(text)) == text
    assert error_text(result(text, isError=False)) == text
    assert error_text(result(text, structuredContent={"result": text})) == text


@pytest.mark.parametrize("text", lines_of("ordinary_texts.txt"))
def test_ordinary_texts_about_errors_do_not(text: str) -> None:
    assert [error_text(result(each)) for each in {text, *text.split("\n")} if error_text(result(each))] == []


@pytest.mark.parametrize(
    "given",
    [
        result("Error: no", isError=True),
        result("Error: no", structuredContent={"rows": []}),
        result("Error: no" + "x" * MAX_TEXT),
        result("2026-01-01 ERROR: disk full"),
        result("All is well.\nError: no"),
        json.dumps({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
        json.dumps({"content": []}),
        json.dumps({"content": "Error: no"}),
        "[]",
        "null",
        "[" * 1500,
        "no JSON",
    ],
)
def test_other_results_do_not(given: str) -> None:
    assert error_text(given) is None


def test_few_paragraphs_of_the_documentation_do() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs"
    texts = [each for file in folder.glob("**/*.md") for each in file.read_text("utf-8").split("\n\n")]
    assert len(texts) > 500
    assert [each for each in texts if error_text(result(each))] == []
