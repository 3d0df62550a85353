"""Methods of strings, templates and code points."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "text": items(r"""
        "" ;; "a" ;; "Hello, World!" ;; "  padded  " ;; "one,two,,three" ;; "line 1\nline 2\r\nline 3" ;; "na\u00efve caf\u00e9"
        "\u65e5\u672c\u8a9e" ;; "\u{1f469}\u200d\u{1f467} family" ;; "\u{1d4b3}\u{1d4b4}" ;; "e\u0301" ;; "\u00e9" ;; "\u0130x"
        "\u00df stra\u00dfe" ;; "\u0391\u03a3 \u03a3\u0391\u03a3" ;; "a\tb\u00a0c\u2028d" ;; "$1 $& $`" ;; "0042" ;; "snake_case_name"
        "camelCaseName" ;; "kebab-case-name" ;; "a.b.c" ;; "\ufeffbom" ;; "xxxxxxxxxxxxxxxxxxxx" ;; "\ufb01n" ;; "\u01c6" ;; "\ud83d"
        "%20%" ;; `multi\nline ${1 + 1}` ;; '{"a": [1]}' ;; "name: Ada, age: 36; name: Bob, age: 5" ;; "1,234.50 EUR" ;; "\0a"
    """),
    "short": items(
        r""" "" ;; "a" ;; "," ;; " " ;; "e" ;; "o" ;; "two" ;; "\n" ;; "\u00e9" ;; "$" ;; "A" ;; "-" ;; "_" ;; "ll" """
    ),
    "n": integer(-3, 12),
    "form": items("'NFC' ;; 'NFD' ;; 'NFKC' ;; 'NFKD'"),
    "with": items(r"""
        "" ;; "X" ;; "[$&]" ;; "$$" ;; "$`" ;; "$'" ;; "$1" ;; "$<x>" ;; (m) => m.toUpperCase() ;; (m, at) => m + at
    """),
    "unary": items("""
        length ;; toUpperCase() ;; toLowerCase() ;; trim() ;; trimStart() ;; trimEnd() ;; normalize() ;; isWellFormed()
        toWellFormed() ;; at(-1) ;; codePointAt(0) ;; charCodeAt(0) ;; valueOf() ;; split('') ;; split()
    """),
}

TEMPLATES = items(r"""
    <<text>>.<<unary>>
    [...<<text>>]
    [...<<text>>].length
    <<text>>.slice(<<n>>, <<n>>)
    <<text>>.substring(<<n>>, <<n>>)
    <<text>>.substr(<<n>>, <<n>>)
    <<text>>.at(<<n>>)
    <<text>>[<<n>>]
    <<text>>.charAt(<<n>>)
    <<text>>.codePointAt(<<n>>)
    <<text>>.split(<<short>>)
    <<text>>.split(<<short>>, <<n>>)
    <<text>>.indexOf(<<short>>, <<n>>)
    <<text>>.lastIndexOf(<<short>>, <<n>>)
    <<text>>.lastIndexOf(<<short>>)
    <<text>>.includes(<<short>>, <<n>>)
    <<text>>.startsWith(<<short>>, <<n>>)
    <<text>>.endsWith(<<short>>, <<n>>)
    <<text>>.padStart(<<n>>, <<short>>)
    <<text>>.padEnd(25, <<short>>)
    <<text>>.repeat(<<n>>)
    <<text>>.concat(<<short>>, <<n>>, null, undefined)
    <<text>>.replace(<<short>>, <<with>>)
    <<text>>.replaceAll(<<short>>, <<with>>)
    <<text>>.normalize(<<form>>)
    <<text>>.normalize(<<form>>).length
    <<text>> < <<text>>
    [<<text>>, <<text>>, <<text>>, <<text>>].sort()
    String.raw`a\n${<<text>>}\u0041`
    `${<<text>>}-${<<n>>}-${[1, [2, 3]]}-${null}`
    String.fromCodePoint(<<text>>.codePointAt(0) ?? 65, 128512)
    String.fromCharCode(72, <<n>>, 65536 + 65)
    encodeURIComponent(<<text>>)
    encodeURI(<<text>>)
    decodeURIComponent(<<text>>)
    escape(<<text>>) + unescape('%u0107%E9')
    <<text>>.split(' ').map((w) => w.charAt(0).toUpperCase() + w.slice(1).toLowerCase()).join(' ')
    <<text>>.replace(/[-_](\w)/g, (_, c) => c.toUpperCase())
    <<text>>.replace(/([a-z])([A-Z])/g, '$1_$2').toLowerCase()
    <<text>>.split(/\r?\n/).map((l) => l.trim()).filter(Boolean)
    [...<<text>>].reverse().join('')
    Object.entries([...<<text>>].reduce((a, c) => ({ ...a, [c]: (a[c] ?? 0) + 1 }), {}))
    <<text>>.anchor('"') + <<text>>.bold()
    new String(<<text>>)
    Object('ab')[1]
    [...<<text>>.matchAll(/\p{L}+/gu)].map((m) => [m[0], m.index])
    <<text>>.search(/[A-Z\d]/)
    JSON.stringify(<<text>>)
    String([<<text>>, <<n>>, [], {}])
    [String(Symbol('s')), String(null), String([null]), String(-0), String(1e21)]
    parseInt(<<text>>, 36)
    Number(<<text>>)
    [...new Set(<<text>>.toLowerCase().match(/[a-z]+/g) ?? [])].sort((a, b) => b.length - a.length || a.localeCompare(b))
    Object.fromEntries(<<text>>.split(/[;,]\s*/).map((pair) => pair.split(/:\s*/)))
    <<text>>.split(<<short>>).map((part, i) => `${i}:${part.padStart(3)}`).join('|')
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
