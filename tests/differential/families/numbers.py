"""Numbers as texts, texts as numbers, and arithmetic."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes


def decimal(random: Random) -> str:
    """Return a number as a literal."""
    return repr(random.choice((random.uniform(-10, 10), random.uniform(-1e6, 1e6), random.randint(-999, 99999) / 100)))


def power(random: Random) -> str:
    """Return a number of any size as a literal."""
    return f"{random.choice('-+')}{random.randint(1, 10 ** random.randint(1, 17))}e{random.randint(-330, 310)}"


POOLS = {
    "plain": decimal,
    "large": power,
    "x": items("""
        <<plain>> ;; <<plain>> ;; <<large>> ;; <<small>> ;; 0 ;; -0 ;; 1.005 ;; 1.45 ;; 8.345 ;; 0.1 + 0.2 ;; 123.456 ;; 1e21 ;; 1e-7 ;; 5e-324
        Number.MAX_VALUE ;; Number.MAX_SAFE_INTEGER ;; 2 ** 53 + 2 ;; NaN ;; -Infinity ;; 4.35 * 100 ;; 1.15 ;; 2.5 ;; -1.5 ;; 1000000000000000128 ;; 0.000001 ;; 255
    """),
    "small": integer(-20, 300),
    "digits": integer(-1, 12),
    "radix": items("2 ;; 3 ;; 8 ;; 10 ;; 16 ;; 36 ;; 1 ;; 37"),
    "exact": items("2 ;; 4 ;; 8 ;; 10 ;; 16 ;; 32"),
    "text": items(r"""
        "12" ;; "12px" ;; " 42 " ;; "" ;; "0x1F" ;; "0b101" ;; "0o17" ;; "1e3" ;; "-3.5" ;; "+7" ;; ".5" ;; "5." ;; "1,234" ;; "1_000" ;; "abc" ;; "Infinity"
        "-Infinity" ;; "infinity" ;; "1e1000" ;; "\t\n9\u00a0" ;; "0012" ;; "08" ;; "1e" ;; "--1" ;; "12n" ;; "NaN" ;; "null" ;; "$5" ;; "5%" ;; "9007199254740993"
        "0.1e-6" ;; "1 2" ;; "\u0661" ;; "-0" ;; "0x" ;; "1.7976931348623159e308" ;; "2.2250738585072014e-308" ;; "Z" ;; "ff"
    """),
    "any": items(
        "<<text>> ;; null ;; undefined ;; true ;; [] ;; [5] ;; [1,2] ;; {} ;; new Date(5) ;; '' ;; () => 1 ;; 10n ;; Symbol.iterator"
    ),
    "unary": items(
        "Math.round ;; Math.floor ;; Math.ceil ;; Math.trunc ;; Math.sign ;; Math.abs ;; Math.sqrt ;; Math.fround ;; Math.clz32 ;; Math.cbrt"
    ),
    "op": items("+ ;; - ;; * ;; / ;; % ;; | ;; & ;; ^ ;; << ;; >> ;; >>> ;; < ;; <= ;; == ;; ==="),
}

TEMPLATES = items(r"""
    (<<x>>).toFixed(<<digits>>)
    (<<x>>).toFixed()
    (<<x>>).toFixed(2)
    (<<x>>).toPrecision(<<digits>>)
    (<<x>>).toExponential(<<digits>>)
    (<<x>>).toExponential()
    (<<small>>).toString(<<radix>>)
    (<<x>>).toString(<<exact>>)
    (<<x>>).toString()
    String(<<x>>)
    <<unary>>(<<x>>)
    parseFloat(<<text>>)
    parseInt(<<text>>)
    parseInt(<<text>>, <<radix>>)
    parseInt(<<x>>)
    Number(<<any>>)
    +<<text>>
    isNaN(<<any>>)
    isFinite(<<any>>)
    Number.isInteger(<<x>>)
    Number.isSafeInteger(<<x>>)
    [<<x>> <<op>> <<x>>, <<text>> <<op>> <<x>>]
    Math.max(<<x>>, <<x>>, <<x>>)
    Math.min(<<x>>, <<x>>)
    Math.max()
    Math.max(...[])
    [<<x>>, <<x>>, <<x>>, <<x>>].sort()
    [<<x>>, <<x>>, <<x>>, <<x>>].filter((x) => !isNaN(x)).sort((a, b) => a - b)
    [<<x>>, <<x>>, <<x>>].reduce((a, b) => a + b, 0)
    Math.round((<<x>> + Number.EPSILON) * 100) / 100
    Number((<<x>>).toFixed(2))
    JSON.stringify([<<x>>, <<x>>])
    Object.is(<<x>>, <<x>>)
    [1_000_000, 0xff, 0b11, 0o17, .5, 5., 1e3, 017]
    ~~(<<x>>)
    (<<x>>) | 0
    Math.imul(<<x>>, <<x>>)
    (<<x>>) % 1
    new Number(<<x>>)
    [10, 9, 1].map(parseInt)
    Number.parseFloat === parseFloat
    [0.1 * 3, 0.7 + 0.1, 1 / 3, 100 * 1.1, 3 * 1.1, 9.95.toFixed(1), 1.255.toFixed(2), (1e21).toFixed(2), (-1.5).toFixed(0)]
    (<<small>> / 7).toFixed(<<digits>>)
    `${<<x>>}`.length
    Math.hypot(<<small>>, <<small>>).toFixed(6)
    Math.pow(<<small>>, 2)
    (<<small>>) ** 2
    Math.log2(<<small>>).toFixed(8)
    Math.atan2(<<small>>, <<small>>).toFixed(8)
    [Number.MAX_VALUE, Number.MIN_VALUE, Number.EPSILON, Number.MAX_SAFE_INTEGER]
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
