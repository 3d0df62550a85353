"""Programs that try to compute, take or recurse without end: each ends with the right reason, and the next is right."""

from __future__ import annotations

import time

import pytest
from guest_harness import LOW, MIB, Cell, Told, ok

from codemode_mcp.sandbox import guest as sandbox_guest
from tests.sandbox.conftest import OpenCell, RunCode

IN_TIME = 5.0
"""Seconds of processor time. A program is stopped 1.5 s after its deadline at the latest."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the engine's own check time to end a program, on a machine that seldom runs this process."""
    monkeypatch.setattr(sandbox_guest, "EPOCH_GRACE_SECONDS", 2 * IN_TIME)
    monkeypatch.setattr(sandbox_guest, "COLLECT_SECONDS", 2 * IN_TIME)


def ends_in_time(run: RunCode, code: str) -> Told:
    """Return the end of a program that had 50 ms. Check that another guest works afterwards."""
    began = time.process_time()
    told = run(f'text("before"); {code}', seconds=0.05)
    assert time.process_time() - began < IN_TIME
    assert run("return 1 + 1").value == 2
    return told


# time

LOOPS = {
    "a comma in while": "while (1, true);",
    "a setter": "({ set a(v) { for (;;); } }).a = 1",
    "a computed key": "({ [(() => { for (;;); })()]: 1 })",
    "a default parameter": "((a = (() => { for (;;); })()) => a)()",
    "a static block": "class A { static { for (;;); } }",
    "a class field": "new (class { a = (() => { for (;;); })() })",
    "a tagged template": "(() => { for (;;); })`a`",
    "a constructor": "Reflect.construct(function () { for (;;); }, [])",
    "Function": 'new Function("for (;;);")()',
    "instanceof": "1 instanceof { [Symbol.hasInstance]() { for (;;); } }",
    "with": 'new Function("o", "with (o) { x }")(new Proxy({}, { has() { for (;;); } }))',
    "using": "{ using a = { [Symbol.dispose]() { for (;;); } }; }",
    "toPrimitive": "+{ [Symbol.toPrimitive]() { for (;;); } }",
    "toString in a template": "console.log(`${{ toString() { for (;;); } }}`)",
    "the tag of what is printed": "console.log({ get [Symbol.toStringTag]() { for (;;); } })",
    "the message of what is printed": (
        "console.log(Object.defineProperty(new Error(), 'message', { get() { for (;;); } }))"
    ),
    "the name of what is printed": "console.log(Object.defineProperty(new Error(), 'name', { get() { for (;;); } }))",
    "toJSON of json()": "json({ toJSON() { for (;;); } })",
    "toJSON of an argument": "await MCP.files.readFile({ a: { toJSON() { for (;;); } } })",
    "toJSON of store()": "store('k', { toJSON() { for (;;); } })",
    "the reason of yield_control": "yield_control({ toString() { for (;;); } })",
    "get of a returned proxy": "return new Proxy({ a: 1 }, { get() { for (;;); } })",
    "descriptors of a returned proxy": "return new Proxy({ a: 1 }, { getOwnPropertyDescriptor() { for (;;); } })",
    "an iterator": "for (const x of { [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) });",
    "an iterator that is spread": "Math.max(...{ [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) })",
    "an iterator that is destructured": "const [...a] = { *[Symbol.iterator]() { for (;;); } }",
    "Array.from": "Array.from({ length: 1 }, () => { for (;;); })",
    "reduce": "[1, 2].reduce(() => { for (;;); })",
    "a comparator": "[2, 1].sort(() => { for (;;); })",
    "an iterator helper": "Iterator.from({ next: () => ({ done: false }) }).filter(() => false).next()",
    "groupBy": "Object.groupBy([1], () => { for (;;); })",
    "a species": "class A extends Array { static get [Symbol.species]() { for (;;); } } new A(3).map((x) => x)",
    "isConcatSpreadable": "[].concat({ get [Symbol.isConcatSpreadable]() { for (;;); } })",
    "a reviver": "JSON.parse('[1]', () => { for (;;); })",
    "a replacer": "JSON.stringify([1], () => { for (;;); })",
    "a replace callback": "'a'.replace('a', () => { for (;;); })",
    "a replaceAll callback": "'a'.replaceAll(/a/g, () => { for (;;); })",
    "a lookahead": "/^(?=(a+)+$)b/.test('a'.repeat(60) + 'b')",
    "a back reference": r"/^(a+)+\1$/.test('a'.repeat(60) + 'b')",
    "split by an expression": "('a'.repeat(60) + 'b').split(/^(a+)+$/)",
    "a quadratic expression": "/a*a*a*a*c/.test('a'.repeat(1e6))",
    "structuredClone": "structuredClone({ get a() { for (;;); } })",
    "prepareStackTrace": "Error.prepareStackTrace = () => { for (;;); }; for (;;) try { null.x } catch {}",
    "an async generator": "async function* g() { for (;;) yield 1 } for await (const x of g());",
    "Array.fromAsync": "await Array.fromAsync({ async *[Symbol.asyncIterator]() { for (;;) yield 1 } })",
    "awaiting the same promise": "const p = Promise.resolve(1); for (;;) await p",
    "a loop that swallows all": "for (;;) try { for (;;); } catch {}",
    "finally that continues": "for (;;) { try { for (;;); } finally { continue } }",
    "finally that returns": "const f = () => { try { for (;;); } finally { return 1 } }; for (;;) f()",
    "async functions that are caught": "const f = async () => { for (;;); }; for (;;) await f().catch(() => {})",
    "allSettled": "for (;;) await Promise.allSettled([1].map(async () => { for (;;); }))",
    "promise constructors that are caught": (
        "const f = () => new Promise(() => { for (;;); }).catch(f); for (;;) await f()"
    ),
    "thenables": "for (;;) await { then() { for (;;); } }",
    "finally of a generator": "function* g() { try { yield 1 } finally { for (;;); } } for (const x of g()) break",
    "a generator that cannot be ended": (
        "function* g() { for (;;) try { yield 1 } finally { continue } } const i = g(); i.next(); for (;;) i.return()"
    ),
    "return of an iterator": (
        "for (;;) { try { for (const x of { [Symbol.iterator]: () => ({ next: () => ({}), return() { for (;;); } }) })"
        " break } catch {} }"
    ),
    "then of all objects": "Object.defineProperty(Object.prototype, 'then', { get() { for (;;); } }); await {}",
    "toJSON of all objects": "Object.prototype.toJSON = () => { for (;;); }; json({})",
    "values nested exponentially": "let a = 1; for (let i = 0; i < 90; i++) a = [a, a]; return a",
    "a sparse array": "const a = []; a.length = 2 ** 32 - 1; return a",
    "prototypes a for-in walks": (
        "let p = {}; for (let i = 0; i < 3e4; i++) { p = Object.create(p); p['k' + i] = 1 } for (const k in p);"
    ),
}
"""JavaScript's own loops, which the engine's interrupt check ends."""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("code", LOOPS.values(), ids=LOOPS.keys())
def test_an_endless_loop_is_stopped_wherever_it_is(run: RunCode, code: str) -> None:
    told = ends_in_time(run, code)
    assert told.stopped == "time", told.turn
    assert told.texts == ["before"]


NATIVE = {
    "indexOf": "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "reverse": "Array.prototype.reverse.call({ length: 2 ** 53 - 1 })",
    "sort": "Array.prototype.sort.call({ length: 2 ** 53 - 1 })",
    "splice": "Array.prototype.splice.call({ length: 2 ** 53 - 1 }, 0, 1)",
    "join": "new Array(2 ** 32 - 1).join('')",
    "flat": "new Array(2 ** 32 - 1).flat()",
    "concat": "[].concat(new Array(2 ** 32 - 1), new Array(2 ** 32 - 1))",
    "a native callback": "Array.prototype.every.call({ length: 2 ** 53 - 1 }, Boolean.bind(null, 1))",
    "drop of an iterator": "Array.prototype.values.call({ length: 2 ** 53 - 1 }).drop(2 ** 52).next()",
    "String.raw": "String.raw({ raw: { length: 2 ** 53 - 1 } })",
    "a power of a bigint": "for (;;) 3n ** 500_000n",
    "products of bigints": "let a = 3n ** 100_000n; for (;;) a = (a * a) % 7n ** 100_000n",
    "digits of a bigint": "for (;;) (2n ** 1_000_000n).toString()",
    "a bigint that is returned": "return 2n ** 1_000_000n * 3n ** 10_000n",
    "searching a string": "const s = 'a'.repeat(2e6); for (;;) s.includes('a'.repeat(1e6) + 'b')",
    "replacing in a string": "const s = 'a'.repeat(2e6); for (;;) s.replaceAll('a'.repeat(1e6) + 'b', '')",
    "normalizing": "('a' + '\\u0323\\u0307'.repeat(1e6)).normalize('NFC')",
    "sorting equal strings": (
        "const s = Array.from({ length: 200 }, (_, i) => 'a'.repeat(1e5) + i); for (;;) s.sort()"
    ),
    "a typed array": "const a = new Uint8Array(3e7); for (;;) a.reverse()",
    "compiling many variables": ("new Function(Array.from({ length: 1e5 }, (_, i) => 'let a' + i).join(';'))"),
    "keys of a proxy": (
        "const k = Array.from({ length: 1e5 }, (_, i) => 'k' + i); Object.keys(new Proxy({}, { ownKeys: () => k }))"
    ),
}
"""The engine's own loops, some of which never ask: the epoch ends those, here a tenth of a second later."""


@pytest.mark.parametrize("code", NATIVE.values(), ids=NATIVE.keys())
def test_a_native_loop_is_stopped_too(run: RunCode, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_guest, "EPOCH_GRACE_SECONDS", 0.1)
    told = ends_in_time(run, code)
    assert told.stopped == "time", told.turn
    assert told.texts == ["before"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("timer", ["setTimeout", "setInterval"])
def test_a_loop_in_a_timer_is_stopped(cell: OpenCell, timer: str) -> None:
    guest = cell()
    guest.start(f"{timer}(() => {{ text('in it'); for (;;); }}, 1); await new Promise(() => {{}})")
    told = guest.deliver(ok(1), seconds=0.05)
    assert (told.stopped, told.texts) == ("time", ["in it"])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "end", ["await MCP.files.readFile({}); for (;;);", "MCP.files.readFile({}).then(() => { for (;;); })"]
)
def test_a_loop_after_a_call_is_stopped(cell: OpenCell, end: str) -> None:
    guest = cell()
    guest.start(end)
    assert guest.deliver(ok(1), seconds=0.05).stopped == "time"


# memory

BOMBS = {
    "pushing": "const kept = []; for (;;) kept.push(1)",
    "templates": "let s = 'x'; for (;;) s = `${s}${s}`",
    "replaceAll": "let s = 'a'; for (;;) s = s.replaceAll('a', 'aa')",
    "padEnd": "'x'.padEnd(2 ** 28, 'ab')",
    "join": "new Array(2 ** 20).fill('x'.repeat(1000)).join()",
    "fill": "Array(1e9).fill(0)",
    "spread": "[...Array(1e9)]",
    "Array.from": "Array.from({ length: 1e8 }, () => ({}))",
    "flat": "let a = [1]; for (let i = 0; i < 40; i++) a = [a, a].flat()",
    "concat": "let a = [1]; for (;;) a = a.concat(a)",
    "toSorted": "new Array(2 ** 28).toSorted()",
    "split": "'x'.repeat(5e6).split('')",
    "matchAll": "[...'x'.repeat(5e6).matchAll(/x/g)]",
    "small buffers": "const kept = []; for (;;) kept.push(new ArrayBuffer(8))",
    "a buffer that is resized": "new ArrayBuffer(8, { maxByteLength: 2 ** 30 }).resize(2 ** 30)",
    "a buffer that is transferred": "let b = new ArrayBuffer(1024); for (let n = 1024; ; n *= 2) b = b.transfer(n)",
    "a set": "const kept = new Set(); for (let i = 0; ; i++) kept.add('k' + i)",
    "a weak map": "const kept = [], m = new WeakMap(); for (;;) { kept.push({}); m.set(kept.at(-1), {}) }",
    "bigints": "const kept = []; for (let i = 0n; ; i++) kept.push((1n << 1000n) + i)",
    "symbols": "const kept = []; for (;;) kept.push(Symbol('x'.repeat(10)))",
    "functions": "const kept = []; for (let i = 0; ; i++) kept.push(new Function('return ' + i))",
    "template objects": "const kept = []; for (let i = 0; ; i++) kept.push(eval('((x) => x)`' + i + '`'))",
    "classes": "let A = class {}; for (;;) A = class extends A {}",
    "bound functions": "let f = () => 1; for (;;) f = f.bind(null)",
    "proxies": "let p = {}; for (;;) p = new Proxy(p, {})",
    "a linked list": "let a = null; for (;;) a = { a }",
    "members": "const o = {}; for (let i = 0; ; i++) o['key' + i] = i",
    "generators": "const kept = []; for (;;) kept.push((function* () { yield 1 })())",
    "errors": "let e; for (;;) e = new Error('x', { cause: e })",
    "a chain of promises": "let p = Promise.resolve(); for (;;) p = p.then(() => 1)",
    "rejections": "const kept = []; for (;;) kept.push(Promise.reject(new Error('x'.repeat(1000))))",
    "async callbacks": "const kept = []; for (;;) kept.push(Promise.all([1, 2].map(async (x) => { await x })))",
    "the stack of an expression": "/(a|b)*c/.test('ab'.repeat(3e6))",
    "JSON.parse": "JSON.parse('[' + '{\"a\":1},'.repeat(3e5) + '1]')",
    "JSON.stringify": "JSON.stringify(new Array(1000).fill('x'.repeat(1e6)))",
    "structuredClone": "const a = new Array(1e5).fill(1), kept = []; for (;;) kept.push(structuredClone(a))",
    "an argument": "await MCP.files.readFile({ a: 'x'.repeat(9e6) })",
    "source text": "eval('\"' + 'x'.repeat(9e6) + '\"')",
    "finally": "const kept = []; try { for (;;) kept.push(new Array(1e5).fill(0)) } finally { kept.push(1) }",
    "after it was caught": (
        "const kept = []; try { for (;;) kept.push(new Array(1e4)) } catch {} for (;;) kept.push({})"
    ),
}


@pytest.mark.parametrize("code", BOMBS.values(), ids=BOMBS.keys())
def test_taking_memory_without_end_is_told(run: RunCode, code: str) -> None:
    told = run(code, memory_limit=8 * MIB, seconds=20)
    assert told.out_of_memory, told.turn
    assert run("return 1 + 1").value == 2


@pytest.mark.parametrize(
    "code",
    [
        "const f = async () => { await 1 }; for (;;) f()",
        "let a = null; const f = async (x) => { await x }; for (;;) a = f(a)",
    ],
    ids=["alone", "in a chain"],
)
def test_async_functions_without_memory_are_contained(run: RunCode, code: str) -> None:
    # Short of memory the engine frees parts of an async function twice: it may trap, or be lost in its own allocator.
    # Which of them, and whether it gets as far as saying so, depends on where in memory things lie.
    told = run(code, memory_limit=16 * MIB, seconds=1)
    assert told.out_of_memory or told.stopped == "time", told.turn
    assert run("return 1 + 1").value == 2


SURVIVED = {
    "arrays": "const kept = []; for (;;) kept.push(new Array(1e5).fill(0))",
    "a string": "let s = 'x'; for (;;) s = `${s}${s}`.slice(1) + 'xy'",
    "a buffer": "new ArrayBuffer(2 ** 30)",
    "a buffer that is resized": "new ArrayBuffer(8, { maxByteLength: 2 ** 30 }).resize(2 ** 30)",
    "an expression": "/(a|b)*c/.test('ab'.repeat(3e6))",
    "JSON.parse": "JSON.parse('[' + '{\"a\":1},'.repeat(3e5) + '1]')",
    "structuredClone": "structuredClone(new Array(1000).fill(0).map(() => 'x'.repeat(1e5)))",
}


@pytest.mark.parametrize("code", SURVIVED.values(), ids=SURVIVED.keys())
def test_a_program_survives_the_end_of_its_memory(cell: OpenCell, code: str) -> None:
    guest = cell(memory_limit=16 * MIB)
    told = guest.start(
        f"let caught; try {{ (() => {{ {code} }})() }} catch (error) {{ caught = error?.message ?? null }}"
        "text('survived'); const given = await MCP.files.readFile({ a: 'x'.repeat(1e5) });"
        "return [caught, given, Array.from({ length: 1e4 }, (_, i) => ({ i })).length, /a+/.exec('baab')[0]]",
        seconds=20,
    )
    assert told.texts == ["survived"]
    caught, *rest = guest.deliver(ok(told.requests[0].id, "given")).value
    # With nothing left to make an error of, the engine throws null.
    assert caught in {"out of memory", "out of memory in regexp execution", None}
    assert rest == ["given", 10_000, "aa"]


ORDINARY = {
    "a length": ("new Array(-1)", "RangeError"),
    "a length set": ("const a = []; a.length = 2 ** 32", "RangeError"),
    "a negative repeat": ("'x'.repeat(-1)", "RangeError"),
    "a string too long": ("'x'.repeat(2 ** 31)", "RangeError"),
    "a buffer's length": ("new ArrayBuffer(-1)", "RangeError"),
    "a buffer too long": ("new ArrayBuffer(2 ** 53)", "RangeError"),
    "a string that is doubled": ("let s = 'x'; for (;;) s += s", "InternalError"),
    "a bigint too large": ("2n ** 10_000_000n", "RangeError"),
    "a shift too far": ("1n << 100_000_000n", "RangeError"),
    "arguments that are spread": ("Math.max(...Array(1e6))", "RangeError"),
    "arguments that are applied": ("Math.max.apply(null, Array(1e6))", "RangeError"),
    "arguments that are pushed": ("[].push(...Array(1e6))", "RangeError"),
    "timers": ("for (;;) setTimeout(() => {}, 1e6)", "RangeError"),
}


@pytest.mark.parametrize(("code", "name"), ORDINARY.values(), ids=ORDINARY.keys())
def test_what_can_never_be_is_an_ordinary_error(run: RunCode, code: str, name: str) -> None:
    told = run(f"try {{ {code} }} catch (error) {{ return error.name }}")
    assert told.value == name
    uncaught = run(code)
    assert not uncaught.out_of_memory
    assert uncaught.report is not None
    assert uncaught.report.error is not None
    assert uncaught.report.error.name == name


def test_memory_that_is_given_back_can_be_used_again(run: RunCode) -> None:
    told = run("let n = 0; for (let i = 0; i < 2000; i++) n += new Uint8Array(1e6).length; return n", seconds=20)
    assert told.value == 2_000_000_000
    told = run("let n = 0; for (let i = 0; i < 1e5; i++) { const a = { b: new Array(100) }; a.a = a; n++ } return n")
    assert told.value == 100_000


# stack

RECURSION = {
    "arguments and locals": (
        "function f(a, b, c, d) { const e = a + b, g = [c, d]; return 1 + f(e, b, g, d) } f(1, 2, 3, 4)"
    ),
    "has of a proxy": "const p = new Proxy({}, { has(t, k) { return k in p } }); 'a' in p",
    "apply of a proxy": "const p = new Proxy(() => 1, { apply: () => p() }); p()",
    "construct of a proxy": "const p = new Proxy(class {}, { construct: () => new p() }); new p()",
    "ownKeys of a proxy": "const p = new Proxy({}, { ownKeys: () => Object.keys(p) }); Object.keys(p)",
    "descriptor of a proxy": (
        "const p = new Proxy({}, { getOwnPropertyDescriptor: (t, k) => Object.getOwnPropertyDescriptor(p, k) });"
        "Object.getOwnPropertyDescriptor(p, 'a')"
    ),
    "proxies of proxies, has": "let p = {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); 'a' in p",
    "proxies of proxies, set": "let p = {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); p.a = 1",
    "proxies of proxies, delete": "let p = {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); delete p.a",
    "proxies of proxies, apply": "let p = () => 1; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); p()",
    "proxies of proxies, new": "let p = class {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); new p()",
    "proxies of proxies, keys": "let p = []; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); Object.keys(p)",
    "proxies of proxies, define": (
        "let p = {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); Object.defineProperty(p, 'a', { value: 1 })"
    ),
    "proxies of proxies, freeze": "let p = {}; for (let i = 0; i < 4e4; i++) p = new Proxy(p, {}); Object.freeze(p)",
    "classes that extend": (
        "let A = class {}; for (let i = 0; i < 1e4; i++) A = class extends A { constructor() { super() } }; new A()"
    ),
    "methods above": (
        "class A { f() {} } let B = A; for (let i = 0; i < 1e4; i++) B = class extends B { f() { return "
        "super.f() } }; new B().f()"
    ),
    "a species": (
        "class A extends Array { static get [Symbol.species]() { return new A(1).map((x) => x) } } new "
        "A(1).map((x) => x)"
    ),
    "async functions": "const f = async () => { await f() }; await f()",
    "async functions with a value": "const f = async (n) => 1 + (await f(n + 1)); await f(0)",
    "promises that are resolved": "const f = () => new Promise((resolve) => resolve(f())); await f()",
    "map": "const f = () => [1].map(f); f()",
    "reduce": "const f = () => [1, 2].reduce(f); f()",
    "Array.from": "const f = () => Array.from([1], f); f()",
    "replace by an expression": "const f = () => 'a'.replace(/a/, f); f()",
    "exec": "const r = /a/; r.exec = () => r.test('a'); r.test('a')",
    "Symbol.replace": "const r = { [Symbol.replace]: () => 'a'.replace(r) }; 'a'.replace(r)",
    "tagged templates": "const f = () => f``; f()",
    "disposal": "const f = () => { using a = { [Symbol.dispose]: f } }; f()",
    "Object.assign": "const o = { get a() { return Object.assign({}, o) } }; o.a",
    "spread of a getter": "const o = { get a() { return { ...o } } }; o.a",
    "structuredClone of a getter": "const o = { get a() { return structuredClone(o) } }; structuredClone(o)",
    "next of a generator": "function* g() { yield g().next() } g().next()",
    "with": 'const f = new Function("o", "f", "with (o) { f(o, f) }"); f({}, f)',
    "a global getter": "Object.defineProperty(globalThis, 'x', { get() { return x } }); x",
    "toJSON of a date": "const d = new Date(); d.toISOString = () => JSON.stringify(d); JSON.stringify(d)",
    "the tag of an object": "const o = { get [Symbol.toStringTag]() { return String(o) } }; String(o)",
    "helpers of iterators": "let it = [1].values(); for (let i = 0; i < 2e4; i++) it = it.map((x) => x); it.next()",
    "drops of iterators": "let it = [1].values(); for (let i = 0; i < 2e4; i++) it = it.drop(0); [...it]",
    "concatenated iterators": (
        "let it = [1].values(); for (let i = 0; i < 2e4; i++) it = Iterator.concat(it); it.next()"
    ),
    "JSON.parse of what is closed": "JSON.parse('['.repeat(1e5) + ']'.repeat(1e5))",
    "a replacer": "low(() => JSON.stringify({ a: 1 }, (k, v) => ({ v })))",
    "parentheses": "eval('('.repeat(1e5) + '1' + ')'.repeat(1e5))",
    "templates": "eval('`${'.repeat(1e5) + '1' + '}`'.repeat(1e5))",
    "conditionals": "eval('1?'.repeat(1e5) + '1' + ':1'.repeat(1e5))",
    "conditionals in a row": "eval('1?1:'.repeat(1e5) + '1')",
    "typeof": "eval('typeof '.repeat(1e5) + '1')",
    "new": "eval('new '.repeat(1e5) + 'Array')",
    "if": "eval('if(1)'.repeat(1e5) + ';')",
    "else if": "eval('if(0);else '.repeat(1e5) + ';')",
    "for": "eval('for(;0;)'.repeat(1e5) + ';')",
    "try": "eval('try{'.repeat(1e5) + '}finally{}'.repeat(1e5))",
    "powers": "eval('2**'.repeat(1e5) + '1')",
    "assignments": "eval('a='.repeat(1e5) + '1')",
}


@pytest.mark.parametrize("code", RECURSION.values(), ids=RECURSION.keys())
def test_recursion_without_end_is_a_range_error_that_can_be_caught(run: RunCode, code: str) -> None:
    body = f"{LOW} try {{ {code}; return 'no error' }} catch (error) {{ return [error.name, error.message] }}"
    told = run(body, seconds=20, memory_limit=128 * MIB)
    assert told.stopped is None, told.turn
    assert told.value == ["RangeError", "Maximum call stack size exceeded"]


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("eval('()=>'.repeat(1e5) + '1')", "SyntaxError", "missing formal parameter"),
        ("eval('(' + '{a:'.repeat(1e5) + '1' + '}'.repeat(1e5) + ')')", "SyntaxError", "invalid property name"),
        ("eval('var ' + '['.repeat(1e5) + 'a' + ']'.repeat(1e5) + '=1')", "SyntaxError", "variable name expected"),
        ("new RegExp('(?:'.repeat(1e5) + ')'.repeat(1e5))", "SyntaxError", "stack overflow"),
        ("new RegExp('('.repeat(1e5) + ')'.repeat(1e5))", "SyntaxError", "too many captures"),
    ],
    ids=["arrows", "objects", "patterns", "groups", "captures"],
)
def test_some_recursion_of_the_engine_ends_with_another_error(run: RunCode, code: str, name: str, message: str) -> None:
    told = run(f"try {{ {code} }} catch (error) {{ return [error.name, error.message] }}", memory_limit=64 * MIB)
    assert told.value == [name, message]


def test_functions_bound_without_end_end_with_the_memory(run: RunCode) -> None:
    """Use up the memory with ever longer names. The rest decides whether the engine can still make an error."""
    told = run("let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); f()", memory_limit=64 * MIB)
    assert told.out_of_memory


@pytest.mark.parametrize(
    "code",
    [
        "const f = (n) => 1 + f(n + 1); f(0)",
        "class A { f() { return this.f() } } new A().f()",
        "const f = async () => { await f() }; await f()",
        "const f = (x) => [x].map(f); f(1)",
    ],
    ids=["functions", "methods", "async functions", "callbacks"],
)
def test_recursion_that_is_not_caught_has_a_name_and_frames(run: RunCode, code: str) -> None:
    told = run(code)
    assert told.stopped is None
    assert told.report is not None
    error = told.report.error
    assert error is not None
    assert (error.name, error.message) == ("RangeError", "Maximum call stack size exceeded")
    assert "at f" in error.stack


def test_a_microtask_that_recurses_or_throws_ends_nothing_else(run: RunCode) -> None:
    told = run("const f = () => f(); queueMicrotask(f); queueMicrotask(() => { throw 1 }); await 1; return 'done'")
    assert told.value == "done"
    assert told.report is not None
    assert [each.message for each in told.report.rejections] == ["Maximum call stack size exceeded", "1"]


DEPTHS = {
    "functions": "const f = (n) => (n ? 1 + f(n - 1) : 0); return f(1000)",
    "several arguments and locals": (
        "function f(n, a, b, c) { if (!n) return 0; const d = a + b, e = [c, d], g = { d, e };"
        "const rest = f(n - 1, d % 7, b, g.e[0] ?? 1); return rest + 1 } return f(1000, 1, 2, 3)"
    ),
    "methods": "class A { f(n) { return n ? 1 + this.f(n - 1) : 0 } } return new A().f(1000)",
    "destructuring": "const f = ({ n, a }, [b]) => (n ? 1 + f({ n: n - 1, a }, [b]) : 0); return f({ n: 1000 }, [1])",
    "spread": "const f = (n, ...rest) => (n ? 1 + f(n - 1, ...rest) : 0); return f(1000, 1, 2, 3)",
    "try": "const f = (n) => { try { return n ? 1 + f(n - 1) : 0 } finally { n++ } }; return f(1000)",
    "loops over entries": (
        "const f = (n) => { let s = n ? 1 : 0; for (const [k, v] of Object.entries(n ? { n } : {})) s += f(v - 1);"
        "return s }; return f(1000)"
    ),
    "constructors": "class A { constructor(n) { this.n = n ? new A(n - 1).n + 1 : 0 } } return new A(1000).n",
}

DEEP_CALLBACKS = {
    "async functions": "const f = async (n) => (n ? 1 + (await f(n - 1)) : 0); return await f(1000)",
    "async methods": (
        "class A { async f(n, a, b) { const c = a + b; return n ? 1 + (await this.f(n - 1, c, b)) : 0 } }"
        "return await new A().f(1000, 1, 2)"
    ),
    "map": "const f = (n) => (n ? 2 + [n - 1].map((m) => f(m))[0] : 0); return f(500)",
    "forEach": (
        "const f = (n) => { let s = 0; if (n) [n - 1].forEach((m) => { s = 2 + f(m) }); return s }; return f(500)"
    ),
    "reduce": "const f = (n) => (n ? [n - 1].reduce((s, m) => s + f(m), 2) : 0); return f(500)",
    "async map": "const f = async (n) => (n ? 2 + (await Promise.all([n - 1].map(f)))[0] : 0); return await f(500)",
    "generators": "function* f(n) { if (n) yield* f(n - 1); yield n } return [...f(1000)].length - 1",
}
"""Each of the callbacks counts as a call too."""


@pytest.mark.parametrize("code", DEPTHS.values(), ids=DEPTHS.keys())
def test_a_thousand_calls_deep_is_ordinary(run: RunCode, code: str) -> None:
    assert run(code).value == 1000


@pytest.mark.parametrize("code", DEEP_CALLBACKS.values(), ids=DEEP_CALLBACKS.keys())
def test_a_thousand_calls_deep_through_callbacks_and_async_is_ordinary(run: RunCode, code: str) -> None:
    assert run(code).value == 1000


LONG = {
    "promises": "let p = Promise.resolve(1); for (let i = 0; i < 1e5; i++) p = p.then((v) => v); return await p",
    "async functions": (
        "let a = 1; const f = async (x) => await x; for (let i = 0; i < 2e4; i++) a = f(a); return await a"
    ),
    "prototypes": "let p = { a: 1 }; for (let i = 0; i < 1e5; i++) p = Object.create(p); return p.a",
    "a linked list": "let a = null; for (let i = 0; i < 3e5; i++) a = { a }; a = null; return 1",
    "maps": "let a = new Map(); for (let i = 0; i < 1e5; i++) a = new Map([[1, a]]); a = null; return 1",
    "generators": (
        "function* g(x) { yield x } let a = null; for (let i = 0; i < 5e4; i++) { const b = g(a); b.next(); a = b }"
        "a = null; return 1"
    ),
    "a string": "let s = ''; for (let i = 0; i < 3e5; i++) s = 'abc' + s; return s.length - 899_999",
    "a sum": "return eval('1-1+'.repeat(2e4) + '1')",
    "members": "const o = {}; o.a = o; eval('o' + '?.a'.repeat(2e4)); return 1",
}


@pytest.mark.parametrize("code", LONG.values(), ids=LONG.keys())
def test_long_chains_need_no_stack(run: RunCode, code: str) -> None:
    assert run(code, seconds=20, memory_limit=128 * MIB).value == 1


# output


@pytest.mark.parametrize(
    "code",
    [
        "const line = 'x'.repeat(1000); for (let i = 0; i < 2e4; i++) text(line)",
        "for (let i = 0; i < 2e4; i++) text('')",
        "const line = 'x'.repeat(1e6); for (let i = 0; i < 30; i++) console.log(line)",
        "for (let i = 0; i < 2e4; i++) json([1, { a: 2 }])",
        "const block = { data: 'A'.repeat(1e5), mimeType: 'image/png' }; for (let i = 0; i < 300; i++) image(block)",
    ],
    ids=["text", "empty text", "long lines", "json", "images"],
)
def test_a_flood_of_output_leaves_the_guest_bounded(run: RunCode, code: str) -> None:
    told = run(f"{code}; return 'through'", seconds=30, memory_limit=16 * MIB, output_limit=MIB)
    assert told.value == "through"
    assert told.report is not None
    assert len(told.report.outputs) <= 10_000
    assert told.report.dropped_size > 0 or "''" in code or "json" in code
    assert told.turn.text is not None
    assert len(told.turn.text) < 2 * MIB


def test_no_guest_keeps_more_than_its_limit(cell: OpenCell) -> None:
    guest: Cell = cell(memory_limit=8 * MIB)
    told = guest.start(
        "const kept = []; try { for (;;) kept.push(new Uint8Array(1e5)) } catch { await yield_control() }"
    )
    assert told.report is not None
    assert told.report.state == "pending"
    assert len(guest.snapshot()) < 9 * MIB
