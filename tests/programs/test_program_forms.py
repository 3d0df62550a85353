"""Programs in other forms give what the program in ours gives, with a note, and errors at the lines of the author."""

from __future__ import annotations

import pytest
from harness import Session
from test_programs import Written, every

from codemode_mcp.program.preflight import inspect

pytestmark = pytest.mark.anyio

FORMS = {
    "arrow": "async () => {\n@\n}",
    "arrow in parentheses": "(async () => {\n@\n});",
    "named function": "// The program.\nasync function main() {\n@\n}\n// That was it.",
    "function": "async function () {\n@\n}",
    "export default": "export default async function main() {\n@\n}",
    "export default arrow": "export default async () => {\n@\n};",
    "module.exports": "module.exports = async () => {\n@\n};",
    "globals": "async ({ API: files, text: print }) => {\n@\n}",
    "globals as one object": "async (codemode) => {\n@\n}",
}
FENCES = {
    "fence": "```js\n@\n```",
    "fence in prose": "Here's the program; it doesn't need `wait`:\n\n```javascript\n@\n```\n\nIt's done.",
}
ALL = FORMS | FENCES

CALLED = "called for you"
FENCED = "in a Markdown fence"

JAVASCRIPT = [param for param in every("javascript", "*.js") if not param.values[0].id.startswith("forms")]
NOT_IN_A_FUNCTION = (
    # Inside a function the parser cannot read these words as names, so that it finds no function.
    "names: private, public and protected as names",
    "names: override, accessor, out and asserts as names",
)


def body_of(code: str) -> str:
    """Return the body of a function that gives what a program gives."""
    body = code.removeprefix("\ufeff").removesuffix("\n")
    if body.startswith("#!"):
        body = "//" + body[2:]
    return inspect(body, "javascript").returning or body


@pytest.mark.parametrize(
    ("program", "form"),
    [
        pytest.param(param.values[0], list(FORMS)[number % len(FORMS)], id=f"{param.id}: {number % len(FORMS)}")
        for number, param in enumerate(JAVASCRIPT)
        if param.values[0].id not in NOT_IN_A_FUNCTION
    ],
)
async def test_a_function_around_a_program_changes_nothing(session: Session, program: Written, form: str) -> None:
    if "use strict" in program.code and "globals" in form:
        form = "arrow"  # JavaScript has no such directive in a function with a pattern for a parameter
    answer = await session.finish(await session.exec(FORMS[form].replace("@", body_of(program.code))))
    assert answer.value == program.value


@pytest.mark.parametrize("program", JAVASCRIPT)
async def test_a_fence_around_a_program_changes_nothing(session: Session, program: Written) -> None:
    answer = await session.finish(await session.exec(f"Look:\n```js\n{program.code.rstrip()}\n```\n"))
    assert answer.value == program.value


@pytest.mark.parametrize("form", ALL.values(), ids=ALL)
async def test_each_form_calls_tools_and_says_in_a_note_what_was_done(session: Session, form: str) -> None:
    code = form.replace("@", "const found = await MCP.tracker.listIssues({})\nreturn found.isError ?? false")
    answer = await session.exec(code)
    assert answer.value is False
    assert answer.telemetry["counts"]["call"] == 1
    assert (CALLED if form in FORMS.values() else FENCED) in answer.read


@pytest.mark.parametrize("form", ALL.values(), ids=ALL)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("const a = 1\n  throw new Error('here')", "internal_error"),
        ("const a = 1\nif (a) { null.x }", "internal_error"),
        ("const a = 1\n  let b = ;", "invalid_input"),
        ("const a = 1\n  (require)('fs')", "module_access_denied"),
        ("const a = 1\n  MCP.tracker.listIssue({})", "invalid_input"),
    ],
    ids=["thrown", "of the engine", "syntax", "modules", "member"],
)
async def test_errors_name_the_line_of_the_author(session: Session, form: str, body: str, code: str) -> None:
    bare = await session.exec(f"{body}\nreturn", language="javascript")
    source = form.replace("@", f"{body}\nreturn")
    shift = form.split("@")[0].count("\n")
    answer = await session.exec(source, language="javascript")
    assert (answer.code, bare.code) == (code, code)
    line, column = place(bare.error)
    assert place(answer.error) == (line + shift, column)
    frames = [text for text in answer.error.splitlines() if text.lstrip().startswith("at ")]
    assert len(frames) <= 1


def place(error: str) -> tuple[int, int]:
    line, column = error.split("cell.js:")[1].split(")")[0].split("\n")[0].split(":")[:2]
    return int(line), int(column)


@pytest.mark.parametrize("form", ["() => null.x", "export default () => null.x", "```\n() => null.x\n```"])
async def test_errors_on_the_line_of_the_function_name_its_column(session: Session, form: str) -> None:
    answer = await session.exec(form, language="javascript")
    before = form[: form.index("null.x")].split("\n")
    line, column = place(answer.error)
    assert line == len(before)
    assert len(before[-1]) < column <= len(before[-1]) + len("null.x")


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("language", [None, "typescript"])
@pytest.mark.parametrize(
    "form",
    [
        "interface A {\n  x: number\n}\nexport default async (a?: A): Promise<void> => {\n@\n}",
        "async ({ MCP }: { MCP: any }): Promise<void> => {\n@\n}",
        "Look:\n```ts\n@\n```",
    ],
    ids=["export", "globals", "fence"],
)
async def test_errors_in_typescript_name_the_line_of_the_author(
    session: Session, form: str, language: str | None
) -> None:
    arguments = {} if language is None else {"language": language}
    source = form.replace("@", "const n: number = 1\n  throw new Error('here')")
    answer = await session.exec(source, **arguments)
    line = source[: source.index("throw")].count("\n") + 1
    assert answer.code == "internal_error"
    assert f"cell.ts:{line}:" in answer.error
    assert answer.error.count("cell.ts:") == 1
    broken = await session.exec(form.replace("@", "const n: number = 1\n  const b: number = ;"), **arguments)
    assert f":{line}:" in broken.error


async def test_a_function_without_parameters_is_given_nothing_and_one_that_has_some_the_globals(
    session: Session,
) -> None:
    assert await session.value("function main() { return arguments.length }") == 0
    assert await session.value("(codemode) => [codemode === globalThis, typeof codemode.MCP]") == [True, "object"]


async def test_a_module_is_refused_before_anything_runs(session: Session) -> None:
    for read in ("(require)('fs')", "const l = require", "r\\u0065quire('fs')", "System.import('x')", "define([])"):
        answer = await session.exec(f"await MCP.tracker.listIssues({{}})\n{read}")
        assert answer.code == "module_access_denied"
        assert "(cell.js:2:" in answer.error
        assert answer.telemetry["counts"]["call"] == 0


async def test_a_legal_program_that_looks_like_a_command_is_run(session: Session) -> None:
    answer = await session.exec("node -1; var node = 43; node -1", language="javascript")
    assert answer.value == 42
