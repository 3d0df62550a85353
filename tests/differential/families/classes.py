"""Classes: fields, accessors, private members, static blocks, inheritance and `new.target`."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "base": items(r"""
        class Base { constructor(v = 1) { this.v = v } get double() { return this.v * 2 } set double(x) { this.v = x / 2 } hello() { return "base " + this.v } static make(...a) { return new this(...a) } }
        class Base { #v = 1; static #count = 0; constructor(v) { if (v !== undefined) this.#v = v; Base.#count++ } get v() { return this.#v } hello() { return this.#secret() } #secret() { return "s" + this.#v } static get count() { return Base.#count } static has(o) { return #v in o } static make(v) { return new Base(v) } }
        class Base { v = this.init(); w = (() => this.v + 1)(); static s = 5; static { this.t = this.s * 2 } init() { return 7 } hello() { return `${this.v}${this.w}` } static make() { return new this() } ["computed" + 1]() { return 1 } }
        function Base(v) { if (!new.target) return new Base(v); this.v = v } Base.prototype.hello = function () { return "old " + this.v }; Base.make = (v) => Base(v);
    """),
    "derived": items(r"""
        class Derived extends Base { constructor(v) { super(v); this.extra = 1 } hello() { return super.hello() + "!" } }
        class Derived extends Base { extra = super.hello(); static hello = "static"; hello() { return this.extra } toString() { return "D" } get [Symbol.toStringTag]() { return "Tag" } }
        class Derived extends Base { get v() { return 40 } set v(x) {} hello() { return super.hello?.() ?? "none" } static make(...a) { return super.make?.(...a) } }
        const Derived = class Named extends Base { hello() { return [new.target, Named.name].join() } valueOf() { return 3 } };
        class Derived extends Base { constructor() { return { replaced: true } } }
        class Derived extends Base { constructor(v) { if (v > 2) throw new RangeError("too large"); super(v) } *[Symbol.iterator]() { yield this.v } async later() { return super.hello() } }
    """),
    "n": integer(0, 5),
}

TEMPLATES = items(r"""
    new Base(<<n>>)
    new Derived(<<n>>)
    new Derived(<<n>>).hello()
    new Base(<<n>>).hello()
    Base.make(<<n>>)
    Derived.make(<<n>>)
    Derived.make?.(<<n>>).constructor.name
    [Base.name, Derived.name, Base.length, Derived.length, typeof Base]
    Object.getOwnPropertyNames(Base.prototype)
    Object.getOwnPropertyNames(Derived)
    Object.getOwnPropertyNames(Base).filter((name) => name !== "arguments" && name !== "caller")
    Reflect.ownKeys(new Derived(<<n>>))
    [new Derived(1) instanceof Base, Base.prototype.isPrototypeOf(new Derived(1)), Object.getPrototypeOf(Derived) === Base]
    String(new Derived(<<n>>))
    `${new Base(<<n>>)}`
    JSON.stringify(new Derived(<<n>>))
    ({ ...new Derived(<<n>>) })
    Object.entries(new Base(<<n>>))
    Base(<<n>>)
    Derived()
    new Base(1).hello.call({ v: "other" })
    (({ hello }) => hello())(new Base(2))
    Base.has?.(new Base(1))
    Base.has?.({})
    [Base.s, Base.t, Base.count]
    (b => { b.double = 10; return [b.v, b.double] })(new Base(<<n>>))
    new Derived(<<n>>).later?.()
    [...(new Derived(<<n>>)[Symbol.iterator] ? new Derived(<<n>>) : [])]
    Object.prototype.toString.call(new Derived(1))
    new Derived(1) + 1
    Reflect.construct(Base, [<<n>>], Derived)
    new (class extends Derived {})(<<n>>).constructor.name
    Object.keys(Object.getOwnPropertyDescriptors(Base.prototype))
    (() => { class A { static #p = 1; static read(o) { return o.#p } } return [A.read(A), (() => { try { return A.read({}) } catch (e) { return e.name } })()] })()
    (() => { class Stack { #items = []; push(x) { this.#items.push(x); return this } get size() { return this.#items.length } static from(list) { const s = new Stack(); list.forEach((x) => s.push(x)); return s } } return Stack.from([1, 2]).push(3).size })()
    (() => { const o = { a: 1, get b() { return this.a + 1 }, set b(v) { this.a = v }, ["c" + 1]: 2, async *d() {} }; o.b = 5; return [o.b, Object.keys(o), o.d.constructor.name] })()
    (() => { class P { constructor() { this.kind = new.target.name } } class Q extends P {} return [new P().kind, new Q().kind] })()
    (() => { const mixin = (B) => class extends B { mixed() { return "m" } }; class A {} return new (mixin(A))().mixed() })()
    (() => { class A { static x = A.name; y = A.x; accessorLike = { get: () => this.y } } return new A().accessorLike.get() })()
    (() => { class Temp { static #cache = new Map(); static of(c) { return Temp.#cache.get(c) ?? (Temp.#cache.set(c, new Temp(c)), Temp.#cache.get(c)) } constructor(c) { this.c = c } get f() { return this.c * 9 / 5 + 32 } } return [Temp.of(100) === Temp.of(100), Temp.of(37).f] })()
    (() => { class MyList extends Array { sum() { return this.reduce((a, b) => a + b, 0) } } const l = MyList.from([1, 2, 3]); return [l.sum(), l.map((x) => x * 2) instanceof MyList, l.filter(Boolean).sum(), l.length, MyList.of(4).sum()] })()
    (() => { class HttpError extends Error { constructor(status, message, options) { super(message, options); this.name = "HttpError"; this.status = status } } const e = new HttpError(404, "gone", { cause: "c" }); return [String(e), e.status, e instanceof Error, e.cause, Object.keys(e)] })()
    (() => { class A { a() { return this } } const { a } = new A(); return a() })()
    (() => { try { class A { constructor() { this.x } } A() } catch (e) { return e.name } })()
    (() => { try { new (class extends Object { constructor() { this.x = 1 } })() } catch (e) { return e.name } })()
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS, setup="<<base>>\n<<derived>>")
