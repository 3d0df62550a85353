"""Proxy, Reflect, property descriptors, getters and setters, symbols of the language, and its own functions."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "target": items(
        "{ a: 1, b: 2 } ;; [1, 2, 3] ;; function f(x) { return x } ;; class T { constructor(v) { this.v = v } } ;; new Map([['k', 1]]) ;; Object.freeze({ z: 1 }) ;; {}"
    ),
    "handler": items("""
        {} ;; { get: (t, k, r) => (k in t ? Reflect.get(t, k, r) : "default " + String(k)) } ;; { set(t, k, v) { t[k] = v * 2; return true } } ;; { has: () => true } ;; { deleteProperty: () => false }
        { ownKeys: () => ["x", "y"], getOwnPropertyDescriptor: () => ({ value: 5, enumerable: true, configurable: true }) } ;; { apply: (t, self, args) => "called " + args } ;; { construct: (t, args) => ({ made: args }) }
        { get: (t, k) => (typeof k === "symbol" ? t[k] : k.toUpperCase()) } ;; { getPrototypeOf: () => Array.prototype } ;; { set: () => false } ;; { get: (t, k) => (k === Symbol.toPrimitive ? () => 42 : t[k]) }
    """),
    "p": items("new Proxy(<<target>>, <<handler>>)"),
    "key": items("'a' ;; 'missing' ;; 0 ;; 'length' ;; 'v' ;; Symbol.iterator"),
    "n": integer(0, 4),
    "builtin": items(
        "Array.prototype.map ;; String.prototype.replace ;; Math.max ;; JSON.parse ;; Object.keys ;; Promise ;; Date ;; RegExp ;; Math.random ;; JSON.stringify ;; parseInt ;; Number.prototype.toFixed"
    ),
}

TEMPLATES = items(r"""
    (p => p.a)(<<p>>)
    (p => p[<<key>>])(<<p>>)
    (p => { p.a = 5; return p.a })(<<p>>)
    (p => { "use strict"; p.q = 5; return "q" in p })(<<p>>)
    (p => <<key>> in p)(<<p>>)
    (p => { "use strict"; return delete p.a })(<<p>>)
    (p => Object.keys(p))(<<p>>)
    (p => ({ ...p }))(<<p>>)
    (p => JSON.stringify(p))(<<p>>)
    (p => p(<<n>>))(<<p>>)
    (p => new p(<<n>>))(<<p>>)
    (p => [Array.isArray(p), typeof p, p instanceof Array])(<<p>>)
    (p => { const seen = []; for (const k in p) seen.push(k); return seen })(<<p>>)
    (p => [...p])(<<p>>)
    (p => p.get?.("k"))(<<p>>)
    (p => Reflect.ownKeys(p).map(String).filter((name) => name !== "arguments" && name !== "caller").sort())(<<p>>)
    (({ proxy, revoke }) => { revoke(); return proxy.a })(Proxy.revocable({}, {}))
    Reflect.ownKeys({ b: 1, 2: 1, a: 1, 1: 1, [Symbol("s")]: 1 }).map(String)
    Reflect.has(<<target>>, <<key>>)
    Reflect.get({ get x() { return this.y } }, "x", { y: 7 })
    Reflect.set(Object.freeze({ a: 1 }), "a", 2)
    Reflect.apply(Math.max, null, [1, <<n>>])
    Reflect.construct(Date, [0]).getTime()
    Reflect.defineProperty({}, "x", { value: 1 })
    Reflect.getPrototypeOf([]) === Array.prototype
    Object.getOwnPropertyDescriptor({ get a() { return 1 } }, "a")
    (d => [d.writable, d.enumerable, d.configurable, typeof d.value])(Object.getOwnPropertyDescriptor(<<builtin>>, "name"))
    (d => [d.writable, d.enumerable, d.configurable, d.value])(Object.getOwnPropertyDescriptor(<<builtin>>, "length"))
    [<<builtin>>.name, <<builtin>>.length, typeof <<builtin>>]
    Object.isExtensible(<<builtin>>)
    Object.isFrozen(<<builtin>>)
    (f => { f.extra = 1; const ok = f.extra === 1; delete f.extra; return ok })(<<builtin>>)
    (o => { Object.defineProperty(o, "x", { get() { return 5 }, configurable: true }); o.x = 6; return [o.x, Object.keys(o)] })({})
    (o => { "use strict"; Object.defineProperty(o, "x", { value: 1 }); o.x = 2 })({})
    (o => { Object.preventExtensions(o); o.b = 1; return [o.b, Object.isExtensible(o)] })({ a: 1 })
    (o => { Object.seal(o); delete o.a; o.a = 9; return [o.a, Object.isSealed(o)] })({ a: 1 })
    (o => { "use strict"; Object.freeze(o); try { o.a.b = 2; o.a = 1 } catch (e) { return [e.name, o.a.b] } })({ a: {} })
    Object.getOwnPropertyNames("ab")
    Object.entries(Object.getOwnPropertyDescriptors({ a: 1, get b() { return 2 } })).map(([k, d]) => [k, "value" in d])
    Object.setPrototypeOf({ own: 1 }, { inherited: 2 }).inherited
    Object.create({ x: 1 }).x
    ({ __proto__: { y: 2 } }).y
    [1, 2] instanceof Object
    ({ [Symbol.hasInstance]: () => true })[Symbol.hasInstance]()
    5 instanceof { [Symbol.hasInstance]: (x) => x === 5 }
    [].concat({ length: 1, 0: "spread", [Symbol.isConcatSpreadable]: true })
    Object.prototype.toString.call({ [Symbol.toStringTag]: "Custom" })
    Object.prototype.toString.call(null)
    "a-b".split({ [Symbol.split]: (s) => s.length })
    "a".replace({ [Symbol.replace]: (s, r) => s + r }, "z")
    (function () {}).constructor("return <<n>>")()
    (function (a, b = 1, ...c) {}).length
    ((a) => a).bind(null, 1)()
    (function () { return this.x }).call({ x: <<n>> })
    (function () { return [].slice.call(arguments) }).apply(null, [1, 2])
    (function f(a) { return a }).toString()
    ((a, b) => a + b).toString()
    (class A { m() {} }).toString()
    new (function () { this.a = 1 })()
    (() => { const handler = { get: (t, k) => (k === "then" ? undefined : (...args) => [k, ...args]) }; return new Proxy({}, handler).anyMethod(<<n>>) })()
    (() => { const log = []; const o = new Proxy({ a: { b: 1 } }, { get: (t, k) => (log.push(k), t[k]) }); o.a.b; return log })()
    (() => { let validated; const o = new Proxy({}, { set(t, k, v) { if (typeof v !== "number") throw new TypeError("number"); t[k] = v; return true } }); o.x = 1; try { o.y = "s" } catch (e) { validated = e.message } return [o.x, validated] })()
    new WeakRef({ a: <<n>> }).deref()
    (() => { const r = new WeakRef({ a: 1 }); return [r.deref() === r.deref(), String(r)] })()
    new WeakRef(5)
    typeof new FinalizationRegistry(() => {}).register
    (() => { globalThis.leaked = 5; const seen = typeof leaked; delete globalThis.leaked; return [seen, typeof leaked] })()
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
