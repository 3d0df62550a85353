"""TypeScript cells. Node gets the same programs without types: what is between ⟪ and ⟫ is for the guest alone, and what is
between ⟦ and ⟧ for Node alone.
"""

from __future__ import annotations

from random import Random

from tests.differential.grammar import SHOW, fill, integer, items

LANGUAGE = "typescript"

POOLS = {
    "n": integer(0, 6),
    "type": items(
        "number ;; string | undefined ;; any ;; Record<string, unknown> ;; Array<number | null> ;; readonly string[] ;; { a?: number } ;; keyof any ;; unknown"
    ),
    "top": items(r"""
        ⟪interface Row { id: number; name: string; tags?: string[] }⟫
        ⟪type Pair<T> = [T, T?];⟫
        ⟪declare const outside: number;⟫
        ⟪enum Level { Low, High = 5, Next }⟫⟦const Level = { Low: 0, 0: "Low", High: 5, 5: "High", Next: 6, 6: "Next" };⟧
        ⟪const enum Kind { A = "a", B = "b" }⟫⟦const Kind = { A: "a", B: "b" };⟧
        ⟪abstract⟫ class Shape { ⟪private⟫ sides⟪: number⟫ = <<n>>; ⟪abstract area(): number;⟫ describe()⟪: string⟫ { return `${this.constructor.name} ${this.sides}` } }
        class Point { ⟦x; y; constructor(x, y) { this.x = x; this.y = y }⟧ ⟪constructor(public x: number, readonly y: number) {}⟫ static zero()⟪: Point⟫ { return new Point(0, 0) } }
        function identity⟪<T>⟫(value⟪: T⟫)⟪: T⟫ { return value }
        ⟪function over(a: number): number; function over(a: string): string;⟫ function over(a⟪: any⟫)⟪: any⟫ { return a + a }
        const isText = (v⟪: unknown⟫)⟪: v is string⟫ => typeof v === "string";
    """),
    "line": items(r"""
        out.push(show(<<value>> ⟪as <<type>>⟫));
        out.push(show((<<value>>)⟪!⟫));
        const v<<id>>⟪: <<type>>⟫ = <<value>> ⟪as any⟫; out.push(show(v<<id>>));
        if (<<n>> > 2) { function inner<<id>>()⟪: number⟫ { return <<n>> } } out.push(typeof inner<<id>>);
        { function block<<id>>(a⟪?: number⟫) { return a } out.push(block<<id>>.name) } out.push(show(typeof block<<id>> === "function" && block<<id>>(3)));
        switch (<<n>>) { case 1: { function one<<id>>() { return 1 } out.push(one<<id>>()); break } default: function other<<id>>() { return 2 } } out.push(typeof one<<id>>, typeof other<<id>>);
        try { function risky<<id>>()⟪: never⟫ { throw new RangeError("r") } risky<<id>>() } catch (e⟪: any⟫) { out.push(e.name, e.message) } out.push(typeof risky<<id>>);
        for (const i of [1, 2]) { function each<<id>>() { return i } out.push(each<<id>>()) } out.push(each<<id>>());
        out.push(typeof hoisted<<id>>, hoisted<<id>>()); function hoisted<<id>>()⟪: string⟫ { return "h" }
        { let scoped<<id>> = 1; { function user<<id>>() { return scoped<<id>>++ } user<<id>>() } out.push(scoped<<id>>) }
        (function outer<<id>>() { if (true) { function nested() { return "n" } } out.push(nested()) })();
        const f<<id>> = ⟪<T,>⟫(x⟪: T⟫)⟪: T[]⟫ => [x]; out.push(show(f<<id>>(<<value>>)), f<<id>>.name);
        const { a<<id>> = 1, ...rest<<id>> }⟪: any⟫ = { b: <<n>> }; out.push(show([a<<id>>, rest<<id>>]));
        class C<<id>> { #p⟪: number⟫ = <<n>>; ⟪declare ghost: string;⟫ get p()⟪: number⟫ { return this.#p } static s⟪?: string⟫ = "s"; ⟪[key: string]: any;⟫ } out.push(show(new C<<id>>().p), C<<id>>.name, C<<id>>.s);
        out.push(show([3, 1, 2].map⟪<string>⟫((x⟪: number⟫)⟪: string⟫ => String(x)).sort()));
        const p<<id>> = Promise.all⟪<number>⟫([1, Promise.resolve(<<n>>)]); out.push(show(await p<<id>>));
        label<<id>>: for (let i⟪: number⟫ = 0; i < 3; i++) { if (i === <<n>>) break label<<id>>; out.push(i) }
        out.push(show(<<value>> ⟪satisfies unknown⟫));
        out.push("a\u00e9b".replace(/[\p{L}--[a-z]]/gv, "-"), show("x1".match(/(?<l>[a-z])(?<d>\d)/)⟪!⟫.groups));
        out.push(show((() => { try { return JSON.parse("{") } catch (e⟪: unknown⟫) { return (e ⟪as Error⟫).name } })()));
        const m<<id>> = new Map⟪<string, number[]>⟫([["k", [<<n>>]]]); for (const [k, v] of m<<id>>) out.push(k, show(v));
        out.push(((x⟪?: number⟫, ...r⟪: number[]⟫) => r.length)(1, 2, 3));
    """),
    "value": items(
        "[1, 2] ;; 'text' ;; { a: <<n>>, b: undefined } ;; null ;; undefined ;; new Date(0) ;; /x/g ;; () => 1 ;; <<n>> ;; [null, 5] ;; new Set([1])"
    ),
}


def program(random: Random) -> str:
    """Return a program with some declarations and statements."""
    pools = {**POOLS}
    tops = [fill(random, each, pools) for each in random.sample(POOLS["top"], 3)]
    lines = []
    for number in range(random.randint(3, 7)):
        pools["id"] = (str(number),)
        lines.append(fill(random, random.choice(POOLS["line"]), pools))
    body = "\n".join((*tops, *lines))
    return f"const out⟪: any[]⟫ = [];\n{body}\nreturn out;\n{SHOW.replace('(v, seen = [])', '(v⟪: any⟫, seen⟪: any[]⟫ = [])')}"
