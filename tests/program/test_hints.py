"""Tests of what is said to programs that reach for what is not there."""

from __future__ import annotations

import time

import pytest

from codemode_mcp.program.program_form import hint, syntax_hint
from codemode_mcp.sandbox.messages import Thrown


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        ("ReferenceError", "fetch is not defined", "no network"),
        ("ReferenceError", "'process' is not defined", "neither a browser nor Node"),
        ("ReferenceError", "sleep is not defined", "setTimeout"),
        ("ReferenceError", "mcp is not defined", "in capitals"),
        ("ReferenceError", "Intl is not defined", "write Intl itself"),
        ("ReferenceError", "total is not initialized", "semicolon"),
        ("ReferenceError", "callTool is not defined", "MCP.<server>.<tool>"),
        ("TypeError", "cannot convert BigInt to number", "BigInt(n); integers beyond 2^53 are bigints"),
        ("TypeError", "bigint argument with unary +", "BigInt(n); integers beyond 2^53 are bigints"),
        ("TypeError", "tools.createIssue is not a function", "tools.call("),
    ],
)
def test_a_name_that_is_not_there_comes_with_what_to_write_instead(name: str, message: str, said: str) -> None:
    assert said in hint(Thrown(name, message, "", engine=False, code=None))


@pytest.mark.parametrize(
    ("name", "message"),
    [("ReferenceError", "x is not defined"), ("Error", "fetch is not defined"), ("TypeError", "not a function")],
)
def test_nothing_is_said_of_other_errors(name: str, message: str) -> None:
    assert hint(Thrown(name, message, "", engine=False, code=None)) == ""


@pytest.mark.parametrize(
    ("source", "column", "message", "said"),
    [
        ('{"a": 1, "b": 2}', 4, "expecting ';'", "this is JSON"),
        ("def f(x):\n    return x", 5, "expecting ';'", "Python"),
        ("import os\nprint(1)", 8, "expecting ';'", "Python"),
        ("for x in range(3):\n    print(x)", 5, "expecting '('", "Python"),
        ("const class = 1;", 7, "variable name expected", "class is a reserved word"),
        ("function f() { await g() }", 16, "expecting ';'", "async functions only"),
        ("const s = \u201chello\u201d;", 11, "unexpected character", "U+201C; write \" or '"),
        ("const s = 1 \u2260 2;", 13, "unexpected character", "(\u2260 is U+2260)"),
        ("const x = 1; const x = 2;", 1, "invalid redefinition of lexical identifier", "(x is declared twice;"),
        ("const x = 1; const { x } = y;", 1, "invalid redefinition of lexical identifier", ""),
        ('{"code": "return 1"}', 8, "expecting ';'", "text of code alone"),
        ('{"script": "return 1"}', 8, "expecting ';'", "text of script alone"),
        ("const a = ;", 11, "unexpected token in expression: ';'", ""),
        ("const 1a = 1;", 7, "variable name expected", ""),
    ],
)
def test_a_syntax_error_says_what_the_program_is_mistaken_about(
    source: str, column: int, message: str, said: str
) -> None:
    found = syntax_hint(source, 1, column, message)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    "source", ["let = \ndef f(" + ")" * 900_000, "if:a\n" * 180_000, "def f(" * 160_000, "from " + "a" * 900_000]
)
def test_no_program_takes_long_to_be_advised(source: str) -> None:
    began = time.process_time()
    assert syntax_hint(source, 1, 5, "expecting ';'") == ""
    assert time.process_time() - began < 1


def test_a_line_of_very_many_declarations_is_read_once() -> None:
    line = ";".join(f"let variable{n} = 1" for n in range(20_000)) + ";let variable7 = 2"
    began = time.process_time()
    said = syntax_hint("let other;\n" * 900 + line, 901, 1, "invalid redefinition of lexical identifier")
    assert "variable7 is declared twice" in said
    assert time.process_time() - began < 3
