"""The values of expressions of failed programs, with the engine's real errors."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.did_you_mean import normalize_name
from codemode_mcp.program.described_values import MAX_NAMES, Result
from codemode_mcp.program.expression_values import advice
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.syntax import Span
from codemode_mcp.sandbox.engine import Engine
from tests.sandbox.guest_harness import Cell, ok

TEXT = {"content": [{"type": "text", "text": "Commit: 98021f8\nAuthor: x"}], "isError": False}
DATA = {
    "content": [{"type": "text", "text": '{"total":2,"items":[{"id":1},{"id":2}]}'}],
    "structuredContent": {"total": 2, "items": [{"id": 1}, {"id": 2}]},
}
READ = "await MCP.files.readFile({})"
IS_TEXT = '(r is an object with: content (array), isError; unwrap(r) is a string: "Commit: 98021f8\\nAuthor: x")'
IS_DATA = "is an object with: total, items (array)"

PROGRAMS: dict[str, tuple[Any, str, str]] = {
    "method of a result": (TEXT, f"const r = {READ}; return r.split('x')", f"r.split is not a function {IS_TEXT}"),
    "member of a result": (
        TEXT,
        f"const r = {READ}; return r.commits.length",
        f"(r.commits is undefined; {IS_TEXT[1:]}",
    ),
    "unwrapped text": (TEXT, f"const r = unwrap({READ}); return r.map(String)", '(r is a string: "Commit: 98021f8'),
    "unwrapped data": (DATA, f"const r = unwrap({READ}); return r.map(String)", f"(r {IS_DATA})"),
    "member of data": (DATA, f"const r = unwrap({READ}); return r.issues.map(String)", f"undefined; r {IS_DATA})"),
    "another spelling": (DATA, "const r = unwrap(await MCP['my-files']['read_file']({})); r.x.y", f"; r {IS_DATA})"),
    "a longer chain": (DATA, f"const r = {READ}; return r.structuredContent.total.split('')", "total is the number 2)"),
    "an array": (DATA, f"const r = unwrap({READ}); r.items.id.x", "; r.items is an array of 2 objects with: id)"),
    "element of an array": (
        DATA,
        f"unwrap({READ}).items.map((item) => item.user.name)",
        "; item is an object with: id)",
    ),
    "loop": (DATA, f"for (const item of unwrap({READ}).items) text(item.user.name)", "; item is an object with: id)"),
    "nothing to iterate": (DATA, f"const r = unwrap({READ}); for (const item of r) text(item)", f"; r {IS_DATA})"),
    "pattern": (
        DATA,
        f"const {{ rows }} = unwrap({READ}); return rows.map(String)",
        f"(rows is undefined; unwrap({READ}) ",
    ),
    "pattern of an array": (DATA, f"const r = unwrap({READ}); const [a] = r.rows; return a", f"; r {IS_DATA})"),
    "set again": (DATA, f"let r = {READ}; r = unwrap(r); return r.rows.length", f"(r.rows is undefined; r {IS_DATA})"),
    "function of the program": (
        DATA,
        f"async function get() {{ return unwrap({READ}) }}\nconst r = await get(); return r.rows.length",
        f"; r {IS_DATA})",
    ),
    "parameter": (DATA, f"const f = (r) => r.rows.length;\nreturn f(unwrap({READ}))", f"; r {IS_DATA})"),
    "then": (
        DATA,
        "await MCP.files.readFile({}).then((r) => r.rows.length)",
        "; r is an object with: content (array), ",
    ),
    "all": (DATA, "const [r] = await Promise.all([MCP.files.readFile({})]); r.rows.length", "; r is an object with: "),
    "parsed": (DATA, f"const r = JSON.parse(({READ}).content[0].text); r.rows.length", f"; r {IS_DATA})"),
    "either": (DATA, f"const r = unwrap({READ}).rows ?? {{}}; return r.a.b", "(r.a is undefined)"),
    "of its own making": (DATA, f"const r = [{READ}]; return r.a.b", "(r.a is undefined)"),
    "grown by the program": (DATA, f"const r = {{}}; r.x = {READ}; return r.a.b", "(r.a is undefined)"),
    "unknown source": (DATA, f"{READ}; const r = globalThis.nothing ?? Math; return r.a.b", "(r.a is undefined)"),
    "contradicted by the error": (
        DATA,
        f"const r = unwrap({READ}); r.items = null; r.items.length",
        "of null (r.items is null)",
    ),
    "no member": (
        TEXT | {"structuredContent": {}},
        f"const r = unwrap({READ}); r.a.b",
        "; r is an object without members)",
    ),
    "names that are no identifiers": (
        TEXT | {"structuredContent": {"a\n\u202eb": 1}},
        f"const r = unwrap({READ}); r.a.b",
        '; r is an object with: "a\\n\\u202eb")',
    ),
}


def described(engine: Engine, code: str, result: Any) -> str:
    cell = Cell(engine)
    try:
        cell.start(code)
        report = cell.deliver(ok(1, result)).report
    finally:
        cell.close()
    assert report is not None
    assert report.error is not None
    names = frozenset(map(normalize_name, ("MCP.files.readFile", "MCP.my-files.read_file")))
    positions = Positions("javascript", code.count("\n") + 1, code, None, None)
    return positions.describe(report.error, results=[Result(names, json.dumps(result))])


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_error_says_what_the_value_was_that_it_is_about(engine: Engine, name: str) -> None:
    result, code, told = PROGRAMS[name]
    headline = described(engine, code, result).partition("\n    at ")[0]
    assert told in headline
    if " is " not in told.partition(" is undefined")[2] and told.endswith(")"):
        assert headline.endswith(told)


def test_only_so_many_names_are_listed(engine: Engine) -> None:
    result = {"content": [], "structuredContent": {f"name{n}" + "x" * 100: n for n in range(1000)}}
    told = described(engine, f"const r = unwrap({READ}); r.a.b", result)
    assert len(re.findall(r"name\d+", told)) == MAX_NAMES
    assert len(told) < 1000


@pytest.mark.parametrize(
    "code",
    [
        "let r = r; r.a.b",
        "let a = b, b = a; a.x.y",
        "const f = () => f(); const r = f(); r.a.b",
        "const f = (x) => g(x), g = (x) => f(x); f(1).a.b",
        "let r = " + "unwrap(" * 5_000 + "x" + ")" * 5_000 + "; r.a.b",
        "let r; " + "r = r ?? r; " * 3_000 + "r.a.b",
        "x" + ".map((x) => x" * 300 + ")" * 300 + ".a.b",
    ],
)
def test_no_program_takes_long_to_follow(code: str) -> None:
    begins = code.rindex(".a.b") if ".a.b" in code else code.rindex(".x.y")
    about = Span(max(code.rfind(" ", 0, begins) + 1, 0), begins + 2)
    began = time.process_time()
    assert advice(code, about, "cannot read property 'b' of undefined", [Result(frozenset(("x",)), "{}")]) == ""
    assert time.process_time() - began < 3


def test_every_expression_of_real_programs_can_be_asked_about() -> None:
    folder = Path(__file__).parents[1] / "programs" / "javascript"
    results = [Result(frozenset((normalize_name("MCP.files.readFile"),)), json.dumps(DATA))]
    for file in (folder / "mcp.js", folder / "work.js"):
        for code in file.read_text("utf-8").split("\n//")[:4]:
            for found in re.finditer(r"[\w.()\[\]\"']+(?=\.\w)", code):
                for message in (
                    "x.y is not a function",
                    "cannot read property 'y' of undefined",
                    "value is not iterable",
                ):
                    assert isinstance(advice(code, Span(*found.span()), message, results), str)


DEEP_TEXT = json.dumps({"content": [{"type": "text", "text": json.dumps([[n] for n in range(30_000)])}]})


@pytest.mark.parametrize(
    ("code", "about"),
    [
        (f"const r = {READ}; const q = r{' ' * 200_000}.filter(1); q.foo()", "q"),
        (f"const f = () => [{', '.join([f'unwrap({READ})[0]'] * 3000)}]; f()[0].map(1)", "f()[0]"),
        (f"const f = () => [{', '.join(['JSON.parse(t)'] * 3000)}]; const t = 'x'; f()[0].map(1)", "f()[0]"),
        (f"const f = () => ({{{', '.join(f'a{n}: 1' for n in range(20_000))}}}); f().foo()", "f()"),
    ],
    ids=["blanks in an expression", "large results", "parsed again and again", "a large literal"],
)
def test_neither_blanks_nor_large_results_take_long_to_follow(code: str, about: str) -> None:
    at = code.rindex(about + ".")
    began = time.process_time()
    advice(code, Span(at, at + len(about)), f"{about}.foo is not a function", [Result(frozenset(("r",)), "1")])
    results = [Result(frozenset((normalize_name("MCP.files.readFile"),)), DEEP_TEXT)]
    advice(code, Span(at, at + len(about)), f"{about}.foo is not a function", results)
    assert time.process_time() - began < 3


def test_an_index_of_thousands_of_digits_ends_no_explanation() -> None:
    owner = f"r['{'9' * 5000}']"
    code = f"const r = unwrap({READ}); {owner}.x"
    results = [Result(frozenset((normalize_name("MCP.files.readFile"),)), '{"structuredContent": [1]}')]
    at = code.rindex(owner)
    message = "cannot read property 'x' of undefined"
    assert advice(code, Span(at, at + len(owner)), message, results) == "r is an array of 1"
