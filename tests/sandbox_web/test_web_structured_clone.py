# ruff: noqa: E501 - the tables of JavaScript and of foreign scripts read better unbroken
from __future__ import annotations

import pytest
from engine_harness import Engine


def _error_of(engine: Engine, expression: str) -> str:
    return engine.eval(
        f"(() => {{ try {{ {expression}; return 'no error' }} catch (e) {{ return `${{e.name}} ${{e instanceof DOMException}}` }} }})()"
    )


@pytest.mark.parametrize(
    ("value", "check"),
    [
        ("-0", "Object.is(c, -0)"),
        ("undefined", "c === undefined"),
        ("10n", "c === 10n"),
        ("new Number(-0)", "c instanceof Number && Object.is(c.valueOf(), -0)"),
        ("new String('ab')", "c instanceof String && c == 'ab'"),
        ("new Boolean(false)", "c instanceof Boolean && c.valueOf() === false"),
        ("Object(5n)", "typeof c === 'object' && c == 5n"),
        ("new Date(5)", "c instanceof Date && c.getTime() === 5"),
        ("new Date(NaN)", "c instanceof Date && isNaN(c)"),
        ("Object.assign(/a/gi, { lastIndex: 3, x: 1 })", "c.source + c.flags + c.lastIndex + c.x === 'agi0undefined'"),
        ("new Map([[{ k: 1 }, [2]]])", "c instanceof Map && [...c.keys()][0].k === 1 && [...c.values()][0][0] === 2"),
        ("new Set([1, { a: 1 }])", "c instanceof Set && c.has(1) && [...c][1].a === 1"),
        ("[1, , 3]", "c.length === 3 && !(1 in c)"),
        ("new Array(5)", "c.length === 5 && Object.keys(c).length === 0"),
        ("new Array(4294967295)", "c.length === 4294967295"),
        ("Object.assign([1], { extra: 2 })", "Array.isArray(c) && c.extra === 2"),
        (
            "class A { x = 1; #y = 2; get z() { return 3 } }; new A()",
            "c.constructor === Object && Object.keys(c) == 'x'",
        ),
        ("Object.create({ inherited: 1 })", "!('inherited' in c)"),
        ("Object.create(null)", "Object.getPrototypeOf(c) === Object.prototype"),
        ("({ get a() { return 1 } })", "Object.getOwnPropertyDescriptor(c, 'a').value === 1"),
        ("({ [Symbol()]: 1, b: 2 })", "Reflect.ownKeys(c) == 'b'"),
        ("Object.defineProperty({}, 'hidden', { value: 1 })", "!('hidden' in c)"),
        ('JSON.parse(\'{"__proto__":{"a":1}}\')', "Object.hasOwn(c, '__proto__') && c.a === undefined"),
        ("Object.freeze({ a: Object.freeze([1]) })", "!Object.isFrozen(c) && !Object.isFrozen(c.a)"),
        (
            "new Uint8Array([1, 2, 3]).subarray(1)",
            "c.length === 2 && c[0] === 2 && c.byteOffset === 1 && c.buffer.byteLength === 3",
        ),
        ("new Float16Array([1.5])", "c instanceof Float16Array && c[0] === 1.5"),
        ("new DataView(new ArrayBuffer(8), 2, 4)", "c instanceof DataView && c.byteOffset === 2 && c.byteLength === 4"),
        ("new ArrayBuffer(4, { maxByteLength: 8 })", "c.resizable && c.byteLength === 4 && c.maxByteLength === 8"),
        ("new RangeError('r')", "c instanceof RangeError && c.message === 'r' && !Object.keys(c).length"),
        (
            "Object.assign(new Error('e'), { name: 'Mine', code: 5 })",
            "c.name === 'Error' && c.message === 'e' && c.code === undefined",
        ),
        ("new Error('e', { cause: { deep: [1] } })", "c.cause.deep[0] === 1"),
        ("new Error()", "!Object.hasOwn(c, 'message') && !Object.hasOwn(c, 'cause')"),
        ("new DOMException('m', 'AbortError')", "c instanceof DOMException && c.name + c.message === 'AbortErrorm'"),
        (
            "class M extends Map { x = 1 }; new M([[1, 2]])",
            "c.constructor === Map && c.get(1) === 2 && c.x === undefined",
        ),
        ("({ [Symbol.toStringTag]: 'Map', a: 1 })", "c.a === 1 && c.constructor === Object"),
        (
            "Object.defineProperty(new Map([[1, 2]]), Symbol.toStringTag, { value: 'Other' })",
            "c instanceof Map && c.get(1) === 2",
        ),
        ("Math", "Object.keys(c).length === 0"),
    ],
)
def test_a_value_is_cloned_as_what_it_is(engine: Engine, value: str, check: str) -> None:
    source = "(() => { const v = eval(%s); const c = structuredClone(v); return (typeof v !== 'object' || c !== v) && (%s) })()"
    assert engine.eval(source % (_quote(value), check)) == "true"


def _quote(text: str) -> str:
    return "String.raw`" + text + "`"


def test_the_stack_of_an_error_is_kept(engine: Engine) -> None:
    assert engine.eval("const thrown = new Error('x'); structuredClone(thrown).stack === thrown.stack") == "true"


def test_cycles_and_shared_references_keep_their_shape(engine: Engine) -> None:
    source = """(() => {
        const shared = { s: 1 }, buffer = new ArrayBuffer(4);
        const v = { a: shared, b: [shared], m: new Map(), views: [new Uint8Array(buffer), new Uint16Array(buffer)], buffer };
        v.self = v; v.m.set(v, v.m); v.set = new Set([v.m]);
        v.error = new Error('e'); v.error.cause = v;
        const c = structuredClone(v);
        return [c.self === c, c.a === c.b[0], c.a !== shared, c.m.get(c) === c.m, c.set.has(c.m), c.views[0].buffer === c.buffer,
            c.views[1].buffer === c.buffer, c.error.cause === c];
    })()"""
    assert engine.json(source) == [True] * 8


@pytest.mark.parametrize(
    "value",
    ["() => 1", "class {}", "Symbol()", "Object(Symbol())", "new WeakMap()", "new WeakSet()", "new WeakRef({})", "Promise.resolve()",
     "new Proxy({}, {})", "new Proxy([], {})", "Proxy.revocable({}, {}).proxy", "(function* () {})()", "[].values()", "new Map().keys()",
     "(function () { return arguments })()", "new SharedArrayBuffer(1)", "new URL('http://h')", "new URLSearchParams()", "new TextEncoder()",
     "({ deep: [new Map([[1, () => 1]])] })", "new Error('e', { cause: () => 1 })", "(() => { const b = new ArrayBuffer(1); b.transfer(); return b })()"],
)  # fmt: skip
def test_what_cannot_be_cloned_is_a_data_clone_error(engine: Engine, value: str) -> None:
    assert _error_of(engine, f"structuredClone({value})") == "DataCloneError true"


def test_an_error_from_a_getter_comes_through(engine: Engine) -> None:
    assert _error_of(engine, "structuredClone({ get a() { throw new RangeError('mine') } })") == "RangeError false"


def test_depth_costs_no_stack(engine: Engine) -> None:
    source = """(() => {
        const root = {}; let at = root;
        for (let i = 0; i < 20000; i++) at = i % 3 === 0 ? (at.x = { y: 1 }) : i % 3 === 1 ? (at.x = []) : (at.x = { a: new Map() });
        let copy = structuredClone(root), depth = 0;
        while ((copy = copy.x) !== undefined) depth++;
        const nested = new Map(); let map = nested;
        for (let i = 0; i < 20000; i++) { const next = new Map(); map.set(next, [new Set([i])]); map = next; }
        return [depth, structuredClone(nested).size];
    })()"""
    assert engine.json(source) == [20000, 1]


def test_a_transferred_buffer_moves_and_its_views_follow(engine: Engine) -> None:
    source = """(() => {
        const b = new Uint8Array([1, 2, 3]).buffer, other = new ArrayBuffer(2);
        const c = structuredClone({ b, view: new Uint8Array(b, 1), other }, { transfer: [b] });
        return [b.detached, b.byteLength, c.view.buffer === c.b, [...c.view], other.detached, c.other !== other];
    })()"""
    assert engine.json(source) == [True, 0, True, [2, 3], False, True]


def test_a_failed_clone_detaches_nothing(engine: Engine) -> None:
    source = """(() => {
        const b = new ArrayBuffer(2);
        try { structuredClone([b, () => 1], { transfer: [b] }); } catch { return b.detached; }
    })()"""
    assert engine.json(source) is False


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("1, { transfer: [b, b] }", "DataCloneError true"),
        ("1, { transfer: [{}] }", "DataCloneError true"),
        ("1, { transfer: [new Uint8Array(1)] }", "DataCloneError true"),
        ("1, { transfer: [1] }", "TypeError false"),
        ("1, { transfer: 1 }", "TypeError false"),
        ("1, { transfer: {} }", "TypeError false"),
        ("1, 1", "TypeError false"),
        ("1, null", "no error"),
        ("1, { transfer: new Set([b]) }", "no error"),
        ("{ get a() { b.transfer() } }, { transfer: [b] }", "DataCloneError true"),
    ],
)
def test_the_transfer_list_is_checked(engine: Engine, arguments: str, error: str) -> None:
    assert _error_of(engine, f"const b = new ArrayBuffer(1); structuredClone({arguments})") == error


def test_a_noted_proxy_is_still_a_working_proxy(engine: Engine) -> None:
    source = """[new Proxy({}, { get: (_, key) => key }).abc, String(Proxy).includes('native code'), Proxy.name, 'prototype' in Proxy,
        Array.isArray(new Proxy([], {})), new Proxy(function () {}, { apply: () => 7 })()]"""
    assert engine.json(source) == ["abc", True, "Proxy", False, True, 7]


def test_cloning_runs_on_what_it_took_before_the_guest_broke_the_built_ins(fresh_engine: Engine) -> None:
    fresh_engine.eval(
        "var isGlobal = Object.getOwnPropertyDescriptor(RegExp.prototype, 'global').get, apply = Reflect.apply"
    )
    fresh_engine.break_prototypes("Array", "Map", "Set", "WeakSet", "Date", "RegExp", "String", "Function")
    fresh_engine.eval("Object.keys = Reflect.defineProperty = Array.isArray = null; Object.prototype.get = 1")
    fresh_engine.eval("Map = Set = Date = RegExp = ArrayBuffer = Object.defineProperty = null")
    fresh_engine.eval("var copy = structuredClone({ get: 2, list: [1, { x: /a/g, e: new Error('m') }] })")
    assert fresh_engine.eval("'' + copy.get + apply(isGlobal, copy.list[1].x, []) + copy.list[1].e.message") == "2truem"
