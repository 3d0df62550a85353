"""Tests of what a line at the prompt is, and whether it continues."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.extensions.repl.cells import (
    COMMANDS,
    MAX_JUDGED,
    Command,
    command,
    declared,
    depth,
    is_incomplete,
    scan,
    word,
)
from codemode_mcp.extensions.repl.prompt import Prompt

OPEN = [
    "if (x)",
    "if (x) {",
    "else",
    "try {}",
    "try { a() }",
    "function f()",
    "while (1)",
    "do {}",
    "do x(); while",
    "for (const a of b)",
    "switch (x)",
    "class A",
    "class A extends",
    "interface A",
    "type A =",
    "label:",
    "const x =",
    "const",
    "await MCP.tracker.listIssues({",
    "[1, 2,",
    "x = y +",
    "x =>",
    "a ? b",
    "a ?",
    "a.",
    "a?.",
    "`text",
    "`text ${",
    "`text ${a} and",
    "`${`${",
    "/* a",
    "a /* b",
    "'text \\",
    "new",
    "throw",
]
CLOSED = [
    "",
    "   ",
    "1",
    "return",
    "const x",
    "if (x) {}",
    "try {} catch {}",
    "try {} finally {}",
    "function f() {}",
    "const f = (a) => a",
    "`a ${b} c`",
    "`${`${1}`}`",
    "'it is open",
    '"{ ( ["',
    "// { (",
    "a // {",
    "/* { */",
    "/[{(]/.test(x)",
    "x = /a(b/",
    "4 / 2 / 1",
    "[{} / 2, '/']",
    "x++",
    "a.new",
    "foo)",
    "} {",
    "1 +* 2",
    "const x = ;",
    "x y",
    "declare function f(): void;",
    ".help",
    ".d tracker#(",
]


@pytest.mark.parametrize("text", OPEN)
def test_what_is_begun_continues(text: str) -> None:
    assert is_incomplete(text)


@pytest.mark.parametrize("text", CLOSED)
def test_what_is_whole_or_wrong_is_run(text: str) -> None:
    assert not is_incomplete(text)


def test_a_program_too_long_to_be_judged_is_run() -> None:
    assert not is_incomplete("(" * (MAX_JUDGED + 1))


def test_as_many_brackets_are_open_as_lines_are_indented() -> None:
    assert depth("f({ a: [") == 3
    assert depth("f({ a: [] })") == 0
    assert depth("`${f(") == 2
    assert depth("`a") == 0


def test_a_command_is_a_name_behind_a_dot_and_what_follows_it() -> None:
    assert command(".help") == Command("help", "")
    assert command("  .search  open an issue \n") == Command("search", "open an issue")
    assert command(".5") is None
    assert command("x.help") is None
    assert command(".then(f)") is None
    assert command(".help\n.help") is None


def test_every_command_is_obeyed() -> None:
    missing = [name for name in COMMANDS if name != "exit" and not hasattr(Prompt, f"_do_{name}")]
    assert not missing


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("const a = 1, b = 2", ("a", "b"), id="const"),
        pytest.param("let { a, b: c, d = 1, ...e } = f", ("a", "c", "d", "e"), id="object"),
        pytest.param("var [a, [b], ...c] = d", ("a", "b", "c"), id="array"),
        pytest.param("function f(a) { const b = 1 } async function g() {} function* h() {}", ("f", "g", "h"), id="fn"),
        pytest.param("class A {} abstract class B {} enum C { d }", ("A", "B", "C"), id="class"),
        pytest.param("interface A {} type B = 1", (), id="types"),
        pytest.param("if (a) { const b = 1; } for (const c of d) {}", (), id="inner"),
        pytest.param("const é𝒳 = 1, 名 = 2", ("é𝒳", "名"), id="unicode"),
        pytest.param("const = ;", (), id="broken"),
    ],
)
def test_the_names_at_the_top_of_a_program_are_known(text: str, names: tuple[str, ...]) -> None:
    assert declared(text) == names


PIECES = st.lists(
    st.sampled_from([*"(){}[]`'\"/\\*.,:;=>?$!+-\n\r é🎈1a", "${", "//", "/*", "*/", "const ", "if", "=>", "\u2028"])
    | st.characters(),
    max_size=80,
).map("".join)


@given(PIECES)
def test_any_text_is_judged(text: str) -> None:
    found = scan(text)
    assert is_incomplete(text) in (True, False)
    assert all(text[token.start : token.end] == token.text for token in found.tokens)
    assert all(0 <= at < len(found.tokens) for at in found.open)


@pytest.mark.parametrize("piece", ["/", "/[", "`${", "(", '"', "\\", "/*", "a.", "'a", "1.", "?.", "$", "`", "} "])
def test_hostile_text_costs_little_time(piece: str) -> None:
    text = piece * (MAX_JUDGED // len(piece))
    began = time.thread_time()
    scan(text)
    is_incomplete(text)
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit", "exit"),
        (" quit() ", "quit"),
        ("help;", "help"),
        ("clear", "clear"),
        ("exit(1)", None),
        ("helper", None),
    ],
)
def test_words_of_other_prompts_are_known(text: str, expected: str | None) -> None:
    assert word(text) == expected
