"""Arrays: methods, holes, sorting, and the copying forms of ES2023."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "list": items(r"""
        [] ;; [1] ;; [3, 1, 2] ;; [10, 9, 1, 100] ;; ["b", "a", "C", "\u00e9", ""] ;; [1, , 3] ;; [, ,] ;; [undefined, null, NaN, 0, -0] ;; [[1, [2, [3, [4]]]], 5]
        Array(3) ;; [..."hello"] ;; [true, "1", 1, 1n] ;; Array.from({ length: 5 }, (_, i) => i * i) ;; [NaN, NaN] ;; [3, undefined, 1, , 2] ;; new Array(2).fill([])
        [{ id: 2, n: "b" }, { id: 1, n: "a" }, { id: 2, n: "a" }] ;; Object.assign([1, 2], { extra: true }) ;; ["10", "9", "2", 1] ;; [-1, -2, 5, 80]
    """),
    "n": integer(-4, 6),
    "value": items("1 ;; 'a' ;; undefined ;; NaN ;; null ;; [9] ;; -0 ;; 'x'"),
    "test": items("""
        (x) => x > 1 ;; Boolean ;; (x, i) => i % 2 ;; (x) => x === undefined ;; (x) => typeof x === "string" ;; (x) => x?.id === 2 ;; () => true ;; () => false
    """),
    "map": items(
        "(x) => x ;; (x, i) => [i, x] ;; String ;; (x) => x?.n ;; Number ;; (x, i, all) => all.length - i ;; (x) => [x, [x]]"
    ),
    "order": items("""
        (a, b) => String(a).length - String(b).length ;; undefined ;; () => 0
        (a, b) => (a?.id ?? 0) - (b?.id ?? 0) ;; (a, b) => (a < b ? -1 : a > b ? 1 : 0)
    """),
}

TEMPLATES = items(r"""
    <<list>>.sort(<<order>>)
    <<list>>.toSorted(<<order>>)
    <<list>>.filter((x) => typeof x === "number" && x === x).sort((a, b) => b - a)
    ["pear", "fig", "apple", "kiwi"].sort((a, b) => (a > b ? 1 : -1))
    <<list>>.reverse()
    <<list>>.toReversed()
    (a => [a.splice(<<n>>, <<n>>, <<value>>), a])(<<list>>)
    (a => [a.splice(<<n>>), a])(<<list>>)
    <<list>>.toSpliced(<<n>>, <<n>>, <<value>>, <<value>>)
    <<list>>.with(<<n>>, <<value>>)
    <<list>>.copyWithin(<<n>>, <<n>>, <<n>>)
    <<list>>.fill(<<value>>, <<n>>, <<n>>)
    <<list>>.flat()
    <<list>>.flat(Infinity)
    <<list>>.flat(<<n>>)
    <<list>>.flatMap(<<map>>)
    <<list>>.map(<<map>>)
    <<list>>.filter(<<test>>)
    <<list>>.find(<<test>>)
    <<list>>.findIndex(<<test>>)
    <<list>>.findLast(<<test>>)
    <<list>>.findLastIndex(<<test>>)
    <<list>>.some(<<test>>)
    <<list>>.every(<<test>>)
    <<list>>.indexOf(<<value>>, <<n>>)
    <<list>>.lastIndexOf(<<value>>)
    <<list>>.includes(<<value>>)
    <<list>>.join(<<value>>)
    <<list>>.join()
    <<list>>.slice(<<n>>, <<n>>)
    <<list>>.concat(<<list>>, <<value>>)
    <<list>>.at(<<n>>)
    <<list>>.reduce((a, x) => a + x)
    <<list>>.reduce((a, x) => a + x, "")
    <<list>>.reduceRight((a, x) => [...a, x], [])
    (a => { a.length = 2; return a })(<<list>>)
    (a => { a[7] = 1; return [a.length, a] })(<<list>>)
    (a => { delete a[1]; return a })(<<list>>)
    (a => [a.push(<<value>>, 2), a.pop(), a.shift(), a.unshift(<<value>>), a])(<<list>>)
    (a => { const seen = []; a.forEach((x, i) => seen.push([i, x])); return seen })(<<list>>)
    (a => { const seen = []; for (const i in a) seen.push(i); return seen })(<<list>>)
    [...<<list>>.entries()]
    [...<<list>>.keys()]
    Object.keys(<<list>>)
    Object.entries(<<list>>)
    String(<<list>>)
    JSON.stringify(<<list>>.filter((x) => typeof x !== "bigint"))
    Array.from(<<list>>)
    Array.from(new Set(<<list>>))
    [...new Set(<<list>>)].length
    Array.of(<<n>>, <<value>>)
    Array.isArray(<<list>>)
    Math.max(...<<list>>.filter((x) => typeof x === "number"))
    Object.fromEntries(<<list>>.map((x, i) => [i, x]))
    Array(<<n>>)
    new Array(<<n>>, <<n>>)
    Array.from({ length: <<n>> }, (_, i) => i)
    Array.from("a\u{1f600}b")
    <<list>>.toString()
    [].concat(...<<list>>.map((x) => [x]))
    <<list>>.sort().join("|")
    (([a, b = 5, ...rest]) => ({ a, b, rest }))(<<list>>)
    Array.prototype.map.call("abc", (c) => c + c)
    Array.prototype.slice.call({ 0: "a", 1: "b", length: 2 })
    (a => a.sort((x, y) => x.n.localeCompare(y.n) || x.id - y.id).map((x) => x.n + x.id))([{ id: 2, n: "b" }, { id: 1, n: "a" }, { id: 2, n: "a" }])
    Array.from({ length: 12 }, (_, i) => ({ k: i % 3, i })).sort((a, b) => a.k - b.k).map((x) => x.i)
    <<list>>.length
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
