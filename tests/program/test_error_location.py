"""Tests of where an error of the engine's own arose, with the engine's real stacks. In each program, `/*!*/` stands
right before the place that must be named; several of them where it cannot be told which."""

from __future__ import annotations

import re
import time

import pytest

from codemode_mcp.program.error_location import Fault, find_fault
from codemode_mcp.program.positions import MAX_FRAMES, Positions
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Thrown
from tests.sandbox.guest_harness import Cell

MARK = "/*!*/"

PROGRAMS = {
    "declaration": "const a = 1;\nlet b;\nconst c = b./*!*/x;",
    "declaration after a call": "const a = Math.max(1);\nlet b;\nconst c = 1 + b./*!*/x;",
    "chain over lines": "const a = 1;\nconst b = a\n  .foo\n  ./*!*/bar;",
    "method of undefined": "const o = {};\nconst u = o\n  .a\n  ./*!*/b();",
    "condition": "const a = Math.max(1); const e = {};\nif (e.x./*!*/y) { }",
    "loop header": "const e = {};\nfor (let i = 0; i < e.x./*!*/y; i++) {}",
    "object literal": "const e = {};\nreturn {\n a: 1,\n b: Math.max(1),\n c: e.x./*!*/y,\n d: Math.min(1) };",
    "thrown": "const e = {};\nthrow e.x./*!*/y;",
    "awaited": "const e = {};\nawait e.x./*!*/y;",
    "argument": "const e = {};\nMath.max(1, 2,\n e.x./*!*/y,\n 3);",
    "template": "const e = {};\nconst s = `${Math.max(1)}\n  ${e.x./*!*/y}`;",
    "arrow function": "const f = (a) => { const g = 1;\n return a.b./*!*/c; };\nf({});",
    "method": "const o = { m(a) {\n const g = a.b./*!*/c; }};\no.m({});",
    "getter": "const x = { get y() {\n  const q = 1;\n  return null./*!*/z; } };\nconst w = x.y;",
    "function declaration": "function f(o) {\n  const q = 1;\n  if (q) {\n    return o.a./*!*/b;\n  }\n}\nf({});",
    "callback": "const o = [1];\no.map((x) =>\n   x.y./*!*/z);",
    "named callback": "[1].forEach(function each(k) {\n  const z = k.x./*!*/y;\n});",
    "constructor": "class A {\n  constructor() {\n    const q = this.a./*!*/b;\n  }\n}\nnew A();",
    "static method": "class A {\n  static t(o) {\n    return o.a./*!*/b;\n  }\n}\nA.t({});",
    "asynchronous function": "async function f(o) {\n  await null;\n  const q = o.a./*!*/b;\n}\nawait f({});",
    "after await": "const a = await Promise.resolve(1);\nconst b = undefined;\nconst c = b./*!*/d;",
    "subscript": 'const [a] = [null];\nconst v = a?.b;\nconst w = a[/*!*/"q"];',
    "computed subscript": "const a = undefined;\nconst k = 'q';\nconst w = a[/*!*/k];",
    "optional chains do not throw": "const a = {};\nconst v = a.b?.c;\nconst w = a.b./*!*/c;",
    "pattern": "const o = {};\nconst /*!*/{ b } = o.a;",
    "pattern of parameters": "const f = (/*!*/{ a }) => a;\nconst g = 1;\nconst z = f();",
    "unknown name": "let x = 1;\nconst y = { a: 1,\n  b: x,\n  c: /*!*/undefinedVar };",
    "unknown name, asked for before": "const t = typeof zed;\nconst u = [/*!*/zed];",
    "used before it is declared": "const x = [\n  /*!*/zed];\nconst zed = 1;",
    "constant": "const y = 1;\nfor (const q of [1, 2]) {\n  /*!*/y = 2;\n}",
    "nothing to iterate": "const o = 5;\nfor (const x of /*!*/o) { }",
    "nothing to spread": "const o = 5;\nconst a = [1,\n  /*!*/...o];",
    "array pattern": "const n = null;\nconst /*!*/[a, b] = n;",
    "private field": "class A { #p = 1;\n  static t(o) {\n   return o./*!*/#p; } }\nconst q = A.t({});",
    "class field": "class A {\n  x = null./*!*/y;\n}\nnew A();",
    "after wide characters": "const t = 'é😀'; const u = [1,\n  'é😀', null./*!*/y];",
    "either of two": "const a = {};\nconst b = a./*!*/x;\nconst c = undefined./*!*/x;",
    "not the same name in another function": "const f = (o) => o.x;\nlet a;\nconst b = a./*!*/x;",
    "a statement between": "let a = { x: 1 };\nconst b = a.x;\na = undefined;\nconst c = a./*!*/x;",
}


def authors(code: str) -> tuple[str, list[str]]:
    """Return the program without its marks, and where they were."""
    plain, places = "", []
    for number, part in enumerate(code.split(MARK)):
        if number:
            line = plain.count("\n") + 1
            before = plain[plain.rfind("\n") + 1 :]
            places.append(f"{line}:{len(before.encode('utf-16-le')) // 2 + 1}")
        plain += part
    return plain, places


def described(engine: Engine, code: str) -> str:
    cell = Cell(engine)
    try:
        told = cell.start(code)
    finally:
        cell.close()
    assert told.report is not None
    assert told.report.error is not None
    return Positions("javascript", code.count("\n") + 1, code, None, None).describe(told.report.error)


def first_frame(engine: Engine, code: str) -> str:
    return described(engine, code).partition("    ")[2].partition("\n")[0]


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_an_error_of_the_engine_is_placed_where_it_arose(engine: Engine, code: str) -> None:
    plain, places = authors(code)
    found = re.search(r"cell\.js:([\d:]+(?: or [\d:]+)*)", first_frame(engine, plain))
    assert found is not None
    assert found[1].split(" or ") == places


@pytest.mark.parametrize(
    "made",
    [
        "new TypeError(\"cannot read property 'x' of undefined\")",
        "TypeError(\"cannot read property 'x' of undefined\")",
    ],
)
def test_an_error_of_the_programs_own_stays_where_it_was_made(engine: Engine, made: str) -> None:
    assert first_frame(engine, f"throw {made};\nconst y = undefined.x;").startswith("at cell.js:1:")


def test_messages_that_name_nothing_leave_the_engines_position() -> None:
    assert find_fault("const a = b.c;", 1, 1, None, "oops") == Fault((), "oops")


def test_large_programs_are_not_searched() -> None:
    code = "let a;\nconst b = a.x;\n" + "// padding\n" * 10_000
    message = "cannot read property 'x' of undefined"
    assert find_fault(code, 1, 1, None, message) == Fault((), message)


MESSAGES = {
    "let r = {};\nconst x = r.items.map((i) => i);": "cannot read property 'map' of undefined (r.items is undefined)",
    "let r = null;\nconst x = r.items;": "cannot read property 'items' of null (r is null)",
    "const x = undefined.y;": "cannot read property 'y' of undefined",
    "const r = MCP.files.readFile({});\nconst t = r.content[0];": (
        "cannot read property '0' of undefined (r.content is undefined; r is a promise: await the call)"
    ),
    "const a = {};\nconst b = a.x;\nconst c = undefined;\nconst d = [c.q, a.x.q];": (
        "cannot read property 'q' of undefined (c is undefined)"
    ),
    "const f = (function () { return [].find((i) => i.a).b; });\nf();": (
        "cannot read property 'b' of undefined ([].find((i) => i.a) is undefined)"
    ),
    "const o = {};\no.nope();": "o.nope is not a function",
    "const o = {}; let z = 1;\no.nope(z);": "o.nope is not a function",
    "const f = 1;\nconst z = f(1);": "f is not a function",
    'const o = {};\no["a-b"](1);': 'o["a-b"] is not a function',
    "const o = {};\no\n  .first\n  ();": "o.first is not a function",
    "const o = { a() { return {} } };\no.a().b().c();": "o.a().b is not a function",
    "[1].map((x) => x.nope());": "x.nope is not a function",
    "const d = {};\nconst x = d.filter((i) => i);": "d.filter is not a function",
    "const r = MCP.files.readFile({});\nr.map((i) => i);": "r.map is not a function; r is a promise: await the call",
    "const a = [];\nconst b = a[0].name;": "cannot read property 'name' of undefined (a[0] is undefined)",
    "const a = [];\nfor (let i = 0; i < 2; i++) text(a[i].name);": (
        "cannot read property 'name' of undefined (a[i] is undefined)"
    ),
    "const t = {};\nconst b = t.resources.list();": (
        "cannot read property 'list' of undefined (t.resources is undefined; a server without resources has no such "
        "member)"
    ),
    "const s = {};\nconst b = s['prompts'].get({});": (
        "cannot read property 'get' of undefined (s['prompts'] is undefined; a server without prompts has no such "
        "member)"
    ),
    "const t = 'x';\nconst b = MCP[t].readFile;": "cannot read property 'readFile' of undefined (MCP[t] is undefined)",
    "const d = {};\nfor (const x of d.items) {}": (
        "cannot read property 'Symbol.iterator' of undefined (d.items is undefined)"
    ),
    "const d = {};\nconst a = [...d];": "value is not iterable (d is not iterable)",
    "load('k').a.b": (
        "cannot read property 'b' of undefined (load('k').a is undefined; a call returns a promise: await it)"
    ),
    "const f = 1;\nMath.max(f(1), 2);": "not a function",
    "const f = 1;\nf(Math.max(1, 2));": "not a function",
}


@pytest.mark.parametrize("code", MESSAGES)
def test_a_message_is_told_with_the_names_that_the_engine_leaves_out(engine: Engine, code: str) -> None:
    assert described(engine, code).partition("\n")[0] == f"TypeError: {MESSAGES[code]}"


COSTLY = {
    "white space": ("const a = {};\nconst b = a[" + " " * 48_000 + '"x"].y;', "cannot read property 'y' of undefined"),
    "targets": ("a[" * 8_000 + "]=1" * 8_000, "'x' is read-only"),
    "calls": ("f(" * 12_000 + ")" * 12_000, "not a function"),
    "members": ("a.x;\n" * 9_900, "cannot read property 'x' of undefined"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_no_program_takes_long_to_search(kind: str) -> None:
    code, message = COSTLY[kind]
    began = time.process_time()
    find_fault(code, 1, 1, None, message)
    assert time.process_time() - began < 1.5


def test_a_stack_that_the_program_made_up_costs_little() -> None:
    code = "/*é" + "x\n" * 400_000 + "*/"
    error = Thrown("Error", "m", " at f (<input>:9:1)\n" * 400, engine=False, code=None)
    positions = Positions("javascript", 400_001, code, None, None)
    began = time.process_time()
    for _ in range(32):
        assert positions.describe(error, search=False).count("\n") == MAX_FRAMES
    assert time.process_time() - began < 2


def test_lines_of_a_function_made_from_a_text_are_not_the_cells(engine: Engine) -> None:
    made = described(engine, 'const f = new Function("const a = 1;\\n\\nreturn null.q");\nconst a = 1;\nf()')
    assert made == "TypeError: cannot read property 'q' of null\n    at cell.js:3:1"
