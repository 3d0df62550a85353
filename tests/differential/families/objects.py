"""Objects and JSON: members and their order, property descriptors, stringify and parse."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "object": items(r"""
        {} ;; { a: 1 } ;; { b: 2, a: 1, 10: "x", 2: "y" } ;; { a: { b: { c: [1, { d: null }] } } } ;; { get x() { return 5 } } ;; { [Symbol("s")]: 1, t: 2 }
        { u: undefined, f() {}, n: NaN, d: new Date(0), z: -0 } ;; Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true } }) ;; { toJSON() { return { j: 1 } } }
        Object.create(null) ;; { __proto__: { p: 1 }, q: 2 } ;; { ["__proto__"]: 3 } ;; { "a b": 1, "\u00e9": 2, "": 3 } ;; { toJSON: (key) => "key:" + key } ;; Object.freeze({ z: 1 })
        { m: new Map([[1, 2]]), s: new Set([1]), r: /x/g, e: new Error("bad") } ;; { list: [undefined, () => 1, Symbol("q")] } ;; { n: Object(1), s: Object("s"), b: Object(false) }
    """),
    "json": items(r"""
        '{"a":1,"b":[1,2,{"c":null}]}' ;; '[1,2,3]' ;; '"text"' ;; 'null' ;; '1e5' ;; ' { "x" : true } ' ;; '{"a":1,"a":2}' ;; '{"__proto__":1}' ;; '"\\u00e9\\n"' ;; '-0'
        '{a:1}' ;; "{'a':1}" ;; '[1,]' ;; '' ;; '01' ;; '{"a":1}}' ;; 'undefined' ;; '[1 2]' ;; '"a' ;; '\u00a01' ;; '1.' ;; '"\t"' ;; 'NaN' ;; '{"2":1,"1":2,"b":0}' ;; '123456789012345678901'
    """),
    "indent": items(
        "2 ;; 0 ;; 4 ;; 20 ;; '\\t' ;; '--' ;; null ;; undefined ;; '123456789012' ;; 1.9 ;; new Number(3)"
    ),
    "replacer": items("""
        null ;; undefined ;; ["a", "b"] ;; ["b", "a", 2] ;; [] ;; (k, v) => (typeof v === "number" ? v * 2 : v) ;; (k, v) => (k === "a" ? undefined : v)
        (k, v) => (k === "" ? v : String(v)) ;; function (k, v) { return Array.isArray(this) ? k : v } ;; (k, v) => (v instanceof Map ? [...v] : v)
    """),
    "reviver": items(
        "(k, v) => v ;; (k, v) => (typeof v === 'number' ? v + 1 : v) ;; (k, v) => (k === 'a' ? undefined : v) ;; (k, v) => [k, v]"
    ),
    "text": items(
        r""" "plain" ;; "quote \" slash \\ /" ;; "\b\f\n\r\t\v\0" ;; "\u2028\u2029" ;; "\ud83d" ;; "\u{1f600}" ;; "<\/script>" ;; "\u007f\u0080" """
    ),
    "n": integer(0, 3),
}

TEMPLATES = items(r"""
    JSON.stringify(<<object>>)
    JSON.stringify(<<object>>, <<replacer>>, <<indent>>)
    JSON.stringify([<<object>>, <<text>>], null, <<indent>>)
    JSON.stringify(<<text>>)
    JSON.stringify({ [<<text>>]: <<text>> })
    JSON.parse(<<json>>)
    JSON.parse(<<json>>, <<reviver>>)
    JSON.parse(JSON.stringify(<<object>>))
    (o => { o.self = o; return JSON.stringify(o) })({ a: 1 })
    JSON.stringify({ big: String(1n) })
    [JSON.stringify(undefined), JSON.stringify(() => 1), JSON.stringify(Symbol("x")), JSON.stringify(null)]
    Object.keys(<<object>>)
    Object.values(<<object>>)
    Object.entries(<<object>>)
    Object.fromEntries(Object.entries(<<object>>).map(([k, v]) => [k.toUpperCase(), typeof v]))
    Object.assign({}, <<object>>, { a: 9 }, null, "hi")
    ({ ...<<object>>, a: 9 })
    ({ a: 0, ...<<object>> })
    (({ a, ...rest }) => [a, rest])(<<object>>)
    (o => { const keys = []; for (const k in o) keys.push(k); return keys })(<<object>>)
    Reflect.ownKeys(<<object>>).map(String)
    Object.getOwnPropertyDescriptors(<<object>>)
    Object.getOwnPropertyNames(<<object>>)
    [Object.isFrozen(<<object>>), Object.isSealed(<<object>>), Object.isExtensible(<<object>>)]
    (o => { "use strict"; o.z = 2; return o })(<<object>>)
    (o => { o.z = 2; return o })(<<object>>)
    (o => { Object.defineProperty(o, "hidden", { value: 1 }); return [Object.keys(o), o.hidden, JSON.stringify(o)] })({ seen: 1 })
    (o => { delete o.a; return "a" in o })(<<object>>)
    Object.hasOwn(<<object>>, "a")
    <<object>>?.a?.b?.c?.[1]?.d
    <<object>>.missing?.deep.er
    String(<<object>>)
    `${[<<object>>]}`
    structuredClone({ a: [1, new Date(5), { b: new Map([[1, new Set([2])]]) }] })
    structuredClone(<<object>>)
    Object.is(<<object>>, <<object>>)
    Object.entries({ b: 1, a: 2 }).sort(([a], [b]) => (a < b ? -1 : 1))
    (({ a: { b: { c } = {} } = {} }) => c)(<<object>>)
    typeof <<object>>
    Object.prototype.toString.call(<<object>>)
    <<object>> instanceof Object
    [null ?? "d", 0 ?? "d", 0 || "d", "" && 1, undefined?.x]
    (o => { o.a ??= 5; o.b ||= 6; o.c &&= 7; return o })({ a: null, b: 0, c: 1 })
    Object.entries([["a", 1], ["b", 2], ["a", 3]].reduce((acc, [k, v]) => { (acc[k] ||= []).push(v); return acc }, {}))
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
