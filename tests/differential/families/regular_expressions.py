"""Regular expressions: flags, groups, replacements, lookbehind, properties, the sticky flag, and the flag `v`."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "text": items(r"""
        "" ;; "abc123" ;; "aaa bbb aab" ;; "2026-03-05 and 2025-12-31" ;; "foo=1; bar=22;baz=" ;; "na\u00efve caf\u00e9 \u0416\u0443\u043a"
        "Hello W\u00f6rld, \u6771\u4eac!" ;; "\u{1f600}x\u{1f601}" ;; "line1\nline2\r\nline3\u2028end" ;; "a.b*c+d?e" ;; "$12.50 and $3"
        "mail ada@example.com, bob@test.org" ;; "((nested) (parens))" ;; "AbC aBc ABC abc" ;; "  tabs\tand  spaces " ;; "caf\u00e9 cafe\u0301"
        "<b>bold</b><i>it</i>" ;; "k\u212a\u017fS" ;; "\u0130I\u0131i" ;; "\u00df\u1e9e" ;; "x\ud83dy" ;; "1,234,567.89" ;; "_id $ref" ;; "\u00b5\u03bc"
        "ERROR [2026-01-02T03:04:05Z] db: timeout after 30s" ;; "'single' \"double\"" ;; "https://example.com:8080/a/b?x=1&y=2#top"
    """),
    "atom": items(r"""
        a ;; b ;; [a-c] ;; [^a-c] ;; \d ;; \D ;; \w ;; \W ;; \s ;; \S ;; . ;; (a|b) ;; (?:ab|a) ;; (?<n>\d) ;; \b ;; ^ ;; $ ;; \B ;; [\d.] ;; [\s\S]
        (?=a) ;; (?!a) ;; (?<=a) ;; (?<!a) ;; (?<=\$)\d ;; [A-Z] ;; \. ;; \u00e9 ;; [^\s,;] ;; (\w)\1 ;; [-a] ;; \x61 ;; \cJ ;; (b)? ;; [\b] ;; \/
    """),
    "many": items(r""" * ;; + ;; ? ;; {2} ;; {1,2} ;; {2,} ;; *? ;; +? ;; ?? ;; {1,2}? """),
    "flags": items(" g ;; gi ;; gm ;; gs ;; i ;; m ;; y ;; gy ;; d ;; gim ;; u ;; gu ;; giu ;; gsu ;; yu "),
    "unicode": items(r"""
        \p{L} ;; \p{Lu} ;; \p{Ll} ;; \P{L} ;; \p{N} ;; \p{Nd} ;; \p{P} ;; \p{S} ;; \p{Sc} ;; \p{Z} ;; \p{Script=Cyrillic} ;; \p{sc=Han}
        \p{Script_Extensions=Latin} ;; \p{Emoji} ;; \p{Emoji_Presentation} ;; \p{Alphabetic} ;; \p{White_Space} ;; \p{ASCII} ;; \p{Any} ;; \p{ID_Start}
        \u{1f600} ;; [\u{1f600}-\u{1f64f}] ;; [\p{L}\p{N}_] ;; [^\p{L}\s] ;; [^\p{L}\p{N}\s] ;; . ;; \w ;; \d+ ;; [^a-z] ;; \p{M} ;; \p{General_Category=Uppercase_Letter}
        \p{Lowercase} ;; \p{Extended_Pictographic} ;; \p{L}+ ;; (?<word>\p{L}+) ;; \p{Uppercase}\p{Lowercase}* ;; [\p{Lu}\p{Nd}] ;; \S
    """),
    "class": items(r"""
        a-z ;; \d ;; \w ;; \p{L} ;; \p{N} ;; \p{Lu} ;; _ ;; \s ;; 0-9 ;; \u{1f600} ;; . ;; aeiou ;; \p{P} ;; \p{Script=Latin} ;; A-F
    """),
    "set": items(r"""
        [<<class>><<class>>] ;; [^<<class>>] ;; [^<<class>><<class>>] ;; [<<class>>] ;; [<<single>>--[<<class>>]] ;; [<<single>>&&<<single>>] ;; [^<<single>>--<<single>>--<<single>>]
        [<<class>>[<<class>>]] ;; [[<<class>>]&&[^<<class>>]] ;; [[<<class>>--\d]<<class>>] ;; [\&\-\!] ;; [\p{L}&&\p{ASCII}] ;; [(] ;; [a--] ;; [a&&b--c] ;; [a&&&b] ;; [&&] ;; [a-z&&b] ;; [!!]
    """),
    "single": items(
        r""" [<<class>>] ;; [^<<class>>] ;; \p{L} ;; \w ;; \d ;; \P{N} ;; a ;; \u0041 ;; [a[b]] ;; \p{Lu} ;; \x2d """
    ),
    "flagv": items(" v ;; gv ;; gsv ;; mv ;; dv ;; yv ;; giv ;; iv "),
    "pattern": items(r"""
        <<atom>> ;; <<atom>><<atom>> ;; <<atom>><<atom>><<atom>> ;; <<quantified>> ;; <<quantified>><<atom>> ;; <<atom>>|<<atom>> ;; (<<atom>>)(<<atom>>)?
        (?<first><<atom>>)(?<second><<quantified>>) ;; ^<<quantified>>$ ;; (<<quantified>>|<<atom>>)+
    """),
    "quantified": items(
        r""" a<<many>> ;; \d<<many>> ;; \w<<many>> ;; [a-c]<<many>> ;; .<<many>> ;; (?:ab)<<many>> ;; (\w)<<many>> ;; \s<<many>> """
    ),
    "known": items(r"""
        /(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)/ ;; /(\w+)@(\w+)\.(com|org)/ ;; /(\w+)=(\d*)/ ;; /(?<=\$)[\d.]+/ ;; /<(\w+)>.*?<\/\1>/
        /\B(?=(\d{3})+(?!\d))/ ;; /([A-Z])\w+/ ;; /["']([^"']*)["']/ ;; /(?<key>\w+)=(?<value>\w*)/ ;; /(a)|(b)/ ;; /^(\w)/ ;; /\s+/ ;; /(?:)/
        /(\d+)(?:\.(\d+))?/ ;; /[^\w\s]/ ;; /^\s*|\s*$/ ;; /\[(.*?)\]/ ;; /:\/\/([^/:]+)(?::(\d+))?/
    """),
    "knownflags": items(" g ;; gi ;; gm ;; gu "),
    "with": items(r"""
        "" ;; "[$&]" ;; "$1" ;; "$2-$1" ;; "$<year>" ;; "$<key>:$<value>" ;; "$`|$'" ;; "$$" ;; "$0" ;; "$10" ;; "$<none>" ;; (m) => m.length
        (m, a, b) => `${a}/${b}` ;; (...args) => JSON.stringify(args) ;; (m, p, at, whole, groups) => show(groups) ;; () => "$&" ;; (m) => undefined
    """),
    "n": integer(-1, 6),
}

TEMPLATES = items(r"""
    <<text>>.match(/<<pattern>>/<<flags>>)
    <<text>>.match(/<<pattern>>/<<flags>>)?.groups
    /<<pattern>>/<<flags>>.exec(<<text>>)
    /<<pattern>>/<<flags>>.test(<<text>>)
    <<text>>.replace(/<<pattern>>/<<flags>>, <<with>>)
    <<text>>.split(/<<pattern>>/<<flags>>)
    <<text>>.split(/<<pattern>>/<<flags>>, <<n>>)
    <<text>>.search(/<<pattern>>/<<flags>>)
    <<text>>.match(/<<unicode>>/gu)
    <<text>>.match(/<<unicode>>+/gu)
    <<text>>.replace(/<<unicode>>/gu, <<with>>)
    <<text>>.match(/<<unicode>><<unicode>>/u)
    <<text>>.replace(/<<unicode>>/gv, <<with>>)
    <<text>>.match(/<<unicode>>+/gv)
    <<text>>.match(/<<set>>+/<<flagv>>)
    <<text>>.replace(/<<set>>/gv, "-")
    <<text>>.split(/<<set>>/v)
    <<text>>.match(/(?<=<<set>>)<<set>>/gv)
    ((r) => [r.source, r.flags, r.unicode, r.unicodeSets, String(r), new RegExp(r).test(<<text>>), new RegExp(r.source, r.flags).exec(<<text>>)])(/<<set>>/v)
    <<text>>.match(new RegExp("<<set>>".replaceAll("\\\\", "\\"), "<<flagv>>"))
    new RegExp(String.raw`<<set>>`, "gv")[Symbol.replace](<<text>>, <<with>>)
    <<text>>.match(new RegExp(String.raw`<<unicode>>`, "gv"))
    new RegExp(/<<pattern>>/g, "i").exec(<<text>>)
    [...<<text>>.matchAll(<<known>><<knownflags>>)].map((m) => [m[0], m[1], m.index, m.groups])
    <<text>>.replace(<<known>><<knownflags>>, <<with>>)
    <<text>>.replaceAll(<<known>>g, <<with>>)
    <<text>>.replaceAll(<<known>>, <<with>>)
    <<text>>.split(<<known>>)
    <<text>>.match(<<known>>)
    <<known>>d.exec(<<text>>)?.indices
    <<known>>d.exec(<<text>>)?.indices?.groups
    <<text>>.matchAll(<<known>>)
    (() => { const r = <<known>>g, found = []; let m; while ((m = r.exec(<<text>>)) && found.length < 9) { found.push([m[0], r.lastIndex]); if (m[0] === "") r.lastIndex++; } return found })()
    (() => { const r = /<<pattern>>/y; r.lastIndex = <<n>>; return [r.test(<<text>>), r.lastIndex] })()
    (() => { const r = /<<pattern>>/g; r.lastIndex = <<n>>; return [r.exec(<<text>>), r.lastIndex] })()
    (() => { const { groups: { year, month } = {} } = <<text>>.match(/(?<year>\d{4})-(?<month>\d\d)/) ?? {}; return [year, month] })()
    [/<<pattern>>/<<flags>>].map((r) => [r.source, r.flags, r.global, r.sticky, r.unicode, r.ignoreCase, r.hasIndices, r.lastIndex])
    String(new RegExp("/\n", "g"))
    new RegExp("<<atom>>(".slice(0, <<n>>), "<<flags>>")
    new RegExp("[" + <<text>>.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "]", "g").test(<<text>>)
    RegExp("<<text>>".slice(1, -1).replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).test(<<text>>)
    Object.keys(/a/ [Symbol.match]("cat") ?? {})
    [RegExp.prototype.toString.call({ source: "a", flags: "g" }), RegExp.prototype.flags, RegExp.prototype.source, String(RegExp.prototype)]
    [/a/g instanceof RegExp, RegExp.name, RegExp.length, typeof RegExp, Object.prototype.toString.call(/a/), /a/.constructor === RegExp]
    (class Mine extends RegExp { exec(s) { const m = super.exec(s); return m && Object.assign(m, { mine: true }) } }, <<text>>.match(/<<atom>>/))
    new (class Mine extends RegExp { get [Symbol.toStringTag]() { return "Mine" } })("<<flags>>", "g").constructor.name
    structuredClone(/<<pattern>>/<<flags>>)
    <<text>>.split(/(,)|;/)
    JSON.stringify({ r: /<<atom>>/g })
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
