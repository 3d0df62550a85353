"""Every row of docs/values.md, as the returned value and through `json()`: the table there decides what is tested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import RunCode

DOCS = Path(__file__).parents[2] / "docs" / "values.md"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|\n ").split(" | ", 1))
    for line in DOCS.read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| value |")
]

CIRCULAR = "(() => { const a = { n: 1 }; a.self = a; return a })()"

CASES: dict[str, list[tuple[str, Any]]] = {
    "string, finite number, boolean, null": [("'s'", "s"), ("1.5", 1.5), ("true", True), ("null", None), ("-0", 0)],
    "`undefined`": [("undefined", None), ("{ a: undefined, b: 1 }", {"b": 1}), ("[undefined]", [None])],
    "`NaN`, `Infinity`": [("NaN", None), ("[Infinity, -Infinity]", [None, None])],
    "`bigint`": [("12345678901234567890n", "12345678901234567890"), ("[-1n]", ["-1"])],
    "function": [("function named() {}", "[Function: named]"), ("[class A {}]", ["[Function: A]"])],
    "symbol": [("Symbol('s')", "Symbol(s)"), ("{ a: Symbol() }", {"a": "Symbol()"})],
    "`Date`": [("new Date(0)", "1970-01-01T00:00:00.000Z"), ("new Date(NaN)", None)],
    "`RegExp`": [("/a+/gi", "/a+/gi")],
    "`Error`": [
        ("new TypeError('m')", {"name": "TypeError", "message": "m"}),
        ("new Error('m', { cause: [1] })", {"name": "Error", "message": "m", "cause": [1]}),
        ("Object.assign(new Error('m'), { status: 404 })", {"name": "Error", "message": "m", "status": 404}),
    ],
    "`Map`": [("new Map([['a', 1]])", {"a": 1}), ("new Map([[1, 2], ['a', 3]])", [[1, 2], ["a", 3]])],
    "`Set`, typed array": [("new Set([1, 1, 2])", [1, 2]), ("new Uint16Array([1, 65535])", [1, 65535])],
    "`ArrayBuffer`": [("new ArrayBuffer(3)", {"type": "ArrayBuffer", "byteLength": 3})],
    "`Promise`": [("{ p: new Promise(() => {}) }", {"p": "[Promise]"})],
    "an object with `toJSON`": [
        ("{ toJSON: () => ({ a: 1n }) }", {"a": "1"}),
        ("new URL('http://a/b')", "http://a/b"),
        ("{ toJSON: () => undefined }", None),
    ],
    "a cycle": [
        (CIRCULAR, {"n": 1, "self": "[Circular]"}),
        ("(() => { const m = new Map(); m.set('m', m); return m })()", {"m": "[Circular]"}),
        ("(() => { const a = []; a.push([a]); return a })()", [["[Circular]"]]),
        ("(() => { const same = { a: 1 }; return [same, same] })()", [{"a": 1}, {"a": 1}]),
    ],
    "a getter, proxy or `toJSON` that throws": [
        ("{ get a() { throw new Error('no') }, b: 2 }", {"a": "[getter threw: no]", "b": 2}),
        ("{ toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
        ("{ get toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
        ("new Proxy({}, { ownKeys() { throw new Error('no') } })", "[reading threw: no]"),
        ("{ toJSON() { throw { get message() { throw 1 } } } }", "[toJSON threw: undefined]"),
    ],
    "half of a surrogate pair": [("'a\\ud800b'", "a\ufffdb"), ("{ '\\udc00': 1 }", {"\ufffd": 1})],
}

OTHERS: list[tuple[str, Any]] = [
    ("Object.assign(Object.create(null), { a: { b: 1 } })", {"a": {"b": 1}}),
    ("[1, , 3]", [1, None, 3]),
    ("(() => { const a = []; a[3] = 1; return a })()", [None, None, None, 1]),
    ("new Proxy({ a: [1] }, {})", {"a": [1]}),
    ("new Proxy([1, 2], {})", [1, 2]),
    (
        "new Error('a', { cause: new Error('b', { cause: 'c' }) })",
        {"name": "Error", "message": "a", "cause": {"name": "Error", "message": "b", "cause": "c"}},
    ),
]


def depth_row() -> tuple[str, int]:
    [name] = [row[0] for row in ROWS if row[0].startswith("deeper than")]
    found = re.search(r"\d+", name)
    assert found is not None
    return name, int(found.group())


def test_every_row_of_the_documentation_has_a_case_here() -> None:
    assert {row[0] for row in ROWS} == {*CASES, depth_row()[0]}


@pytest.mark.parametrize(
    ("expression", "expected"), [*(case for cases in CASES.values() for case in cases), *OTHERS]
)  # fmt: skip
def test_a_value_becomes_the_same_json_when_returned_and_through_json(
    run: RunCode, expression: str, expected: Any
) -> None:
    told = run(f"const make = () => ({expression}); json(((v) => v)(make())); return make()")
    assert told.value == expected
    assert type(told.value) is type(expected)
    assert told.report is not None
    assert told.report.outputs == ({"type": "json", "value": expected},)


def test_nesting_is_cut_exactly_where_the_documentation_says(run: RunCode) -> None:
    levels = depth_row()[1]
    told = run(f"const nest = (n) => (n === 0 ? 'in' : [nest(n - 1)]); return [nest({levels - 1}), nest({levels})]")
    first, second = told.value
    for found, inside in ((first, "in"), (second, "[Too deep]")):
        depth = 1
        while isinstance(found, list):
            found, depth = found[0], depth + 1
        assert found == inside
        assert depth == levels


LIARS = ["Map", "Set", "Date", "ArrayBuffer", "BigInt"]


@pytest.mark.parametrize("tag", LIARS)
def test_an_object_that_lies_about_its_kind_does_no_harm_to_what_is_around_it(run: RunCode, tag: str) -> None:
    told = run(f"const liar = {{ [Symbol.toStringTag]: '{tag}', a: 1 }}; json(liar); return [0, liar, 2]")
    assert (told.value[0], told.value[2]) == (0, 2)
    assert told.report is not None
    assert [item["value"] for item in told.report.outputs] == [told.value[1]]


@pytest.mark.parametrize("tag", LIARS)
def test_an_object_with_a_tag_of_its_own_keeps_its_members(run: RunCode, tag: str) -> None:
    assert run(f"return {{ [Symbol.toStringTag]: '{tag}', a: 1 }}").value == {"a": 1}


def test_a_map_with_a_tag_of_its_own_is_still_a_map(run: RunCode) -> None:
    code = "class Cache extends Map { get [Symbol.toStringTag]() { return 'Cache' } }; return new Cache([['a', 1]])"
    assert run(code).value == {"a": 1}


@pytest.mark.parametrize(
    "hostile",
    [
        "{ get [Symbol.toStringTag]() { throw 1 } }",
        "new Proxy({}, { get() { throw 1 }, ownKeys() { throw 1 }, getPrototypeOf() { throw 1 } })",
        "(() => { const r = Proxy.revocable({}, {}); r.revoke(); return r.proxy })()",
        "Object.defineProperty(new Error('m'), 'name', { get() { throw 1 } })",
        "Object.defineProperty([1], 'toJSON', { get() { throw 1 } })",
        "Object.defineProperty(new Date(), 'toISOString', { value() { throw 1 } })",
    ],
)
def test_nothing_a_value_does_when_it_is_read_makes_telling_it_fail(run: RunCode, hostile: str) -> None:
    told = run(f"const v = {hostile}; json(v); text(v); console.log(v); store('k', v); return [v]")
    assert told.turn.text is not None
    assert isinstance(told.value, list)
    assert told.report is not None
    assert len(told.report.outputs) == 3
    assert json.loads(told.requests[0].value) == told.value[0]
