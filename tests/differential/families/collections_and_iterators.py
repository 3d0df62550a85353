"""Map, Set, weak collections, iterators, generators and iterator protocols."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "pairs": items("""
        [["a", 1], ["b", 2], ["a", 3]] ;; [[NaN, 1], [NaN, 2], [-0, 3], [0, 4]] ;; [] ;; [[{}, 1], [{}, 2]] ;; [[1, "n"], ["1", "s"]] ;; [["z", [1]], ["y", null]]
    """),
    "values": items(
        "[1, 2, 2, 3] ;; 'hello' ;; [NaN, NaN, 0, -0] ;; [] ;; [[1], [1]] ;; ['b', 'a'] ;; new Set([5, 6]) ;; new Map([[1, 2]])"
    ),
    "map": items("new Map(<<pairs>>)"),
    "set": items("new Set(<<values>>)"),
    "key": items("'a' ;; NaN ;; 0 ;; -0 ;; 1 ;; '1' ;; {} ;; undefined"),
    "generator": items("""
        function* () { yield 1; yield 2; return 3 } ;; function* () { try { yield 1; yield 2 } finally { out.push("closed") } } ;; function* () { const x = yield 1; yield x }
        function* () { yield* [1, 2]; const r = yield* (function* () { yield 3; return 4 })(); yield r } ;; function* () { let i = 0; while (true) yield i++ }
        function* () { yield 1; throw new RangeError("in generator") } ;; function* () { try { yield 1 } catch (e) { yield "caught " + e } } ;; function* () {}
    """),
    "n": integer(0, 4),
}

TEMPLATES = items(r"""
    <<map>>
    <<set>>
    [...<<map>>.entries()]
    [...<<map>>.keys()].map(String)
    [...<<map>>].sort((a, b) => String(a[0]).localeCompare(String(b[0])))
    Object.fromEntries(<<map>>)
    (m => [m.set(<<key>>, "new") === m, m.get(<<key>>), m.has(<<key>>), m.delete(<<key>>), m.size])(<<map>>)
    (s => [s.add(<<key>>).size, s.has(<<key>>), s.delete(<<key>>), s.size])(<<set>>)
    (m => { const seen = []; m.forEach((v, k, all) => seen.push([k, v, all === m])); return seen })(<<map>>)
    (m => { const seen = []; for (const [k, v] of m) { seen.push(k); if (m.size < 6) m.set("x" + m.size, v) } return seen })(<<map>>)
    (s => { for (const x of s) s.delete(x); return s.size })(<<set>>)
    new Map([...<<map>>].map(([k, v]) => [v, k]))
    new Set([...<<set>>].filter((x) => x))
    [...new Set([...<<set>>, ...<<set>>])]
    [<<map>>.size, <<set>>.size, String(<<map>>), JSON.stringify(<<set>>), Object.keys(<<map>>)]
    new Map(<<values>>)
    new Set(<<n>>)
    new WeakMap([[{}, 1]]).has({})
    (k => new WeakMap([[k, 5]]).get(k))({})
    new WeakSet([1])
    ((g) => { const seen = []; for (const x of g) if (seen.push(x) > 2) break; return seen })((<<generator>>)())
    ((g) => [g.next("a"), g.next("b"), g.next("c"), g.next("d")])((<<generator>>)())
    ((g) => [g.next(), g.return(9), g.next()])((<<generator>>)())
    ((g) => { const r = [g.next()]; try { r.push(g.throw(new Error("in"))) } catch (e) { r.push(e.name) } return [r, g.next()] })((<<generator>>)())
    (([a, b] = []) => [a, b])((<<generator>>)())
    ((g) => { for (const x of g) { if (x === 1) break } return g.next() })((<<generator>>)())
    Array.from({ *[Symbol.iterator]() { yield* <<values>> } })
    Math.max(...new Set([3, 1]))
    [...<<values>>]
    [...(function* (n) { for (let i = 0; i < n; i++) yield i ** 2 })(<<n>>)]
    ((it) => [it.next(), it.next(), it[Symbol.toStringTag], it[Symbol.iterator]() === it])([1][Symbol.iterator]())
    ((it) => [it.next(), it[Symbol.toStringTag]])(<<map>>[Symbol.iterator]())
    ((it) => [...it, ...it])(<<set>>.values())
    Object.fromEntries(Object.entries({ a: 1, b: 2 }).filter(([, v]) => v > 1))
    ({ from: 1, to: 3, [Symbol.iterator]() { let c = this.from, t = this.to; return { next: () => (c <= t ? { value: c++, done: false } : { value: undefined, done: true }) } } })[Symbol.iterator]().next()
    [...{ [Symbol.iterator]: () => ({ next: () => ({ done: true }) }) }]
    [...5]
    [...{}]
    new Map([1, 2])
    ((m) => { for (const w of "the cat the dog a cat".split(" ")) m.set(w, (m.get(w) ?? 0) + 1); return [...m].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])) })(new Map())
    (function* () {})().toString()
    Object.prototype.toString.call(<<map>>)
    (await (async () => { const seen = []; for await (const x of (async function* () { yield 1; yield Promise.resolve(2); yield* [3] })()) seen.push(x); return seen })())
    (await (async () => { const seen = []; for await (const x of [Promise.resolve("a"), "b"]) seen.push(x); return seen })())
    ((g) => [typeof g.next, g instanceof Object, Object.keys(g)])((function* () { yield 1 })())
    (function () { return [...arguments].map((x) => x * 2) })(1, 2, 3)
    (() => { const [first, , third = "d", ...rest] = new Set([1, 2]); return [first, third, rest] })()
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
