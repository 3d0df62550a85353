"""Output of `console`: placeholders, groups, counters, and values that are not objects."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import fill, integer, items

POOLS = {
    "n": integer(-3, 60),
    "value": items(r"""
        "text" ;; "two\nlines" ;; "" ;; <<n>> ;; 1.5 ;; -0 ;; NaN ;; Infinity ;; null ;; undefined ;; true ;; 12n ;; Symbol("s") ;; "%s" ;; "50%" ;; "42px" ;; " 7 " ;; 1e21 ;; `t${<<n>>}`
        { toString() { return "own" } } ;; new (class { toString() { return "made" } })() ;; function named() {}
    """),
    "plain": items(
        r""" "text" ;; <<n>> ;; 2.75 ;; null ;; undefined ;; false ;; "50%" ;; "" ;; -0 ;; 99n ;; "x\ny" """
    ),
    "format": items(r"""
        "%s" ;; "%d items" ;; "%i" ;; "%f" ;; "%%" ;; "%s and %s" ;; "%d%%" ;; "a %s b %d c" ;; "100%" ;; "%" ;; "%x" ;; "%5d" ;; "%c styled" ;; "%s%s%s" ;; "no placeholder" ;; "%%s" ;; "name: %s, age: %i"
    """),
    "method": items("log ;; info ;; warn ;; error ;; debug"),
    "label": items(r""" "" ;; "a" ;; "jobs" """),
    "simple": items(
        r""" "text" ;; "two\nlines" ;; <<n>> ;; 1.5 ;; NaN ;; true ;; "42px" ;; " 7 " ;; null ;; undefined ;; 12n ;; "" """
    ),
}

STEPS = items(r"""
    console.<<method>>(<<plain>>);
    console.<<method>>(<<plain>>, <<plain>>);
    console.<<method>>();
    console.<<method>>(<<format>>, <<simple>>);
    console.<<method>>(<<format>>, <<simple>>, <<simple>>);
    console.<<method>>(<<format>>);
    console.<<method>>("%s|%s", <<value>>, <<value>>);
    console.<<method>>("done:", <<plain>>, <<plain>>, "%s");
    console.group(<<plain>>);
    console.group("%s!", <<simple>>);
    console.group();
    console.groupEnd();
    console.groupCollapsed("c");
    console.count();
    console.count(<<label>>);
    console.countReset(<<label>>);
    console.assert(<<n>> > 0, "is %s", <<simple>>);
    console.assert(false);
    console.assert(true, "never");
    console.dir(<<n>>);
    for (const x of ["a", "b"]) console.log(`${x}: %d`, <<n>>);
    console.log([1, 2].join(), String([3]), JSON.stringify({ a: <<n>> }));
    [1, 2].forEach((x) => console.log(x));
    const { log: log<<id>> } = console; log<<id>>("free", <<n>>);
    console.log(typeof console.table, typeof console.trace);
""")


def program(random: Random) -> str:
    """Return a program of several lines of output."""
    pools = {**POOLS, "id": lambda random: str(random.randint(0, 10**9))}
    return "\n".join(fill(random, random.choice(STEPS), pools) for _ in range(random.randint(3, 9)))
