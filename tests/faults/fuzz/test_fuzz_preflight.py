"""Tests of what is told about a program before it runs: any text, findings or one refusal, in bounded time."""

# ruff: noqa: PT017 - either way is fine, nothing else is

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program import prepare as programs
from codemode_mcp.program.error_location import find_fault, syntax_error_column
from codemode_mcp.program.inspection import Preflight
from codemode_mcp.program.mcp_uses import check_members
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.prepare import looks_like_shell
from codemode_mcp.program.program_form import take_fence
from codemode_mcp.program.syntax import line_count
from codemode_mcp.sandbox.messages import Thrown
from tests.faults.fuzz.texts import ANY_TEXT, DEEP, FUZZ, PROGRAMS, within

WORDS = st.lists(
    st.sampled_from(
        (
            *("import", "export", "require", "module", "exports", "process", "return", "MCP", "API", "eval"),
            *("globalThis", ".", "(", ")", "{", "}", "[", "]", "'x'", '"files"', "`", "${", ";", "\n", "\u2028"),
            *("=", "=>", "?.", "in", "const", "function", "class", "namespace", "declare", "type", "as", "<T>"),
            *("typeof", "try", "catch", "😀", "files", "readFile", "$api", "read", "//", "/*", "*/", "#!", "<!--"),
            *("@d", "async", "await", "\ud800", "0"),
        )
    ),
    max_size=40,
).map(" ".join)
SOURCES = ANY_TEXT | PROGRAMS | DEEP | WORDS
LANGUAGES = st.sampled_from(("javascript", "typescript"))
MEMBERS: dict[str, Any] = {"files": ["readFile", "read_file", "remove"], "my-files": None, "lost": (), "é": ["x"]}

SECONDS = 5.0
"""Seconds of processor time; the parser gives up after one of them."""


def inspected(source: str, language: Any) -> Preflight | None:
    try:
        return inspect(source, language)
    except ProgramError as refused:
        assert refused.code == "module_access_denied"
        assert "is not available (cell." in refused.message
        return None


@FUZZ
@given(SOURCES, LANGUAGES)
def test_any_text_has_findings_or_is_refused_for_its_modules(source: str, language: Any) -> None:
    with within(SECONDS):
        found = inspected(source, language)
    if found is None:
        return
    assert found.source == source
    lines = line_count(source)
    for call in found.member_calls:
        assert 1 <= call.line <= lines
        assert call.column >= 1


def is_closed(before: bytes, after: bytes) -> bool:
    """Return True if `after` is `before` with one parenthesis put in."""
    at = next((i for i in range(0, len(before), 2) if before[i : i + 2] != after[i : i + 2]), len(before))
    return after[at : at + 2] == ")".encode("utf-16-le") and after[at + 2 :] == before[at:]


@FUZZ
@given(SOURCES, LANGUAGES)
def test_the_text_with_its_return_differs_by_the_return_alone(source: str, language: Any) -> None:
    found = inspected(source, language)
    if found is None or found.returning is None:
        return
    # As units, for the source may hold halves of pairs that meet.
    before, after = (text.encode("utf-16-le", "surrogatepass") for text in (source, found.returning))
    opened = "return (".encode("utf-16-le")
    rests = (
        (before[at:], after[at + len(opened) :])
        for at in range(0, len(after), 2)
        if after[at : at + len(opened)] == opened and before[:at] == after[:at]
    )
    assert any(is_closed(*rest) for rest in rests)
    assert found.returned_at is not None
    line, column = found.returned_at
    assert found.author_position(line, column + len("return (")) == (line, column)


@FUZZ
@given(SOURCES, LANGUAGES)
def test_unknown_members_are_refused_with_five_lines_at_most(source: str, language: Any) -> None:
    found = inspected(source, language)
    if found is None:
        return
    with within(SECONDS):
        try:
            check_members(found, MEMBERS, language)
        except ProgramError as refused:
            assert refused.code == "invalid_input"
            assert len(refused.message.split("\n")) <= 5
            refused.message.encode("utf-8", "surrogatepass")


@FUZZ
@given(
    SOURCES, st.integers(1, 60), st.sampled_from(("unexpected token in expression: ')'", "expecting ';'")) | ANY_TEXT
)
def test_a_syntax_error_is_placed_on_its_line(source: str, line: int, message: str) -> None:
    line = min(line, line_count(source))
    with within(SECONDS):
        assert syntax_error_column(source, line, message) >= 1


MESSAGES = st.sampled_from(
    (
        *("cannot read property 'a' of undefined", "cannot read property 'Symbol.iterator' of null"),
        *("v1 is not defined", "'v0' is read-only", "value is not iterable"),
        *("Cannot convert undefined or null to object", "private class field '#p' does not exist"),
        "cannot set property '' of undefined",
    )
)


@FUZZ
@given(
    SOURCES, st.integers(-3, 60), st.integers(-3, 200), st.none() | st.sampled_from(("", "f", "get x", "v1")), MESSAGES
)
def test_an_error_of_the_engine_is_placed_inside_the_program(
    code: str, line: int, column: int, function: str | None, message: str
) -> None:
    with within(SECONDS):
        places = find_fault(code, line, column, function, message).positions
    lines = line_count(code)
    assert all(1 <= line <= lines and column >= 1 for line, column in places)


@FUZZ
@given(SOURCES, ANY_TEXT, ANY_TEXT, st.integers(-5, 99), st.integers(-5, 9999))
def test_an_error_is_described_whatever_it_says(source: str, name: str, message: str, line: int, column: int) -> None:
    found = inspected(source, "javascript")
    if found is None:
        return
    stack = f"    at {name} (<input>:{abs(line)}:{abs(column)})\n{message}\n    at <input>:{line}:{column}"
    with within(SECONDS):
        described = programs.javascript(found).positions.describe(Thrown(name, message, stack, False, None))
    assert described.startswith(name)


@FUZZ
@given(SOURCES | st.sampled_from(("ls -la", "$ npm install x", "```js\nreturn 1\n```", "#!/bin/sh")))
def test_guidance_is_a_text_or_nothing(source: str) -> None:
    with within(SECONDS):
        guidance = looks_like_shell(source)
    assert guidance is None or guidance


@FUZZ
@given(SOURCES | st.sampled_from(("```js\nreturn 1\n```", "```\n```\n```", "a `b\n```\nc")))
def test_a_fence_gives_code_at_its_place_or_one_refusal(source: str) -> None:
    with within(SECONDS):
        try:
            found = take_fence(source)
        except ProgramError as error:
            assert (error.code, bool(error.message)) == ("invalid_input", True)
            return
    if found is not None:
        assert found.note
        assert len(found.source) <= len(source)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 200_000,
        "MCP.a.b(" * 20_000,
        "`${" * 50_000,
        "import " * 40_000,
        "if (MCP.a.b) " * 15_000,
        "const { MCP } = " * 8_000,
        "function f(MCP) { MCP.a.b(); " * 8_000,
        "MCP?.a?.b; " * 50_000,
        "a" * 1_000_000,
        "\ud800" * 200_000,
        "/" * 300_000,
        "{ let MCP; " * 20_000 + "}" * 20_000,
        "<a>" * 50_000,
        "import" + " " * 500_000 + "(",
    ],
    ids=lambda source: source[:12].strip().replace("\ud800", "half"),
)
def test_a_large_program_is_inspected_in_time(source: str) -> None:
    # The parser has a second of the clock, of which a busy machine gives it a part; the rest is ours.
    with within(10.0):
        found = inspected(source, "javascript")
        if found is not None:
            syntax_error_column(source, 1, "unexpected token: ')'")
