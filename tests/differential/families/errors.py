"""Errors: names, messages, causes, `stack`, and what a program ends with."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import fill, integer, items, probes

POOLS = {
    "kind": items("Error ;; TypeError ;; RangeError ;; SyntaxError ;; ReferenceError ;; EvalError ;; URIError"),
    "message": items(
        r""" "bad" ;; "" ;; "two\nlines" ;; "\u00e9" ;; undefined ;; null ;; 5 ;; { a: 1 } ;; Symbol("s") """
    ),
    "own": items("""
        class Own extends Error {} ;; class Own extends Error { constructor(m, o) { super(m, o); this.name = "Own" } } ;; class Own extends TypeError { get name() { return "Got" } }
        class Own extends Error { name = "Field"; code = 7 } ;; class Own extends Error { static { this.prototype.name = "Proto" } } ;; function Own(m) { this.message = String(m) } Own.prototype = Object.create(Error.prototype);
        class Own extends Error { constructor(m) { super(`own: ${m}`); Object.assign(this, { status: 404, retry: true }) } } ;; class Own extends AggregateError { constructor(m) { super([1], m) } }
    """),
    "new": items(
        "new <<kind>>(<<message>>) ;; <<kind>>(<<message>>) ;; new Own(<<message>>) ;; new <<kind>>('m', { cause: <<cause>> }) ;; new AggregateError([<<cause>>, 2], 'all')"
    ),
    "cause": items("new Error('inner') ;; 'text' ;; undefined ;; { code: 5 } ;; null"),
    "failing": items("""
        null.x ;; undefined.x.y ;; undefinedName ;; (void 0)() ;; ({}).missing() ;; new (class { constructor() { throw new RangeError("r") } })() ;; [].reduce((a) => a) ;; "x".repeat(-1)
        new Array(-1) ;; (1).toFixed(101) ;; JSON.parse("{") ;; decodeURIComponent("%") ;; BigInt("x") ;; 1n + 1 ;; Symbol() + "" ;; new Proxy({}, null) ;; structuredClone(() => 1)
        null[Symbol.iterator] ;; [...null] ;; new Map([1]) ;; Object.defineProperty(1, "a", {}) ;; Object.freeze([1]).push(2) ;; (() => { "use strict"; Object.freeze({}).a = 1 })() ;; new 5()
        (function f() { f() })() ;; "a" in "b" ;; 1 instanceof 2 ;; await Promise.reject(new Own("later")) ;; (() => { throw <<new>> })() ;; new URL("nope") ;; atob("*") ;; new Date(NaN).toISOString()
        new RegExp("(") ;; "a".normalize("X") ;; String.fromCodePoint(-1) ;; null ?? (() => { throw "string" })() ;; (() => { const c = 1; c = 2 })() ;; new (class extends Error { constructor() {} })() ;; 10n ** -1n
    """),
    "n": integer(0, 4),
}

TEMPLATES = items(r"""
    String(<<new>>)
    (<<new>>).message
    (<<new>>).name
    <<new>>
    Object.prototype.toString.call(<<new>>)
    (e => [e instanceof Error, e instanceof Own, e instanceof TypeError, e.constructor.name])(<<new>>)
    (e => Object.keys(e))(<<new>>)
    (e => Object.getOwnPropertyNames(e).sort())(<<new>>)
    (e => JSON.stringify(e))(<<new>>)
    (e => e.stack?.split("\n    at ")[0])(<<new>>)
    (e => { e.message = "changed"; return e.stack?.split("\n    at ")[0] })(<<new>>)
    (e => { const before = e.stack?.length; e.message = "changed"; return e.stack?.length === before })(<<new>>)
    (e => { e.stack = "own stack"; return e.stack })(<<new>>)
    (e => typeof Object.getOwnPropertyDescriptor(e, "stack")?.enumerable)(<<new>>)
    (o => { Error.captureStackTrace(o); return o.stack.split("\n")[0] })({ name: "N", message: "m" })
    (o => { Error.captureStackTrace(o); return [typeof o.stack, Object.keys(o)] })({})
    (e => e.cause)(<<new>>)
    (e => "cause" in e)(<<new>>)
    (e => e.errors)(<<new>>)
    (async () => <<failing>>)().catch((e) => [e?.name, e instanceof Error, Object.prototype.toString.call(e)])
    (async () => <<failing>>)().catch((e) => (e?.stack ?? "none").split(":")[0])
    (async () => <<failing>>)().catch((e) => (e?.stack ?? "none").split("\n").slice(1).some((line) => line.includes("prelude")))
    (async () => { try { <<failing>> } catch (e) { return [e?.name, e?.constructor?.name] } finally { out.push("finally") } })()
    (async () => { try { try { <<failing>> } catch (e) { throw new Error("outer", { cause: e }) } } catch (e) { return [e.message, e.cause?.name] } })()
    Promise.any([Promise.reject(1), Promise.reject(<<cause>>)]).catch((e) => [e.name, e.message, e.errors.length, e instanceof AggregateError, e.stack.split("\n")[0]])
    Promise.any([]).catch((e) => [e.message, e.errors])
    Promise.all([1, Promise.reject(<<new>>)]).catch((e) => e.name)
    Promise.allSettled([<<n>>, Promise.reject(<<new>>)])
    structuredClone(new RangeError("cloned", { cause: 1 }))
    (e => structuredClone(e).stack === e.stack)(new Error("s"))
    [Error.name, Error.length, TypeError.length, AggregateError.length, Object.getPrototypeOf(TypeError) === Error, Error.prototype.name, Error.prototype.message]
    Object.getOwnPropertyNames(Error.prototype).sort()
    (e => e.toString === Error.prototype.toString)(<<new>>)
    Error.prototype.toString.call({ name: "A", message: "b" })
    Error.prototype.toString.call({})
    [typeof Error.captureStackTrace, typeof Error.stackTraceLimit]
    (function named() { return new Error("x").stack.split("\n").length > 1 })()
    new DOMException("m", "AbortError")
    [new DOMException("m", "AbortError").code, new DOMException("m").name, new DOMException("m") instanceof Error]
""")

ENDS = items(r"""
    throw <<new>>
    throw <<n>>
    throw 'text'
    await Promise.reject(<<new>>)
    const fail = () => { throw <<new>> }; fail()
    <<failing>>
    Promise.reject(<<new>>); return "done"
    setTimeout(() => { throw <<new>> }, 1); await new Promise((r) => setTimeout(r, 5)); return "after"
""")


def program(random: Random) -> str:
    """Return a program of expressions, or one that ends with an error."""
    if random.random() < 0.2:
        return fill(random, "<<own>>\n" + random.choice(ENDS), POOLS)
    return probes(random, TEMPLATES, POOLS, setup="<<own>>")
