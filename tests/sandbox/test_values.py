"""Tests of the end of a guest's values: every row of the first table of docs/values.md, which decides what is
tested; values that misbehave when they are read; and what `text`, `console` and `image` make of theirs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from guest_harness import Cell, ok
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.strict_json import replace_lone_surrogates
from codemode_mcp.sandbox.engine import Engine
from tests.sandbox.conftest import OpenCell, RunCode

DOCS = (Path(__file__).parents[2] / "docs" / "values.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| ", DOCS.partition("\n### ")[0], re.MULTILINE)[1:]

REVOKED = "(() => {{ const p = Proxy.revocable({}, {{}}); p.revoke(); return p.proxy }})()"

CASES: dict[str, list[tuple[str, Any]]] = {
    "string, finite number, boolean, null": [
        ("'text'", "text"),
        ("''", ""),
        ("'\\u{1F600} \\u0000 \\\\ \"'", '\U0001f600 \0 \\ "'),
        ("'\\u2028\\u2029'", "\u2028\u2029"),
        ("42", 42),
        ("1.5", 1.5),
        ("0.1 + 0.2", 0.30000000000000004),
        ("1e21", 1e21),
        ("123456789012345680000", 123456789012345680000),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("-0", 0),
        ("{ a: -0 }", {"a": 0}),
        ("true", True),
        ("null", None),
    ],
    "`undefined`": [
        ("undefined", None),
        ("void 0", None),
        ("{ a: undefined, b: 1 }", {"b": 1}),
        ("[undefined]", [None]),
        ("globalThis.MCP.files.nothing", None),
    ],
    "`NaN`, `Infinity`": [
        ("NaN", None),
        ("Infinity", None),
        ("-Infinity", None),
        ("[Infinity, -Infinity]", [None, None]),
        ("{ a: NaN }", {"a": None}),
    ],
    "`bigint`": [
        ("12345678901234567890n", 12345678901234567890),
        ("123456789012345678901234567890n", 123456789012345678901234567890),
        ("-1n", -1),
        ("[-1n]", [-1]),
        ("-(10n ** 4298n)", -(10**4298)),
        ("{ a: [10n ** 4300n] }", {"a": ["1" + 4300 * "0"]}),
    ],
    "function": [
        ("function named() {}", "[Function: named]"),
        ("() => 1", "[Function]"),
        ("class A {}", "[Function: A]"),
        ("[class A {}]", ["[Function: A]"]),
        ("function* g() {}", "[Function: g]"),
        ("async () => 1", "[Function]"),
        ("new Function('return 1')", "[Function: anonymous]"),
        ("MCP.files.readFile", "[Function: readFile]"),
        ("Object.defineProperty(() => 1, 'name', { get() { throw 1 } })", "[Function]"),
        ("Object.assign(() => 1, { toJSON: () => 'never asked' })", "[Function]"),
        ("new Proxy(() => 1, { get() { throw 1 } })", "[Function]"),
        (REVOKED.format("() => 1"), "[Function]"),
    ],
    "symbol": [
        ("Symbol('s')", "Symbol(s)"),
        ("Symbol()", "Symbol()"),
        ("{ a: Symbol() }", {"a": "Symbol()"}),
        ("Symbol.iterator", "Symbol(Symbol.iterator)"),
    ],
    "array": [
        ("[]", []),
        ("[1, [2, { a: [] }]]", [1, [2, {"a": []}]]),
        ("[undefined, () => 1, Symbol('s'), NaN, -0, 1n]", [None, "[Function]", "Symbol(s)", None, 0, 1]),
        ("[1, , 3]", [1, None, 3]),
        ("new Array(3)", [None, None, None]),
        ("(() => { const a = []; a[3] = 1; return a })()", [None, None, None, 1]),
        ("Object.assign([1], { extra: 2 })", [1]),
        ("new (class List extends Array {})(2, 3)", [2, 3]),
        ("Object.freeze([1])", [1]),
        ("new Proxy([1, 2], {})", [1, 2]),
    ],
    "`Number`, `String`, `Boolean`, `BigInt` object": [
        ("new Number(3)", 3),
        ("new Number(NaN)", None),
        ("new String('s')", "s"),
        ("new Boolean(false)", False),
        ("Object(10n)", 10),
        ("[Object(Object('s'))]", ["s"]),
    ],
    "`Date`": [
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("new Date(8.64e15)", "+275760-09-13T00:00:00.000Z"),
        ("new Date(NaN)", None),
        ("new Date(8.64e15 + 1)", None),
        ("{ when: new Date(NaN) }", {"when": None}),
    ],
    "`RegExp`": [("/a+/gi", "/a+/gi"), ("/a\\/b/gi", "/a\\/b/gi")],
    "`Error`": [
        ("new Error('m')", {"name": "Error", "message": "m"}),
        ("new TypeError('m')", {"name": "TypeError", "message": "m"}),
        ("new TypeError()", {"name": "TypeError", "message": ""}),
        ("new Error('m', { cause: [1] })", {"name": "Error", "message": "m", "cause": [1]}),
        ("new Error('m', { cause: undefined })", {"name": "Error", "message": "m", "cause": None}),
        (
            "new RangeError('m', { cause: new Error('why', { cause: 'c' }) })",
            {"name": "RangeError", "message": "m", "cause": {"name": "Error", "message": "why", "cause": "c"}},
        ),
        (
            "new AggregateError([new Error('a'), 2], 'm', { cause: 'c' })",
            {"name": "AggregateError", "message": "m", "cause": "c", "errors": [{"name": "Error", "message": "a"}, 2]},
        ),
        ("Object.assign(new Error('m'), { code: 'E', n: 1 })", {"name": "Error", "message": "m", "code": "E", "n": 1}),
        ("Object.assign(new Error('m'), { errors: [1] })", {"name": "Error", "message": "m", "errors": [1]}),
        ("new (class Mine extends Error { name = 'Mine' })('m')", {"name": "Mine", "message": "m"}),
        ("[new Error('m')]", [{"name": "Error", "message": "m"}]),
        (
            "Object.defineProperties(new Error('m'), { code: { value: 'E' }, data: { value: { tool: 't' } } })",
            {"name": "Error", "message": "m", "code": "E", "data": {"tool": "t"}},
        ),
        (
            "Object.defineProperty(new Error('m'), 'toJSON', { value: () => ({ fine: true }) })",
            {"name": "Error", "message": "m"},
        ),
        ("new (class E extends Error { toJSON() { return 'fine' } })('m')", {"name": "Error", "message": "m"}),
    ],
    "`Map`": [
        ("new Map()", {}),
        ("new Map([['a', 1], ['b', { c: 2 }]])", {"a": 1, "b": {"c": 2}}),
        ("new Map([['a', undefined]])", {"a": None}),
        ("new Map([[1, 'one'], ['two', 2]])", [[1, "one"], ["two", 2]]),
        ("new Map([[{ k: 1 }, new Map([[1n, null]])]])", [[{"k": 1}, [[1, None]]]]),
        ("new Map([[Symbol('k'), 1]])", [["Symbol(k)", 1]]),
        ("new Map([['a', new Map([['b', new Set([1])]])]])", {"a": {"b": [1]}}),
        ("new Map([['__proto__', 1]])", {"__proto__": 1}),
        ("new (class M extends Map {})([['a', 1]])", {"a": 1}),
        (
            "new (class Cache extends Map { get [Symbol.toStringTag]() { return 'Cache' } })([['a', 1]])",
            {"a": 1},
        ),
    ],
    "`Set`, typed array": [
        ("new Set([1, 'a', { b: 2 }, undefined, 1])", [1, "a", {"b": 2}, None]),
        ("new Set()", []),
        ("new Uint8Array([1, 2, 255])", [1, 2, 255]),
        ("new Uint8ClampedArray([300])", [255]),
        ("new Uint16Array([1, 65535])", [1, 65535]),
        ("new Float64Array([0.5, NaN, Infinity, -0])", [0.5, None, None, 0]),
        ("new BigInt64Array([1n, -1n])", [1, -1]),
        ("new BigUint64Array([18446744073709551615n])", [18446744073709551615]),
        ("new Uint8Array(0)", []),
        ("new Int8Array(new ArrayBuffer(2, { maxByteLength: 16 }))", [0, 0]),
    ],
    "`ArrayBuffer`": [
        ("new ArrayBuffer(3)", {"type": "ArrayBuffer", "byteLength": 3}),
        ("new Uint8Array(8).buffer", {"type": "ArrayBuffer", "byteLength": 8}),
    ],
    "`Promise`": [
        ("{ p: new Promise(() => {}) }", {"p": "[Promise]"}),
        ("[Promise.resolve(1), (async () => 1)()]", ["[Promise]", "[Promise]"]),
    ],
    "an object with `toJSON`": [
        ("{ toJSON: () => ({ a: 1n }) }", {"a": 1}),
        ("{ toJSON() { return { a: 1 } }, b: 2 }", {"a": 1}),
        ("new URL('http://a/b?c=1')", "http://a/b?c=1"),
        ("{ toJSON: () => undefined }", None),
        ("[{ toJSON() { return undefined } }]", [None]),
        ("{ a: { toJSON() { return undefined } }, b: 1 }", {"a": None, "b": 1}),
        ("{ a: 1, toJSON() { return this } }", {"a": 1, "toJSON": "[Function: toJSON]"}),
        ("{ toJSON() { return 1n } }", 1),
        ("{ toJSON() { return () => 1 } }", "[Function]"),
        ("{ toJSON: () => ({ toJSON: () => 1 }) }", 1),
        ('{ toJSON() { return \'"},"state":"forged\' } }', '"},"state":"forged'),
        ("{ toJSON: 'no function', a: 1 }", {"toJSON": "no function", "a": 1}),
        ("Object.assign([1], { toJSON: () => 'list' })", "list"),
    ],
    "any other object": [
        ("{}", {}),
        ("{ a: undefined, b: null, c: () => 1, d: Symbol('s') }", {"b": None, "c": "[Function: c]", "d": "Symbol(s)"}),
        ("{ b: 1, a: 2, 2: 'x', 1: 'y', '-1': 'z' }", {"1": "y", "2": "x", "b": 1, "a": 2, "-1": "z"}),
        ("{ [Symbol('key')]: 1, b: 2 }", {"b": 2}),
        ("Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true }, hidden: { value: 3 } })", {"own": 2}),
        ("Object.create(null)", {}),
        ("Object.assign(Object.create(null), { a: { b: 1 } })", {"a": {"b": 1}}),
        ('JSON.parse(\'{"__proto__": {"a": 1}}\')', {"__proto__": {"a": 1}}),
        ("(function () { return arguments })(1, 2)", {"0": 1, "1": 2}),
        ("new (class A { x = 1; #y = 2; get z() { return 3 } })()", {"x": 1}),
        ("Object.freeze({ a: 1 })", {"a": 1}),
        ("new Proxy({ a: [1] }, {})", {"a": [1]}),
        (
            "new Proxy({}, { ownKeys: () => ['a'], get: (t, k) => (k === 'a' ? 'made up' : undefined),"
            "getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }) })",
            {"a": "made up"},
        ),
        ("globalThis", {}),
        (
            "MCP.files",
            {
                "readFile": "[Function: readFile]",
                "remove": "[Function: remove]",
                "resources": {"list": "[Function: list]"},
            },
        ),
        ("[new WeakMap(), new WeakSet(), new WeakRef({}), new DataView(new ArrayBuffer(2))]", [{}, {}, {}, {}]),
        ("[(function* () {})(), [1][Symbol.iterator](), new Map().entries()]", [{}, {}, {}]),
        ("[new URLSearchParams('a=1'), new TextEncoder(), Math, JSON]", [{}, {}, {}, {}]),
        ("[new SharedArrayBuffer(2), Object(Symbol('s'))]", [{}, {}]),
    ],
    "a cycle": [
        ("(() => { const a = { n: 1 }; a.self = a; return a })()", {"n": 1, "self": "[Circular]"}),
        ("(() => { const a = [1]; a.push(a, [a]); return a })()", [1, "[Circular]", ["[Circular]"]]),
        ("(() => { const m = new Map(); m.set('m', m); return m })()", {"m": "[Circular]"}),
        ("(() => { const s = new Set(); s.add(s); return s })()", ["[Circular]"]),
        (
            "(() => { const e = new Error('m'); e.cause = e; return e })()",
            {"name": "Error", "message": "m", "cause": "[Circular]"},
        ),
        (
            "(() => { const e = new AggregateError([], 'm'); e.errors.push(e); return e })()",
            {"name": "AggregateError", "message": "m", "errors": ["[Circular]"]},
        ),
        ("(() => { const o = { toJSON() { return { o } } }; return o })()", {"o": "[Circular]"}),
        ("(() => { const s = { a: 1 }; return [s, s, { s }] })()", [{"a": 1}, {"a": 1}, {"s": {"a": 1}}]),
    ],
    "a getter, proxy or `toJSON` that throws": [
        ("{ get a() { throw new Error('no') }, b: 1 }", {"a": "[getter threw: no]", "b": 1}),
        ("{ get a() { throw 'text' } }", {"a": "[getter threw: text]"}),
        ("{ get a() { throw null } }", {"a": "[getter threw: null]"}),
        ("{ get a() { throw { get message() { throw 1 } } } }", {"a": "[getter threw: undefined]"}),
        ("{ get a() { throw { message: { toString() { throw 1 } } } } }", {"a": "[getter threw: [unprintable]]"}),
        ("{ get a() { throw Symbol('s') } }", {"a": "[getter threw: Symbol(s)]"}),
        (
            "{ get a() { throw new Proxy({}, { getPrototypeOf() { throw 1 } }) } }",
            {"a": "[getter threw: undefined]"},
        ),
        ("Object.defineProperty([1, 2], 1, { get() { throw new Error('no') } })", [1, "[getter threw: no]"]),
        ("{ toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
        ("{ get toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
        ("{ toJSON() { throw { get message() { throw 1 } } } }", "[toJSON threw: undefined]"),
        ("new Proxy({}, { ownKeys() { throw new Error('no') } })", "[reading threw: no]"),
        ("new Proxy({}, { ownKeys: () => ['a', 'a'] })", "[reading threw: proxy: duplicate property]"),
        ("new Proxy({}, { get() { throw new Error('no') } })", "[toJSON threw: no]"),
        (
            "new Proxy([1], { get(t, k) { if (k === 'length') throw new Error('no'); return t[k] } })",
            "[reading threw: no]",
        ),
        ("{ get [Symbol.toStringTag]() { throw new Error('no') } }", "[reading threw: no]"),
        (REVOKED.format("{}"), "[toJSON threw: revoked proxy]"),
        (REVOKED.format("[]"), "[toJSON threw: revoked proxy]"),
    ],
    "half of a surrogate pair": [
        ("'\\ud83d'", "\ufffd"),
        ("'a\\ud800b'", "a\ufffdb"),
        ("['\\ud83d', 'x\\ude00y', '\\ude00\\ud83d']", ["\ufffd", "x\ufffdy", "\ufffd\ufffd"]),
        ("{ '\\udc00': 1 }", {"\ufffd": 1}),
        ("'\\\\ud83d'", "\\ud83d"),
    ],
}


def depth_row() -> tuple[str, int]:
    [name] = [row for row in ROWS if row.startswith("deeper than")]
    found = re.search(r"\d+", name)
    assert found is not None
    return name, int(found.group())


def test_every_row_of_the_documentation_has_a_case_here() -> None:
    assert set(ROWS) == {*CASES, depth_row()[0]}


def exactly(value: Any) -> str:
    """Return a form in which 1, 1.0 and true differ, and orders of members, unlike with `==`."""
    return json.dumps(value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [pytest.param(*case, id=f"{row}: {case[0]}"[:80]) for row, cases in CASES.items() for case in cases],
)
def test_a_value_becomes_what_the_documentation_says(run: RunCode, expression: str, expected: Any) -> None:
    # Through a call, which gives a function no name; returned in an array, which is no thenable.
    told = run(f"const value = ((v) => v)({expression}); json(value); store('k', value); return [value]")
    assert exactly(told.value) == exactly([expected])
    assert told.report is not None
    [output] = told.report.outputs
    assert output["type"] == "json"
    assert exactly(output["value"]) == exactly(expected)
    [stored] = told.requests
    # A Number beyond 2^53 has an exponent there, since digits alone are read as a bigint.
    kept = json.loads(
        replace_lone_surrogates(stored.value), parse_float=lambda text: json.loads(text.removesuffix("E0"))
    )
    assert exactly(kept) == exactly(expected)


def test_what_is_returned_is_awaited_and_then_told_like_anything_else(run: RunCode) -> None:
    assert run("return Promise.resolve(new Set([1]))").value == [1]
    assert run("return { then(resolve) { resolve(2n) } }").value == 2
    assert run("return").value is None
    assert run("return new Proxy([1, 2], {})").value == [1, 2]


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


def test_large_values_are_told_whole(run: RunCode) -> None:
    assert run("return 'é'.repeat(10_000_000)").value == "é" * 10_000_000
    wide = "Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => ['k' + i, i]))"
    assert run(f"return {wide}").value == {f"k{i}": i for i in range(100_000)}
    assert run("return Array.from({ length: 200_000 }, (_, i) => i)").value == list(range(200_000))


def test_an_array_that_lies_about_its_length_costs_only_its_own_program(run: RunCode) -> None:
    told = run("return new Proxy([], { get: (t, k) => (k === 'length' ? 1e9 : 1) })", seconds=0.3)
    assert told.stopped in ("time", "memory") or told.out_of_memory


@pytest.mark.parametrize("tag", ["Map", "Set", "Date", "ArrayBuffer", "BigInt", "Number"])
def test_an_object_with_a_tag_of_its_own_keeps_its_members(run: RunCode, tag: str) -> None:
    assert run(f"return {{ [Symbol.toStringTag]: '{tag}', a: 1 }}").value == {"a": 1}


@pytest.mark.parametrize(
    "hostile",
    [
        "{ get [Symbol.toStringTag]() { throw 1 } }",
        "new Proxy({}, { get() { throw 1 }, ownKeys() { throw 1 }, getPrototypeOf() { throw 1 } })",
        "(() => { const r = Proxy.revocable({}, {}); r.revoke(); return r.proxy })()",
        "Object.defineProperty(new Error('m'), 'name', { get() { throw 1 } })",
        "Object.defineProperty(new Error('m'), 'cause', { get() { throw 1 } })",
        "Object.defineProperty(new AggregateError([]), 'errors', { get() { throw 1 } })",
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


@pytest.mark.parametrize("tag", ["Map", "Set", "Date", "RegExp", "Error", "ArrayBuffer", "Number", "BigInt", "Promise"])
def test_an_object_that_claims_to_be_another_kind_does_no_harm(run: RunCode, tag: str) -> None:
    """Check only that it ends; the result is not promised."""
    told = run(f"const liar = {{ [Symbol.toStringTag]: '{tag}', a: 1 }}; text(liar); json(liar); return [0, liar, 2]")
    assert (told.value[0], told.value[2]) == (0, 2)
    assert len(told.texts) == 1
    assert told.report is not None
    assert told.report.outputs[1]["value"] == told.value[1]


@pytest.mark.parametrize("nest", ["[a]", "{ a }", "new Map([['a', a]])", "new Set([a])", "{ toJSON: () => a }"])
def test_what_is_nested_too_deeply_is_cut_where_documented(run: RunCode, nest: str) -> None:
    told = run(
        f"const nest = (a) => ({nest}); let a = 'bottom'; for (let i = 0; i < 5000; i++) a = nest(a); return [a]"
    )
    assert told.turn.text is not None
    assert '"[Too deep]"' in told.turn.text


def test_what_is_nested_a_little_is_whole(run: RunCode) -> None:
    value = run("let a = 'bottom'; for (let i = 0; i < 90; i++) a = { a: [a] }; return JSON.stringify(a)").value
    assert value.count("[") == 90
    depth, found = 0, run("let a = 'bottom'; for (let i = 0; i < 90; i++) a = [a]; return a").value
    while isinstance(found, list):
        depth, found = depth + 1, found[0]
    assert (depth, found) == (90, "bottom")


@pytest.mark.parametrize(
    ("thrown", "name", "message"),
    [
        ("new TypeError('m')", "TypeError", "m"),
        ("'text'", "Uncaught", "text"),
        ("undefined", "Uncaught", "undefined"),
        ("null", "Uncaught", "null"),
        ("1n", "Uncaught", "1"),
        ("Symbol('s')", "Uncaught", "Symbol(s)"),
        ("{ a: 1 }", "Error", '{"a":1}'),
        ("{ name: 7, message: 8 }", "Error", "8"),
        ("{ get message() { throw 1 } }", "Error", '{"message":"[getter threw: 1]"}'),
        ("{ message: { toString() { throw 1 } } }", "Error", "[unprintable]"),
        ("Object.assign(() => 1, { message: 'm' })", "Error", "m"),
        ("new Proxy({}, { get() { throw 1 } })", "Error", '"[toJSON threw: 1]"'),
        ("new Proxy({}, { getPrototypeOf() { throw 1 } })", "Error", "{}"),
        ("Object.defineProperty(new Error('m'), 'stack', { get() { throw 1 } })", "Error", "m"),
        ("Object.defineProperty(new Error('m'), 'stack', { value: { length: 1e9 } })", "Error", "m"),
    ],
    ids=lambda x: str(x)[:40],
)  # fmt: skip
def test_whatever_is_thrown_is_reported(run: RunCode, thrown: str, name: str, message: str) -> None:
    told = run(f"throw {thrown}")
    assert told.stopped is None
    assert told.report is not None
    assert told.report.state == "failed"
    assert told.report.error is not None
    assert (told.report.error.message, told.report.error.engine, told.report.error.code) == (message, False, None)
    if name != "Error":
        assert told.report.error.name == name


def test_a_very_long_message_is_cut(run: RunCode) -> None:
    told = run("const e = new Error('m'.repeat(1e6)); e.name = 'n'.repeat(1e6); throw e")
    assert told.turn.text is not None
    assert len(told.turn.text) < 30_000


# text and console


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'plain \"text\"'", 'plain "text"'),
        ("undefined", "undefined"),
        ("null", "null"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("Symbol('s')", "Symbol(s)"),
        ("function f() {}", "[Function: f]"),
        ("{ a: [1, undefined] }", '{"a":[1,null]}'),
        ("new Map([['a', 1]])", '{"a":1}'),
        ("{ get a() { throw 1 } }", '{"a":"[getter threw: 1]"}'),
        ("new Proxy({}, { get() { throw 1 } })", '"[toJSON threw: 1]"'),
        ("{ get [Symbol.toStringTag]() { throw 1 } }", '"[reading threw: 1]"'),
    ],
)
def test_text_shows_a_value(run: RunCode, expression: str, expected: str) -> None:
    told = run(f"text({expression}); console.log({expression})")
    assert told.texts == [expected, expected]


def test_text_writes_all_its_arguments_but_an_element_alone_as_a_callback(run: RunCode) -> None:
    told = run("text('a', 1n, { b: 1 }, undefined); text(); [1, 2].forEach(text); text('x', 0, ['y'])")
    assert told.texts == ['a 1 {"b":1} undefined', "undefined", "1", "2", 'x 0 ["y"]']


def test_console_joins_its_values_with_spaces_on_every_level(run: RunCode) -> None:
    told = run("for (const m of ['log', 'info', 'warn', 'error', 'debug']) console[m](m, 1, { a: [2] }, undefined)")
    assert told.texts == [f'{m} 1 {{"a":[2]}} undefined' for m in ("log", "info", "warn", "error", "debug")]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ("'%s is %d', 'Bob', 42", "Bob is 42"),
        ("'%s and %s', 'one'", "one and %s"),
        ("'%i of %f', '42.9px', '3.5kg'", "42 of 3.5"),
        ("'%d %i', '42px', 7n", "NaN 7n"),
        ("'100%% of %s', 'x'", "100% of x"),
        ("'100%%'", "100%%"),
        ("'%cred%c', 'color: red', ''", "red"),
        ("'%j %o %O', { a: 1 }, [2], 'text'", '{"a":1} [2] "text"'),
        ("'%s %s %s', null, undefined, -0", "null undefined -0"),
        ("'%s', { toString: () => 'own' }", "own"),
        ("'%s', { a: 1 }", '{"a":1}'),
        ("'%d %s', {}, Symbol('s')", "NaN Symbol(s)"),
        ("'%s', 'a', 'b', { c: 1 }", 'a b {"c":1}'),
        ("'%x %', 1", "%x % 1"),
        ("1, '%s', 2", "1 %s 2"),
        ("'%s', '%s', 'x'", "%s x"),
        ("-0, NaN", "-0 NaN"),
    ],
)
def test_console_fills_placeholders(run: RunCode, values: str, line: str) -> None:
    assert run(f"console.log({values}); console.error({values})").texts == [line, line]


def test_console_indents_what_is_in_a_group(run: RunCode) -> None:
    told = run(
        "console.group('outer %d', 1); console.log('a\\nb'); console.group(); console.warn('in'); console.groupEnd();"
        "console.count(); console.groupEnd(); console.groupEnd(); console.log('out')"
    )
    assert told.texts == ["outer 1", "  a\n  b", "    in", "  default: 1", "out"]


def test_console_writes_tables_and_objects_as_json(run: RunCode) -> None:
    told = run(
        "const rows = [{ a: 1, b: 2 }, { a: 3 }]; console.table(rows); console.table(rows, ['b', 'a']);"
        "console.table({ x: rows[0] }, ['a']); console.table('text', ['a']); console.dir(rows[0], { depth: 0 });"
    )
    assert told.texts == [
        '[{"a":1,"b":2},{"a":3}]',
        '[{"b":2,"a":1},{"a":3}]',
        '{"x":{"a":1}}',
        "text",
        '{"a":1,"b":2}',
    ]


def test_console_trace_has_the_frames_of_the_program(run: RunCode) -> None:
    told = run("function f() { console.trace('here', 1) } f(); console.trace()", file="cell.js")
    assert [text.splitlines()[0] for text in told.texts] == ["Trace: here 1", "Trace"]
    assert [text.count("(cell.js:1:") for text in told.texts] == [2, 1]


def test_console_assert_speaks_only_when_it_fails(run: RunCode) -> None:
    assert run("console.assert(true, 'no'); console.assert(0, 'why', 1); console.assert(false)").texts == [
        "Assertion failed: why 1",
        "Assertion failed",
    ]


def test_outputs_keep_the_order_in_which_they_were_made(run: RunCode) -> None:
    told = run(
        "text('a'); json({ b: 1 }); image({ type: 'image', data: 'QQ==', mimeType: 'image/png' }); console.log('c')"
    )
    assert told.report is not None
    assert told.report.outputs == (
        {"type": "text", "text": "a"},
        {"type": "json", "value": {"b": 1}},
        {"type": "image", "mimeType": "image/png", "data": "QQ=="},
        {"type": "text", "text": "c"},
    )


@pytest.mark.parametrize(
    "block",
    [
        "undefined",
        "null",
        "'data'",
        "{}",
        "{ data: 'QQ==' }",
        "{ data: 1, mimeType: 'image/png' }",
        "{ get data() { throw 1 } }",
    ],
)
def test_image_takes_an_image_block_and_nothing_else(run: RunCode, block: str) -> None:
    told = run(f"try {{ image({block}) }} catch (error) {{ return error.message }}")
    assert "MCP image block" in told.value
    assert told.report is not None
    assert told.report.outputs == ()


def test_a_flood_of_output_is_bounded_and_counted(run: RunCode) -> None:
    told = run("for (let i = 0; i < 1000; i++) text('x'.repeat(1000))", output_limit=10_000)
    assert told.report is not None
    assert 1 <= len(told.texts) <= 10
    assert told.report.dropped_items == 1000 - len(told.texts)
    assert told.report.dropped_size >= 990_000 - 10_000


# host to guest


def test_integers_beyond_2_53_are_found_wherever_they_stand_in_a_text(run: RunCode) -> None:
    code = """
        const wrong = [], read = (text) => unwrap({ content: [{ type: "text", text }] });
        for (const n of [9007199254740991n, 9007199254740992n, 99999999999999999n, 2n ** 63n, 10n ** 40n])
          for (const sign of ["", "-"])
            for (let before = 0; before < 33; before++)
              for (const [open, close] of [["", ""], ["[", "]"], ['{"a":', "}"], ["[1,", ",2]"], ["[ ", "\\n]"]]) {
                const text = " ".repeat(before) + open + sign + n + close;
                const value = read(text), found = value?.a ?? value?.find?.((each) => each != 1 && each != 2) ?? value;
                const expected = n > 9007199254740991n ? "bigint" : "number";
                if (typeof found !== expected || String(found) !== sign + n) wrong.push(text);
              }
        return wrong;
    """
    assert run(code).value == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[725653563933458433.0]", "number"),
        ("[7.25653563933458433]", "number"),
        ("[725653563933458433e1]", "number"),
        ("[1e30, 1E+30, 1234567890123456789E0]", "number"),
        ('["725653563933458433"]', "string"),
        ('["is 725653563933458433, "]', "string"),
        ("[" + "7" * 4_301 + "]", "string"),
    ],
)
def test_other_numbers_and_texts_with_many_digits_stay_what_they_are(run: RunCode, text: str, kind: str) -> None:
    code = f"return unwrap({{ content: [{{ type: 'text', text: {json.dumps(text)} }}] }}).map((each) => typeof each)"
    assert set(run(code).value) == {kind}


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.integers(-(10**40), 10**40)
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(value=anything)
def test_any_json_goes_through_a_program_and_back_unchanged(engine: Engine, value: Any) -> None:
    guest = Cell(engine)
    try:
        told = guest.start("return await MCP.files.readFile({})")
        assert told.requests[0].id == 1
        back = guest.deliver(ok(1, value)).value
    finally:
        guest.close()
    assert back == value


def test_half_of_a_pair_in_a_result_does_no_harm(cell: OpenCell) -> None:
    guest = cell()
    guest.start("const r = await MCP.files.readFile({}); return [r.length, r.charCodeAt(0) >= 0xd800]")
    assert guest.deliver(ok(1, "\ud83dx")).value[0] >= 2


BASE64 = "QUJD" * 100


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("{ type: 'image', data, mimeType: 'image/png' }", "[image/png, 300 bytes; show it with image(block)]"),
        ("{ type: 'audio', data: data + 'QQ==', mimeType: '' }", "[binary, 301 bytes; show it with image(block)]"),
        ("{ uri: 'x:1', blob: data, mimeType: 'a/b' }", "[a/b, 300 bytes; image(contents) passes it on]"),
        ("{ uri: 'x:1', blob: data.repeat(9000) }", "[binary, 2,700,000 bytes; image(contents) passes it on]"),
        ("{ type: 'image', data, mimeType: 'x'.repeat(999) }", f"[{'x' * 100}…, 300 bytes; show it with image(block)]"),
    ],
)
def test_binary_content_of_mcp_is_marked_in_all_that_is_shown(run: RunCode, expression: str, shown: str) -> None:
    told = run(
        f"const data = '{BASE64}'; const v = {expression}; json(v); text([v]); console.log({{ v }});"
        "store('k', v); return { v, still: (v.data ?? v.blob).length }"
    )
    assert told.report is not None
    listed, [printed], logged = told.report.outputs[0]["value"], *map(json.loads, told.texts)
    for each in (told.value["v"], listed, printed, logged["v"]):
        assert each.get("data", each.get("blob")) == shown
    [kept] = told.requests
    assert len(kept.value) > told.value["still"] >= 400


@pytest.mark.parametrize(
    "expression",
    [
        "{ data }",
        "{ blob: data }",
        "{ type: 'image', data }",
        "{ type: 'text', data, mimeType: 'image/png' }",
        "{ uri: 1, blob: data }",
        "{ type: 'image', data: 'a b'.repeat(99), mimeType: 'image/png' }",
        "{ type: 'image', data: 'https://example.com/' + data, mimeType: 'image/png' }",
        "{ type: 'image', data: 'QUJD', mimeType: 'image/png' }",
        "{ get type() { return 'image' }, data, mimeType: 'image/png' }",
        "[data]",
    ],
)
def test_strings_of_the_program_s_own_are_never_marked(run: RunCode, expression: str) -> None:
    told = run(f"const data = '{BASE64}'; const v = {expression}; text(JSON.stringify(v)); return v")
    assert told.value == json.loads(told.texts[0])


def test_a_proxy_that_lies_about_its_members_cannot_stop_a_value_from_being_shown(run: RunCode) -> None:
    code = """
        let asked = 0;
        const traps = {
            getOwnPropertyDescriptor(target, name) {
                if (name === "type" && asked++ > 0) throw 1;
                return Reflect.getOwnPropertyDescriptor(target, name);
            },
        };
        return new Proxy({ type: "image", mimeType: "image/png", data: DATA }, traps);
    """
    told = run(code.replace("DATA", f"'{BASE64}'"))
    assert told.value == {"type": "image", "mimeType": "image/png", "data": BASE64}


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("block", 1),
        ("{ ...block, type: undefined }", 1),
        ("{ content: [{ type: 'text', text: 'x' }, block, block] }", 2),
        ("[block, block, block]", 3),
        ("{ contents: [{ uri: 'x:1', text: 't' }, { uri: 'x:1', blob: block.data, mimeType: 'image/png' }] }", 1),
        ("{ type: 'resource', resource: { uri: 'x:1', blob: block.data } }", 1),
        ("{ messages: [{ role: 'user', content: block }, { role: 'user', content: { type: 'text', text: '' } }] }", 1),
        ("{ role: 'user', content: block }", 1),
        ("'data:image/png;base64,' + block.data", 1),
        ("{ ...block, mimeType: 'image/svg+xml; charset=utf-8' }", 1),
    ],
)
def test_image_finds_what_it_can_show(run: RunCode, expression: str, count: int) -> None:
    told = run(f"const block = {{ type: 'image', data: '{BASE64}', mimeType: 'image/png' }}; image({expression})")
    assert told.report is not None
    assert [item["data"] for item in told.report.outputs] == [BASE64] * count
    assert {item["mimeType"] for item in told.report.outputs} <= {
        "image/png",
        "image/svg+xml",
        "application/octet-stream",
    }


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("Promise.resolve()", "await it first"),
        (
            "{ type: 'resource_link', uri: 'x:1', name: 'n' }",
            'image(await MCP.<server>.resources.read({ uri: "x:1" }))',
        ),
        ("{ content: [{ type: 'text', text: 'x' }, { type: 'resource_link', uri: 'x:1' }] }", '{ uri: "x:1" }'),
        ("{ type: 'text', text: 'x' }", "text(block.text)"),
        ("{ contents: [{ uri: 'x:1', text: 't' }] }", "text(contents.text)"),
        ("{ content: [] }", "there is no content in it"),
        ("{ structuredContent: {} }", "image() takes an MCP image block"),
        ("{ type: 'image', data: '', mimeType: 'image/png' }", "its data is empty"),
        ("{ type: 'image', data: 'QUJD', mimeType: 'png' }", '"png" is no MIME type'),
        ("'QUJD'", "a string alone does not say what it is"),
        ("(() => { const a = {}; a.content = a; return a })()", "image() takes an MCP image block"),
        ("(() => { const a = []; a.push(a, a); return a })()", "image() takes an MCP image block"),
        ("new Proxy({}, { get() { throw 1 } })", "image() takes an MCP image block"),
        (
            "{ content: ['x'.repeat(5e6), { type: 'image', data: 'x'.repeat(5e6), mimeType: 'a/b' }] }",
            "ask for a smaller",
        ),
    ],
)
def test_image_says_what_to_do_with_what_it_cannot_show(run: RunCode, expression: str, advice: str) -> None:
    told = run(f"try {{ image({expression}) }} catch (error) {{ return error.message }}", output_limit=4_000_000)
    assert advice in told.value
    assert told.report is not None
    assert told.report.outputs == ()


def test_a_picture_for_which_the_output_has_no_room_left_leaves_a_line_and_counts_as_dropped(run: RunCode) -> None:
    code = "const block = { data: 'QUJD'.repeat(1000), mimeType: 'image/png' }; image([block, block]); text('after')"
    told = run(code, output_limit=6_000)
    assert told.report is not None
    assert [item["type"] for item in told.report.outputs] == ["image", "text", "text"]
    assert told.texts == ["[left out, about 3,036 bytes: all outputs of a program together were too large]", "after"]
    assert (told.report.dropped_items, told.report.dropped_size > 4_000) == (1, True)


LOCALES: list[tuple[str, str]] = [
    ("(1234567.891).toLocaleString()", "1,234,567.891"),
    ("(1234.5).toLocaleString('en-US')", "1,234.5"),
    ("(1.0005).toLocaleString('en')", "1.001"),
    ("(999.9995).toLocaleString(['en-US'], {})", "1,000"),
    ("(0.1 + 0.2).toLocaleString()", "0.3"),
    ("(-0.0001).toLocaleString()", "-0"),
    ("(1e21).toLocaleString()", "1,000,000,000,000,000,000,000"),
    ("(1.2345678901234566e25).toLocaleString()", "12,345,678,901,234,566,000,000,000"),
    ("[NaN, -Infinity].map((n) => n.toLocaleString()).join(' ')", "NaN -∞"),
    ("(-1234567n).toLocaleString()", "-1,234,567"),
    ("[1234.5, null, new Date(0)].toLocaleString()", "1,234.5,,1/1/1970, 12:00:00 AM"),
    ("new Float64Array([1234.5, 1]).toLocaleString('en-US')", "1,234.5,1"),
    ("new Date('2026-01-02T15:04:05Z').toLocaleString()", "1/2/2026, 3:04:05 PM"),
    ("new Date('2026-01-02T15:04:05Z').toLocaleDateString('en-US')", "1/2/2026"),
    ("new Date('2026-12-31T00:00:00Z').toLocaleTimeString()", "12:00:00 AM"),
    ("new Date(NaN).toLocaleString()", "Invalid Date"),
    ("new Date('2026-07-01T12:00:00Z').toLocaleString('en-US', { timeZone: 'UTC' })", "7/1/2026, 12:00:00 PM"),
]


NUMBERS = "[1.005, 0.125, -0.001, 1234.5, 999.995, 1e21, 5e-7, 0]"
LOCALES += [
    (f"{NUMBERS}.map((n) => n.toLocaleString('en-US', {options})).join(' ')", expected)
    for options, expected in {
        "{ maximumFractionDigits: 0 }": "1 0 -0 1,235 1,000 1,000,000,000,000,000,000,000 0 0",
        "{ maximumFractionDigits: 2 }": "1.01 0.13 -0 1,234.5 1,000 1,000,000,000,000,000,000,000 0 0",
        "{ minimumFractionDigits: 2 }": (
            "1.005 0.125 -0.001 1,234.50 999.995 1,000,000,000,000,000,000,000.00 0.00 0.00"
        ),
        "{ minimumFractionDigits: 2, maximumFractionDigits: 2 }": (
            "1.01 0.13 -0.00 1,234.50 1,000.00 1,000,000,000,000,000,000,000.00 0.00 0.00"
        ),
        "{ minimumFractionDigits: 5 }": (
            "1.00500 0.12500 -0.00100 1,234.50000 999.99500 1,000,000,000,000,000,000,000.00000 0.00000 0.00000"
        ),
    }.items()
]
LOCALES += [
    ("(1234567n).toLocaleString('en-US', { minimumFractionDigits: 2 })", "1,234,567.00"),
    ("[1.5, 1234].toLocaleString('en-US', { minimumFractionDigits: 2 })", "1.50,1,234.00"),
    ("'straße'.toLocaleUpperCase() + 'İI'.toLocaleLowerCase('en-US').length", "STRASSE3"),
    ("['b', 'a'].map((x) => x.localeCompare('a', ['en-US'], {})).join()", "1,0"),
    ("[1, '1', 'x'].map((x) => 'undefined'.localeCompare() + ''.localeCompare.call(x, 1)).join()", "0,0,1"),
]
"""Expected values are what Node.js 20 prints."""


@pytest.mark.parametrize(("expression", "expected"), LOCALES)
def test_numbers_and_dates_are_written_as_in_the_united_states(run: RunCode, expression: str, expected: str) -> None:
    assert run(f"return {expression}").value == expected


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("(1).toLocaleString('de-DE')", "knows the locale en-US only"),
        ("(1).toLocaleString('en-US', { style: 'percent' })", "the option style"),
        ("(1).toLocaleString('en-US', { maximumFractionDigits: 200 })", "maximumFractionDigits from 0 to 100"),
        ("(1).toLocaleString('de', { minimumFractionDigits: 2 })", "knows the locale en-US only"),
        ("'a'.localeCompare('b', 'sv')", "knows the locale en-US only"),
        ("'a'.localeCompare('b', undefined, { numeric: true })", "the option numeric: there are no options here"),
        ("'i'.toLocaleUpperCase('tr')", "knows the locale en-US only"),
        ("[1].toLocaleString('de-DE')", "knows the locale en-US only"),
        (
            "new Date(0).toLocaleDateString(undefined, { weekday: 'long' })",
            "the option weekday: there is timeZone only",
        ),
        (
            "new Date(0).toLocaleString('en-US', { timeZone: 'Europe/' + 'Berlin' })",
            "is not known; write its whole name",
        ),
    ],
)
def test_a_form_that_there_is_not_is_refused_with_advice(run: RunCode, expression: str, told: str) -> None:
    message = run(f"try {{ return {expression} }} catch (e) {{ return e.message }}").value
    assert told in message
    hints = ("such as", "from 0 to 100", "toUpperCase()", "write its whole name")
    assert any(hint in message for hint in hints)


ORDERED = [
    *("", "“q”", "[x]", "@x", "😀", "$1", "€1", "10", "2", "a", "A", "a b", "a_b", "a-b", "ab", "aB", "Ab", "ab "),
    *("b", "B", "co-op", "coop", "é", "e\u0301a", "eb", "file10", "file2", "lodz", "łódź", "ñandu", "nz", "Oslo"),
    *("Østergaard", "Ozan", "q", "resume", "résumé", "Résumé", "resumes", "strasse", "straße", "zoe", "Zoë", "αβ"),
    *("яблоко", "日本"),
]
"""The order of Node.js 20 in en-US."""


def test_texts_are_ordered_as_in_the_united_states(run: RunCode) -> None:
    given = json.dumps(ORDERED)
    program = f"const a = {given}; a.sort((x, y) => (x < y ? -1 : 1)); return a.sort((x, y) => x.localeCompare(y))"
    assert run(program).value == ORDERED
    assert run(f"const a = {given}; return a.every((x) => x.localeCompare(x + '\\0') === 0)").value is True


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("'Commit: x'", 'this is plain text: "Commit: x"'),
        ("'x'.repeat(1000)", f'this is plain text: "{"x" * 60}…"'),
        ("'[1, 2'", 'this text is no JSON: "[1, 2"'),
        ("''", "the text is empty"),
        ("undefined", "JSON.parse takes text, not undefined"),
        ("{ content: [], isError: false }", "JSON.parse takes text, not an object with: content, isError"),
        ("[1, {}]", "JSON.parse takes text, not an array of 2"),
        ("Promise.resolve(1)", "JSON.parse takes text, not a promise"),
    ],
)
def test_what_json_parse_was_given_is_told(run: RunCode, given: str, told: str) -> None:
    message = run(f"try {{ JSON.parse({given}) }} catch (e) {{ return [e instanceof SyntaxError, e.message] }}").value
    assert message[0] is True
    assert message[1].endswith(told)


def test_json_parse_is_otherwise_the_engine_s(run: RunCode) -> None:
    program = """
        const twice = (key, value) => (typeof value === "number" ? value * 2 : value);
        const thrown = (f) => { try { f() } catch (e) { return e.message } };
        const asked = [];
        const text = { toString() { asked.push(1); return "{" } };
        return [JSON.parse("[1,2]", twice), JSON.parse.length, JSON.parse.name, Object.keys(JSON), JSON.parse([7]),
          thrown(() => JSON.parse("1", () => { throw new SyntaxError("mine") })),
          thrown(() => JSON.parse({ toString() { throw new Error("mine") } })),
          thrown(() => JSON.parse(text)) && asked.length];
    """
    assert run(program).value == [[2, 4], 2, "parse", [], 7, "mine", "mine", 1]
