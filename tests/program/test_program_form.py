"""Programs in other people's form, and the program that was meant."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.program_form import take_fence
from codemode_mcp.program.syntax import LINE_END

FUNCTIONS = [
    "async () => {body}",
    "() => {body}",
    "(async () => {body});",
    "async function main() {body}",
    "function () {body}",
    "export default async () => {body}",
    "export default async function main() {body};",
    "module.exports = async () => {body}",
    "exports.default = function () {body}",
    "// before\n/* it */ async ({{ MCP }}) => {body} // after\n/* all */;",
]

NOT_ONE_FUNCTION = [
    "async function main() { return 1 }\nmain()",
    "function one() {}\nfunction two() {}",
    "const f = () => 1",
    "const f = () => 1; f",
    "f = () => 1",
    "(async () => 1)()",
    "f(() => 1)",
    "[() => 1]",
    "{ () => 1 }",
    "function* one() { yield 1 }",
    "async function* one() { yield 1 }",
    "class A {}",
    "return () => 1",
    "if (a) return 1; () => 1",
    "const module = {}; module.exports = () => 1",
    "new (function () {})()",
    "() => 1, 2",
    "declare function main(): void",
    "text",
    "a\n(() => 1)",
    "",
]

BODIES = ["{ return 1 }", "{\n  const x = 1\n  return x\n}", "{}", '{ return "\U0001f600 ```" }', "{\r\n return 1\r\n}"]


@pytest.mark.parametrize("form", FUNCTIONS)
@pytest.mark.parametrize("body", BODIES)
def test_a_program_that_is_one_function_is_called(form: str, body: str) -> None:
    source = form.replace("{body}", body).replace("{{", "{").replace("}}", "}")
    called = inspect(source, "javascript").called
    assert called is not None
    assert "called for you" in called.note
    assert ("globals" in called.note) == ("MCP" in source)
    lines, added = LINE_END.split(called.text), LINE_END.split(source)
    assert len(lines) == len(added) + 1
    assert lines[-1] == f")({'globalThis' if 'MCP' in source else ''});"


@pytest.mark.parametrize("form", FUNCTIONS)
def test_every_character_of_the_function_is_where_the_author_put_it(form: str) -> None:
    source = form.replace("{body}", "{\n  return needle\n}").replace("{{", "{").replace("}}", "}")
    called = inspect(source, "javascript").called
    assert called is not None
    for word in ("needle", "{\n"):
        assert called.inserted(*_position(called.text, word)) == _position(source, word)
    assert len(called.plain) == len(source)


def _position(text: str, word: str) -> tuple[int, int]:
    before = LINE_END.split(text[: text.index(word)])
    return len(before), len(before[-1]) + 1


@pytest.mark.parametrize("source", NOT_ONE_FUNCTION)
def test_any_other_program_is_left_as_it_is(source: str) -> None:
    assert inspect(source, "typescript").called is None
    assert take_fence(source) is None


@pytest.mark.parametrize(
    ("source", "servers"),
    [
        ("async ({ MCP }) => MCP.a.b()", {"a"}),
        ("async ({ MCP = {}, text }) => text(await MCP.a.b())", {"a"}),
        ("async ({ text }) => text(1)", set()),
        ("async ({ tools: { search } }) => search('x')", set()),
        ("async ({ MCP: m }) => m.a.b()", None),
        ("async ({ ...all }) => all.MCP.a.b()", None),
        ("async (codemode) => codemode.MCP.a.b()", None),
        ("const f = ({ MCP }) => MCP.a.b()", set()),
    ],
)
def test_servers_that_a_function_reaches_through_its_parameter_are_known(source: str, servers: set[str] | None) -> None:
    assert inspect(source, "javascript").servers == servers


def test_a_member_reached_through_the_parameter_is_checked() -> None:
    (call,) = inspect("async ({ MCP }) => {\n  return MCP.a.b()\n}", "javascript").member_calls
    assert (call.server, call.member, call.line, call.column) == ("a", "b", 2, 10)


@pytest.mark.parametrize(
    ("source", "code", "language"),
    [
        ("```js\nreturn 1\n```", "return 1", None),
        ("```\nreturn 1\n```\n", "return 1", None),
        ("\ufeff```typescript\r\nreturn 1\r\n```\r\n", "return 1", "typescript"),
        ("\n\n  ```ts\n  return 1\n  ```", "return 1", "typescript"),
        ('```tsx title="a.tsx"\nreturn 1\n```', "return 1", "typescript"),
        ("```js {1,3}\nreturn 1\n```", "return 1", None),
        ("````js\nconst a = 1 /*\n```\n*/\n````", "const a = 1 /*\n```\n*/", None),
        ("```js\nreturn 1", "return 1", None),
        ("Here's the code (it isn't long):\n```js\nreturn 1\n```", "return 1", None),
        ("Code:\n\n```js\nreturn 1\n```\nThat's `1`.", "return 1", None),
        ("// a note\n```js\nreturn 1\n```", "return 1", None),
    ],
)
def test_the_code_of_a_fence_stays_where_it_stood(source: str, code: str, language: str | None) -> None:
    fenced = take_fence(source)
    assert fenced is not None
    assert fenced.source.strip() == code
    assert fenced.source.index(code) == source.index(code)
    assert fenced.language == language
    assert ("around" in fenced.note) == (not source.strip("\ufeff \n").startswith("```"))


@pytest.mark.parametrize(
    "source",
    [
        "/*\n```js\nreturn 1\n```\n*/\n42",
        "const s = 'a \\\n```js'; s",
        "const t = `\n\\`\\`\\`js\nx\n\\`\\`\\`\n`; t",
        "const t = `\n# Title\n```js\nx()\n```\n`; t",
        'text("```")',
        "// ```js\n1",
        "Some text\n``` and no end",
    ],
)
def test_a_fence_inside_a_program_is_left_alone(source: str) -> None:
    assert take_fence(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "```js\n1\n```\n```js\n2\n```",
        "First:\n```js\n1\n```\nthen\n```ts\n2\n```",
        "```js\n1\n```\n```json\n{}\n```",
        "```return 1```",
        "```const a = 1\nreturn a\n```",
        "```js return 1\n```",
    ],
)
def test_text_with_no_single_fence_is_refused(source: str) -> None:
    with pytest.raises(ProgramError, match=r"send the code alone, without the lines of ```") as raised:
        take_fence(source)
    assert raised.value.code == "invalid_input"


@given(st.lists(st.sampled_from(["```", "```js", "`", "a", "\n", "\r\n", "/*", "*/", "'", "\ufeff", " ", "é", "😀"])))
def test_any_text_is_a_fence_a_program_or_refused(parts: list[str]) -> None:
    source = "".join(parts)
    try:
        fenced = take_fence(source)
    except ProgramError as error:
        assert error.code == "invalid_input"  # noqa: PT017 - either outcome is fine
        return
    if fenced is not None:
        assert len(fenced.source) <= len(source)
        kept = [(n, c) for n, c in enumerate(fenced.source) if c != " "]
        assert all(source[n] == c for n, c in kept)


@pytest.mark.parametrize(
    "source",
    [
        "```\n" * 250_000,
        "a\n```js\n" + "x\n" * 150_000 + "```",
        " " * 500_000 + "```\n" + "(" * 100_000,
        "(" * 100_000 + "\n```js\n1\n```",
        "r\\u0065" * 150_000,
        "x" * 1_000_000 + "\\u0065",
        "\\u{" + "0" * 1_000_000 + "65}",
        "(" * 50_000 + "() => 1" + ")" * 50_000,
        "const f = () => 1\n" * 20_000 + "export default g",
        "module" + ".exports" * 100_000 + " = () => 1",
        "require;" * 40_000,
        "async ({" + "MCP," * 50_000 + "}) => 1",
    ],
    ids=range(12),
)
def test_hostile_sizes_take_bounded_time(source: str) -> None:
    start = time.thread_time()
    try:
        fenced = take_fence(source)
        inspect(source if fenced is None else fenced.source, "javascript")
    except ProgramError:
        pass
    assert time.thread_time() - start < 10
