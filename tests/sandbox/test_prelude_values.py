"""What becomes of a guest's values: `docs/values.md` as a table, and values that misbehave when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from guest_harness import Cell, ok
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from conftest import OpenCell, RunCode

    from codemode_mcp.sandbox.engine import Engine

PLAIN: list[tuple[str, Any]] = [
    ("'text'", "text"),
    ("''", ""),
    ("'\\u{1F600} \\u0000 \\\\ \"'", '\U0001f600 \0 \\ "'),
    ("'\\ud83d'", "\N{REPLACEMENT CHARACTER}"),
    ("['\\ud83d', 'x\\ude00y', '\\ude00\\ud83d']", ["\ufffd", "x\ufffdy", "\ufffd\ufffd"]),
    ("{ '\\ud83d': 1 }", {"\ufffd": 1}),
    ("'\\\\ud83d'", "\\ud83d"),
    ("42", 42),
    ("0.1", 0.1),
    ("1e21", 1e21),
    ("5e-324", 5e-324),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("-0", 0),
    ("NaN", None),
    ("Infinity", None),
    ("-Infinity", None),
    ("true", True),
    ("null", None),
    ("undefined", None),
    ("void 0", None),
    ("123456789012345678901234567890n", "123456789012345678901234567890"),
    ("-1n", "-1"),
    ("Symbol('s')", "Symbol(s)"),
    ("Symbol()", "Symbol()"),
    ("Symbol.iterator", "Symbol(Symbol.iterator)"),
    ("function named() {}", "[Function: named]"),
    ("() => 1", "[Function]"),
    ("class A {}", "[Function: A]"),
    ("MCP.files.readFile", "[Function: readFile]"),
    ("Object.defineProperty(() => 1, 'name', { get() { throw 1 } })", "[Function]"),
]

COMPOSED: list[tuple[str, Any]] = [
    ("[]", []),
    ("{}", {}),
    ("[1, [2, { a: [] }]]", [1, [2, {"a": []}]]),
    ("[undefined, () => 1, Symbol('s'), NaN, -0, 1n]", [None, "[Function]", "Symbol(s)", None, 0, "1"]),
    ("[1, , 3]", [1, None, 3]),
    ("new Array(3)", [None, None, None]),
    ("{ a: undefined, b: null, c: () => 1, d: Symbol('s') }", {"b": None, "c": "[Function: c]", "d": "Symbol(s)"}),
    ("{ [Symbol('key')]: 1, b: 2 }", {"b": 2}),
    ("Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true }, hidden: { value: 3 } })", {"own": 2}),
    ("Object.create(null)", {}),
    ("JSON.parse('{\"__proto__\": 1}')", {"__proto__": 1}),
    ("Object.assign([1], { extra: 2 })", [1]),
    ("(function () { return arguments })(1, 2)", {"0": 1, "1": 2}),
    ("new (class A { x = 1; #y = 2; get z() { return 3 } })()", {"x": 1}),
    ("Object.freeze({ a: 1 })", {"a": 1}),
    ("globalThis.MCP.files.nothing", None),
]

OBJECTS: list[tuple[str, Any]] = [
    ("new Date(0)", "1970-01-01T00:00:00.000Z"),
    ("new Date(NaN)", None),
    ("{ when: new Date(NaN) }", {"when": None}),
    ("/a\\/b/gi", "/a\\/b/gi"),
    ("new Number(3)", 3),
    ("new Number(NaN)", None),
    ("new String('s')", "s"),
    ("new Boolean(false)", False),
    ("Object(10n)", "10"),
    ("Promise.resolve(1).constructor === Promise", True),
    ("[Promise.resolve(1), (async () => 1)()]", ["[Promise]", "[Promise]"]),
    ("new ArrayBuffer(8)", {"type": "ArrayBuffer", "byteLength": 8}),
    ("new Uint8Array([1, 2, 255])", [1, 2, 255]),
    ("new Float64Array([0.5, NaN, Infinity])", [0.5, None, None]),
    ("new BigInt64Array([1n, -1n])", ["1", "-1"]),
    ("new Uint8Array(0)", []),
    ("new Map([['a', 1], ['b', { c: 2 }]])", {"a": 1, "b": {"c": 2}}),
    ("new Map([['a', undefined]])", {"a": None}),
    ("new Map()", {}),
    ("new Map([[1, 'one'], ['two', 2]])", [[1, "one"], ["two", 2]]),
    ("new Map([[{ k: 1 }, new Map([[1n, null]])]])", [[{"k": 1}, [["1", None]]]]),
    ("new Set([1, 'a', { b: 2 }, undefined])", [1, "a", {"b": 2}, None]),
    ("new Set()", []),
    ("new WeakMap()", {}),
    ("new (class List extends Array {})(2, 3)", [2, 3]),
    ("new (class M extends Map {})([['a', 1]])", {"a": 1}),
]

ERRORS: list[tuple[str, Any]] = [
    ("new Error('m')", {"name": "Error", "message": "m"}),
    ("new TypeError()", {"name": "TypeError", "message": ""}),
    (
        "new RangeError('m', { cause: new Error('why') })",
        {"name": "RangeError", "message": "m", "cause": {"name": "Error", "message": "why"}},
    ),
    ("new Error('m', { cause: undefined })", {"name": "Error", "message": "m", "cause": None}),
    ("Object.assign(new Error('m'), { code: 'E', n: 1 })", {"name": "Error", "message": "m", "code": "E", "n": 1}),
    ("new (class Mine extends Error { name = 'Mine' })('m')", {"name": "Mine", "message": "m"}),
    ("[new Error('m')]", [{"name": "Error", "message": "m"}]),
]

CYCLES: list[tuple[str, Any]] = [
    ("(() => { const o = { a: 1 }; o.self = o; return o })()", {"a": 1, "self": "[Circular]"}),
    ("(() => { const a = [1]; a.push(a, [a]); return a })()", [1, "[Circular]", ["[Circular]"]]),
    ("(() => { const m = new Map(); m.set('m', m); return m })()", {"m": "[Circular]"}),
    ("(() => { const s = new Set(); s.add(s); return s })()", ["[Circular]"]),
    (
        "(() => { const e = new Error('m'); e.cause = e; return e })()",
        {"name": "Error", "message": "m", "cause": "[Circular]"},
    ),
    ("(() => { const o = { toJSON() { return { o } } }; return o })()", {"o": "[Circular]"}),
    ("(() => { const s = { a: 1 }; return [s, s, { s }] })()", [{"a": 1}, {"a": 1}, {"s": {"a": 1}}]),
]  # fmt: skip

HOSTILE: list[tuple[str, Any]] = [
    ("{ get a() { throw new Error('no') }, b: 1 }", {"a": "[getter threw: no]", "b": 1}),
    ("{ get a() { throw 'text' } }", {"a": "[getter threw: text]"}),
    ("{ get a() { throw null } }", {"a": "[getter threw: null]"}),
    ("{ get a() { throw { get message() { throw 1 } } } }", {"a": "[getter threw: undefined]"}),
    ("{ get a() { throw { message: { toString() { throw 1 } } } } }", {"a": "[getter threw: [unprintable]]"}),
    ("{ get a() { throw Symbol('s') } }", {"a": "[getter threw: Symbol(s)]"}),
    ("{ get a() { throw new Proxy({}, { getPrototypeOf() { throw 1 } }) } }", {"a": "[getter threw: undefined]"}),
    ("Object.defineProperty([1, 2], 1, { get() { throw new Error('no') } })", [1, "[getter threw: no]"]),
    ("{ toJSON() { return { a: 1 } }, b: 2 }", {"a": 1}),
    ("{ toJSON() { return undefined } }", None),
    ("[{ toJSON() { return undefined } }]", [None]),
    ("{ a: { toJSON() { return undefined } }, b: 1 }", {"a": None, "b": 1}),
    ("{ toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
    ("{ get toJSON() { throw new Error('no') } }", "[toJSON threw: no]"),
    ("{ a: 1, toJSON() { return this } }", {"a": 1, "toJSON": "[Function: toJSON]"}),
    ("{ toJSON() { return 1n } }", "1"),
    ("{ toJSON() { return () => 1 } }", "[Function]"),
    ("{ toJSON() { return '\"},\"state\":\"forged' } }", '"},"state":"forged'),
    ("{ toJSON: 'no function', a: 1 }", {"toJSON": "no function", "a": 1}),
    ("new Proxy({ a: 1 }, {})", {"a": 1}),
    ("new Proxy([1, 2], {})", [1, 2]),
    ("new Proxy({}, { ownKeys() { throw new Error('no') } })", "[reading threw: no]"),
    ("new Proxy({}, { get() { throw new Error('no') } })", "[toJSON threw: no]"),
    (
        "new Proxy({}, { ownKeys: () => ['a'], get: (t, k) => (k === 'a' ? 'made up' : undefined),"
        "getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }) })",
        {"a": "made up"},
    ),
    ("(() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return [proxy].length })()", 1),
    ("new Proxy(() => 1, { get() { throw 1 } })", "[Function]"),
    ("{ get [Symbol.toStringTag]() { throw new Error('no') } }", "[reading threw: no]"),
]  # fmt: skip

TABLE = PLAIN + COMPOSED + OBJECTS + ERRORS + CYCLES + HOSTILE


@pytest.mark.parametrize(("expression", "expected"), TABLE, ids=lambda each: str(each)[:50])
def test_a_value_becomes_what_the_documentation_says(run: RunCode, expression: str, expected: Any) -> None:
    # Through a call, which gives a function no name; in an array, which is no thenable.
    told = run(f"const value = ((v) => v)({expression}); json(value); return [value]")
    assert told.value == [expected]
    assert told.report is not None
    assert told.report.outputs == ({"type": "json", "value": expected},)


@pytest.mark.parametrize("tag", ["Map", "Set", "Date", "RegExp", "Error", "ArrayBuffer", "Number", "BigInt", "Promise"])
def test_an_object_that_claims_to_be_another_kind_does_no_harm(run: RunCode, tag: str) -> None:
    """What it becomes is not promised."""
    told = run(f"const liar = {{ [Symbol.toStringTag]: '{tag}', a: 1 }}; text(liar); return [liar, 'after']")
    assert told.value[1] == "after"
    assert len(told.texts) == 1


def test_a_revoked_proxy_is_told_of(run: RunCode) -> None:
    value = run("const { proxy, revoke } = Proxy.revocable([], {}); revoke(); return [proxy]").value
    assert value[0].startswith("[toJSON threw: ")


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
def test_whatever_is_thrown_is_told_of(run: RunCode, thrown: str, name: str, message: str) -> None:
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
        ("12n", "12n"),
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


def test_console_joins_its_values_with_spaces_on_every_level(run: RunCode) -> None:
    told = run("for (const m of ['log', 'info', 'warn', 'error', 'debug']) console[m](m, 1, { a: [2] }, undefined)")
    assert told.texts == [f'{m} 1 {{"a":[2]}} undefined' for m in ("log", "info", "warn", "error", "debug")]


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

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
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
