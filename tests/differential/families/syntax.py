"""Statements and expressions: destructuring, spread, optional chaining, labels, closures, hoisting, tagged templates."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "value": items("""
        { a: 1, b: { c: [1, 2, { d: "x" }] }, f() { return this.a } } ;; null ;; undefined ;; [1, [2, 3], { k: 4 }] ;; "text" ;; 0 ;; { a: null, b: undefined } ;; { "x-y": 1, 5: 2 }
        new Map([["k", 1]]) ;; () => ({ a: 2 }) ;; true ;; [undefined, null]
    """),
    "n": integer(0, 6),
    "tag": items(
        "String.raw ;; (s, ...v) => [s, s.raw, v] ;; (s, ...v) => s.map((x, i) => x + (v[i] ?? '')).join('') ;; (s) => s.length ;; (s) => Object.isFrozen(s)"
    ),
    "pattern": items("""
        { a } ;; { a = 9 } ;; { a: x, ...rest } ;; { b: { c: [, second = 8] = [] } = {} } ;; [p, , q = 7] ;; [...all] ;; { length } ;; { ["a" + ""]: v } ;; [[deep] = [1]] ;; { a: [z] = [3] }
    """),
}

TEMPLATES = items(r"""
    (v => v?.a)(<<value>>)
    (v => v?.b?.c?.[2]?.d ?? "none")(<<value>>)
    (v => v?.f?.())(<<value>>)
    (v => v?.["x-y"])(<<value>>)
    (v => v.b.c)(<<value>>)
    (v => v?.())(<<value>>)
    (v => { const <<pattern>> = v; return typeof a === "undefined" ? (typeof rest === "undefined" ? "ok" : rest) : a })(<<value>>)
    ((<<pattern>>) => 1)(<<value>>)
    ((<<pattern>> = { a: 5 }, n = 2) => n)(<<value>>)
    (v => [...(v ?? [])])(<<value>>)
    (v => ({ ...v, extra: 1 }))(<<value>>)
    (v => Math.max(...(Array.isArray(v) ? [v.length] : [0]), <<n>>))(<<value>>)
    (v => { delete v?.a; return v })(<<value>>)
    <<tag>>`a${<<n>>}b\n${"c"}\u0041`
    (() => { outer: for (let i = 0; i < 5; i++) { for (let j = 0; j < 5; j++) { if (j === <<n>>) continue outer; if (i === 3) break outer; out.push } } return "done" })()
    (() => { let s = ""; outer: for (const a of "abc") { for (const b of "xyz") { if (b === "y") continue outer; s += a + b } } return s })()
    (() => { const fs = []; for (let i = 0; i < 3; i++) fs.push(() => i); return fs.map((f) => f()) })()
    (() => { const fs = []; for (var i = 0; i < 3; i++) fs.push(() => i); return fs.map((f) => f()) })()
    (() => { switch (<<n>>) { case 0: return "zero"; case 1: case 2: return "few"; default: return "many" } })()
    (() => { let r = []; switch (<<n>>) { case 1: r.push(1); case 2: r.push(2); break; default: r.push("d"); case 3: r.push(3) } return r })()
    (() => { try { return "try" } finally { out.push("finally") } })()
    (() => { try { throw <<n>> } catch (e) { return ["caught", e] } finally { out.push("f") } })()
    (() => { for (const x of [1, 2]) { try { continue } finally { out.push("loop " + x) } } return "end" })()
    (() => { const f = () => { try { return 1 } finally { return 2 } }; return f() })()
    (() => { var x = 1; { var x = 2; let y = 3 } return [x, typeof y] })()
    (() => { if (true) { function inner() { return 1 } } return typeof inner })()
    (() => { { function f() { return 1 } } { function f() { return 2 } } return f() })()
    (() => { return typeof later; function later() {} })()
    (() => { return typeof later; var later = 1 })()
    (() => { try { return later } catch (e) { return e.name } let later = 1 })()
    typeof undeclaredName
    (() => { try { undeclaredName } catch (e) { return e.name } })()
    (() => { try { const c = 1; c = 2 } catch (e) { return e.name } })()
    (function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) })(<<n>>)
    ((a, b = a * 2, ...rest) => [a, b, rest])(<<n>>)
    (function () { return arguments.length })(1, ...[2, 3], ...new Set([4]))
    (function (a) { arguments[0] = 9; return a })(1)
    (function (a) { "use strict"; arguments[0] = 9; return a })(1)
    ((a, b) => {}).length + ((a = 1, b) => {}).length + ((...a) => {}).length
    [(() => {}).name, (function () {}).name, ({ m() {} }).m.name, (class {}).name, ({ a: () => {} }).a.name, ({ ["x" + 1]: () => {} }).x1.name]
    (function () { return typeof this })()
    (function () { "use strict"; return typeof this })()
    (() => { let a = 1, b = 2; [a, b] = [b, a]; return [a, b] })()
    (() => { let o = {}; [o.x, o["y"]] = [1, 2]; ({ a: o.z = 5 } = {}); return o })()
    [1 < 2 < 3, 3 > 2 > 1, "b" > "a", null >= 0, undefined == null, NaN != NaN, [] + {}, [] == false, "5" * "2", "5" + 2, +true, -"", !!"0", void 0]
    [typeof null, typeof NaN, typeof (() => 1), typeof Symbol(), typeof 1n, typeof class {}, typeof new Date()]
    [7 % -3, -7 % 3, 5 / 0, 2 ** -1, 1 << 31, -1 >>> 0, ~5, 5 & 3, 5 | 3, 5 ^ 3]
    (() => { const memo = new Map(); const fib = (n) => memo.get(n) ?? (memo.set(n, n < 2 ? n : fib(n - 1) + fib(n - 2)), memo.get(n)); return fib(50) })()
    ((compose) => compose((x) => x + 1, (x) => x * 2)(<<n>>))((...fs) => (x) => fs.reduceRight((v, f) => f(v), x))
    (() => { const counter = (() => { let c = 0; return { up: () => ++c, get value() { return c } } })(); counter.up(); counter.up(); return counter.value })()
    (() => { const curry = (f) => (a) => (b) => f(a, b); return curry(Math.pow)(2)(<<n>>) })()
    (() => { label: { if (<<n>> > 2) break label; return "small" } return "large" })()
    (() => { let i = 0; do { i += 2 } while (i < <<n>>); return i })()
    (() => { let s = 0; for (let i = 10; i--; ) { if (i % 2) continue; s += i } return s })()
    (() => { var r = []; for (const k in { b: 1, a: 2, 1: 3, 0: 4 }) r.push(k); return r })()
    (() => { const o = { get a() { out.push("got"); return 1 } }; const { a, a: b } = o; return [a, b] })()
    (() => { const date = "2026-03-05"; const [, y, m, d] = /(\d+)-(\d+)-(\d+)/.exec(date); return { y: +y, m: +m, d: +d } })()
    (() => { eval("var fromEval = 3"); return typeof fromEval })()
    new Function("a", "b", "return a + b")(<<n>>, 2)
    (0, eval)("1 + 1")
    ((x) => { with (x) { return y } })({ y: 4 })
    (() => { const a = [3, 1, 2]; const b = a.sort(); return a === b })()
    (await Promise.all([1, 2, 3].map(async (x) => x * <<n>>)))
    [..."ab"].map((c) => c.charCodeAt()).reduce((a, b) => a + b)
    ((x) => (x > 3 ? "big" : x > 1 ? "mid" : "low"))(<<n>>)
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
