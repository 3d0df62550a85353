"""Positions of failures: the first frame of every kind of error is the author's own line, in both languages.

TypeScript stands behind lines that are types alone. What is expected is what is right; rows that fail are marked
with what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import LANGUAGES, TYPES, Answer, Session, counting, serve, write_config

pytestmark = pytest.mark.anyio


class Throws(NamedTuple):
    """A program, `LINE` or `LINE:COLUMN` of its first frame, and the function that the frame names."""

    text: str
    place: str
    function: str = ""


X = "throw new Error('x');"

THROWN = {
    "top level": Throws(f"text(1);\n{X}", "2:7"),
    "first line": Throws(X, "1:7"),
    "nested functions": Throws(f"function a() {{\n  b();\n}}\nfunction b() {{\n  {X}\n}}\na();", "5:9", "b"),
    "arrow function": Throws(f"const f = () => {{\n  {X}\n}};\nf();", "2:9", "f"),
    "method": Throws(f"const o = {{\n  m() {{\n    {X}\n  }},\n}};\no.m();", "3:11", "m"),
    "async function": Throws(f"async function f() {{\n  await null;\n  {X}\n}}\nawait f();", "3:9", "f"),
    "after a call": Throws(f"await MCP.counting.count({{ name: 'a' }});\n\n{X}", "3:7"),
    "promise callback": Throws(f"await Promise.resolve(1).then((v) => {{\n  {X}\n}});", "2:9"),
    "promise executor": Throws(f"await new Promise(() => {{\n  {X}\n}});", "2:9"),
    "promise rejected": Throws("await new Promise((_, reject) => {\n  reject(new Error('x'));\n});", "2:10"),
    "promise rejected by a timer": Throws(
        "await new Promise((_, reject) => {\n  setTimeout(() => {\n    reject(new Error('x'));\n  }, 5);\n});", "3:12"
    ),
    "array callback": Throws(f"[1, 2].map((n) => {{\n  if (n === 2)\n    {X}\n}});", "3:11"),
    "sort": Throws(f"[1, 2].sort(() => {{\n  {X}\n}});", "2:9"),
    "map callback": Throws(f"new Map([[1, 2]]).forEach(() => {{\n  {X}\n}});", "2:9"),
    "getter": Throws(f"const o = {{\n  get a() {{\n    {X}\n  }},\n}};\no.a;", "3:11", "get a"),
    "toString": Throws(f"const o = {{\n  toString() {{\n    {X}\n  }},\n}};\n`${{o}}`;", "3:11", "toString"),
    "proxy trap": Throws(f"const p = new Proxy({{}}, {{\n  get() {{\n    {X}\n  }},\n}});\np.a;", "3:11", "get"),
    "thenable": Throws(f"await {{\n  then() {{\n    {X}\n  }},\n}};", "3:11", "then"),
    "tagged template": Throws(f"const tag = () => {{\n  {X}\n}};\ntag`a`;", "2:9", "tag"),
    "constructor": Throws(f"class A {{\n  constructor() {{\n    {X}\n  }}\n}}\nnew A();", "3:11", "A"),
    "static block": Throws(f"class A {{\n  static {{\n    {X}\n  }}\n}}\nreturn 1;", "3:11"),
    "generator": Throws(
        f"function* g() {{\n  yield 1;\n  {X}\n}}\nfor (const x of g()) {{\n  text(x);\n}}", "3:9", "g"
    ),
    "async generator": Throws(
        f"async function* g() {{\n  yield 1;\n  {X}\n}}\nfor await (const x of g()) {{\n  text(x);\n}}", "3:9", "g"
    ),
    "finally": Throws(f"try {{\n  text(1);\n}} finally {{\n  {X}\n}}", "4:9"),
    "rethrown": Throws("try {\n  throw new Error('x');\n} catch (e) {\n  text('c');\n  throw e;\n}", "2:9"),
    "with a cause": Throws(
        "try {\n  null.x;\n} catch (e) {\n  text('c');\n  throw new Error('x', { cause: e });\n}", "5:9"
    ),
    "made before it is thrown": Throws("const e = new Error('x');\ntext(1);\nthrow e;", "1:11"),
    "after a yield": Throws(f"text(1);\nawait yield_control();\n\n{X}", "4:7"),
    "in a function after a yield": Throws(
        f"async function f() {{\n  await yield_control();\n  {X}\n}}\ntext(1);\nawait f();", "3:9", "f"
    ),
    "after a timer": Throws(f"await new Promise((r) => setTimeout(r, 5));\n{X}", "2:7"),
    "implicit return": Throws(f"const f = () => {{\n  {X}\n}};\n\nf()", "2:9", "f"),
    "long statement": Throws(
        "const a = [\n  1,\n  2,\n]\n  .map((n) => n)\n  .filter((n) => {\n    throw new Error('x');\n  });", "7:11"
    ),
    "CRLF": Throws(f"text(1);\r\ntext(2);\r\n{X}", "3:7"),
    "CR": Throws(f"text(1);\rtext(2);\r{X}", "3:7"),
    "U+2028": Throws(f"text(1);\u2028text(2);\u2029{X}", "3:7"),
    "U+2028 in a string": Throws(f"text('\u2028');\n{X}", "3:7"),
    "multi-line comment": Throws(f"/* one\n   two */\n{X}", "3:7"),
    "multi-line template": Throws(f"text(`one\ntwo`);\n{X}", "3:7"),
    "characters above it": Throws(f"text('é😀');\n{X}", "2:7"),
    "characters before it": Throws(f"text('é😀'); {X}", "1:20"),
    "eval": Throws("text(1);\neval(\"throw new Error('x')\");", "2"),
    "new Function": Throws("text(1);\ntext(2);\nnew Function(\"throw new Error('x')\")();", "3"),
}
"""Errors that the program makes: `Error: x` each."""

WRONG_THROWN = {
    "U+2028 in a string, javascript": "the engine does not count such a line, though it counts one outside of strings",
}

CALLS = {
    "call": Throws("text(1);\nawait MCP.counting.reject({});", "2:20"),
    "call in a function": Throws(
        "async function f() {\n  return await MCP.counting.reject({});\n}\nawait f();", "2:29", "f"
    ),
    "call awaited later": Throws("const p = MCP.counting.reject({});\ntext(1);\nawait p;", "1:24"),
    "one of many": Throws(
        "await Promise.all([\n  MCP.counting.count({ name: 'a' }),\n  MCP.counting.reject({}),\n]);", "3:16"
    ),
    "in a loop": Throws(
        "for (const n of [1, 2]) {\n  if (n === 1) await MCP.counting.count({ name: 'a' });\n"
        "  else await MCP.counting.reject({});\n}",
        "3:27",
    ),
    "in a callback": Throws("await Promise.all([1].map(async () => {\n  await MCP.counting.reject({});\n}));", "2:22"),
    "after a yield": Throws("await yield_control();\nawait MCP.counting.reject({});", "2:20"),
    "wrong arguments": Throws("text(1);\nawait MCP.counting.count({});", "2:20"),
    "arguments over lines": Throws("text(1);\nawait MCP.counting.count({\n  name: 5,\n});", "2:20"),
    "unwrap": Throws("const r = await MCP.counting.refuse({});\ntext(1);\nunwrap(r);", "3"),
    "caught and thrown again": Throws(
        "try {\n  await MCP.counting.reject({});\n} catch (e) {\n  text(e.message);\n  throw e;\n}", "2:22"
    ),
    "look-up": Throws("text(1);\nawait API.read('nothing');", "2:11"),
}
"""Calls that fail, uncaught."""

ENGINE = {
    "implicit return of a member of null": Throws("const a = null;\ntext(1);\n\na.x", "4"),
    "member of a result": Throws("const r = await MCP.counting.count({ name: 'a' });\ntext(1);\nr.data.items;", "3"),
    "assignment to a member of null": Throws("const a = null;\ntext(1);\n\na.x = 1;", "4"),
    "no function": Throws("const o = {};\ntext(1);\no.nope();", "3:3"),
    "no function, with arguments": Throws("const o = {};\ntext(1);\no.nope(1, 2);", "3"),
    "no function in a chain": Throws("const a = [\n  1,\n].map((n) => n)\n  .nope();", "4"),
    "no constructor": Throws("const A = 5;\ntext(1);\nnew A();", "3"),
    "BigInt and number": Throws("text(1);\n1n + 1;", "2"),
    "invalid array length": Throws("text(1);\nnew Array(-1);", "2:5"),
    "invalid count": Throws("text(1);\n'a'.repeat(-1);", "2:5"),
    "invalid JSON": Throws("text(1);\nJSON.parse('{');", "2:6"),
    "invalid regular expression": Throws("text(1);\nnew RegExp('(');", "2:5"),
    "symbol as text": Throws("text(1);\n`${Symbol('s')}`;", "2"),
    "frozen object": Throws("const o = Object.freeze({ a: 1 });\ntext(1);\nObject.assign(o, { a: 2 });", "3"),
    "this before super": Throws(
        "class A extends Object {\n  constructor() {\n    this.x = 1;\n  }\n}\nnew A();", "3", "A"
    ),
    "in of no object": Throws("text(1);\n\n'a' in 5;", "3"),
    "instanceof no class": Throws("text(1);\n({}) instanceof 5;", "2"),
    "recursion": Throws("function f() {\n  return f() + 1;\n}\nf();", "2:10", "f"),
    "after a yield": Throws("const a = null;\nawait yield_control();\n\na.x;", "4"),
}
"""Errors that the engine makes. For most, `tests/program/test_error_location.py` has the column, too."""


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    async with serve(write_config(folder, {"counting": counting(folder / "log")})) as session:
        yield session


def rows(table: dict[str, Throws], wrong: dict[str, str]) -> list[object]:
    found: list[object] = []
    for name, row in table.items():
        for language in LANGUAGES:
            reason = wrong.get(f"{name}, {language}", wrong.get(name))
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            found.append(pytest.param(row, language, id=f"{name}-{language}", marks=marks))
    return found


async def run(session: Session, text: str, language: str) -> Answer:
    typed = language == "typescript"
    return await session.finish(await session.exec((TYPES if typed else "") + text, language=language))


def check(answer: Answer, row: Throws, language: str) -> None:
    typed = language == "typescript"
    frame = next((line.strip() for line in answer.error.splitlines() if line.startswith("    at ")), "")
    found = re.fullmatch(r"at (?:(.+) \()?(cell\.[jt]s):(\d+):(\d+)\)?", frame)
    assert found is not None, answer.error
    function, file, at_line, at_column = found.groups()
    line, _, column = row.place.partition(":")
    assert (file, int(at_line)) == (
        "cell.ts" if typed else "cell.js",
        int(line) + (TYPES.count("\n") if typed else 0),
    ), answer.error
    if column:
        assert at_column == column, answer.error
    if row.function:
        assert function is not None, answer.error
        # esbuild may number a name that it hoists.
        assert re.fullmatch(re.escape(row.function) + (r"\d?" if typed else ""), function), answer.error


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("row", "language"), rows(THROWN, WRONG_THROWN))
async def test_an_error_of_the_program_has_its_line_and_column(session: Session, row: Throws, language: str) -> None:
    answer = await run(session, row.text, language)
    assert answer.code == "internal_error"
    assert answer.error.startswith("Error: x\n")
    check(answer, row, language)


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("row", "language"), rows(CALLS, {}))
async def test_a_failed_call_has_the_line_and_column_where_it_was_made(
    session: Session, row: Throws, language: str
) -> None:
    answer = await run(session, row.text, language)
    assert answer.code == "nested_tool_failed"
    check(answer, row, language)


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("row", "language"), rows(ENGINE, {}))
async def test_an_error_of_the_engine_has_the_line_that_caused_it(session: Session, row: Throws, language: str) -> None:
    answer = await run(session, row.text, language)
    assert answer.code == "internal_error"
    assert re.match(r"(Type|Reference|Range|Syntax)Error: ", answer.error)
    check(answer, row, language)


async def test_all_frames_lead_through_the_program_innermost_first(session: Session) -> None:
    functions = f"const inner = () => {{\n  {X}\n}};\nconst outer = () => {{\n  inner();\n}};"
    code = f"{functions}\n[1].forEach(() => {{\n  outer();\n}});"
    assert (await session.exec(code)).error.splitlines() == [
        "Error: x",
        "    at inner (cell.js:2:9)",
        "    at outer (cell.js:5:3)",
        "    at cell.js:8:3",
        "    at cell.js:7:5",
    ]


async def test_deep_stacks_are_cut(session: Session) -> None:
    answer = await session.exec(f"const f = (n) => {{\n  if (n === 0) {X}\n  f(n - 1);\n}};\nf(50);")
    frames = answer.error.splitlines()[1:]
    assert len(frames) == 10
    assert frames[0] == "    at f (cell.js:2:22)"


async def test_a_program_that_is_suspended_by_a_timer_fails_in_its_own_lines(folder: Path) -> None:
    config = write_config(folder, {}, name="short.json", codeMode={"timeoutMs": 100})
    async with serve(config) as session:
        waits = "await new Promise((r) => setTimeout(r, 1500));"
        code = f"const later = async () => {{\n  {waits}\n  {X}\n}};\nawait later();"
        suspended = await session.exec(code)
        assert suspended.pending == ["core:timer"]
        answer = await session.finish(await session.wait(suspended.run_id))
        assert answer.error == "Error: x\n    at later (cell.js:3:9)"


async def test_an_unhandled_error_of_a_timer_is_noted_with_its_line(session: Session) -> None:
    code = (
        "setTimeout(() => {\n  throw new Error('x');\n}, 5);\nawait new Promise((r) => setTimeout(r, 50));\nreturn 1;"
    )
    answer = await session.exec(code)
    assert answer.value == 1
    assert "Unhandled rejection: Error: x\n    at cell.js:2:9" in answer.read


async def test_an_aggregate_error_tells_what_it_is_made_of(session: Session) -> None:
    answer = await session.exec("await Promise.any([MCP.counting.reject({}), Promise.reject(new Error('second'))]);")
    assert "the server says no" in answer.error
    assert "second" in answer.error


async def test_the_causes_of_an_error_are_told(session: Session) -> None:
    answer = await session.exec("throw new Error('outer', { cause: new TypeError('inner') });")
    assert answer.error.startswith("Error: outer")
    assert "TypeError: inner" in answer.error
